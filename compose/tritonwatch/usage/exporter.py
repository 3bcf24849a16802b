"""The options of `tritonwatch exporter`."""

from __future__ import annotations

import argparse

from triton_exporter.app.settings import Settings
from tritonwatch.parser import declare

EXAMPLE = "tritonwatch exporter --triton http://127.0.0.1:8000"
EXIT_CODES = {0: "stopped by SIGTERM or Ctrl-C", 1: "a mistake in the settings file, or --listen is in use"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    declare(parser, Settings)
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="settings file (YAML) with these options as keys, written with _ instead of -",
    )

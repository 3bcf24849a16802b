"""The options of `tritonwatch reload`."""

from __future__ import annotations

import argparse

from tritonwatch.parser import declare
from tritonwatch.project import Reloading

EXAMPLE = (
    "tritonwatch reload --objectives slo/objectives --out generated --prometheus http://127.0.0.1:9090 "
    "--alertmanager http://127.0.0.1:9093"
)
OPTIONS = Reloading
EXIT_CODES = {0: "the new files are loaded", 1: "failed; the old files stay loaded"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    declare(parser, OPTIONS)

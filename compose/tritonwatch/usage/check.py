"""The options of `tritonwatch check`."""

from __future__ import annotations

import argparse

from triton_exporter.common.options import adder
from tritonwatch.parser import declare
from tritonwatch.project import Checked
from tritonwatch.usage.arguments import path, seconds

EXAMPLE = "tritonwatch check slo/objectives/*.yaml --retention 35d"
OPTIONS = Checked
EXIT_CODES = {0: "no mistakes", 1: "mistakes were found, or a server did not respond"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    declare(parser, OPTIONS)
    add = adder(parser.add_argument)
    add(
        "files FILE",
        "objectives file or alerts.yaml, or a folder of them (default: those of the project file)",
        path,
        nargs="*",
    )
    add(
        "--retention DURATION",
        "retention time of Prometheus, such as 15d; check then reports objectives that need a longer "
        "retention time",
        seconds,
    )
    add("--offline", "check the files only, and ask no server")
    add("--json", "write JSON instead of text")

"""The options of `tritonwatch report`."""

from __future__ import annotations

import argparse

from triton_exporter.common.moments import time_zone
from triton_exporter.common.options import adder, parsed
from tritonwatch.parser import declare
from tritonwatch.project import Reported
from tritonwatch.usage.arguments import path

EXAMPLE = "tritonwatch report --prometheus http://127.0.0.1:9090 --period 2026-10 --out report.md"
OPTIONS = Reported
EXIT_CODES = {0: "written", 1: "nothing is recorded, or Prometheus did not respond"}
FORMATS = ("markdown", "json")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    declare(parser, OPTIONS)
    add = adder(parser.add_argument)
    add(
        "--period PERIOD",
        "month or quarter: 2026-10, 2026-Q3, last-month, this-month, last-quarter or this-quarter (default: "
        "last-month, and this-month while nothing is recorded of the last)",
    )
    add(
        "--timezone ZONE",
        "time zone of the period; objectives with a calendar window use their own time zone (default: UTC)",
        parsed(lambda zone: str(time_zone(zone))),
        default="UTC",
    )
    add("--owner NAME...", "report only the objectives and incidents of this owner (repeatable)")
    add("--format", "format of the report (default: markdown)", choices=FORMATS, default=FORMATS[0])
    add("--out FILE", "file to write instead of standard output; an existing file is overwritten", path)

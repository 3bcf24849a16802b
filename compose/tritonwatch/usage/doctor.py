"""The options of `tritonwatch doctor`."""

from __future__ import annotations

import argparse

from triton_exporter.app.settings import DoctorSettings
from triton_exporter.common.duration import duration_between
from triton_exporter.common.options import adder, parsed
from tritonwatch.parser import declare
from tritonwatch.project import declare_project
from tritonwatch.usage.init import Tritons

EXAMPLE = "tritonwatch doctor --triton http://127.0.0.1:8000"
EXIT_CODES = {
    0: "no problems were found; there may be recommendations",
    1: "problems were found, or Triton did not respond",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add = adder(parser.add_argument)
    declare(parser, Tritons)
    declare(parser, DoctorSettings, DoctorSettings.options().keys() - {"triton", "triton_metrics"})
    declare_project(parser)
    add(
        "--watch DURATION",
        "time for which Triton's traffic is observed (default: 2s)",
        parsed(duration_between(0, 60)),
        default=2.0,
    )
    add("--json", "write the findings as JSON")

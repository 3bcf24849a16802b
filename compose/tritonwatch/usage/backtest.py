"""The options of `tritonwatch backtest`."""

from __future__ import annotations

import argparse

from triton_exporter.common.duration import DAY
from triton_exporter.common.options import adder
from tritonwatch.parser import declare
from tritonwatch.project import Replay
from tritonwatch.usage.arguments import add_at, seconds, whole

EXAMPLE = "tritonwatch backtest --prometheus http://127.0.0.1:9090 --last 30d --incidents incidents.csv"
OPTIONS = Replay
EXIT_CODES = {0: "printed", 1: "there is no history, a file has a mistake, or Prometheus did not respond"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    declare(parser, OPTIONS)
    add = adder(parser.add_argument)
    add(
        "--history FILE",
        "replay this CSV file, such as one written by --save, instead of data from Prometheus",
    )
    add(
        "--save FILE",
        "save the replayed data to this CSV file; an existing file is never overwritten",
    )
    add("--last DURATION", "length of the history (default: 30d)", seconds, default=30.0 * DAY)
    add_at(add, "end of the history")
    add("--step DURATION", "resolution of the history (default: 1m)", seconds, default=60.0)
    add(
        "--incidents FILE",
        "CSV file of known incidents, to compute precision, recall and detection time of the alerts",
    )
    add("--top N", "number of alerts to list (default: 40)", whole, default=40)
    add("--json", "write JSON instead of tables")

"""The options of `tritonwatch status`."""

from __future__ import annotations

import argparse

from triton_exporter.common.options import adder
from tritonwatch.parser import declare
from tritonwatch.project import Standing
from tritonwatch.usage.arguments import add_at, add_group_filter, whole

EXAMPLE = "tritonwatch status --prometheus http://127.0.0.1:9090 --top 20"
OPTIONS = Standing
EXIT_CODES = {
    0: "printed",
    1: "a row is, or may be, in a state of --fail-on, rules are not loaded, or Prometheus did not respond",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    declare(parser, OPTIONS)
    add = adder(parser.add_argument)
    add("--json", "write JSON instead of a table")
    add_group_filter(parser, "show only this model")
    add("--top N", "show only the N most urgent rows (default: all)", whole, default=0)
    add_at(add)
    add(
        "--fail-on STATE",
        "exit with 1 if a row is in this state: exhausted, unknown, or burning (burn rate above 1x now) "
        "(repeatable)",
        choices=("exhausted", "burning", "unknown"),
        action="append",
        default=[],
    )

"""The options of `tritonwatch gate`."""

from __future__ import annotations

import argparse

from triton_exporter.common.options import adder
from triton_slo.sources import CAVEATS
from tritonwatch.parser import declare
from tritonwatch.project import Standing
from tritonwatch.usage.arguments import add_at, add_group_filter, seconds

EXAMPLE = "tritonwatch gate --prometheus http://127.0.0.1:9090 --model classifier --canary 2 --baseline 1"


OPTIONS = Standing
EXIT_CODES = {
    0: "promote",
    1: "cannot tell: there is no data, rules are not loaded, or Prometheus did not respond",
    3: "hold",
    4: "rollback",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    declare(parser, OPTIONS)
    add = adder(parser.add_argument)
    parser.description = (
        "Decide whether to promote, hold or roll back a release. If data is unknown or old, the verdict is "
        "never `promote`."
    )
    add_group_filter(parser, "use only this model (required with --canary)")
    add("--version V", "use only this version")
    add("--max-age DURATION", "hold if the data is older than this (default: 5m)", seconds, default=300.0)
    add(
        "--min-budget PERCENT",
        "hold if the error budget left is at or below this share (default: 0%%)",
        _parse_ratio,
        default=0.0,
    )
    add(
        "--trust SOURCE...",
        "accept this source of the numbers, although it estimates events or does not count all events, see "
        "docs/slo-live.md (repeatable): " + ", ".join(CAVEATS),
        choices=sorted(CAVEATS),
    )
    add("--json", "write JSON instead of text")
    add_at(add)
    add = adder(parser.add_argument_group("comparison of two versions over the same time").add_argument)
    add("--canary V", "the new version")
    add("--baseline V", "the version that --canary is compared with")
    add("--window DURATION", "length of the compared time (default: 1h)", seconds, default=3600.0)
    add("--confidence PERCENT", "confidence of the comparison (default: 95%%)", _parse_ratio, default=0.95)
    add(
        "--margin PERCENT",
        "allowed increase of the error ratio, such as 0.1%% (default: the error budget)",
        _parse_ratio,
    )
    add("--min-events N", "hold if a version has fewer events than this (default: 50)", float, default=50)


def _parse_ratio(text: str) -> float:
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not from 0% to 100%")
    return value

"""The options of `tritonwatch advise`."""

from __future__ import annotations

import argparse
import math

from triton_exporter.common.duration import duration_between
from triton_exporter.common.options import adder, host_and_port, parsed
from tritonwatch.parser import declare, did_you_mean
from tritonwatch.project import Advised
from tritonwatch.usage.arguments import add_at, add_group_filter, seconds

EXAMPLE = "tritonwatch advise --prometheus http://127.0.0.1:9090 --model classifier --if instances=2"
OPTIONS = Advised
CHANGEABLE = ("instances", "max_batch_size", "batching", "delay_ms", "max_queue_size", "replicas")
"""What a change may set."""
EXIT_CODES = {
    0: "printed, also where it is unknown; or --watch was stopped by SIGTERM or Ctrl-C",
    1: "there is no data of such a model, a file has a mistake, Prometheus did not respond, or --listen is in use",
    3: "a prediction of --check did not come true",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    declare(parser, OPTIONS)
    add = adder(parser.add_argument)
    add_group_filter(parser, "advise on this model only (default: all)")
    add(
        "--if CHANGE",
        f"predict this change of one or more of {', '.join(CHANGEABLE)}; such as "
        "instances=2,max_batch_size=16",
        _changed,
        dest="changed",
    )
    add("--last DURATION", "length of the time that is measured (default: 1h)", seconds, default=3600.0)
    add_at(add, "end of the time that is measured")
    add("--save FILE", "write what is predicted to this file, as JSON")
    add("--check FILE", "compare what --save wrote with what came after the configuration was changed")
    add("--json", "write JSON instead of text")
    add(
        "--watch DURATION",
        "serve the headroom as series for Prometheus at --listen, and look so often whether it changed",
        parsed(duration_between(1, 3600)),
    )
    add("--listen HOST:PORT", "address of --watch", parsed(host_and_port))


def _changed(text: str) -> dict[str, float]:
    changed = {}
    for part in text.split(","):
        name, _, number = part.partition("=")
        name = name.strip()
        if name not in CHANGEABLE:
            raise argparse.ArgumentTypeError(
                f"{name!r} is not one of {', '.join(CHANGEABLE)}{did_you_mean(name, CHANGEABLE)}"
            )
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        least = 0 if name in ("delay_ms", "max_queue_size", "batching") else 1
        if not least <= value <= 1_000_000 or (name != "delay_ms" and value != int(value)):
            raise argparse.ArgumentTypeError(f"{part!r}: {number!r} is not a number of {least} or more")
        changed[name] = value
    return changed

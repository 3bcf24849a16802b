"""`tritonwatch status`: where every objective stands, straight from Prometheus."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence

from rich.console import Console

from triton_slo.live import Standing
from triton_slo.prometheus import Prometheus, PrometheusError
from triton_slo.status import look
from tritonwatch import access, status_table

EXAMPLE = "tritonwatch status --prometheus http://127.0.0.1:9090 --top 20"

_PIPE_WIDTH = 180
"""Columns of a table that is not written to a terminal: nobody's window limits it."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("--json", action="store_true", help="write JSON instead of a table")
    parser.add_argument("--objective", metavar="NAME", help="only this objective")
    parser.add_argument("--model", metavar="NAME", help="only this model")
    parser.add_argument("--top", type=int, default=0, metavar="N", help="only the N most urgent rows")
    parser.add_argument("--at", type=float, metavar="TIME", help="look at this Unix time instead of now")
    access.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print where the objectives stand: 0 printed, 1 cannot tell, 2 wrong usage."""
    try:
        reached = access.from_arguments(args, os.environ)
    except access.AccessError as error:
        print(f"tritonwatch status: {error}", file=sys.stderr)
        return 2
    try:
        with Prometheus(reached) as prometheus:
            rows = _chosen(look(prometheus, args.at), args)
    except PrometheusError as error:
        print(f"tritonwatch status: {error}", file=sys.stderr)
        return 1
    if not rows:
        print("tritonwatch status: no objective matches --objective and --model", file=sys.stderr)
        return 1
    _show(rows, args)
    return 0


def _chosen(rows: Sequence[Standing], args: argparse.Namespace) -> list[Standing]:
    return [row for row in rows if args.objective in (None, row.slo) and args.model in (None, row.model)]


def _show(rows: Sequence[Standing], args: argparse.Namespace) -> None:
    if args.json:
        print(status_table.to_json(rows, args.at or time.time()))
        return
    console = Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH)
    console.print(status_table.table(rows, args.top))

"""`tritonwatch status`: where every objective stands, straight from Prometheus."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from triton_exporter.printable import printable
from triton_slo.artifact import Options
from triton_slo.prometheus import Prometheus, PrometheusError
from triton_slo.rules.plan import Plan
from triton_slo.verdict.live import Standing
from triton_slo.verdict.status import look
from tritonwatch import access, status_table
from tritonwatch.arguments import between, moment, whole
from tritonwatch.objective_files import load

EXAMPLE = "tritonwatch status --prometheus http://127.0.0.1:9090 --top 20"

_PIPE_WIDTH = 220
"""Columns of a table that is not written to a terminal: nobody's window limits it."""
_LEAST_SECONDS = 0.2


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument("--json", action="store_true", help="write JSON instead of a table")
    parser.add_argument(
        "--objective",
        action="append",
        default=[],
        metavar="NAME",
        help="only this objective (repeatable)",
    )
    parser.add_argument("--model", metavar="NAME", help="only this model")
    parser.add_argument("--top", type=whole, default=0, metavar="N", help="only the N most urgent rows")
    when = parser.add_mutually_exclusive_group()
    when.add_argument("--at", type=moment, metavar="TIME", help="look at this Unix time instead of now")
    when.add_argument(
        "--watch",
        type=between(_LEAST_SECONDS, 3600, "seconds"),
        nargs="?",
        const=10.0,
        metavar="S",
        help="look again every S seconds (10) until Ctrl-C; with --json, one line each time",
    )
    parser.add_argument(
        "--objectives",
        type=Path,
        metavar="DIR",
        help="work these out from the exporter's series where Prometheus has not recorded them",
    )
    access.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print where the objectives stand: 0 printed, 1 cannot tell, 2 wrong usage."""
    try:
        reached = access.from_arguments(args, os.environ)
    except access.AccessError as error:
        return _fail(error, 2)
    objectives = load(args.objectives, "status") if args.objectives else ()
    if isinstance(objectives, int):
        return objectives
    plans = [Plan(objective, Options()) for objective in objectives]
    with Prometheus(reached) as prometheus:

        def rows() -> list[Standing]:
            found = look(prometheus, args.at, plans)
            for warning in prometheus.warnings:
                print(printable(f"tritonwatch status: Prometheus warns: {warning}"), file=sys.stderr)
            prometheus.warnings.clear()
            return _chosen(found, args)

        return _once(rows, args) if args.watch is None else _watch(rows, args)


def _fail(reason: object, code: int) -> int:
    print(printable(f"tritonwatch status: {reason}"), file=sys.stderr)
    return code


def _chosen(rows: Sequence[Standing], args: argparse.Namespace) -> list[Standing]:
    chosen = [
        row
        for row in rows
        if (not args.objective or row.slo in args.objective) and args.model in (None, row.model)
    ]
    if not chosen:
        raise PrometheusError("no objective matches --objective and --model")
    return chosen


def _once(rows: Callable[[], list[Standing]], args: argparse.Namespace) -> int:
    try:
        found = rows()
    except PrometheusError as error:
        return _fail(error, 1)
    if args.json:
        print(status_table.to_json(found, time.time() if args.at is None else args.at))
    else:
        _console().print(status_table.tables(found, args.top))
    return 0


def _watch(rows: Callable[[], list[Standing]], args: argparse.Namespace) -> NoReturn:
    """Look again and again, until interrupted; a Prometheus that is away for a while is said, not fatal."""
    if args.json:
        while True:
            _json_line(rows)
            time.sleep(args.watch)
    with Live(console=_console(), auto_refresh=False, screen=sys.stdout.isatty()) as screen:
        shown: Group | Text = Text()
        while True:
            shown = _picture(rows, args, shown)
            screen.update(shown, refresh=True)
            time.sleep(args.watch)


def _json_line(rows: Callable[[], list[Standing]]) -> None:
    try:
        print(status_table.to_json(rows(), time.time(), indent=None), flush=True)
    except PrometheusError as error:
        _fail(error, 1)


def _picture(
    rows: Callable[[], list[Standing]], args: argparse.Namespace, before: Group | Text
) -> Group | Text:
    moment = time.strftime("%H:%M:%S")
    try:
        return Group(status_table.tables(rows(), args.top), Text(f"at {moment}", style="dim"))
    except PrometheusError as error:
        kept = before.renderables[0] if isinstance(before, Group) else Text()
        return Group(kept, Text(printable(f"at {moment}: {error}; what is above is older"), style="bold red"))


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH)

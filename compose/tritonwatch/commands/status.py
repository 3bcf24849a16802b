"""`tritonwatch status`: show the status of every objective, read from Prometheus."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from triton_exporter.common.printable import printable
from triton_exporter.common.problem import Problem, ProblemsError
from triton_slo.group_status import GroupStatus, burns
from triton_slo.objective.model import Objective
from triton_slo.prometheus import Prometheus, PrometheusError, Remarks
from triton_slo.status import read_status
from tritonwatch import access, objective_files, status_table
from tritonwatch.arguments import misspelt
from tritonwatch.assistant_tool import JsonAnswer

_PIPE_WIDTH = 220
"""Width of a table that is not written to a terminal."""


_IN_STATE: Mapping[str, Callable[[GroupStatus], bool]] = {
    "exhausted": lambda row: row.state == "exhausted",
    "burning": lambda row: row.state in ("burning", "exhausted") and burns(row.burn_now or 0.0),
    "unknown": lambda row: row.state == "unknown",
}
"""Choice of --fail-on -> whether a row is in that state."""


@dataclass(frozen=True, slots=True)
class _Reading:
    """The chosen rows, a message about rules that Prometheus has not loaded, and the remarks of Prometheus."""

    rows: list[GroupStatus]
    not_loaded: str
    remarks: Remarks

    @property
    def messages(self) -> tuple[str, ...]:
        """Messages for people about rows that are missing or incomplete."""
        return (*self.remarks.lines, self.not_loaded) if self.not_loaded else self.remarks.lines


def run(args: argparse.Namespace) -> int:
    """Print the status of the objectives."""
    if args.watch is not None and args.fail_on:
        reason = "decides an exit code, and --watch never ends"
        raise ProblemsError(Problem("--fail-on", reason, "leave one of them out"))
    with access.connect(args) as prometheus:
        objectives = objective_files.load(args.objectives)

        def read() -> _Reading:
            return _read_rows(prometheus, objectives, args)

        return _print_once(read, args) if args.watch is None else _watch(read, args)


def answer(args: argparse.Namespace) -> JsonAnswer:
    """Return what `--json` writes. Raises ProblemsError."""
    with access.connect(args) as prometheus:
        rows_read = _read_rows(prometheus, objective_files.load(args.objectives), args)
    at = time.time() if args.at is None else args.at
    document = status_table.document(rows_read.rows, at, rows_read.remarks) if rows_read.rows else None
    return JsonAnswer(document, rows_read.messages, 1 if rows_read.not_loaded else 0)


def _read_rows(prometheus: Prometheus, objectives: Sequence[Objective], args: argparse.Namespace) -> _Reading:
    with prometheus.collecting() as remarks:
        rows = read_status(prometheus, args.at)
    not_loaded = objective_files.not_loaded_message(
        objectives, rows, args, chosen=args.objective, model=args.model, at=args.at
    )
    return _Reading(_chosen_rows(rows, args, required=not not_loaded), not_loaded, remarks)


def _chosen_rows(
    rows: Sequence[GroupStatus], args: argparse.Namespace, *, required: bool
) -> list[GroupStatus]:
    chosen = [
        row
        for row in rows
        if (not args.objective or row.slo in args.objective) and args.model in (None, row.model)
    ]
    if required and not chosen:
        reasons = misspelt(args, rows) or [
            "no objective matches --objective and --model; run without them to list all"
        ]
        raise ProblemsError(*(Problem("", text) for text in reasons))
    return chosen


def _print_once(read: Callable[[], _Reading], args: argparse.Namespace) -> int:
    reading = read()
    if reading.rows and args.json:
        print(_json(reading, time.time() if args.at is None else args.at, indent=2))
    elif reading.rows:
        _console().print(status_table.tables(reading.rows, args.top))
    _warn(reading)
    failed = any(_IN_STATE[state](row) for state in args.fail_on for row in reading.rows)
    # A row that is missing may be in that state.
    failed |= bool(args.fail_on and reading.remarks.warnings)
    return 1 if reading.not_loaded or failed else 0


def _warn(reading: _Reading) -> None:
    for message in (*map(printable, reading.remarks.lines), reading.not_loaded):
        if message:
            print(f"tritonwatch status: {message}", file=sys.stderr)


def _json(reading: _Reading, at: float, indent: int | None = None) -> str:
    return json.dumps(status_table.document(reading.rows, at, reading.remarks), indent=indent)


def _watch(read: Callable[[], _Reading], args: argparse.Namespace) -> NoReturn:
    """Show the status until Ctrl-C; an unreachable Prometheus is reported, and asked again."""
    if args.json:
        while True:
            _json_line(read)
            time.sleep(args.watch)
    shown: Group | Text = Text()
    # Live draws only the last table, at its end, where there is no terminal.
    while not sys.stdout.isatty():
        shown = _refreshed_screen(read, args, shown)
        _console().print(shown)
        sys.stdout.flush()
        time.sleep(args.watch)
    with Live(console=_console(), auto_refresh=False, screen=True) as screen:
        while True:
            shown = _refreshed_screen(read, args, shown)
            screen.update(shown, refresh=True)
            time.sleep(args.watch)


def _json_line(read: Callable[[], _Reading]) -> None:
    try:
        reading = read()
    except (ProblemsError, PrometheusError) as error:
        print(printable(f"tritonwatch status: {error}"), file=sys.stderr)
        return
    if reading.rows:
        print(_json(reading, time.time()), flush=True)
    _warn(reading)


def _refreshed_screen(
    read: Callable[[], _Reading], args: argparse.Namespace, before: Group | Text
) -> Group | Text:
    moment = time.strftime("%H:%M:%S")
    try:
        reading = read()
        table = status_table.tables(reading.rows, args.top) if reading.rows else Text()
        messages = [Text(message, style="bold red") for message in reading.messages]
        return Group(table, *messages, Text(f"at {moment}", style="dim"))
    except (ProblemsError, PrometheusError) as error:
        previous = before.renderables[0] if isinstance(before, Group) else Text()
        return Group(
            previous, Text(printable(f"at {moment}: {error}; the table above is older"), style="bold red")
        )


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH)

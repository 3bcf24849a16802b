"""`tritonwatch status`: show the status of every objective, read from Prometheus."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rich.console import Console

from triton_alerts.broken import Fault, broken_now
from triton_exporter.common.printable import printable
from triton_exporter.common.problem import Problem, ProblemsError
from triton_slo.group_status import GroupStatus, burns
from triton_slo.prometheus import Remarks
from triton_slo.status import read_status
from tritonwatch import access, objective_files, status_table
from tritonwatch.arguments import misspelt

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
    """The chosen rows, what is broken, a message about rules that Prometheus has not loaded, and the remarks of Prometheus."""

    rows: list[GroupStatus]
    broken: list[Fault]
    not_loaded: str
    remarks: Remarks

    @property
    def messages(self) -> tuple[str, ...]:
        """Messages for people about rows that are missing or incomplete."""
        return tuple(filter(None, (*map(printable, self.remarks.lines), self.not_loaded)))


def run(args: argparse.Namespace) -> int:
    reading = _read_rows(args)
    if reading.rows and args.json:
        print(json.dumps(_document(reading, args), indent=2))
    elif reading.rows:
        console = Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH)
        console.print(status_table.tables(reading.rows, args.top, reading.broken))
    for message in reading.messages:
        print(f"tritonwatch status: {message}", file=sys.stderr)
    failed = any(_IN_STATE[state](row) for state in args.fail_on for row in reading.rows)
    # A row that is missing may be in that state.
    failed |= bool(args.fail_on and reading.remarks.warnings)
    return 1 if reading.not_loaded or failed else 0


def answer(args: argparse.Namespace) -> tuple[dict[str, object] | None, tuple[str, ...]]:
    """Return what `--json` writes, and messages beside it. Raises ProblemsError."""
    reading = _read_rows(args)
    return _document(reading, args) if reading.rows else None, reading.messages


def _document(reading: _Reading, args: argparse.Namespace) -> dict[str, object]:
    at = time.time() if args.at is None else args.at
    return status_table.document(reading.rows, at, reading.remarks, reading.broken)


def _read_rows(args: argparse.Namespace) -> _Reading:
    with access.connect(args) as prometheus, prometheus.collecting() as remarks:
        objectives = objective_files.load(args.objectives)
        rows = read_status(prometheus, args.at, args.time_scale)
        broken = broken_now(prometheus, args.at).faults(args.model)
    not_loaded = objective_files.not_loaded_message(
        objectives, rows, args, chosen=args.objective, model=args.model, at=args.at
    )
    chosen = [
        row
        for row in rows
        if (not args.objective or row.slo in args.objective) and args.model in (None, row.model)
    ]
    if not (chosen or not_loaded):
        reasons = misspelt(args, rows) or [
            "no objective matches --objective and --model; run without them to list all"
        ]
        raise ProblemsError(*(Problem("", text) for text in reasons))
    return _Reading(chosen, broken, not_loaded, remarks)

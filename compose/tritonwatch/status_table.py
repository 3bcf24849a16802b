"""GroupStatus as a table for people and as JSON for programs.

First a table that leaves out its least important columns on a narrow terminal, and names them; the backtest has one, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import zip_longest
from typing import Generic, TypeVar

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.segment import Segment
from rich.text import Text

from triton_alerts.broken import Fault
from triton_exporter.common.duration import in_words, time_text
from triton_exporter.common.printable import printable
from triton_slo.amounts import burn_rate, cause_words, ratio
from triton_slo.estimate import uncertainties
from triton_slo.group_status import (
    SHOWN_WINDOWS,
    GroupStatus,
    Overview,
    State,
    group_name,
    group_place,
    overviews,
)
from triton_slo.indicators.histograms import WRONG_SETTINGS
from triton_slo.problem_words import count
from triton_slo.prometheus import Remarks
from triton_slo.sources import CAVEATS

Row = TypeVar("Row")
_MIN_WRAPPED_WIDTH = 12
"""Width to which a column of words is narrowed before another column is left out."""
_MIN_WORD_WIDTH = 5
"""Width to which all columns of words are narrowed where there is nothing to leave out."""


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """A column of a table; on a narrow terminal the highest `rank` is left out first, and rank 0 never."""

    heading: str
    cell: Callable[[Row], str]
    rank: int = 0
    number: bool = True
    wraps: bool = False

    def width(self, cells: Sequence[str]) -> int:
        """Return the width that the column needs in the terminal; a column that wraps needs at most the minimum."""
        widest = max(map(cell_len, (self.heading, *cells)))
        return min(widest, _MIN_WRAPPED_WIDTH) if self.wraps else widest


@dataclass(frozen=True, slots=True)
class Fitted(Generic[Row]):
    """A table of those columns that fit the terminal, with the names of the others below."""

    title: str
    columns: tuple[Column[Row], ...]
    rows: Sequence[Row]
    style: Callable[[Row], str]
    more: int = 0

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        cells = {
            column.heading: [printable(column.cell(row)) for row in self.rows] for column in self.columns
        }
        widths = {
            column.heading: column.width(cells[column.heading]) + 2  # a space on either side
            for column in self.columns
        }
        shown, hidden = list(self.columns), list[Column[Row]]()
        while sum(widths[column.heading] for column in shown) > options.max_width:
            last = max(shown, key=lambda column: column.rank)
            if not last.rank:
                break  # columns of rank 0 stay, wrapped if necessary
            shown.remove(last)
            hidden.append(last)
        below = [f"and {self.more} more; see --top"] if self.more else []
        if hidden:
            names = ", ".join(column.heading for column in self.columns if column in hidden)
            below.append(f"not shown in {options.max_width} columns: {names}; see --json")
        fitted = {name: max(map(cell_len, (name, *texts))) for name, texts in cells.items()}
        # Columns that wrap are narrowed first, then all words; of these always the widest.
        for least, narrowed in (
            (_MIN_WRAPPED_WIDTH, [column.heading for column in shown if column.wraps]),
            (_MIN_WORD_WIDTH, [column.heading for column in shown if not column.number]),
        ):
            while sum(fitted[column.heading] + 2 for column in shown) > options.max_width:
                widest = max(narrowed, key=lambda name: fitted[name], default="")
                if not widest or fitted[widest] <= least:
                    break
                fitted[widest] -= 1
        yield from self._lines(console, shown, cells, fitted, below)

    def _lines(
        self,
        console: Console,
        shown: Sequence[Column[Row]],
        cells: Mapping[str, Sequence[str]],
        widths: Mapping[str, int],
        below: Sequence[str],
    ) -> Iterator[Segment | Text]:
        """Yield the lines as they are: a table of rich measures each cell of 1,000 rows for a second."""

        def lines(texts: Iterable[str], style: str) -> Iterator[Segment]:
            wrapped = [
                # Text, never markup: a model may be called "[red]".
                [text]
                if cell_len(text) <= widths[column.heading]
                else [line.plain.rstrip() for line in Text(text).wrap(console, widths[column.heading])]
                for column, text in zip(shown, texts, strict=True)
            ]
            for parts in zip_longest(*wrapped, fillvalue=""):
                padded = (
                    " " * (widths[column.heading] - cell_len(text)) + text
                    if column.number
                    else text + " " * (widths[column.heading] - cell_len(text))
                    for column, text in zip(shown, parts, strict=True)
                )
                yield Segment(" " + "  ".join(padded).rstrip() + "\n", console.get_style(style or "none"))

        yield Segment(f"{self.title}\n", console.get_style("italic"))
        yield from lines((column.heading for column in shown), "bold")
        for number, row in enumerate(self.rows):
            yield from lines((cells[column.heading][number] for column in shown), self.style(row))
        for text in below:
            yield Text(text, "dim italic")


_STYLE: dict[State, str] = {
    "excluded": "dim",
    "unknown": "magenta",
    "exhausted": "bold red",
    "burning": "yellow",
    "ok": "green",
    "idle": "dim",
}


def tables(rows: Sequence[GroupStatus], limit: int = 0, broken: Sequence[Fault] = ()) -> Group:
    """Return the tables: objectives, if one has several groups, then the rows, what is broken, and the caveats."""
    summed = overviews(rows)
    bad = (f"broken now: {fault.text}" for fault in broken)
    below = [Text(), *map(Text, map(printable, (*bad, *caveats(rows))))]
    drawn = [table(rows, limit), *(below if len(below) > 1 else ())]
    if any(overview.groups > 1 for overview in summed):
        overview = Fitted(
            "Objectives and their worst model",
            _OVERVIEW,
            summed,
            lambda overview: _STYLE[overview.worst.state],
        )
        return Group(overview, Text(), *drawn)
    return Group(*drawn)


def caveats(rows: Sequence[GroupStatus]) -> list[str]:
    """Return a line for each source that misses events: the groups and what it misses.

    Further lines are about settings that leave groups without data, groups that burn and do not page because of the
    error of their estimate, the age of budgets, and groups with less data than their period.
    """
    uncertain = uncertainties(rows, _group_title)
    lines = [f"{whose}: {caveat.short} (more: tritonwatch check --prometheus)" for whose, caveat in uncertain]
    for reason, (meaning, fix) in WRONG_SETTINGS.items():
        if named := ", ".join(_group_title(row) for row in rows if reason in row.unknown_reasons):
            lines.append(f"unknown ({reason}): {named}: {meaning}; to fix this, {fix}")
    if any(
        row.state == "burning" and row.budget_left is not None and not row.budget_not_known_yet
        for row in rows
    ):
        lines.append("budgets left are up to four minutes older than burn rates")
    if short := [row.history_seconds for row in rows if row.history_seconds is not None]:
        lines.append(
            f"short history: less than the period is recorded for {len(short)} of {count(len(rows), 'group')} (the "
            f"shortest: {in_words(min(short))}); their SLI and budget are of this time, and a budget is known once a tenth "
            "of its period is recorded"
        )
    return lines


def _group_title(row: GroupStatus) -> str:
    return f"{row.slo} {group_name(row.group)}"


def _burn_cell(window: str, row: GroupStatus) -> str:
    return rate(row.burn.get(window))


_OVERVIEW: tuple[Column[Overview], ...] = (
    Column("objective", lambda overview: overview.slo, number=False),
    Column("groups", lambda overview: str(overview.groups), 5),
    Column("unknown", lambda overview: str(overview.unknown), 2),
    Column("exhausted", lambda overview: str(overview.exhausted), 4),
    Column("burning", lambda overview: str(overview.burning), 3),
    Column("worst model", lambda overview: place(overview.worst), number=False),
    Column("version", lambda overview: version(overview.worst), number=False),
    Column("state", lambda overview: overview.worst.shown_state, number=False, wraps=True),
    Column("budget left", lambda overview: budget(overview.worst), 1),
    Column("lasts", lambda overview: lasts(overview.worst), 6),
)
_ROWS: tuple[Column[GroupStatus], ...] = (
    Column("objective", lambda row: row.slo, number=False),
    Column("model", lambda row: place(row), number=False),
    Column("version", lambda row: version(row), number=False),
    Column("state", lambda row: state(row), number=False, wraps=True),
    Column("SLI", lambda row: ratio(row.sli), 2),
    Column("target", lambda row: ratio(row.target), 3),
    Column(
        "threshold",
        lambda row: "-" if row.threshold_seconds is None else time_text(row.threshold_seconds),
        7,
    ),
    Column("burn 5m", lambda row: rate(row.burn_now), 4),
    *(
        Column(window, partial(_burn_cell, window), rank)
        for window, rank in zip(SHOWN_WINDOWS, (8, 9, 10), strict=True)
    ),
    Column("budget left", lambda row: budget(row), 1),
    Column("lasts", lambda row: lasts(row), 5),
    Column("time unknown", lambda row: duration(row.unknown_in_period_seconds), 11),
    Column("cause", lambda row: causes(row), 6, number=False, wraps=True),
)


def table(rows: Sequence[GroupStatus], limit: int = 0) -> Fitted[GroupStatus]:
    """Draw the rows, only the first `limit` if above 0, with the number of the others below."""
    shown = rows[:limit] if limit else rows
    return Fitted(
        "Objectives by budget left", _ROWS, shown, lambda row: _STYLE[row.state], len(rows) - len(shown)
    )


def causes(row: GroupStatus) -> str:
    return ", ".join(f"{cause_words(cause)} {share:.0%}" for cause, share in row.causes[:3] if share >= 0.005)


def place(row: GroupStatus) -> str:
    """Return the model and the other labels of the group (a cluster, a tenant)."""
    return group_place(row.group) or "-"


def version(row: GroupStatus) -> str:
    """Return the version; `all` for a model whose versions are one group."""
    return row.version or ("all" if row.model else "-")


def budget(row: GroupStatus) -> str:
    return "-" if row.budget_not_known_yet else row.budget_words  # a line below the table says why


def lasts(row: GroupStatus) -> str:
    words = {"past_period_end": "past period's end", "exhausted": "spent"}
    return words.get(row.lasts) or duration(row.exhausted_in_seconds)


def state(row: GroupStatus) -> str:
    if row.excluded:
        return f"excluded: {row.excluded}"
    return f"unknown: {row.unknown}" if row.state == "unknown" else row.shown_state


def rate(value: float | None) -> str:
    """Return a burn rate; a dash where there were no events."""
    return "-" if value is None else burn_rate(value)


def duration(seconds: float | None) -> str:
    """Return how long a budget lasts or a state has lasted; a dash where unknown, 'not burning' where infinite."""
    if seconds is None:
        return "-"
    if math.isinf(seconds):
        return "not burning"
    return in_words(seconds)


def document(
    rows: Sequence[GroupStatus], at: float, remarks: Remarks, broken: Sequence[Fault] = ()
) -> dict[str, object]:
    """Return rows, overviews, what is broken and remarks; null is unknown; `lasts`: why `exhausted_in_seconds` is null.

    `state` carries the caveats of its numbers, `ok (estimated)`, so that no program takes it for `ok`.
    """
    summary = [
        {
            "slo": overview.slo,
            "indicator": overview.indicator,
            "groups": overview.groups,
            "exhausted": overview.exhausted,
            "burning": overview.burning,
            "unknown": overview.unknown,
            "worst": dict(overview.worst.group),
        }
        for overview in overviews(rows)
    ]
    return {
        "at": at,
        "objectives": summary,
        "group_statuses": [_row_json(row) for row in rows],
        "broken": [fault.text for fault in broken],
        **asdict(remarks),
    }


def _row_json(row: GroupStatus) -> dict[str, object]:
    seconds = row.exhausted_in_seconds
    fields = asdict(row)
    del fields["unknown_reasons"], fields["retired"]
    return fields | {
        "unknown": row.unknown,
        "state": row.qualified_state,
        "caveats": {source: asdict(CAVEATS[source]) for source in row.caveats},
        "budget_left": None if row.budget_not_known_yet else row.budget_left,
        "exhausted_in_seconds": None if seconds is None or math.isinf(seconds) else seconds,
        "causes": dict(row.causes),
    }

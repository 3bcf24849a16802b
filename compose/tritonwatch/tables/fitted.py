"""A table that leaves out its least important columns on a narrow terminal, and names them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from triton_exporter.common.printable import printable

Row = TypeVar("Row")
_MIN_WRAPPED_WIDTH = 20
"""Width to which a column of words is narrowed before another column is left out."""


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
        drawn = Table(title=self.title, title_justify="left", caption_justify="left", box=None)
        for column in shown:
            drawn.add_column(
                column.heading, justify="right" if column.number else "left", no_wrap=column.number
            )
        for number, row in enumerate(self.rows):
            # Text, never markup: a model may be called "[red]".
            drawn.add_row(
                *(Text(cells[column.heading][number]) for column in shown),
                style=self.style(row),
            )
        below = [f"and {self.more} more; see --top"] if self.more else []
        if hidden:
            names = ", ".join(column.heading for column in self.columns if column in hidden)
            below.append(f"not shown in {options.max_width} columns: {names}; see --json")
        drawn.caption = "\n".join(below) or None
        yield drawn

"""Standings as a table for people and as JSON for programs."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict

from rich.console import Group
from rich.table import Table
from rich.text import Text

from triton_exporter.duration import render
from triton_exporter.printable import printable
from triton_slo.indicators.durations import MISTAKES
from triton_slo.indicators.sources import CAVEATS
from triton_slo.verdict.estimate import group_name, no_page_because, uncertainties
from triton_slo.verdict.live import SHOWN_WINDOWS, Overview, Standing, State, overviews

_STYLE: dict[State, str] = {
    "excluded": "dim",
    "unknown": "magenta",
    "exhausted": "bold red",
    "burning": "yellow",
    "ok": "green",
    "idle": "dim",
}


def tables(rows: Sequence[Standing], limit: int = 0) -> Group:
    """Sum up each objective where it has many groups, then the rows."""
    summed = overviews(rows)
    below = [Text(), *map(Text, map(printable, caveats(rows)))]
    drawn = [table(rows, limit), *(below if len(below) > 1 else ())]
    if any(one.groups > 1 for one in summed):
        return Group(_overview(summed), Text(), *drawn)
    return Group(*drawn)


def caveats(rows: Sequence[Standing]) -> list[str]:
    """Return one line per source that misses something: whose numbers, what it misses, what resolves it.

    And one for each setting that leaves groups without data, and for each group that burns and does not page
    because of the error of its estimate.
    """
    found = uncertainties(rows, _named)
    lines = [f"{whose}: {meaning}; to resolve it, {settled}" for whose, meaning, settled in found]
    for reason, (meaning, fix) in MISTAKES.items():
        if named := ", ".join(_named(row) for row in rows if reason in row.unknown.split(", ")):
            lines.append(f"unknown ({reason}): {named}: {meaning}; to resolve it, {fix}")
    return lines + [f"{_named(row)} burns {why}" for row in rows if (why := no_page_because(row))]


def _named(row: Standing) -> str:
    return f"{row.slo} {group_name(row)}"


def _overview(summed: Sequence[Overview]) -> Table:
    drawn = Table("objective", title="Objectives and their worst model", title_justify="left", box=None)
    for heading in ("groups", "unknown", "exhausted", "burning"):
        drawn.add_column(heading, justify="right")
    for heading in ("worst model", "version", "state"):
        drawn.add_column(heading)
    for heading in ("budget left", "lasts"):
        drawn.add_column(heading, justify="right", no_wrap=True)
    for one in summed:
        worst = one.worst
        counts = [str(number) for number in (one.groups, one.unknown, one.exhausted, one.burning)]
        place = [_place(worst), worst.version or "-", worst.shown_state]
        left = [_budget(worst), _lasts(worst)]
        drawn.add_row(
            *map(Text, map(printable, (one.slo, *counts, *place, *left))), style=_STYLE[worst.state]
        )
    return drawn


def table(rows: Sequence[Standing], limit: int = 0) -> Table:
    """Draw the rows, only the first `limit` if above 0, with the number of the others below."""
    drawn = Table(
        "objective", "model", "version", title="Objectives by budget left", title_justify="left", box=None
    )
    for heading in ("SLI", "target", "threshold", "burn now", *SHOWN_WINDOWS, "budget left", "lasts"):
        drawn.add_column(heading, justify="right", no_wrap=True)
    drawn.add_column("unknown", justify="right", no_wrap=True)
    for heading in ("state", "cause"):
        drawn.add_column(heading)
    shown = rows[:limit] if limit else rows
    for row in shown:
        drawn.add_row(*_cells(row), style=_STYLE[row.state])
    if len(shown) < len(rows):
        drawn.caption = f"and {len(rows) - len(shown)} more; see --top"
    return drawn


def _cells(row: Standing) -> list[Text]:
    # Text, never markup: a model may be called "[red]".
    return [
        Text(printable(cell))
        for cell in (
            row.slo,
            _place(row),
            row.version or "-",
            "no events" if row.idle and row.sli is None else ratio(row.sli),
            ratio(row.target),
            "-" if row.threshold_seconds is None else render(row.threshold_seconds),
            rate(row.burn_now),
            *(rate(row.burn.get(window)) for window in SHOWN_WINDOWS),
            _budget(row),
            _lasts(row),
            duration(row.unknown_in_period_seconds),
            _state(row),
            ", ".join(f"{cause} {share:.0%}" for cause, share in row.causes[:3] if share >= 0.005),
        )
    ]


def _place(row: Standing) -> str:
    """Return the model and the other labels of the group (a cluster, a tenant)."""
    others = [f"{key}={value}" for key, value in row.group.items() if key not in ("model", "version")]
    return " ".join([row.model, *others]).strip() or "-"


def _budget(row: Standing) -> str:
    if row.budget_left is None:
        return "no events" if row.idle else "unknown"
    return f"{row.budget_left:.1%}"


def _lasts(row: Standing) -> str:
    return "past period's end" if row.lasts == "past_period_end" else duration(row.exhausted_in_seconds)


def _state(row: Standing) -> str:
    if row.excluded:
        return f"excluded: {row.excluded}"
    if row.state != "unknown":
        return row.shown_state
    since = f" for {duration(row.unknown_seconds)}" if row.unknown_seconds is not None else ""
    return f"unknown{since}: {row.unknown}"


def ratio(value: float | None) -> str:
    """Return a share in percent with as many digits as its distance from 100 % needs."""
    if value is None:
        return "unknown"
    missing = (1 - value) * 100
    digits = max(2, math.ceil(-math.log10(missing))) if missing > 1e-9 else 2
    return f"{value:.{digits}%}"


def rate(value: float | None) -> str:
    """Return a burn rate; a dash where there were no events."""
    if value is None:
        return "-"
    return f"{value:.0f}x" if value >= 100 else f"{value:.3g}x"


def duration(seconds: float | None) -> str:
    """Return a length of time in its two largest units."""
    if seconds is None:
        return "-"
    if math.isinf(seconds):
        return "not burning"
    for unit, length, smaller, part in (("d", 86400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if seconds >= length:
            rest = int(seconds % length // part)
            return f"{int(seconds // length)}{unit}" + (f" {rest}{smaller}" if rest else "")
    return f"{seconds:.0f}s"


def to_json(rows: Sequence[Standing], at: float, indent: int | None = 2) -> str:
    """Rows and overviews as JSON; null is unknown; `lasts` is the reason where `exhausted_in_seconds` is null.

    `state` carries the caveats of its numbers, `ok (estimated)`, so that no program takes it for `ok`.
    """
    summary = [
        {
            "slo": one.slo,
            "indicator": one.indicator,
            "groups": one.groups,
            "exhausted": one.exhausted,
            "burning": one.burning,
            "unknown": one.unknown,
            "worst": dict(one.worst.group),
        }
        for one in overviews(rows)
    ]
    standings = [_plain(row) for row in rows]
    return json.dumps({"at": at, "objectives": summary, "standings": standings}, indent=indent)


def _plain(row: Standing) -> dict[str, object]:
    lasts = row.exhausted_in_seconds
    return asdict(row) | {
        "state": row.qualified_state,
        "caveats": {source: asdict(CAVEATS[source]) for source in row.caveats},
        "exhausted_in_seconds": None if lasts is None or math.isinf(lasts) else lasts,
        "causes": dict(row.causes),
    }

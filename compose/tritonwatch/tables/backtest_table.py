"""A backtest as tables for people and as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict

from rich.console import Group
from rich.text import Text

from triton_exporter.common.duration import in_words
from triton_exporter.common.moments import local_text, utc_text
from triton_slo.amounts import budget_left
from triton_slo.backtest.replay import Episode
from triton_slo.backtest.report import Report, Score, resolution
from tritonwatch.tables.fitted import Column, Fitted


def tables(report: Report, limit: int) -> Group:
    """Draw the score, then at most `limit` alerts."""
    return Group(_heading(report), Text(), *_score(report), Text(), _alert_table(report, limit))


def _heading(report: Report) -> Text:
    series = (
        f"{report.series} series from {utc_text(report.start)} to {utc_text(report.end)}, "
        f"every {in_words(report.step_seconds)}; unknown {report.unknown:.2%} of the time; "
        f"{report.incidents} labelled incidents"
    )
    return Text("\n".join([series, resolution(report.step_seconds), *_coverage(report)]))


def _coverage(report: Report) -> Iterator[str]:
    """Yield how much of the period the data cover, where they begin clearly later than it."""
    whole = report.end - report.start
    slack = max(0.01 * whole, 2 * report.step_seconds)  # a first rate needs two scrapes
    first = min(report.data_from.values(), default=report.start)

    def covered(since: float) -> str:
        return f"data of the last {in_words(report.end - since)}"

    def share(since: float) -> str:
        return f"{100 * (report.end - since) / whole:.2g}%"

    if first > report.start + slack:
        yield (
            f"Data covers only the last {in_words(report.end - first)} of {in_words(whole)} "
            f"({share(first)}), since {utc_text(first)}: the results below are for this time only, and "
            "failures before it are not in the budgets."
        )
    for slo, since in report.data_from.items():
        if since > first + slack:
            yield f"{slo}: {covered(since)} ({share(since)})"


def _score(report: Report) -> Iterator[Fitted[Score] | Text]:
    columns = (*_COUNTS, *(_MARKS if report.incidents else ()))
    yield Fitted("Pages and tickets", columns, (report.score,), lambda _: "")
    if report.incidents:
        yield Text("detection and reset: median (worst)", style="dim italic")


def _share_text(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def _median(median: float | None, worst: float | None) -> str:
    return "-" if median is None or worst is None else f"{in_words(median)} ({in_words(worst)})"


def _paged(pages: float | None) -> str:
    return "-" if pages is None else f"{pages:.2f}"


_COUNTS: tuple[Column[Score], ...] = (
    Column("pages", lambda score: str(score.pages)),
    Column("tickets", lambda score: str(score.alerts - score.pages), 2),
)
_MARKS: tuple[Column[Score], ...] = (
    Column("precision", lambda score: _share_text(score.precision), 3),
    Column("recall", lambda score: _share_text(score.recall), 1),
    Column("false pages", lambda score: str(score.false_pages)),
    Column("pages/incident", lambda score: _paged(score.pages_per_incident), 6),
    Column("detection", lambda score: _median(score.detection_median, score.detection_worst), 4),
    Column("reset", lambda score: _median(score.reset_median, score.reset_worst), 5),
)
_ALERTS: tuple[Column[Episode], ...] = (
    Column("when (UTC)", lambda episode: local_text(episode.started), number=False),
    Column("as", lambda episode: episode.severity, number=False),
    Column("alert", lambda episode: episode.alert, number=False),
    Column("objective", lambda episode: episode.key[0], number=False),
    Column("model", lambda episode: episode.key[1] or "-", number=False, wraps=True),
    Column("version", lambda episode: episode.key[2] or "-", 3, number=False),
    Column("for", lambda episode: _lasted(episode), 1),
    Column("budget left then", lambda episode: _left_text(episode), 2),
)


def _alert_table(report: Report, limit: int) -> Fitted[Episode]:
    shown = report.episodes[:limit]
    return Fitted("What would have fired", _ALERTS, shown, lambda _: "", len(report.episodes) - len(shown))


def _lasted(episode: Episode) -> str:
    return "still firing" if episode.ended is None else in_words(episode.ended - episode.started)


def _left_text(episode: Episode) -> str:
    return budget_left(episode.budget_left)


def to_json(report: Report) -> str:
    """Return everything, every alert included; times are Unix seconds, null is unknown."""
    return json.dumps(asdict(report), indent=2)

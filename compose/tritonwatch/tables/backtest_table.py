"""A backtest as tables for people and as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime

from rich.console import Group
from rich.table import Table
from rich.text import Text

from triton_exporter.duration import in_words
from triton_exporter.printable import printable
from triton_slo.backtest.replay import Episode
from triton_slo.backtest.report import PolicyOutcome, Report
from triton_slo.backtest.score import Score
from triton_slo.burn.amounts import budget_left


def tables(report: Report, limit: int) -> Group:
    """Draw the scores side by side, then at most `limit` alerts of the first policy."""
    return Group(_heading(report), Text(), _scores(report), Text(), _alerts(report.outcomes[0], limit))


def _heading(report: Report) -> Text:
    series = (
        f"{report.series} series from {_moment(report.start)} to {_moment(report.end)}, "
        f"every {in_words(report.step_seconds)}; unknown {report.unknown:.2%} of the time; "
        f"{report.incidents} labelled incidents"
    )
    return Text("\n".join([series, *_short_history(report)]))


def _short_history(report: Report) -> Iterator[str]:
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
            f"There is {covered(first)} of {in_words(whole)} ({share(first)}), since {_moment(first)}: "
            "what follows is the verdict for that time alone, and errors before it are in no budget."
        )
    for slo, since in report.data_from.items():
        if since > first + slack:
            yield f"{slo}: {covered(since)} ({share(since)})"


def _scores(report: Report) -> Table:
    table = Table("policy", title="Policies side by side", title_justify="left", box=None)
    headings = ["pages", "tickets"]
    if report.incidents:
        headings += ["precision", "recall", "false pages", "pages/incident", "detection", "reset"]
    for heading in headings:
        table.add_column(heading, justify="right")
    for outcome in report.outcomes:
        score = outcome.score
        row = [outcome.policy, str(score.pages), str(score.alerts - score.pages)]
        table.add_row(*row, *(_marks(score) if report.incidents else ()))
    if report.incidents:
        table.caption = "detection and reset: median (worst)"
    return table


def _marks(score: Score) -> Iterator[str]:
    for share in (score.precision, score.recall):
        yield "-" if share is None else f"{share:.1%}"
    yield str(score.false_pages)
    yield "-" if score.pages_per_incident is None else f"{score.pages_per_incident:.2f}"
    for median, worst in (
        (score.detection_median, score.detection_worst),
        (score.reset_median, score.reset_worst),
    ):
        yield "-" if median is None or worst is None else f"{in_words(median)} ({in_words(worst)})"


def _alerts(outcome: PolicyOutcome, limit: int) -> Table:
    table = Table(title=f"What {outcome.policy} would have raised", title_justify="left", box=None)
    for heading in ("when (UTC)", "as", "alert", "objective", "model", "version"):
        table.add_column(heading)
    for heading in ("for", "budget left then"):
        table.add_column(heading, justify="right")
    for episode in outcome.episodes[:limit]:
        table.add_row(*(Text(printable(cell)) for cell in _cells(episode)))
    if len(outcome.episodes) > limit:
        table.caption = f"and {len(outcome.episodes) - limit} more; see --top and --json"
    return table


def _cells(episode: Episode) -> Iterator[str]:
    slo, model, version = episode.key
    yield from (_moment(episode.started), episode.severity, episode.alert, slo, model or "-", version or "-")
    yield "still firing" if episode.ended is None else in_words(episode.ended - episode.started)
    yield "unknown" if episode.budget_left is None else budget_left(episode.budget_left)


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M")


def to_json(report: Report) -> str:
    """Everything, every alert of every policy included; times are Unix seconds, null is unknown."""
    return json.dumps(asdict(report), indent=2)

"""`tritonwatch backtest`: list the alerts that would have fired, and score them against known incidents."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.text import Text

from triton_exporter.common.duration import duration_text, in_words
from triton_exporter.common.moments import local_text, utc_text
from triton_exporter.common.printable import printable
from triton_exporter.common.problem import Problem, ProblemsError
from triton_slo.amounts import budget_left
from triton_slo.artifact import Options
from triton_slo.backtest.history import (
    History,
    HistoryError,
    NoSeriesError,
    excluded_spans,
    fetch,
    from_csv,
    records_from,
    to_csv,
)
from triton_slo.backtest.replay import Episode, Replayed
from triton_slo.backtest.report import (
    IncidentError,
    LabelledIncident,
    Report,
    Score,
    backtest,
    read_incidents,
    resolution,
)
from triton_slo.lint import Surroundings, lint
from triton_slo.objective.exclusion import Span
from triton_slo.objective.model import Objective
from triton_slo.plan import Plan
from triton_slo.prometheus import WARNS, Prometheus
from tritonwatch import access, files, output
from tritonwatch.arguments import text_of
from tritonwatch.objective_files import load
from tritonwatch.status_table import Column, Fitted

_PIPE_WIDTH = 160


def run(args: argparse.Namespace) -> int:
    report, warnings = _replayed(args)
    for warning in warnings:
        print(printable(f"warning: {warning}"), file=sys.stderr)
    if args.json:
        # Every alert; times are Unix seconds, null is unknown.
        print(json.dumps(asdict(report), indent=2))
    else:
        console = Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH)
        console.print(tables(report, args.top))
    return 0


def answer(args: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    """Return what `--json` writes, and messages beside it. Raises ProblemsError."""
    report, warnings = _replayed(args)
    return asdict(report), warnings


def _replayed(args: argparse.Namespace) -> tuple[Report, list[str]]:
    """Return the alerts that would have fired, and warnings about the history."""
    if not (args.prometheus or args.history) or (args.history and "prometheus" in args.flags):
        raise ProblemsError(Problem("--history", "give this or --prometheus, and not both"))
    if args.last < 2 * args.step:
        raise ProblemsError(Problem("--last", "must be at least twice --step"))
    _refuse_save(args.save)
    loaded = load(args.objectives or files.objectives())
    objectives = {objective.name: objective for objective in loaded}
    try:
        incidents = _labelled_incidents(args.incidents)
        history, warnings = _read_history(args, loaded)
        if args.save is not None:
            output.write_file(Path(args.save), to_csv(history))
        recorded = sorted({slo for slo, _, _ in history.keys})
        if unknown := [name for name in recorded if name not in objectives]:
            reason = f"the history contains objectives without a file: {', '.join(unknown)}"
            raise ProblemsError(Problem("", reason, "give the folder of their files as --objectives DIR"))
        replayed_objectives = {
            name: Replayed(
                objectives[name], _options(args), excluded=_excluded_spans(args, objectives[name], history)
            )
            for name in recorded
        }
        warnings += _mistakes(args, [objectives[name] for name in replayed_objectives])
    except HistoryError as error:
        raise ProblemsError(Problem("", str(error))) from error
    except OSError as error:
        raise ProblemsError(Problem(str(error.filename), str(error.strerror))) from error
    return backtest(history, replayed_objectives, incidents), warnings


def _options(args: argparse.Namespace) -> Options:
    return Options(scrape_interval_seconds=args.scrape_interval)


def _mistakes(args: argparse.Namespace, objectives: Sequence[Objective]) -> list[str]:
    """Return the mistakes that `tritonwatch check` reports: an alert that cannot fire is never replayed."""
    around = Surroundings(args.scrape_interval, now=time.time())
    problems = (
        problem
        for objective in objectives
        for problem in lint(objective, lambda field: str(args.objectives), around)
    )
    return [f"tritonwatch check rejects this objective: {problem}" for problem in problems]


def _labelled_incidents(path: str | None) -> tuple[LabelledIncident, ...]:
    if not path:
        return ()
    try:
        return read_incidents(text_of(Path(path)))
    except IncidentError as error:
        raise ProblemsError(Problem(f"--incidents {path}", str(error)), code=1) from error


def _read_history(args: argparse.Namespace, objectives: Sequence[Objective]) -> tuple[History, list[str]]:
    if args.history:
        try:
            return from_csv(text_of(Path(args.history))), []
        except HistoryError as error:
            raise ProblemsError(Problem(f"--history {args.history}", str(error)), code=1) from error
    step = max(1.0, round(args.step))
    # On whole steps, so that two runs a moment apart ask the same questions.
    end = (time.time() if args.at is None else args.at) // step * step
    plans = [Plan(objective, _options(args)) for objective in objectives]
    asked = max(0.0, end - args.last // step * step)
    with access.connect(args) as prometheus:
        start = records_from(prometheus, plans, asked, end, step)
        try:
            history = fetch(prometheus, plans, start, end, step)
        except NoSeriesError as error:
            problem = Problem(
                "",
                f"Prometheus has no events of these objectives in the last {duration_text(args.last)}: their "
                "models had no requests, or it did not scrape the exporter",
                f"check its targets, and which models {args.objectives} names",
            )
            remarks = [Problem("", remark) for remark in _remarks(prometheus)]
            raise ProblemsError(*remarks, problem) from error
        warnings = _remarks(prometheus)
    if start > asked:
        warnings.append(
            f"--last {duration_text(args.last)}: Prometheus has no data of these objectives before "
            f"{utc_text(start)}, so only the last {in_words(end - start)} are replayed"
        )
    recorded = {slo for slo, _, _ in history.keys}
    if silent := [objective.name for objective in objectives if objective.name not in recorded]:
        # Counters grow between two samples: in steps that are shorter they show nothing at all.
        fix = "check that the model exists, and use a --step of at least two scrape intervals"
        warnings.append(f"not replayed, because there are no events: {', '.join(silent)} (fix: {fix})")
    return history, warnings


def _remarks(prometheus: Prometheus) -> list[str]:
    return [f"{WARNS}{warning}" for warning in prometheus.warnings]


def _excluded_spans(args: argparse.Namespace, objective: Objective, history: History) -> list[Span]:
    """Return when the exclusions of an objective applied; those in PromQL are asked for."""
    if not objective.exclusions:
        return []
    start, end = float(history.times[0]), float(history.times[-1])
    if args.history or not any(exclusion.promql for exclusion in objective.exclusions):
        try:
            return excluded_spans(objective.exclusions, start, end)
        except LookupError as error:
            fix = "replay this objective with --prometheus instead of --history"
            raise ProblemsError(Problem(objective.name, str(error.args[0]), fix)) from error
    with access.connect(args) as prometheus:
        return excluded_spans(objective.exclusions, start, end, prometheus)


def _refuse_save(path: str | None) -> None:
    """Raise ProblemsError, before any query, where the history cannot be saved without a loss."""
    if path is None:
        return
    parent = os.path.dirname(path) or "."
    if os.path.isdir(path):
        raise ProblemsError(Problem(f"--save {path}", "is a folder", "name a file in this folder"))
    if os.path.lexists(path):
        reason = "already exists and is not overwritten"
        raise ProblemsError(Problem(f"--save {path}", reason, "choose another file"))
    if not os.path.isdir(parent):
        reason = f"{parent} is not a folder"
        raise ProblemsError(Problem(f"--save {path}", reason, "create it, or choose another"))


def tables(report: Report, limit: int) -> Group:
    """Draw the score, then at most `limit` alerts."""
    shown, more = report.episodes[:limit], len(report.episodes[limit:])
    alerts = Fitted("What would have fired", _ALERTS, shown, lambda _: "", more)
    series = (
        f"{report.series} series from {utc_text(report.start)} to {utc_text(report.end)}, "
        f"every {in_words(report.step_seconds)}; unknown {report.unknown:.2%} of the time; "
        f"{report.incidents} labelled incidents"
    )
    heading = Text("\n".join([series, resolution(report.step_seconds), *_coverage(report)]))
    columns = (*_COUNTS, *(_MARKS if report.incidents else ()))
    score: list[Fitted[Score] | Text] = [Fitted("Pages and tickets", columns, (report.score,), lambda _: "")]
    if report.incidents:
        score.append(Text("detection and reset: median (worst)", style="dim italic"))
    return Group(heading, Text(), *score, Text(), alerts)


def _coverage(report: Report) -> Iterator[str]:
    """Yield how much of the period the data cover, where they begin clearly later than it."""
    whole = report.end - report.start
    slack = max(0.01 * whole, 2 * report.step_seconds)  # a first rate needs two scrapes
    first = min(report.data_from.values(), default=report.start)

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
            yield f"{slo}: data of the last {in_words(report.end - since)} ({share(since)})"


def _share_text(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def _median(median: float | None, worst: float | None) -> str:
    return "-" if median is None or worst is None else f"{in_words(median)} ({in_words(worst)})"


_COUNTS: tuple[Column[Score], ...] = (
    Column("pages", lambda score: str(score.pages)),
    Column("tickets", lambda score: str(score.alerts - score.pages), 2),
)

_MARKS: tuple[Column[Score], ...] = (
    Column("precision", lambda score: _share_text(score.precision), 3),
    Column("recall", lambda score: _share_text(score.recall), 1),
    Column("false pages", lambda score: str(score.false_pages)),
    Column(
        "pages/incident",
        lambda score: "-" if score.pages_per_incident is None else f"{score.pages_per_incident:.2f}",
        6,
    ),
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
    Column(
        "for",
        lambda episode: (
            "still firing" if episode.ended is None else in_words(episode.ended - episode.started)
        ),
        1,
    ),
    Column(
        "budget left then",
        lambda episode: "not known yet" if episode.budget_left is None else budget_left(episode.budget_left),
        2,
    ),
)

"""The page What if: the budget, pages and tickets that another objective would have had on past data."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from triton_exporter.common.duration import DAY, parse_seconds, time_text
from triton_exporter.common.problem import Problem
from triton_slo.backtest.history import HistoryError, NoSeriesError
from triton_slo.backtest.replay import Episode
from triton_slo.backtest.what_if import (
    Evidence,
    GroupOutcome,
    WhatIf,
    events_key,
    is_part_of,
    read_evidence,
    what_if,
)
from triton_slo.group_status import version_name
from triton_slo.lint import Surroundings
from triton_slo.objective import writing
from triton_slo.objective.model import Objective
from triton_slo.plan import Clock
from triton_slo.prometheus import Prometheus
from tritonwatch.web import what_if_form
from tritonwatch.web.drawing import WIDTH, TimeAxis, lines
from tritonwatch.web.site import Site
from tritonwatch.web.sources import CachedAnswer, PrometheusReader
from tritonwatch.web.urls import asked_choice, asked_time
from tritonwatch.web.what_if_form import HISTORIES, TARGETS, WINDOWS, WhatIfForm

MENU = ("What if", "/what-if")
CACHE_SECONDS = 600.0
"""Time for which a history is cached: every change of the objective is computed from it."""
_CACHED_HISTORIES = 4
"""Histories that are cached: each may have tens of megabytes."""
_FINE_SECONDS = 60.0
_FINE_DAYS = 1
"""Longest history, in days, that is read by the minute; longer ones are read as they are recorded."""
_MAX_CURVES = 3
_MAX_EPISODES = 40
_MAX_GROUPS = 50
_HEIGHT = 160.0
_MIN_BUDGET = -0.5
"""Budget at the bottom of the drawing; a budget below it is drawn there."""


@dataclass(frozen=True, slots=True)
class Bar:
    """An alert in the drawing."""

    x: float
    width: float
    severity: str
    words: str


def routes(site: Site) -> Sequence[Route]:
    """Return the page."""
    histories = site.sources.reader.sibling(CACHE_SECONDS, _CACHED_HISTORIES)
    return [Route(MENU[1], partial(_page, site, histories))]


def _page(site: Site, histories: PrometheusReader, request: Request) -> Response:
    bases = what_if_form.bases(site.sources.objectives)
    history = asked_choice(request, "history", tuple(HISTORIES), what_if_form.HISTORY)
    form = replace(what_if_form.filled(request.query_params, bases), history=history)
    base = bases[form.base]
    given = request.query_params.get("base", "")
    context: dict[str, object] = {
        "bases": tuple(bases),
        "own": frozenset(objective.name for objective in site.sources.objectives),
        "form": form,
        "windows": WINDOWS if form.window in WINDOWS else (form.window, *WINDOWS),
        "histories": tuple(HISTORIES),
        "targets": TARGETS,
        "thresholds": (),
        "chosen_threshold": "",
        "problems": (),
        "mistakes": (),
        "nothing": "",
        "not_here": "" if given in bases else given,
        "yaml": "",
        "result": None,
        "overrides": len(base.overrides),
        "tiers_changed": form.tiers != what_if_form.of_objective(base, form.base).tiers,
    }
    chosen = what_if_form.objective(form, base)
    if not isinstance(chosen, Objective):
        return site.page(request, "what_if.html", context | {"problems": _problems(chosen)})
    context["yaml"] = text = writing.write([chosen])
    around = Surroundings(site.sources.options.scrape_interval_seconds, now=time.time())
    context["mistakes"] = _problems(what_if_form.mistakes(text, around))
    try:
        answer = _evidence(site, histories, form, chosen, asked_time(request))
    except HistoryError as error:
        return site.page(request, "what_if.html", context | {"nothing": _no_history(error)})
    if answer.value is not None:
        result = what_if(answer.value, chosen, site.sources.options)
        context |= _bounds(form, answer.value) | _result(result)
    return site.page(request, "what_if.html", context, answer)


def _evidence(
    site: Site, histories: PrometheusReader, form: WhatIfForm, chosen: Objective, at: float | None
) -> CachedAnswer[Evidence | None]:
    options = site.sources.options
    days = HISTORIES[form.history]
    clock = Clock(options.time_scale, options.scrape_interval_seconds)
    step = clock.real("5m")
    if days <= _FINE_DAYS and options.time_scale == 1:
        step = max(_FINE_SECONDS, 2 * options.scrape_interval_seconds)
    own = next((objective for objective in site.sources.objectives if objective.name == form.base), None)
    # The name changes no event: with that of the base, the cached answer is used.
    asked = chosen if own is None else chosen.model_copy(update={"name": own.name})
    recorded = own is not None and is_part_of(asked, own)

    def read(prometheus: Prometheus) -> Evidence | None:
        end = histories.now if at is None else at
        length = days * DAY * options.time_scale
        with prometheus.collecting() as remarks:
            try:
                return read_evidence(prometheus, asked, options, end, length, step, recorded=recorded)
            except HistoryError as error:
                if not remarks.lines:
                    raise
                raise HistoryError("; ".join((*remarks.lines, str(error)))) from error

    key = ("what if", events_key(asked), recorded and asked.name, days, at)
    return site.checked(histories.ask(key, read, None))


def _problems(problems: Sequence[Problem]) -> tuple[str, ...]:
    return tuple(f"{problem.reason}{f' (fix: {problem.fix})' if problem.fix else ''}" for problem in problems)


def _no_history(error: HistoryError) -> str:
    if isinstance(error, NoSeriesError):
        return (
            "Prometheus has no series of these models for this indicator (fix: choose others, or check names)"
        )
    return str(error)


def _bounds(form: WhatIfForm, evidence: Evidence) -> dict[str, object]:
    """Return the thresholds at which a bucket ends, and that of the form, marked if no bucket ends there."""
    if not form.timed:
        return {}
    known = dict(evidence.bounds)
    now = parse_seconds(form.threshold)
    most = max(known.values(), default=0)
    choices = [(time_text(edge), _coverage_note(groups, most)) for edge, groups in sorted(known.items())]
    if now not in known:
        choices = [(form.threshold, "no bucket ends here" if known else ""), *choices]
    return {
        "thresholds": choices,
        "chosen_threshold": form.threshold if now not in known else time_text(now),
    }


def _coverage_note(groups: int, most: int) -> str:
    return "" if groups == most else f"{groups} of {most} groups have this bucket"


def _result(result: WhatIf) -> dict[str, object]:
    report = result.report
    axis = TimeAxis(report.start, report.end)
    return {
        "result": result,
        "report": report,
        "axis": axis,
        "curves": [
            (index, group, lines(axis, result.times, curve, _MIN_BUDGET, 1.0, _HEIGHT))
            for index, (group, curve) in enumerate(zip(result.groups, result.curves, strict=True))
            if index < _MAX_CURVES and group.budget_left is not None
        ],
        "pages": report.score.pages,
        "tickets": report.score.alerts - report.score.pages,
        "height": _HEIGHT,
        "zero": round(_HEIGHT * (1 / (1 - _MIN_BUDGET)), 1),
        "drawing_width": WIDTH,
        "bars": [
            Bar(
                axis.x(episode.started),
                axis.width(episode.started, axis.end if episode.ended is None else episode.ended),
                episode.severity,
                f"{episode.severity} {episode.alert}: {_of(episode)}",
            )
            # Pages are drawn last, over tickets.
            for episode in sorted(report.episodes, key=lambda episode: episode.severity == "page")
        ],
        "groups": result.groups[:_MAX_GROUPS],
        "more_groups": max(0, len(result.groups) - _MAX_GROUPS),
        "episodes": [(episode, _of(episode)) for episode in report.episodes[-_MAX_EPISODES:][::-1]],
        "more_episodes": max(0, len(report.episodes) - _MAX_EPISODES),
        "spent": sum(
            1 for group in result.groups if group.budget_left is not None and group.budget_left <= 0
        ),
        "some_estimated": any(group.lowest is not None for group in result.groups),
        "some_unknown": any(group.unknown for group in result.groups),
        "in_doubt": sum(map(_in_doubt, result.groups)),
    }


def _in_doubt(group: GroupOutcome) -> bool:
    """Return whether the error of the estimate decides if the budget is spent."""
    return group.lowest is not None and group.highest is not None and group.lowest <= 0 < group.highest


def _of(episode: Episode) -> str:
    _, model, version = episode.key
    return version_name(model, version) or "all models"

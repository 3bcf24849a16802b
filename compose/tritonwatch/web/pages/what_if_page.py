"""The page What if: the budget, pages and tickets that another objective would have had on past data.

First the page, then its form: what it shows, and the objective that its fields ask for.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from triton_exporter.common.duration import DAY, parse_seconds, time_text
from triton_exporter.common.problem import Problem
from triton_slo.backtest.history import HistoryError, NoSeriesError
from triton_slo.backtest.replay import Episode
from triton_slo.backtest.what_if import (
    Evidence,
    WhatIf,
    events_key,
    is_part_of,
    read_evidence,
    what_if,
)
from triton_slo.group_status import version_name
from triton_slo.indicators import KINDS, Indicator
from triton_slo.indicators.histograms import TimedIndicator
from triton_slo.lint import Surroundings, findings
from triton_slo.objective import reading, writing
from triton_slo.objective.model import Objective
from triton_slo.plan import Clock
from triton_slo.prometheus import Prometheus
from tritonwatch.web.drawing import WIDTH, TimeAxis, lines
from tritonwatch.web.site import Site
from tritonwatch.web.sources import CachedAnswer, PrometheusReader
from tritonwatch.web.urls import asked_choice, asked_time

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
    histories = site.sources.reader.sibling(CACHE_SECONDS, _CACHED_HISTORIES)
    return [Route(MENU[1], partial(_page, site, histories))]


def _page(site: Site, histories: PrometheusReader, request: Request) -> Response:
    own = site.sources.objectives
    bases = base_objectives(own)
    history = asked_choice(request, "history", tuple(HISTORIES), HISTORY)
    form = replace(filled_form(request.query_params, bases), history=history)
    base = bases[form.base]
    given = request.query_params.get("base", "")
    context: dict[str, object] = {
        "bases": tuple(bases),
        "own": frozenset(objective.name for objective in own),
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
    }
    chosen = asked_objective(form, base)
    if not isinstance(chosen, Objective):
        return site.page(request, "what_if.html", context | {"problems": _problems(chosen)})
    context["yaml"] = text = writing.write([chosen])
    around = Surroundings(site.sources.options.scrape_interval_seconds, now=time.time())
    context["mistakes"] = _problems(findings(reading.read([("objective", text)]), around))
    try:
        answer = _evidence(site, histories, form, chosen, asked_time(request))
    except NoSeriesError:
        context["nothing"] = (
            "Prometheus has no series of these models for this indicator (fix: choose others, or check names)"
        )
        return site.page(request, "what_if.html", context)
    except HistoryError as error:
        return site.page(request, "what_if.html", context | {"nothing": str(error)})
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
    recorded = own is not None and is_part_of(chosen, own)

    def read(prometheus: Prometheus) -> Evidence | None:
        end = histories.now if at is None else at
        length = days * DAY * options.time_scale
        with prometheus.collecting() as remarks:
            try:
                return read_evidence(prometheus, chosen, options, end, length, step, recorded=recorded)
            except HistoryError as error:
                if not remarks.lines:
                    raise
                raise HistoryError("; ".join((*remarks.lines, str(error)))) from error

    key = ("what if", events_key(chosen), recorded and chosen.name, days, at)
    return site.checked(histories.ask(key, read, None))


def _problems(problems: Sequence[Problem]) -> tuple[str, ...]:
    return tuple(f"{problem.reason}{f' (fix: {problem.fix})' if problem.fix else ''}" for problem in problems)


def _bounds(form: WhatIfForm, evidence: Evidence) -> dict[str, object]:
    """Return the thresholds at which a bucket ends, and that of the form, marked if no bucket ends there."""
    if not form.timed:
        return {}
    known = dict(evidence.bounds)
    now = parse_seconds(form.threshold)
    most = max(known.values(), default=0)
    choices = [
        (time_text(edge), "" if groups == most else f"{groups} of {most} groups have this bucket")
        for edge, groups in sorted(known.items())
    ]
    if now not in known:
        choices = [(form.threshold, "no bucket ends here" if known else ""), *choices]
    return {
        "thresholds": choices,
        "chosen_threshold": form.threshold if now not in known else time_text(now),
    }


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
        # Those of which the error of the estimate decides whether the budget is spent.
        "in_doubt": sum(
            group.lowest is not None and group.highest is not None and group.lowest <= 0 < group.highest
            for group in result.groups
        ),
    }


def _of(episode: Episode) -> str:
    _, model, version = episode.key
    return version_name(model, version) or "all models"


WINDOWS = ("7d", "14d", "28d", "30d", "90d", "week", "month", "quarter")
TARGETS = ("90", "95", "98", "99", "99.5", "99.8", "99.9", "99.95", "99.98", "99.99", "99.995", "99.999")
"""Stops of the slider, in percent; any other number can be typed."""
HISTORIES = {"1d": 1, "7d": 7, "30d": 30, "90d": 90}
"""Lengths of the history in days."""
HISTORY = "30d"
_MAX_FIELD_CHARACTERS = 4000
_FIELDS = ("models", "target", "threshold", "window")


@dataclass(frozen=True, slots=True)
class WhatIfForm:
    """All fields as texts, as they were sent or as the base has them."""

    base: str
    models: str
    target: str
    threshold: str
    window: str
    history: str

    @property
    def timed(self) -> bool:
        """True if the indicator has a threshold."""
        return bool(self.threshold)


def base_objectives(objectives: Sequence[Objective]) -> dict[str, Objective]:
    """Return the objectives to begin with: the given ones, then a plain one of each other kind of indicator."""
    by_name = {own.name: own for own in objectives}
    used = {own.indicator.kind for own in objectives}
    for name, indicator in KINDS.items():
        if name not in used and (plain := _default_objective(indicator)) is not None:
            by_name.setdefault(name, plain)
    return by_name


def _default_objective(indicator: type[Indicator]) -> Objective | None:
    """Return an objective of a kind with its default target; None for a kind that needs queries of the user."""
    measured = {"kind": indicator.name()}
    if issubclass(indicator, TimedIndicator):
        measured["threshold"] = time_text(indicator.default_seconds)
    name = indicator.name().replace("_", "-")
    try:
        return Objective.model_validate(
            {"name": name, "target": indicator.default_target, "indicator": measured}
        )
    except ValidationError:
        return None


def filled_form(parameters: Mapping[str, str], objectives: Mapping[str, Objective]) -> WhatIfForm:
    """Return the form for the parameters of an address; a field that is not there is as the base has it."""
    chosen = parameters.get("base", "")
    base = objectives.get(chosen) or next(iter(objectives.values()))
    name = chosen if chosen in objectives else next(iter(objectives))
    form = form_of(base, name)
    # Fields of another base do not concern this one.
    if parameters.get("of", name) != name:
        return replace(form, **_given(parameters, ("models",)))
    return replace(
        form, **_given(parameters, [each for each in _FIELDS if form.timed or each != "threshold"])
    )


def _given(parameters: Mapping[str, str], fields: Sequence[str]) -> dict[str, Any]:
    """Return the texts of those fields that the address has, without blanks around them."""
    texts = {field: parameters[field] for field in fields if field in parameters}
    # A pattern of a name may end in a blank.
    return {
        field: (text.lstrip() if text.startswith("~") else text.strip())[:_MAX_FIELD_CHARACTERS]
        for field, text in texts.items()
    }


def form_of(original: Objective, base: str) -> WhatIfForm:
    """Return the form as an objective fills it."""
    calendar = original.calendar
    chosen = original.models
    models = f"~{chosen.regex}" if chosen.regex else ", ".join(chosen.names or ())
    return WhatIfForm(
        base=base,
        models="all" if chosen.everything else models,
        target=_percent(original.target),
        threshold=original.indicator.threshold_text,
        window=calendar.calendar if calendar else original.window.nominal,
        history=HISTORY,
    )


def _percent(share: float) -> str:
    return (
        f"{round(100 * share, 10):g}"
        if round(100 * share, 4) == 100 * share
        else repr(round(100 * share, 10))
    )


def asked_objective(form: WhatIfForm, base: Objective) -> Objective | tuple[Problem, ...]:
    """Return the objective that a form asks for, or what is wrong with it in the words of `tritonwatch check`."""
    text = writing.write([base]) if form == form_of(base, form.base) else _objective_yaml(form, base)
    made = reading.read([("objective", text)])
    return made.problems if made.problems else made.objectives[0]


def _objective_yaml(form: WhatIfForm, base: Objective) -> str:
    data = writing.plain(base)
    unchanged = form_of(base, form.base)
    # The sign may be left out in the form.
    data["target"] = f"{form.target}%" if re.fullmatch(r"[0-9]*\.?[0-9]+", form.target) else form.target
    if form.window != unchanged.window:
        zone = {"timezone": base.calendar.timezone} if base.calendar else {}
        data["window"] = {"calendar": form.window, **zone} if form.window in WINDOWS[-3:] else form.window
    if form.models != unchanged.models:
        data["models"] = _selection(form.models)
    if form.threshold != unchanged.threshold:
        indicator = data["indicator"]
        data["indicator"] = {
            **(indicator if isinstance(indicator, dict) else {"kind": indicator}),
            "threshold": form.threshold,
        }
    return writing.dump({"objectives": [data]})


def _selection(text: str) -> Any:
    if text in ("", "all"):
        return "all"
    if text.startswith("~"):
        return {"regex": text[1:]}
    return [name.strip() for name in text.split(",") if name.strip()]

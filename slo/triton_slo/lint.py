"""Lint of objectives: mistakes that Prometheus would accept without an error."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import combinations, islice

from triton_exporter.common.duration import DAY, duration_text, parse_seconds
from triton_exporter.common.problem import Problem
from triton_slo import problem_words
from triton_slo.artifact import Options
from triton_slo.expression import always_answers, our_series
from triton_slo.fields import Choice, error_budget
from triton_slo.indicators import ALERTS
from triton_slo.indicators.indicator import FieldFinding
from triton_slo.objective.exclusion import Exclusion, clipped
from triton_slo.objective.model import Objective
from triton_slo.objective.reading import ParsedObjectives
from triton_slo.plan import MIN_SCRAPES, Plan
from triton_slo.sources import BACKEND_COUNTERS, CAVEATS, HIDING, SEES_FAILURES

_MONDAY = 1_767_571_200
"""In any week, every recurring exclusion shows when it applies."""


def exclusion_findings(objective: Objective) -> Iterator[FieldFinding]:
    """Yield mistakes in an objective's exclusions."""
    for index, exclusion in enumerate(objective.exclusions):
        for reason, fix in _query_findings(exclusion.promql or ""):
            yield f"exclusions.{index}.promql", reason, fix
        if exclusion.start is not None and exclusion.days is None:
            length = exclusion.span[1] - exclusion.span[0]
            if length >= objective.window.seconds:
                reason = f"leaves out {length / DAY:.0f} days, as long as the objective's window or longer"
                yield f"exclusions.{index}", reason, "check its year, or drop the objective"
    for (first, exclusion), (second, other) in combinations(enumerate(objective.exclusions), 2):
        if _overlap(exclusion, other):
            reason = f"overlaps with exclusions.{first} ({exclusion.reason})"
            yield (
                f"exclusions.{second}",
                reason,
                "time does not count only once: merge them, or check the days",
            )


def _query_findings(text: str) -> Iterator[tuple[str, str]]:
    if not text:
        return
    try:
        ours, always = sorted(set(our_series(text, ALERTS))), always_answers(text)
    except RecursionError:
        yield "nested too deeply to be checked", "record a part of it by a rule"
        return
    if ours:
        reason = f"reads {ours[0]}, which is made of objectives and stops while time does not count: a circle"
        yield reason, "read what announces the maintenance, not what it does to the SLI"
    elif always:
        reason = "has a result for as long as its series exist, or always: then nothing ever counts"
        yield reason, "write a comparison that is true during it, as in maintenance_announced == 1"


def ended_exclusions(objective: Objective, now: float | None) -> Iterator[FieldFinding]:
    """Yield exclusions that ended before a Unix time; without one, none."""
    for index, exclusion in enumerate(objective.exclusions):
        if (
            now is not None
            and exclusion.start is not None
            and exclusion.days is None
            and exclusion.span[1] <= now
        ):
            reason = "has ended; only backtest and replay still use it"
            yield f"exclusions.{index}", reason, "remove it, unless you replay that time"


def _overlap(exclusion: Exclusion, other: Exclusion) -> bool:
    """Return whether two of a kind overlap, or a weekly one contains all of a single one."""
    if exclusion.promql is not None or other.promql is not None:
        return exclusion.promql == other.promql
    if exclusion.days is None and other.days is None:
        return bool(list(clipped([exclusion.span], *other.span)))
    if exclusion.days is not None and other.days is not None:
        return any(list(other.spans(low, high)) for low, high in exclusion.spans(_MONDAY, _MONDAY + 8 * DAY))
    once, weekly = (exclusion, other) if exclusion.days is None else (other, exclusion)
    return list(weekly.spans(*once.span)) == [once.span]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Facts about the Prometheus that will run the rules; None is unknown, and is not checked."""

    scrape_seconds: float = 15.0
    retention_seconds: float | None = None
    models: frozenset[str] | None = None
    now: float | None = None
    hiding: Mapping[str, frozenset[str]] | None = None
    """Models of which a source may miss failures, by source in HIDING."""


def findings(reading: ParsedObjectives, around: Surroundings) -> list[Problem]:
    """Return all findings about parsed objectives."""
    return [
        problem
        for objective in reading.objectives
        for problem in lint(objective, partial(reading.place, objective.name), around)
    ]


def lint(objective: Objective, place: Callable[[str], str], around: Surroundings) -> Iterator[Problem]:
    """Yield all findings about one objective; `place` gives `file:line` of a field."""
    choices = {"model": objective.models, "version": objective.versions}
    choosing = [label for label, choice in choices.items() if not choice.everything]
    for field, reason, fix in (
        *_dead_tiers(objective),
        *_short_windows(objective, around),
        *_long_window(objective, around),
        *objective.indicator.findings(objective.group_by, choosing),
        *_unknown_models(objective, around),
        *_shadowed(objective, place),
        *exclusion_findings(objective),
    ):
        yield Problem(place(field), f"{objective.name}: {field}: {reason}", fix)


def notes(
    objective: Objective, place: Callable[[str], str], now: float | None, bounds: Collection[float]
) -> Iterator[Problem]:
    """Yield conditions under which a valid objective works, and exclusions that ended before `now` (Unix time).

    `bounds` are those (in seconds) that its histogram is known to have.
    """
    for field, reason, fix in ended_exclusions(objective, now):
        yield Problem(place(field), f"{objective.name}: {field}: {reason}", fix)
    thresholds = [
        objective.threshold_seconds,
        *(override.threshold_seconds for override in objective.overrides),
    ]
    known = sorted({value for value in thresholds if value is not None} - {*bounds})
    for field, reason, fix in objective.indicator.notes(known):
        yield Problem(place(field), f"{objective.name}: {reason}", fix)


def needed_series(reading: ParsedObjectives) -> Iterator[Problem]:
    """Yield notes on objectives that measure what neither Triton nor the exporter exposes: what makes it appear."""
    for objective in reading.objectives:
        for _, what, fix in islice(objective.indicator.needs(Plan(objective, Options()).scope), 1):
            yield Problem(
                reading.place(objective.name, "indicator"), f"{objective.name}: it needs {what}", fix
            )


def hidden_failures(reading: ParsedObjectives, around: Surroundings) -> Iterator[Problem]:
    """Yield notes on objectives of models whose failures nothing else here would see."""
    seeing = [objective for objective in reading.objectives if SEES_FAILURES & _possible_sources(objective)]
    for objective in reading.objectives:
        for source in sorted(HIDING & _possible_sources(objective)):
            if around.hiding is None:
                # Most queues have no limit, but most models are of Python.
                if not seeing and source == BACKEND_COUNTERS:
                    yield _hidden(reading, objective, source)
                continue
            hidden = [
                name
                for name in sorted(around.hiding.get(source, ()))
                if objective.models.includes(name)
                and not any(other.models.includes(name) for other in seeing)
            ]
            if hidden:
                yield _hidden(reading, objective, source, f" of {', '.join(hidden)}")


def _hidden(reading: ParsedObjectives, objective: Objective, source: str, named: str = "") -> Problem:
    caveat = CAVEATS[source]
    reason = f"{objective.name}: {caveat.word}{named}"
    return Problem(
        reading.place(objective.name, "indicator"), reason, caveat.settled_by, meaning=caveat.meaning
    )


def _possible_sources(objective: Objective) -> frozenset[str]:
    return Plan(objective, Options()).measure.possible_sources


def _dead_tiers(objective: Objective) -> Iterator[FieldFinding]:
    plan = Plan(objective, Options())
    targets = (objective.target, *(override.target for override in objective.overrides))
    budgets = {error_budget(target) for target in targets if target is not None}
    tiers = objective.alerting.tiers if objective.alerting.enabled else ()
    for budget in sorted(budgets):
        dead = [tier for tier in tiers if plan.factor(tier) * budget >= 1]
        if not dead:
            continue
        names = ", ".join(tier.name for tier in dead)
        factors = [plan.factor(tier) for tier in dead]
        which, need, them = ("tier", "it needs", "it") if len(dead) == 1 else ("tiers", "they need", "them")
        reason = (
            f"{which} {names} can never fire at a target of {round(100 * (1 - budget), 9):g}%: {need} "
            f"{', '.join(f'{factor * budget:.0%}' for factor in factors)} of events to fail "
            f"({', '.join(f'{factor:g}' for factor in factors)} times the budget)"
        )
        fix = f"raise the target above {1 - 1 / max(factors):.2%}, or give {them} a burn under {1 / budget:g}"
        yield "alerting", reason, fix


def _short_windows(objective: Objective, around: Surroundings) -> Iterator[FieldFinding]:
    least = MIN_SCRAPES * around.scrape_seconds
    for tier in objective.alerting.tiers:
        if parse_seconds(tier.short) < least:
            reason = f"tier {tier.name}: its short window {tier.short} holds fewer than {MIN_SCRAPES} scrapes"
            yield "alerting", reason, f"make it {duration_text(least)} or longer, or scrape more often"


def _long_window(objective: Objective, around: Surroundings) -> Iterator[FieldFinding]:
    needed, retention = objective.window.history_seconds, around.retention_seconds
    if retention is not None and needed > retention:
        lengths = f"{duration_text(needed)} exceed the retention of Prometheus ({duration_text(retention)})"
        yield (
            "window",
            f"{lengths}: older failures are missing from the budget",
            "keep data longer (--storage.tsdb.retention.time), or use a shorter window",
        )


def _unknown_models(objective: Objective, around: Surroundings) -> Iterator[FieldFinding]:
    if around.models is None:
        return
    choices = [("models", objective.models)]
    choices += [(f"overrides.{i}.models", override.models) for i, override in enumerate(objective.overrides)]
    for field, choice in choices:
        if not any(choice.includes(name) for name in around.models):
            yield (
                field,
                "matches no model that Prometheus knows",
                _nearest_model(choice.names or (), around.models),
            )
        for name in choice.names or ():
            if name not in around.models and len(choice.names or ()) > 1:
                yield field, f"Prometheus knows no model {name!r}", _nearest_model((name,), around.models)


def _nearest_model(wanted: Iterable[str], models: frozenset[str]) -> str:
    near = [near_name for name in wanted if (near_name := problem_words.nearest_as_fix(name, models))]
    return near[0] if near else f"there are: {', '.join(sorted(models)[:8]) or 'none'}"


def _shadowed(objective: Objective, place: Callable[[str], str]) -> Iterator[FieldFinding]:
    """Yield overrides of models that the objective leaves out, or that earlier overrides take."""
    for index, override in enumerate(objective.overrides):
        field, listed = f"overrides.{index}", override.models.names or ()
        if outside := [name for name in listed if not objective.models.includes(name)]:
            yield (
                field,
                f"{outside[0]!r} is not among the objective's models",
                "add it there, or drop the override",
            )
        for earlier, first in enumerate(objective.overrides[:index]):
            if not _is_within(override.versions, first.versions):
                continue
            taken = [name for name in listed if first.models.includes(name)]
            if taken or _is_within(override.models, first.models):
                which = f" to {', '.join(taken)}" if taken and len(taken) < len(listed) else ""
                line = place(f"overrides.{earlier}").rpartition(":")[2]
                reason = f"never applies{which}: the override of line {line} applies first"
                yield field, reason, f"move it above line {line}, or drop it"
                break


def _is_within(part: Choice, whole: Choice) -> bool:
    """Return whether one choice surely chooses nothing that the other leaves out."""
    named = part.names is not None and all(whole.includes(name) for name in part.names)
    return whole.everything or part == whole or named

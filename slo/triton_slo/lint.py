"""What Prometheus would accept in silence, and nobody would notice until the night it matters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import promql_parser as promql

from triton_exporter.catalogue import triton
from triton_exporter.distribution.buckets import DEFAULT_BOUNDS
from triton_exporter.duration import parse_seconds, render
from triton_slo.artifact import Options
from triton_slo.exclusion_lint import exclusion_doubts, over
from triton_slo.objective.model import (
    ALL_REASONS,
    WINDOW,
    CalendarWindow,
    Choice,
    Custom,
    Errors,
    FirstResponse,
    Latency,
    Objective,
    Probe,
    Queue,
)
from triton_slo.objective.reading import Reading
from triton_slo.problem import Problem
from triton_slo.rules.periods import LAST, changes
from triton_slo.rules.plan import Plan
from triton_slo.rules.unknown import FORGET
from triton_slo.rules.windows import MIN_SCRAPES
from triton_slo.sources import BACKEND_COUNTERS, CAVEATS

_YEAR = 365 * 86_400
TRITON_BOUNDS_MS = (100, 500, 2000, 5000)
"""Default buckets of Triton's own first-response histogram."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is known about the place the rules will run in; None is unknown, and then not judged."""

    scrape_seconds: float = 15.0
    retention_seconds: float | None = None
    models: frozenset[str] | None = None
    now: float | None = None
    hiding: frozenset[str] | None = None
    """Models whose backend may hide failures from Triton's counters."""


def doubts(reading: Reading, around: Surroundings) -> list[Problem]:
    """All doubts about what was read."""
    return [
        problem
        for one in reading.objectives
        for problem in lint(one, partial(reading.place, one.name), around)
    ]


def lint(objective: Objective, place: Callable[[str], str], around: Surroundings) -> Iterator[Problem]:
    """All doubts about one objective; `place` gives `file:line` of a field."""
    for field, reason, fix in (
        *_dead_tiers(objective),
        *_short_windows(objective, around),
        *_long_window(objective, around),
        *_forgotten(objective),
        *_reasons(objective),
        *_horizon(objective, around),
        *_names(objective, around),
        *_shadowed(objective),
        *_unequal_labels(objective),
        *exclusion_doubts(objective),
    ):
        yield Problem(place(field), f"{objective.name}: {field}: {reason}", fix)


def notes(objective: Objective, place: Callable[[str], str], now: float | None = None) -> Iterator[Problem]:
    """What is right only if something else is set up for it, or was right before `now` (Unix time)."""
    for field, reason, fix in over(objective, now):
        yield Problem(place(field), f"{objective.name}: {field}: {reason}", fix)
    thresholds = [objective.threshold_seconds, *(one.threshold_seconds for one in objective.overrides)]
    for threshold in sorted({value for value in thresholds if value is not None}):
        text = render(threshold)
        match objective.indicator:
            case Latency() | Queue() if threshold not in DEFAULT_BOUNDS:
                reason = f"threshold {text} lies between the exporter's default buckets"
                fix = "start the exporter with --buckets-from and the folder of this file"
            case FirstResponse(engine="triton") if threshold * 1000 not in TRITON_BOUNDS_MS:
                reason = f"threshold {text} lies between Triton's default buckets (100, 500, 2000, 5000 ms)"
                fix = f"set buckets for {triton.FIRST_RESPONSE_MS} in the model's model_metrics"
            case _:
                continue
        yield Problem(place("indicator.threshold"), f"{objective.name}: {reason}", fix)


def hidden_failures(reading: Reading, around: Surroundings) -> Iterator[Problem]:
    """Notes on `errors` objectives of models whose failures nothing else here would see."""
    seeing = [one for one in reading.objectives if _sees_failures(one)]
    caveat = CAVEATS[BACKEND_COUNTERS]
    for one in reading.objectives:
        if not isinstance(one.indicator, Errors) or (around.hiding is None and seeing):
            continue
        hidden = sorted(
            name
            for name in around.hiding or ()
            if one.models.holds(name) and not any(other.models.holds(name) for other in seeing)
        )
        if around.hiding is None or hidden:
            named = f" of {', '.join(hidden[:3])}" + (f" and {len(hidden) - 3} more" if hidden[3:] else "")
            reason = f"{caveat.word}{named if hidden else ''}: {caveat.meaning}"
            yield Problem(reading.place(one.name, "indicator"), f"{one.name}: {reason}", caveat.settled_by)


def _sees_failures(objective: Objective) -> bool:
    match objective.indicator:
        case Probe():
            return True
        case Custom(counts_failures=counts):
            return counts
        case _:
            return False


Doubt = tuple[str, str, str]


def _dead_tiers(objective: Objective) -> Iterator[Doubt]:
    plan = Plan(objective, Options())
    budgets = {round(1 - variant.target, 12) for variant in plan.variants}
    for tier in objective.alerting.tiers if objective.alerting.enabled else ():
        factor = tier.factor(objective.window.seconds)
        for budget in sorted(budgets):
            if factor * budget >= 1:
                reason = (
                    f"tier {tier.name} can never fire at a target of {round(100 * (1 - budget), 9):g}%: it needs "
                    f"{factor * budget:.0%} of events to fail ({factor:g} times the budget)"
                )
                fix = f"raise the target above {1 - 1 / factor:.2%}, or give it a burn under {1 / budget:g}"
                yield "alerting", reason, fix


def _short_windows(objective: Objective, around: Surroundings) -> Iterator[Doubt]:
    least = MIN_SCRAPES * around.scrape_seconds
    for tier in objective.alerting.tiers:
        if parse_seconds(tier.short) < least:
            reason = f"tier {tier.name}: its short window {tier.short} holds fewer than {MIN_SCRAPES} scrapes"
            yield "alerting", reason, f"make it {render(least)} or longer, or scrape more often"


def _horizon(objective: Objective, around: Surroundings) -> Iterator[Doubt]:
    window = objective.window
    if around.now is None or not isinstance(window, CalendarWindow):
        return
    if around.now > LAST.timestamp() - _YEAR and changes(window.timezone)[1]:
        reason = f"the rules know the clock of {window.timezone} only until {LAST:%Y-%m-%d}"
        yield "window", reason, "update tritonwatch; from then on a period may begin an hour early or late"


def _long_window(objective: Objective, around: Surroundings) -> Iterator[Doubt]:
    window = objective.window
    # A calendar period's events are carried on from hour to hour; only the longest burn window looks further back.
    needed = parse_seconds("3d") if isinstance(window, CalendarWindow) else window.seconds
    kept = around.retention_seconds
    if kept is not None and needed > kept:
        reason = (
            f"{render(needed)} are longer than Prometheus keeps ({render(kept)}): the budget looks better"
        )
        yield "window", reason, "keep data longer (--storage.tsdb.retention.time), or promise for less time"


def _forgotten(objective: Objective) -> Iterator[Doubt]:
    unknown = objective.unknown
    if unknown.policy != "ignore" and parse_seconds(unknown.after) >= parse_seconds(FORGET):
        reason = (
            f"a group counts as removed after {FORGET} without data (unless the exporter calls it expected), "
            "before it would be called unknown"
        )
        yield "unknown.after", reason, f"make it shorter than {FORGET}"


def _reasons(objective: Objective) -> Iterator[Doubt]:
    if isinstance(objective.indicator, Errors):
        for reason in objective.indicator.reasons:
            if reason not in ALL_REASONS:
                yield (
                    "indicator.reasons",
                    f"Triton counts no failure as {reason!r}: it would never be bad",
                    f"write some of {', '.join(ALL_REASONS)}",
                )


def _names(objective: Objective, around: Surroundings) -> Iterator[Doubt]:
    if around.models is None:
        return
    choices = [("models", objective.models)]
    choices += [(f"overrides.{i}.models", one.models) for i, one in enumerate(objective.overrides)]
    for field, choice in choices:
        if not any(choice.holds(name) for name in around.models):
            yield field, "matches no model that Prometheus knows", _nearest(choice, around.models)
        for name in choice.names or ():
            if name not in around.models and len(choice.names or ()) > 1:
                yield field, f"Prometheus knows no model {name!r}", _nearest(choice, around.models)


def _nearest(choice: Choice, models: frozenset[str]) -> str:
    from difflib import get_close_matches

    near = [found for name in choice.names or () for found in get_close_matches(name, sorted(models), 1)]
    return f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(sorted(models)[:8]) or 'none'}"


def _shadowed(objective: Objective) -> Iterator[Doubt]:
    taken: set[str] = set()
    for index, override in enumerate(objective.overrides):
        names = override.models.names
        if names is not None:
            outside = [name for name in names if not objective.models.holds(name)]
            if outside:
                reason = f"{outside[0]!r} is not among the objective's models"
                yield f"overrides.{index}", reason, "add it there, or drop the override"
            if names and all(name in taken for name in names):
                reason = "earlier overrides already cover all of its models; the first one holds"
                yield f"overrides.{index}", reason, "merge them"
            if override.versions.everything:
                taken.update(names)


def _unequal_labels(objective: Objective) -> Iterator[Doubt]:
    if not isinstance(objective.indicator, Custom):
        return
    for field in ("good", "errors", "total", "error_ratio"):
        text = getattr(objective.indicator, field)
        if text is not None:
            try:
                found = list(_mismatches(promql.parse(text.replace(WINDOW, "5m"))))
            except RecursionError:
                yield f"indicator.{field}", "nested too deeply to be checked", "record a part of it by a rule"
                continue
            for left, right in found:
                yield (
                    f"indicator.{field}",
                    f"sides with labels ({left}) and ({right}) never match: the result is always empty",
                    "aggregate both sides by the same labels, or say on (...) which count",
                )


def _mismatches(node: object) -> Iterator[tuple[str, str]]:
    """Binary operations between aggregations by different labels, without on or ignoring."""
    if isinstance(node, promql.BinaryExpr):
        sides = [_labels(side) for side in (node.lhs, node.rhs)]
        matching = getattr(node.modifier, "matching", None)
        if None not in sides and sides[0] != sides[1] and matching is None and str(node.op) != "or":
            left, right = (", ".join(sorted(side or ())) for side in sides)
            yield left, right
    for name in ("lhs", "rhs", "expr"):
        child = getattr(node, name, None)
        if child is not None and not isinstance(child, str):
            yield from _mismatches(child)
    for argument in _arguments(node):
        yield from _mismatches(argument)


def _arguments(node: object) -> Sequence[object]:
    found = getattr(node, "args", ())
    return found if isinstance(found, list | tuple) else ()


def _labels(node: object) -> frozenset[str] | None:
    while isinstance(node, promql.ParenExpr):
        node = node.expr
    if not isinstance(node, promql.AggregateExpr):
        return None
    modifier = node.modifier
    if modifier is None:
        return frozenset()
    return frozenset(modifier.labels) if modifier.type == promql.AggModifierType.By else None

"""Groups of which nothing trustworthy is known: their series vanished, requests are stuck, a bucket is missing.

Idle is not unknown: a model nobody asks keeps its counters. Nor is a retired group (see `retired`).
"""

from __future__ import annotations

from collections.abc import Iterator

from triton_exporter.catalogue import state, triton
from triton_slo import conventions as names
from triton_slo.promql import Matchers, by, number, on
from triton_slo.rules.excluding import counting
from triton_slo.rules.memory import warm
from triton_slo.rules.plan import Plan
from triton_slo.rules.retired import unless_retired, with_version
from triton_slo.rules.rulefile import Rule

MIN_SCRAPES = 30
"""Nothing is called unknown sooner than this, however short the time scale."""
FORGET = "1d"
"""A group that the exporter does not call expected counts as removed after this long without data."""


def unknown_rules(plan: Plan) -> Iterator[Rule]:
    """Rules that record each reason for not knowing."""
    if plan.objective.unknown.policy == "ignore":
        return
    yield _rule(plan, "vanished", _vanished(plan))
    measures = [(variant, plan.measure(variant)) for variant in plan.variants]
    if any(measure.stuck for _, measure in measures):
        yield _rule(plan, "stuck", _stuck(plan))
    after = plan.clock.text(plan.objective.unknown.after, MIN_SCRAPES)
    for _, measure in measures:
        if measure.silent:
            yield _rule(plan, "silent", f"({measure.silent(after)} {unless_retired(plan)}) == 1 {warm(plan)}")
        if measure.no_bucket:
            yield _rule(plan, "no_bucket", f"({measure.no_bucket}) == 1")


def _rule(plan: Plan, reason: str, expr: str) -> Rule:
    return Rule(expr=counting(plan, expr), record=names.UNKNOWN, labels={**plan.labels, names.REASON: reason})


def _vanished(plan: Plan) -> str:
    """Seen before, gone for a while, and neither retired nor unexpected; never right after a pause of the rules."""
    after = number(plan.clock.real(plan.objective.unknown.after, MIN_SCRAPES))
    forget = number(plan.clock.real(FORGET, 2 * MIN_SCRAPES))
    seen = f"{names.LAST_SEEN}{with_version(plan)}"
    gone, recent = f"{seen} < time() - {after}", f"{seen} > time() - {forget}"
    if "model" not in plan.objective.group_by:
        return f"0 * (\n  {gone}\n  and {recent}\n  {warm(plan)}\n) + 1"
    expected = f"max by (model) ({state.MODEL_EXPECTED}{_models(plan)})"
    wanted = f"({recent} or {seen} and on (model) ({expected} == 1))"
    lines = [gone, warm(plan), f"and {wanted}", f"unless on (model) ({expected} == 0)", unless_retired(plan)]
    return "0 * (\n" + "\n".join(f"  {line}" for line in lines) + "\n) + 1"


def _stuck(plan: Plan) -> str:
    """Groups whose requests wait while none completes, each with the value 1."""
    window = plan.clock.text(plan.objective.unknown.after, MIN_SCRAPES)
    group, matchers = by(plan.objective.group_by), _models(plan)
    waiting = f"sum {group} (min_over_time({triton.PENDING_REQUESTS}{matchers}[{window}])) > 0"
    done = " or ".join(
        f"(sum {group} (increase({metric}{matchers}[{window}])) > 0)"
        for metric in (triton.REQUEST_SUCCESS, triton.REQUEST_FAILURE)
    )
    # Half of the window must have been seen: a model that has just appeared has had no time to answer.
    known = f"count_over_time({triton.PENDING_REQUESTS}{matchers}[{window}])"
    least = number(
        plan.clock.real(plan.objective.unknown.after, MIN_SCRAPES) * 0.8 / plan.clock.scrape_seconds
    )
    age = f"max {group} ({known}) >= {least}"
    group_on = on(plan.objective.group_by)
    return f"0 * (\n  ({waiting})\n  and {group_on} ({age})\n  unless {group_on} ({done})\n) + 1"


def _models(plan: Plan) -> Matchers:
    matchers = plan.source_matchers
    return matchers.choosing("model", plan.objective.models)

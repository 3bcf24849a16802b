"""Groups of which nothing trustworthy is known: their series vanished, requests are stuck, a bucket is missing.

Idle is not unknown: a model nobody asks keeps its counters. Nor is a retired group (see `retired`).
"""

from __future__ import annotations

from collections.abc import Iterator

from triton_exporter.catalogue import state
from triton_slo import names
from triton_slo.indicators.common.measure import UnknownReason
from triton_slo.promql import Matchers, number
from triton_slo.rules.exclusion_rules import unless_excluded
from triton_slo.rules.pauses import warm
from triton_slo.rules.plan import Plan, chosen_matchers, recording_rule, source_model_matchers
from triton_slo.rules.retired import unless_retired, with_version
from triton_slo.rules.rulefile import Rule

UNKNOWN_SCRAPES = 30
"""Least number of scrapes without data before a group is unknown, however short the time scale."""
FORGET = "1d"
"""Time without data after which a group counts as removed, unless the exporter calls it expected."""


def unknown_rules(plan: Plan) -> Iterator[Rule]:
    """Yield the rules that record each reason for not knowing."""
    if plan.objective.unknown.policy == "ignore":
        return
    yield _unknown_rule(plan, "vanished", _vanished(plan))
    for reason in standstills(plan):
        yield _unknown_rule(plan, reason.name, reason.expr)
    for variant in plan.variants:
        for setting in plan.measure(variant).wrong_settings:
            yield _unknown_rule(plan, setting.name, setting.expr)


def standstills(plan: Plan) -> tuple[UnknownReason, ...]:
    """Return the reasons that show in series which are there and do not move."""
    objective = plan.objective

    def without_retired(expr: str) -> str:
        return f"({expr} {unless_retired(plan)}) == 1 {warm(plan)}"

    return tuple(
        objective.indicator.unknown_reasons(
            plan.scope(chosen_matchers(objective)),
            plan.clock.real(objective.unknown.after, UNKNOWN_SCRAPES),
            objective.unknown.policy == "bad",
            without_retired,
        )
    )


def _unknown_rule(plan: Plan, reason: str, expr: str) -> Rule:
    return recording_rule(plan, names.UNKNOWN, unless_excluded(plan, expr), {names.REASON: reason})


def _vanished(plan: Plan) -> str:
    """Return PromQL for groups seen before, gone for a while, and neither retired nor unexpected.

    It has no result right after a pause of the rules.
    """
    after = number(plan.clock.real(plan.objective.unknown.after, UNKNOWN_SCRAPES))
    forget = number(plan.clock.real(FORGET, 2 * UNKNOWN_SCRAPES))
    seen = f"{names.LAST_SEEN}{with_version(plan)}"
    gone, recent = f"{seen} < time() - {after}", f"{seen} > time() - {forget}"
    alive = plan.objective.indicator.alive(plan.scope(Matchers()))
    idle = [f"unless on () ({alive})"] if alive else []
    if "model" not in plan.objective.group_by:
        lines = [gone, f"and {recent}", warm(plan), *idle]
        return "0 * (\n" + "\n".join(f"  {line}" for line in lines) + "\n) + 1"
    expected = f"max by (model) ({state.MODEL_EXPECTED}{source_model_matchers(plan)})"
    wanted = f"({recent} or {seen} and on (model) ({expected} == 1))"
    lines = [
        gone,
        warm(plan),
        f"and {wanted}",
        f"unless on (model) ({expected} == 0)",
        unless_retired(plan),
        *idle,
    ]
    return "0 * (\n" + "\n".join(f"  {line}" for line in lines) + "\n) + 1"

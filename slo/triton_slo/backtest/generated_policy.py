"""The alerts that tritonwatch generates as a policy: the same numbers that the rules are generated from."""

from __future__ import annotations

from collections.abc import Sequence

from triton_exporter.common.duration import parse_seconds
from triton_slo.artifact import Options
from triton_slo.backtest.policy import Missing, Policy, PolicyAlert, UnknownSteps
from triton_slo.backtest.report import ReplayedObjective
from triton_slo.burn.condition import burn_condition
from triton_slo.burn.condition_rules import burn_tiers
from triton_slo.objective.exclusion import Span
from triton_slo.objective.model import Objective, Tier
from triton_slo.rules.exclusion_rules import lag_seconds
from triton_slo.rules.periods import basis
from triton_slo.rules.plan import Plan
from triton_slo.rules.unknown import UNKNOWN_SCRAPES
from triton_slo.rules.unknown_as_failed import PACE_MEMORY
from triton_slo.rules.windows import KEEP_FIRING


def replayed(
    objective: Objective, options: Options | None = None, excluded: Sequence[Span] = ()
) -> ReplayedObjective:
    """Return what a replay of this objective needs; `excluded` is when its exclusions applied."""
    plan = Plan(objective, options or Options())
    seconds = objective.window.seconds * plan.options.time_scale
    return ReplayedObjective(
        objective.name,
        lambda m, v: _group_target(objective, m, v),
        seconds,
        policy(plan, excluded),
        lambda at: basis(plan, at),
    )


def policy(plan: Plan, excluded: Sequence[Span] = ()) -> Policy:
    """Return the alerts that are generated for an objective, with the inhibition that is generated beside them."""
    objective = plan.objective
    alerts = []
    if objective.unknown.policy != "ignore":
        after = parse_seconds(objective.unknown.after) * plan.options.time_scale
        is_page = objective.unknown.severity == "critical"
        alerts.append(PolicyAlert("unknown", "page" if is_page else "ticket", Missing(), pending=after))
    alerts += [_tier_alert(plan, tier) for tier in burn_tiers(plan)]
    return Policy(
        tuple(alerts),
        inhibits=True,
        excluded=tuple(excluded),
        lag=lag_seconds(plan),
        unknown=_unknown_steps(plan),
    )


def _unknown_steps(plan: Plan) -> UnknownSteps | None:
    if plan.objective.unknown.policy != "bad":
        return None
    after = plan.clock.real(plan.objective.unknown.after, UNKNOWN_SCRAPES)
    unseen = plan.objective.indicator.unknown_pace()
    return UnknownSteps(after, plan.clock.real(PACE_MEMORY) + 2 * after, unseen / plan.options.time_scale)


def _tier_alert(plan: Plan, tier: Tier) -> PolicyAlert:
    return PolicyAlert(
        name=tier.name,
        severity="page" if plan.pages(tier) else "ticket",
        condition=burn_condition(plan, tier),
        keep_firing=plan.clock.real(KEEP_FIRING, 1),
    )


def _group_target(objective: Objective, model: str, version: str) -> float:
    resolved = objective.resolve(model, version) if model else None
    return objective.target if resolved is None else resolved[0]

"""Our own alerts as a policy: the same numbers that the rules are generated from."""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import NormalDist

from triton_slo.alerts import (
    BURSTS,
    CALM_SHARE,
    DROP,
    EXPECTED_FAILURES,
    SINGLE_FAILURE,
    calm_burn,
    late_guard,
    reachable,
    severity,
)
from triton_slo.artifact import Options
from triton_slo.backtest.policy import Alert, Pair, Policy, Recovery, Recurrence, Unknown
from triton_slo.backtest.report import Promise
from triton_slo.duration import parse_seconds
from triton_slo.excluding import lag_seconds
from triton_slo.exclusion import Span
from triton_slo.objective import Choice, Objective, Tier
from triton_slo.periods import basis
from triton_slo.plan import Plan
from triton_slo.unknown import MIN_SCRAPES
from triton_slo.unseen import PACE_MEMORY
from triton_slo.windows import GUARD, HOLD, KEEP_FIRING, RECURRING

_SLACK = 0.5
"""The rules allow for half an event, because rates are extrapolated."""


def promise(objective: Objective, options: Options | None = None, excluded: Sequence[Span] = ()) -> Promise:
    """What a replay of this objective needs; `excluded` is when its exclusions held."""
    plan = Plan(objective, options or Options())
    seconds = objective.window.seconds * plan.options.time_scale
    return Promise(
        objective.name,
        lambda m, v: _target(objective, m, v),
        seconds,
        policy(plan, excluded),
        lambda at: basis(plan, at),
    )


def policy(plan: Plan, excluded: Sequence[Span] = ()) -> Policy:
    """The alerts that are generated for an objective, with the inhibition that is generated beside them."""
    objective = plan.objective
    alerts = []
    if objective.unknown.policy != "ignore":
        after = parse_seconds(objective.unknown.after) * plan.options.time_scale
        loud = objective.unknown.severity == "critical"
        alerts.append(Alert("unknown", "page" if loud else "ticket", pending=after, missing="group"))
    if objective.alerting.enabled:
        alerts += [_alert(plan, tier) for tier in objective.alerting.tiers if reachable(plan, tier)]
    return Policy(
        "ours",
        tuple(alerts),
        inhibits=True,
        excluded=tuple(excluded),
        lag=lag_seconds(plan),
        unknown=_unknown(plan),
    )


def _unknown(plan: Plan) -> Unknown | None:
    if plan.objective.unknown.policy != "bad":
        return None
    after = plan.clock.real(plan.objective.unknown.after, MIN_SCRAPES)
    unseen = plan.measure(plan.variants[-1]).unseen
    assert unseen is not None
    return Unknown(after, plan.clock.real(PACE_MEMORY) + 2 * after, unseen / plan.options.time_scale)


def _alert(plan: Plan, tier: Tier) -> Alert:
    alerting, clock = plan.objective.alerting, plan.clock
    exact = plan.measure(plan.variants[-1]).exact
    factor = tier.factor(plan.objective.window.seconds)
    return Alert(
        name=tier.name,
        severity="page" if severity(plan, tier) == "critical" else "ticket",
        pairs=(Pair(clock.real(tier.long), clock.real(tier.short), factor),),
        keep_firing=clock.real(KEEP_FIRING, 1),
        failures=alerting.min_failures - _SLACK if exact and alerting.min_failures else 0,
        z=max(0.0, round(NormalDist().inv_cdf(alerting.confidence), 3)) if exact else 0,
        recovery=Recovery(
            clock.real(GUARD),
            CALM_SHARE,
            EXPECTED_FAILURES if exact else 0,
            calm_burn(plan, tier),
            DROP,
            SINGLE_FAILURE if exact else 0,
            clock.real(late_guard(tier)) if late_guard(tier) else 0,
            CALM_SHARE,
            alerting.min_failures - _SLACK if exact and not late_guard(tier) else 0,
        ),
        recurrence=None
        if late_guard(tier)
        else Recurrence(clock.real(HOLD), clock.real(GUARD), clock.real(RECURRING), BURSTS),
    )


def _target(objective: Objective, model: str, version: str) -> float:
    for override in objective.overrides:
        if _chosen(override.models, model) and _chosen(override.versions, version) and model:
            return objective.target if override.target is None else override.target
    return objective.target


def _chosen(choice: Choice, name: str) -> bool:
    if choice.names is not None:
        return name in choice.names
    return choice.regex is None or re.fullmatch(choice.regex, name) is not None

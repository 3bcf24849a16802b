"""Proofs: for every alert a promtool test that makes it fire and one that keeps it quiet.

The series are what Triton and the exporter would expose; promtool runs the generated rules over them. Each tier
is proven at an error ratio between its own threshold and the next faster tier's, so that exactly the right
ones fire. A custom indicator's sources are the user's own: there the alerts are proven over recorded series.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from triton_exporter.common.duration import duration_text
from triton_exporter.common.moments import rfc3339
from triton_slo import names
from triton_slo.artifact import Artifact, scalar
from triton_slo.burn.burn_alerts import alert_rules
from triton_slo.burn.condition_rules import burn_tiers, condition_rules
from triton_slo.burn.rule_groups import objective_rules
from triton_slo.fields import error_budget
from triton_slo.objective.exclusion import Exclusion
from triton_slo.proofs.covered_model import covered_model
from triton_slo.proofs.incident_series import (
    InputSeries,
    from_sources,
    healthy,
    ratio_series,
    standstill_series,
    vanished_series,
)
from triton_slo.rules.exclusion_rules import exclusion_rules
from triton_slo.rules.plan import Plan
from triton_slo.rules.rulefile import Group, render
from triton_slo.rules.unknown import UNKNOWN_SCRAPES, standstills

Identity = tuple[str, str]
"""Name and tier of an alert; the tier is empty for alerts that have none."""

INCIDENT_SCRAPES = 60
RESET = "5m"
"""Time after recovery within which every alert must have ended."""


@dataclass(frozen=True, slots=True)
class Check:
    """The alerts that must fire, and no others, at a moment (seconds from the start)."""

    at: float
    firing: frozenset[Identity]


@dataclass(frozen=True, slots=True)
class Proof:
    """A test: its name, its series, and what must be seen."""

    name: str
    input_series: InputSeries
    checks: tuple[Check, ...]


def proof_artifacts(plan: Plan) -> Iterator[Artifact]:
    """Yield the proofs as files; for custom indicators also the rule file of alerts alone that they run.

    Raises LookupError if an alert came without both of its proofs.
    """
    name = f"slo-{plan.objective.name}"
    model = covered_model(plan.objective)
    if model is None:
        return
    rule_file = f"../rules/{name}.yml"
    written = tuple(proofs(plan, model))
    if plan.objective.exclusions:
        plan, twins = _with_exclusion(plan, written)
        written = (*written, *twins)
        rule_file = f"{name}.moved.yml"
    if not from_sources(plan, model):
        rule_file = f"{name}.alerts.yml"
        alone = (
            Group(f"{name}-alerts", (*exclusion_rules(plan), *condition_rules(plan), *alert_rules(plan))),
        )
        yield Artifact("promtool", rule_file, render(alone, name, "prometheus"))
    elif plan.objective.exclusions:
        every = objective_rules(plan)
        yield Artifact("promtool", rule_file, render((Group(name, every),), name, "prometheus"))
    if missing := unproven(plan, model, written):
        listed = ", ".join(" ".join(identity).strip() for identity in missing)
        raise LookupError(f"{name}: not proven to fire and to stay quiet: {listed}")
    yield Artifact("promtool", f"{name}.test.yml", _test_file(plan, rule_file, written))


def _with_exclusion(plan: Plan, written: Sequence[Proof]) -> tuple[Plan, list[Proof]]:
    """Return a plan with an exclusion after all other proofs, and a proof that nothing fires in it.

    promtool's clock begins in 1970: it would meet none of the user's exclusions, or meet one where it should not.
    """
    scrape = plan.options.scrape_interval_seconds
    before = math.ceil(max(check.at for proof in written for check in proof.checks) / scrape) + 10
    twins = []
    for proof in written:
        if checks := tuple(
            Check(before * scrape + check.at, frozenset()) for check in proof.checks if check.firing
        ):
            input_series = tuple((series, f"_x{before} {values}") for series, values in proof.input_series)
            twins.append(Proof(f"excluded: {proof.name}", input_series, checks))
    end = max((check.at for proof in twins for check in proof.checks), default=before * scrape) + scrape
    low, high = (rfc3339(round(at)) for at in ((before - 2) * scrape - 1, end + 1))
    moved = Exclusion(reason="moved to the time of promtool", start=low, end=high)
    objective = plan.objective.model_copy(update={"exclusions": (moved,)})
    return Plan(objective, plan.options), twins


def identities(plan: Plan) -> list[Identity]:
    """Return all alerts of an objective."""
    return [(rule.alert, rule.labels.get(names.TIER, "")) for rule in alert_rules(plan)]


def unproven(plan: Plan, model: tuple[str, str], written: Sequence[Proof]) -> list[Identity]:
    """Return the alerts in force for the model that no proof makes fire, or none keeps quiet."""
    checks = [check for proof in written for check in proof.checks]
    return [
        identity
        for identity in identities(plan)
        if plan.options.tuning.of_model(identity[0], model[0]).enabled is not False
        and not (
            any(identity in check.firing for check in checks)
            and not all(identity in check.firing for check in checks)
        )
    ]


def proofs(plan: Plan, model: tuple[str, str]) -> Iterator[Proof]:
    """Yield all proofs of an objective, on one model that it covers."""
    scrape = plan.options.scrape_interval_seconds
    everything = healthy(plan, model, 2 * INCIDENT_SCRAPES)
    yield Proof("healthy: all quiet", everything, _quiet_throughout(plan))
    yield from _burns(plan, model)
    if plan.objective.unknown.policy == "ignore":
        return
    unknown = _unknown_alert(plan, model)
    after = plan.clock.real(plan.objective.unknown.after, UNKNOWN_SCRAPES)
    scrapes = round(after / scrape)
    if plan.objective.unknown.policy == "bad":
        yield from _unknown_burns(plan, model, scrapes)
        return
    yield Proof(
        "series vanish: unknown",
        vanished_series(plan, model, INCIDENT_SCRAPES, 2 * scrapes),
        (
            Check(INCIDENT_SCRAPES * scrape, frozenset()),
            Check((INCIDENT_SCRAPES + scrapes + 2) * scrape, unknown),
        ),
    )
    for reason in standstills(plan):
        input_series = standstill_series(plan, model, reason, 2 * scrapes)
        early, late = Check(0.5 * after, frozenset()), Check(1.5 * after, unknown)
        yield Proof(f"{reason.proof}: unknown", input_series, (early, late))


def _unknown_burns(plan: Plan, model: tuple[str, str], scrapes: int) -> Iterator[Proof]:
    """Yield proofs that unknown time burns like failures: at the pace of a total outage, which every tier sees."""
    scrape = plan.options.scrape_interval_seconds
    objective, resolved = plan.objective, plan.objective.resolve(*model)
    assert resolved is not None
    tiers = objective.alerting.tiers if objective.alerting.enabled else ()
    allowed = error_budget(resolved[0])
    alert = objective.burn_alert
    live = [tier for tier in tiers if plan.reachable(tier, allowed)]
    burning = frozenset((alert, tier.name) for tier in live)
    firing = _unknown_alert(plan, model) | burning
    highest = max((plan.factor(tier) * allowed for tier in live), default=0.0)
    # b of b + n slices are bad: over the highest threshold, with as much again to be sure.
    bad = round(min(2 * INCIDENT_SCRAPES * highest / (1 - highest), 40 * INCIDENT_SCRAPES)) + scrapes
    before_incident = Check(INCIDENT_SCRAPES * scrape, frozenset())
    fires_at = (INCIDENT_SCRAPES + scrapes + bad) * scrape
    vanished = vanished_series(plan, model, INCIDENT_SCRAPES, 2 * scrapes + bad)
    yield Proof("series vanish: unknown, and burning", vanished, (before_incident, Check(fires_at, firing)))
    for reason in standstills(plan):
        input_series = standstill_series(plan, model, reason, INCIDENT_SCRAPES + 2 * scrapes + bad)
        early = Check(0.5 * scrapes * scrape, frozenset())
        yield Proof(f"{reason.proof}: unknown, and burning", input_series, (early, Check(fires_at, firing)))


def _unknown_alert(plan: Plan, model: tuple[str, str]) -> frozenset[Identity]:
    """Return the alert on unknown data, unless it is disabled for the model."""
    enabled = plan.options.tuning.of_model(names.UNKNOWN_ALERT, model[0]).enabled is not False
    return frozenset({(names.UNKNOWN_ALERT, "")} if enabled else ())


def _quiet_throughout(plan: Plan) -> tuple[Check, ...]:
    scrape = plan.options.scrape_interval_seconds
    return tuple(Check(n * scrape, frozenset()) for n in (INCIDENT_SCRAPES, 2 * INCIDENT_SCRAPES - 1))


def _burns(plan: Plan, model: tuple[str, str]) -> Iterator[Proof]:
    """Yield proofs of one incident at each tier's pace, and of what is left 5 minutes after recovery: nothing."""
    objective, scrape = plan.objective, plan.options.scrape_interval_seconds
    if not objective.alerting.enabled:
        return
    alert = objective.burn_alert
    resolved = objective.resolve(*model)
    assert resolved is not None
    allowed = error_budget(resolved[0])
    factors = {tier.name: plan.factor(tier) for tier in objective.alerting.tiers}
    live = {tier.name for tier in burn_tiers(plan)}
    calm = round(plan.clock.real(RESET, 20) / scrape)
    seen: set[float] = set()
    for factor in sorted((factors[name] for name in live), reverse=True):
        faster = [f for f in factors.values() if f > factor]
        between = _ratio_between(factor * allowed, min([f * allowed for f in faster] + [1.0]))
        ratio = objective.indicator.provable(between)
        if ratio in seen:
            continue
        seen.add(ratio)
        firing = frozenset((alert, name) for name in live if factors[name] * allowed < ratio)
        yield Proof(
            f"{ratio:.4%} of events fail: {', '.join(sorted(name for _, name in firing))}",
            ratio_series(plan, model, ratio, INCIDENT_SCRAPES, calm + 2),
            (
                Check((INCIDENT_SCRAPES - 1) * scrape, firing),
                Check((INCIDENT_SCRAPES + calm) * scrape, frozenset()),
            ),
        )


def _ratio_between(low: float, high: float) -> float:
    """Return a ratio safely between two thresholds."""
    return round(math.sqrt(low * high), 6)


def _test_file(plan: Plan, rule_file: str, written: Sequence[Proof]) -> str:
    interval = duration_text(plan.options.scrape_interval_seconds)
    head = (
        "# Generated by `tritonwatch generate`. Run with `promtool test rules`.\n"
        f"rule_files:\n  - {scalar(rule_file)}\nevaluation_interval: {interval}\ntests:\n"
    )
    return head + "".join(_case(proof, interval) for proof in written)


def _case(proof: Proof, interval: str) -> str:
    lines = [f"  - name: {scalar(proof.name)}", f"    interval: {interval}", "    input_series:"]
    for series, values in proof.input_series:
        lines += [f"      - series: {scalar(series)}", f"        values: {scalar(values)}"]
    lines.append("    promql_expr_test:")
    for check in proof.checks:
        expression = f'group by (alertname, {names.TIER}) ({names.ALERTS}{{alertstate="firing"}})'
        lines += [f"      - expr: {scalar(expression)}", f"        eval_time: {duration_text(check.at)}"]
        lines.append("        exp_samples:" + ("" if check.firing else " []"))
        for alert, tier in sorted(check.firing):
            labels = f'{{alertname="{alert}"' + (f', {names.TIER}="{tier}"}}' if tier else "}")
            lines += [f"          - labels: {scalar(labels)}", "            value: 1"]
    return "\n".join(lines) + "\n"

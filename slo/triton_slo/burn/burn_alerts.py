"""Burn-rate alerts and alerts on unknown data, and which of them inhibits which.

`condition` defines when a burn alert fires. Each named part of the condition is recorded as a series
that exists, with the value 1, while the part is true; so an alert stays short, and every part can be graphed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from triton_slo import names
from triton_slo.alert_settings.tunable import UNKNOWN, Tunable
from triton_slo.burn import alert_texts
from triton_slo.burn.condition import late_guard
from triton_slo.burn.condition_rules import alert_expression, burn_tiers
from triton_slo.indicators import BURN_ALERTS, KINDS
from triton_slo.objective.model import Tier
from triton_slo.promql import quote, regex_of
from triton_slo.rules.exclusion_rules import unless_excluded
from triton_slo.rules.plan import Plan
from triton_slo.rules.rulefile import Rule
from triton_slo.rules.windows import KEEP_FIRING


@dataclass(frozen=True, slots=True)
class Inhibition:
    """While an alert that matches all of `source` fires, those that match all of `target` are not sent.

    Only where they have the same values of the labels `equal`.
    """

    why: str
    source: tuple[str, ...]
    target: tuple[str, ...]
    equal: tuple[str, ...]


_SLO = f'{names.COMPONENT}="slo"'
_GROUP = (names.SLO, *names.GROUPING)
_CAUSED = {
    cause: [kind for kind, indicator in KINDS.items() if indicator.caused_by == cause]
    for cause in {indicator.caused_by for indicator in KINDS.values()} - {""}
}
"""Kind of the indicator whose page explains others -> those others."""
INHIBITIONS: tuple[Inhibition, ...] = (
    *(
        Inhibition(
            "Of the tiers of one objective only the most urgent is sent.",
            (_SLO, f'{names.URGENCY}="{urgency}"'),
            (_SLO, f'{names.URGENCY}=~"[{urgency + 1}-{names.URGENCIES}]"'),
            _GROUP,
        )
        for urgency in range(1, names.URGENCIES)
    ),
    Inhibition(
        "A page about an objective that burns already concerns its budget.",
        (_SLO, f'{names.TIER}!=""', f'{names.SEVERITY}="critical"'),
        (f'alertname=~"{"|".join(names.BUDGET_ALERTS)}"',),
        _GROUP,
    ),
    *(
        inhibition
        for cause, members in sorted(_CAUSED.items())
        for inhibition in (
            Inhibition(
                "A model without data has one cause, whatever the number of its objectives.",
                (f'alertname="{names.UNKNOWN_ALERT}"', f'{names.INDICATOR}="{cause}"'),
                (f'alertname="{names.UNKNOWN_ALERT}"', f'{names.INDICATOR}!="{cause}"'),
                names.GROUPING,
            ),
            Inhibition(
                "A model that is not ready, or whose probes fail, cannot keep its other objectives either.",
                (f'alertname="{BURN_ALERTS[cause]}"', _SLO, f'{names.SEVERITY}="critical"'),
                (_SLO, f'{names.INDICATOR}=~"{"|".join(members)}"'),
                names.GROUPING,
            ),
        )
    ),
)
"""Matchers as Alertmanager writes them; nothing here knows names, thresholds or windows of tiers."""


def alert_rules(plan: Plan) -> Iterator[Rule]:
    """Yield all alerts of an objective, most urgent first."""
    objective = plan.objective
    if objective.unknown.policy != "ignore":
        for alert in in_force(plan, replace(UNKNOWN, severity=objective.unknown.severity)):
            yield from _unknown_alerts(plan, alert)
    for tier in burn_tiers(plan):
        yield _burn_alert(plan, tier)


def _unknown_alerts(plan: Plan, alert: Tunable) -> Iterator[Rule]:
    """Yield the alert on data that is gone, and the ticket about a setting that prevents the measuring."""
    selected = plan.own.also(*alert.models.parts)
    settings = {setting.name for setting in plan.wrong_settings}
    others = [f"{names.REASON}!~{quote(regex_of(sorted(settings)))}"] if settings else []
    yield objective_alert(
        plan, alert, f"{names.UNKNOWN}{selected.also(*others)} == 1", alert_texts.unknown(plan)
    )
    if settings:
        # A wrong setting needs no one awake at night, and a restart of the exporter ends it within a minute.
        ticket = replace(alert, severity="warning", for_=plan.objective.unknown.after)
        wrong = f"{names.REASON}=~{quote(regex_of(sorted(settings)))}"
        # Its own reason as a label: where the other one is a ticket too, promtool takes rules with the same labels
        # for duplicates.
        yield objective_alert(
            plan,
            ticket,
            f"{names.UNKNOWN}{selected.also(wrong)} == 1",
            alert_texts.unmeasured(plan),
            {names.REASON: f"{{{{ $labels.{names.REASON} }}}}"},
        )


def tier_urgency(plan: Plan, tier: Tier) -> int:
    """Return the tier's place among the objective's tiers: by severity, then by how fast the budget burns."""

    def rank(tier: Tier) -> tuple[int, float]:
        return names.SEVERITIES.index(plan.severity(tier)), -plan.factor(tier)

    ranks = sorted(rank(each) for each in plan.objective.alerting.tiers)
    return min(1 + ranks.index(rank(tier)), names.URGENCIES)


def _burn_alert(plan: Plan, tier: Tier) -> Rule:
    objective = plan.objective
    return Rule(
        alert=objective.burn_alert,
        expr=unless_excluded(plan, alert_expression(plan, tier)),
        keep_firing_for=plan.clock.text(KEEP_FIRING, 1),
        labels=_alert_labels(
            plan,
            plan.severity(tier),
            {names.TIER: tier.name, names.URGENCY: str(tier_urgency(plan, tier))},
            objective.alerting.labels.get(tier.name, {}),
        ),
        annotations=alert_texts.burning(plan, tier, recurs=not late_guard(tier)),
    )


def _alert_labels(
    plan: Plan, severity: str, extra: Mapping[str, str], of_tier: Mapping[str, str] = MappingProxyType({})
) -> dict[str, str]:
    """Return the labels that the expression does not carry.

    Prometheus evaluates each value as a template, so texts are escaped.
    """
    objective = plan.objective
    owner = {names.OWNER: alert_texts.escape_template(objective.owner)} if objective.owner else {}
    return {
        **{
            label: alert_texts.escape_template(value)
            for label, value in {**objective.labels, **of_tier}.items()
        },
        names.SEVERITY: severity,
        **extra,
        names.COMPONENT: "slo",
        names.STACK: names.OWN_STACK,
        **owner,
    }


def in_force(plan: Plan, alert: Tunable) -> Iterator[Tunable]:
    """Return an alert of the objective as it is tuned; a group without a model has the general settings."""
    tuning = plan.options.tuning
    if "model" not in plan.objective.group_by:
        tuning = tuning.without_overrides(alert.name)
    return alert.tuned(tuning)


def objective_alert(
    plan: Plan,
    alert: Tunable,
    expr: str,
    annotations: dict[str, str],
    extra: Mapping[str, str] = MappingProxyType({}),
) -> Rule:
    """Return one alert of the objective that has no tiers."""
    clock = plan.clock
    return Rule(
        alert=alert.name,
        expr=unless_excluded(plan, expr),
        for_=alert.for_ and clock.text(alert.for_, 1),
        keep_firing_for=alert.keep_firing_for and clock.text(alert.keep_firing_for, 1),
        labels=_alert_labels(plan, alert.severity, extra),
        annotations=annotations,
    )

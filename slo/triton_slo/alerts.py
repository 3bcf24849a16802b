"""Burn-rate alerts and alerts on unknown data, and which of them speaks for which.

A tier fires when budget burns too fast over its long and its short window (SRE Workbook, chapter 5), with three
additions. *Enough failures*: a minimum number, and a one-sided score test, so that one failure at night wakes
nobody. *Recovered*: it ends once the last minutes have had enough events to show that the cause is gone, so an
alert does not outlive its incident. *Over stays over*: what is left of an incident in the windows starts no alert
again, unless the last minutes burn by themselves. *Recurring*: bursts hold it between them. *Retired*: none goes
on for a group that was unloaded on purpose or replaced.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import NormalDist
from typing import get_args

from triton_slo import conventions as names
from triton_slo import words
from triton_slo.duration import parse_seconds
from triton_slo.excluding import counting
from triton_slo.objective import Severity, Tier
from triton_slo.plan import Plan
from triton_slo.promql import indent, number
from triton_slo.recording import burn, events
from triton_slo.retired import unless_retired
from triton_slo.rulefile import Rule
from triton_slo.windows import GUARD, HOLD, KEEP_FIRING, RECURRING, canonical

CALM_SHARE = 0.5
CALM_BURN = 2.0
"""An incident can be over only when the last minutes burn at most half of the tier's factor (or twice too
fast, whichever is more: a ticket for slow burning must not hang on single failures)."""
DROP = 0.25
"""... at most this share of what the short window shows ..."""
EXPECTED_FAILURES = 6
"""... and would have shown this many failures had it gone on: P(X <= 1 | Poisson 6) is 1.7 %."""
SINGLE_FAILURE = 1.5
"""One failure in the last minutes keeps no incident alive (extrapolation may make 1.2 of it)."""
LATE_GUARD = "30m"
"""Tiers with longer short windows are over, too, when this window burns at most half of their factor: as the
short window drains, nothing less can tell a remnant from an incident."""
BURSTS = 2
"""Recoveries within the hour that make an incident a recurring one."""


@dataclass(frozen=True, slots=True)
class Inhibition:
    """While an alert with `source` labels fires, those with `target` labels and the same `equal` are silent."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    equal: tuple[str, ...]


_SEVERITIES: tuple[str, ...] = get_args(Severity)
"""Worst first."""
_SLO = f'{names.COMPONENT}="slo"'
_GROUP = (names.SLO, *names.GROUPING)
INHIBITIONS: tuple[Inhibition, ...] = (
    *(
        Inhibition(
            (_SLO, f'{names.URGENCY}="{urgency}"'),
            (_SLO, f'{names.URGENCY}=~"[{urgency + 1}-{names.URGENCIES}]"'),
            _GROUP,
        )
        for urgency in range(1, names.URGENCIES)
    ),
    # A model without data has one cause, whatever the number of its objectives.
    Inhibition(
        (f'alertname="{names.UNKNOWN_ALERT}"', f'{names.INDICATOR}="readiness"'),
        (f'alertname="{names.UNKNOWN_ALERT}"', f'{names.INDICATOR}!="readiness"'),
        names.GROUPING,
    ),
    # A model that is not ready cannot answer in time either.
    Inhibition(
        (f'alertname="{names.BURN_ALERTS["readiness"]}"', _SLO, f'{names.SEVERITY}="critical"'),
        (_SLO, f'{names.INDICATOR}=~"latency|queue|errors|first_response|probe"'),
        names.GROUPING,
    ),
)
"""Matchers as Alertmanager writes them; nothing here knows names, thresholds or windows of tiers."""


def alert_rules(plan: Plan) -> Iterator[Rule]:
    """All alerts of an objective, most urgent first."""
    objective = plan.objective
    if objective.unknown.policy != "ignore":
        yield _unknown_alert(plan)
    if objective.alerting.enabled:
        for tier in objective.alerting.tiers:
            if reachable(plan, tier):
                yield _burn_alert(plan, tier)


def reachable(plan: Plan, tier: Tier) -> bool:
    """Whether any group's error ratio can exceed the tier's threshold: `factor * budget < 1`."""
    tightest = min(round(1 - variant.target, 12) for variant in plan.variants)
    return tier.factor(plan.objective.window.seconds) * tightest < 1


def severity(plan: Plan, tier: Tier) -> str:
    """The tier's severity, or what the objective says instead."""
    return plan.objective.alerting.severities.get(tier.name, tier.severity)


def urgency(plan: Plan, tier: Tier) -> int:
    """The tier's place among the objective's tiers: by severity, then by how fast the budget burns."""

    def rank(one: Tier) -> tuple[int, float]:
        return _SEVERITIES.index(severity(plan, one)), -one.factor(plan.objective.window.seconds)

    ranks = sorted(rank(one) for one in plan.objective.alerting.tiers)
    return min(1 + ranks.index(rank(tier)), names.URGENCIES)


def _burn_alert(plan: Plan, tier: Tier) -> Rule:
    objective = plan.objective
    return Rule(
        alert=names.BURN_ALERTS[objective.indicator.kind],
        expr=counting(plan, f"{_condition(plan, tier)}\n{unless_retired(plan)}".rstrip()),
        keep_firing_for=plan.clock.text(KEEP_FIRING, 1),
        labels=_labels(
            plan,
            severity(plan, tier),
            {names.TIER: tier.name, names.URGENCY: str(urgency(plan, tier))},
        ),
        annotations=words.burning(plan, tier, recurs=not late_guard(tier)),
    )


def _labels(plan: Plan, severity: str, extra: dict[str, str]) -> dict[str, str]:
    objective = plan.objective
    owner = {names.OWNER: words.literal(objective.owner)} if objective.owner else {}
    return {
        **{label: words.literal(value) for label, value in objective.labels.items()},
        **plan.labels,
        names.SEVERITY: severity,
        **extra,
        names.COMPONENT: "slo",
        **owner,
    }


def _condition(plan: Plan, tier: Tier) -> str:
    factor = number(tier.factor(plan.objective.window.seconds))
    long, short = canonical(tier.long), canonical(tier.short)
    exact = plan.measure(plan.variants[-1]).exact
    burning = [f"({burn(plan, long)} > {factor})", *(_enough(plan, long) if exact else ())]
    # Tickets' second guard is calm in healthy times, too: it would hold back a new incident as an old one's end.
    holds = exact and not late_guard(tier)
    over = _over(plan, tier, short, factor) if holds else _recovered(plan, tier, short, exact)
    now = f"({burn(plan, short)} > {factor})\nunless\n({indent(over).strip()})"
    if late_guard(tier):
        # Its short window bridges bursts by itself. For days after an incident its long window is a remnant, and
        # single failures in quiet hours would pass for the incident's return.
        return "\nand\n".join([*burning, f"(\n{indent(now)}\n)"])
    recurring = (
        f"({burn(plan, HOLD)} > {factor})\nand\n"
        f"(resets({names.BURNING}{plan.own}[{plan.clock.text(RECURRING)}]) >= {BURSTS})"
    )
    either = f"(\n  (\n{indent(now, 4)}\n  )\n  or\n  (\n{indent(recurring, 4)}\n  )\n)"
    return "\nand\n".join([*burning, either])


def _enough(plan: Plan, nominal: str) -> Iterator[str]:
    """Enough failures to believe it: `(burn - 1) * sqrt(n * b / (1 - b)) > z` is the score test of ratio > b."""
    alerting, seconds = plan.objective.alerting, number(plan.spans[nominal].seconds)
    if alerting.min_failures > 0:
        # Half an event of slack: a rate that Prometheus extrapolates gives 4.9 failures for 5.
        least = number(alerting.min_failures - 0.5)
        failed = f"sum without ({names.EVENT}) ({events(plan, nominal, names.ERROR)})"
        yield f"({failed} * {seconds} > {least})"
    z = round(NormalDist().inv_cdf(alerting.confidence), 3)
    if z > 0:
        count = f"sum without ({names.EVENT}) ({events(plan, nominal, names.TOTAL)}) * {seconds}"
        budget = f"{names.ERROR_BUDGET_RATIO}{plan.own}"
        yield f"(({burn(plan, nominal)} - 1) * sqrt({count} * {budget} / (1 - {budget})) > {number(z)})"


def calm_burn(plan: Plan, tier: Tier) -> float:
    """The burn rate at or under which an incident can be over."""
    return max(CALM_SHARE * tier.factor(plan.objective.window.seconds), CALM_BURN)


def late_guard(tier: Tier) -> str:
    """The second window that can show that an incident is over; empty for tiers quick enough without."""
    return LATE_GUARD if parse_seconds(tier.short) > parse_seconds(LATE_GUARD) else ""


def _recovered(plan: Plan, tier: Tier, short: str, exact: bool) -> str:
    over = f"({burn(plan, GUARD)} <= {number(round(calm_burn(plan, tier), 9))})"
    recent, before = (f"{names.sli_error(window)}{plan.own}" for window in (GUARD, short))
    dropped = f"({recent} <= {number(DROP)} * {before})"
    now = f"{over}\nand\n{dropped}"
    if exact:
        seconds = number(plan.spans[GUARD].seconds)
        failed = f"sum without ({names.EVENT}) ({events(plan, GUARD, names.ERROR)}) * {seconds}"
        # Where there is little traffic, one failure alone burns faster than calm.
        now = f"({over} or ({failed} < {number(SINGLE_FAILURE)}))\nand\n{dropped}"
        count = f"sum without ({names.EVENT}) ({events(plan, GUARD, names.TOTAL)}) * {seconds}"
        now += f"\nand\n({before} * {count} >= {EXPECTED_FAILURES})"
    if not late_guard(tier):
        return now
    calm = number(round(CALM_SHARE * tier.factor(plan.objective.window.seconds), 9))
    return f"{now}\nor\n({burn(plan, late_guard(tier))} <= {calm})"


def _over(plan: Plan, tier: Tier, short: str, factor: str) -> str:
    """Recovered now, or lately and with nothing new since.

    As the short window drains, the evidence of a recovery drains with it, and a single failure would start the
    alert again on the remnant: so a recovery holds for as long as the remnant lasts, until failures relapse.
    """
    now = _recovered(plan, tier, short, exact=True)
    failed = f"sum without ({names.EVENT}) ({events(plan, GUARD, names.ERROR)})"
    seconds, least = number(plan.spans[GUARD].seconds), number(plan.objective.alerting.min_failures - 0.5)
    relapse = f"({failed} * {seconds} > {least})\nand\n({burn(plan, GUARD)} > {factor})"
    resolution = plan.clock.text("1m", 1)
    lately = f"max_over_time((\n{indent(now)}\n)[{plan.spans[short].text}:{resolution}])"
    return f"{now}\nor\n(\n  {indent(lately).strip()}\n  unless\n  ({indent(relapse).strip()})\n)"


def _unknown_alert(plan: Plan) -> Rule:
    return Rule(
        alert=names.UNKNOWN_ALERT,
        expr=counting(plan, f"{names.UNKNOWN}{plan.own} == 1"),
        labels=_labels(plan, plan.objective.unknown.severity, {}),
        annotations=words.unknown(plan),
    )

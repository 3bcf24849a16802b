"""The rules of an objective, in the order in which they need each other.

Per server what it has counted -> its growth, added to one counter per group -> a copy every four minutes -> shares
of windows -> the budget -> alerts. Only what a server has counted depends on the indicator (`Measure`).

Growth is the difference to what was seen at the last evaluation, not a rate: every event is counted once, whatever
the intervals of scrapes and evaluations are, and late samples and pauses of up to an hour lose nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

from triton_exporter.common.duration import DAY, in_words, parse_seconds
from triton_slo import alert_settings, links, names
from triton_slo.alert_settings import Tunable
from triton_slo.artifact import Group, Rule
from triton_slo.fields import error_budget
from triton_slo.objective.exclusion import active_exclusions
from triton_slo.objective.model import SUSTAINABLE, Objective, Override, Tier
from triton_slo.plan import Plan, canonical
from triton_slo.promql import Matchers, by, indent, number, on

LONG_INTERVAL = "4m"
"""Time between two samples of what long windows read. A value is read for five minutes after its evaluation."""
READINESS_INTERVAL = "30s"
"""Seconds that each evaluation of readiness adds for each server."""
_COPIED = "6h"
"""Longer windows than this read the copy."""
KEEP_PAGING = "6m"
"""Bursts every few minutes are one page: the short window is empty between them."""
_KEEP_PAGING_NOT_READY = "12m"
"""Longer than any page that it holds back, whose short window is full of the outage for five minutes more."""
KEEP_TICKET = "1h"
SLACK = 0.5
"""Prometheus can extrapolate 5 failures to 4.9."""
NOT_READY_OF_A_TICKET = "10m"
"""How long servers in all were not ready where a ticket is raised: a rolling restart of a few is none."""
_DAY, _THREE_DAYS = "1d", "3d"
_VALUE_IN_PERCENT = '{{ $value | printf "%.2g" | humanizePercentage }}'
_FAILURES_TO_CALL_SPENT = 20


@dataclass(frozen=True, slots=True)
class Condition:
    """When the alert of a tier fires. `rules` writes it in PromQL; a backtest computes it from events."""

    windows: tuple[str, ...]
    """In each of them the budget burns faster than `factor`; the first is the longest."""
    factor: float
    failures: float = 0
    """Bad events of the first window are more than this."""
    z: float = 0
    """The first window burns by more than so many standard deviations of chance."""
    beyond_stated_error: bool = False
    """An estimated share burns in the first window also if it is wrong by its stated error."""
    most_servers_now: bool = False
    """More than half of the servers fail now."""
    for_: str = ""
    keep_firing_for: str = ""


def condition(plan: Plan, tier: Tier) -> Condition:
    """Return when the alert of a tier fires."""
    alerting, factor, page = plan.objective.alerting, plan.factor(tier), plan.pages(tier)
    keep = KEEP_PAGING if page else KEEP_TICKET
    if plan.objective.indicator.counts_time:
        if page:
            return Condition(
                (tier.short,),
                factor,
                most_servers_now=True,
                for_="1m",
                keep_firing_for=_KEEP_PAGING_NOT_READY,
            )
        not_ready = plan.clock.real(NOT_READY_OF_A_TICKET)
        return Condition((tier.long, tier.short), factor, not_ready, keep_firing_for=keep)
    # At the very pace that the target allows, chance alone exceeds it half of the time.
    z = NormalDist().inv_cdf(alerting.confidence) if factor <= SUSTAINABLE else 0.0
    return Condition(
        (tier.long, tier.short),
        factor,
        alerting.min_failures - SLACK if alerting.min_failures else 0,
        max(0.0, z),
        page and plan.measure.stated_error is not None,
        keep_firing_for=keep,
    )


def groups(plan: Plan) -> tuple[Group, Group]:
    """Return both groups of an objective: counters and pages; long windows, budget and tickets."""
    name = f"slo-{plan.objective.name}"
    time = plan.objective.indicator.counts_time
    alerts = [(tier, _burn_alert(plan, tier)) for tier in tiers(plan)]
    fast = [window for window in plan.windows if not _from_copy(window)]
    main = _without_repeated_comments(
        *_excluded(plan),
        *(_seconds(plan) if time else _growth(plan)),
        *_shares(plan, fast),
        *_budget(plan),
        *_about_the_objective(plan),
        # Before the budget: no reader may see a number without what it comes from.
        *_sources(plan),
        *_budget_left(plan, fast),
        *(alert for tier, alert in alerts if not _from_copy(tier.long)),
    )
    long = _without_repeated_comments(
        Rule(
            f"{names.COUNTER}{plan.own} and last_over_time({names.COPY}{plan.own}[2h] offset 1s)\n"
            f"or 0 * {names.COUNTER}{plan.own}",
            names.COPY,
            labels=plan.labels,
            comment=f"The same counter, every {LONG_INTERVAL}, so that long windows read less. It begins at 0: what "
            "was counted before its first sample is in the second one.",
        ),
        _since(plan),
        *_shares(plan, [window for window in plan.windows if _from_copy(window)]),
        *(alert for tier, alert in alerts if _from_copy(tier.long)),
        *_budget_alerts(plan),
        *_unmeasured_alert(plan),
    )
    return (
        Group(
            name,
            main,
            plan.clock.text(READINESS_INTERVAL, 1) if time else "",
            f"{_percent(plan.objective.target)} over {plan.objective.window.in_sentence}. Each rule reads those above it: "
            "first what failed is counted, the alerts that page are last.",
        ),
        Group(
            f"{name}-long",
            long,
            plan.clock.text(LONG_INTERVAL, 1),
            f"Long windows and tickets change slowly: a group of their own, every {LONG_INTERVAL} (a value is read for 5m).",
        ),
    )


def _without_repeated_comments(*rules: Rule) -> tuple[Rule, ...]:
    before = ("", *(rule.comment for rule in rules))
    return tuple(
        replace(rule, comment="" if rule.comment == last else rule.comment)
        for rule, last in zip(rules, before, strict=False)
    )


def _excluded(plan: Plan) -> Iterator[Rule]:
    if plan.objective.exclusions:
        yield Rule(
            active_exclusions(plan.objective.exclusions),
            names.SLI_EXCLUDED,
            labels=plan.labels,
            comment="Exists while time does not count: nothing is added to the counter, and no alert fires.",
        )


def _unless_excluded(plan: Plan) -> str:
    return f"\nunless on () {names.SLI_EXCLUDED}{plan.own}" if plan.objective.exclusions else ""


def _growth(plan: Plan) -> Iterator[Rule]:
    own, group = plan.own, plan.objective.group_by
    server, seen = f"{names.SERVER}{own}", f"last_over_time({names.SEEN}{own}[1h] offset 1s)"
    if plan.options.format == "vmalert":
        # What vmalert records can be read at an unknown moment within its next seconds, and what came between the
        # evaluation of the sum and that of what is in it would be lost. Both read what the last evaluation recorded.
        server += " offset 1s"
    yield Rule(
        plan.measure.error,
        names.SERVER,
        labels={**plan.identity, names.EVENT: names.ERROR},
        comment=f"What each server has counted so far: bad events, and all events. {plan.measure.comment}".strip(),
    )
    yield Rule(plan.measure.total, names.SERVER, labels={**plan.identity, names.EVENT: names.TOTAL})
    same_server = on((*plan.scope.server_labels, names.EVENT))
    grown = f"({server} - {seen} >= 0)\nor ({server} and {same_server} {seen})"
    if excluded := _unless_excluded(plan):
        grown = f"(\n{indent(f'({grown})')}\n{indent(excluded.strip())}\n)"
    yield Rule(
        f"sum {by((*group, names.EVENT))} (\n"
        f"  last_over_time({names.COUNTER}{own}[1h] offset 1s)\n"
        f"{indent(f'or {grown}')}\n"
        f"  or 0 * {server}\n"
        f") and {on(group)} {server}",
        names.COUNTER,
        labels=plan.labels,
        comment="Events of the whole group, added up line by line: the sum so far; what each server has counted "
        "since the last evaluation; all that it has counted, if it restarted; 0, if it is seen first. `or` adds only "
        "servers that no line above has, and `offset 1s` reads the last evaluation instead of this one. Nothing is "
        "lost in a pause of less than 1h. After a longer one it begins again at 0, which `increase` takes for a "
        "restart: only the events within the pause are missing.",
    )
    yield Rule(
        server,
        names.SEEN,
        labels=plan.identity,
        comment="What is in the sum now: the next evaluation adds only what is more.",
    )


def _seconds(plan: Plan) -> Iterator[Rule]:
    own, interval = plan.own, plan.clock.real(READINESS_INTERVAL, 1)
    now = f"{names.SERVERS_NOW}{own}"
    yield Rule(
        plan.measure.error,
        names.SERVERS_NOW,
        labels={**plan.labels, names.EVENT: names.ERROR},
        comment="Servers that should have the model ready and have it in no version. A first load counts as "
        "neither good nor bad, unless the model was ready in the last hour and is ready nowhere (its only server "
        "was replaced).",
    )
    yield Rule(
        f"sum {plan.scope.by} ({names.SERVERS_NOW}{own.equal(names.EVENT, names.ERROR)} or {plan.measure.total})",
        names.SERVERS_NOW,
        labels={**plan.labels, names.EVENT: names.TOTAL},
        comment="These, and the servers that have it ready.",
    )
    added = f"{number(interval)} * {now}"
    if excluded := _unless_excluded(plan):
        added = f"({added}{excluded.replace(chr(10), ' ')} or 0 * {now})"
    yield Rule(
        f"{added}\n+ (last_over_time({names.COUNTER}{own}[1h] offset 1s) or 0 * {now})",
        names.COUNTER,
        labels=plan.labels,
        comment=f"Seconds of all of them: {number(interval)} for each at every evaluation, added to those of the "
        "last one (`offset 1s`), at first to 0.",
    )


def _shares(plan: Plan, windows: list[str]) -> Iterator[Rule]:
    comment = (
        ""
        if any(map(_from_copy, windows))
        else "Shares of bad events. All windows weigh events, not minutes."
    )
    for nominal in windows:
        yield Rule(
            f"{events(plan, nominal, names.ERROR)}\n"
            f"/ ignoring ({names.EVENT}) ({events(plan, nominal, names.TOTAL)} > 0)",
            names.sli_error(nominal),
            labels=plan.labels,
            comment=comment,
        )
        comment = ""


def events(plan: Plan, nominal: str, event: str) -> str:
    """Return PromQL for the events of a window."""
    name = names.COPY if _from_copy(nominal) else names.COUNTER
    return f"increase({name}{plan.own.equal(names.EVENT, event)}[{plan.clock.text(nominal)}])"


def _from_copy(nominal: str) -> bool:
    return parse_seconds(nominal) > parse_seconds(_COPIED)


def share(plan: Plan, nominal: str) -> str:
    """Return the selector of the share of bad events over a window."""
    return f"{names.sli_error(canonical(nominal))}{plan.own}"


def _budget(plan: Plan) -> Iterator[Rule]:
    objective, period = plan.objective, plan.objective.window.nominal
    long = share(plan, period if objective.calendar is None else _THREE_DAYS)
    overrides = [(error_budget(each.target), each) for each in objective.overrides if each.target is not None]
    yield Rule(
        _by_override(plan, error_budget(objective.target), overrides, f"{names.COUNTER}{plan.own} or {long}"),
        names.ERROR_BUDGET_RATIO,
        labels=plan.labels,
        comment="The share of events that may fail, of each group that is counted or still has events in the "
        "longest window" + (": the first line that has the group." if overrides else "."),
    )


def _by_override(plan: Plan, usual: float, overrides: Sequence[tuple[float, Override]], known: str) -> str:
    """Return PromQL for a number of each group that `known` has: of the first override of its model, or the usual."""
    groups = f"group {by(plan.objective.group_by)}"
    lines = []
    for value, override in overrides:
        chosen = Matchers().choosing("model", override.models).choosing("version", override.versions)
        own = plan.own.also(*chosen.within(plan.objective.group_by).parts)
        lines.append(f"{number(value)} * {groups} ({known.replace(str(plan.own), str(own))})")
    return "\nor ".join((*lines, f"{number(usual)} * {groups} ({known})"))


def _about_the_objective(plan: Plan) -> Iterator[Rule]:
    objective, own = plan.objective, plan.own
    budget = f"{names.ERROR_BUDGET_RATIO}{own}"
    yield Rule(
        f"1 - {budget}",
        names.OBJECTIVE_RATIO,
        labels=plan.labels,
    )
    yield Rule(
        f"vector({number(objective.window.seconds / DAY)})",
        names.PERIOD_DAYS,
        labels=plan.labels,
    )
    if objective.threshold_seconds is not None:
        overrides = [
            (each.threshold_seconds, each)
            for each in objective.overrides
            if each.threshold_seconds is not None
        ]
        yield Rule(
            _by_override(plan, objective.threshold_seconds, overrides, budget),
            names.THRESHOLD_SECONDS,
            labels=plan.labels,
        )
    about = {
        names.OWNER: objective.owner,
        "description": objective.description,
        "target": number(objective.target),
        "window": objective.window.words,
    }
    yield Rule(
        "vector(1)",
        names.INFO,
        labels={**plan.labels, **{name: text for name, text in about.items() if text}},
    )


def _since(plan: Plan) -> Rule:
    own, budget = plan.own, f"{names.ERROR_BUDGET_RATIO}{plan.own}"
    known = f"last_over_time({budget}[1d])"
    if plan.objective.calendar is not None:  # its period has events that no window has any more
        known = f"({known} or last_over_time({budget}[{number(plan.objective.window.seconds / DAY)}d:6h]))"
    # These are evaluated more rarely than the group is counted: it may have been counted for some minutes.
    counted = f"timestamp({names.COUNTER}{own})[{plan.clock.text('5m')}:{plan.clock.text('15s')}]"
    return Rule(
        f"last_over_time({names.COUNTER_SINCE}{own}[1d] offset 1s) and {known}\n"
        f"or min without ({names.EVENT}) (min_over_time({counted}))",
        names.COUNTER_SINCE,
        labels=plan.labels,
        comment="Unix time since which the group is counted. Events before it are in no window: one that is longer "
        "covers only the time since then. It ends a day after the budget, which a group has while a window has its events.",
    )


def _budget_left(plan: Plan, fast: list[str]) -> Iterator[Rule]:
    objective, own = plan.objective, plan.own
    if objective.calendar is not None:
        return
    spent, first = share(plan, objective.window.nominal), ""
    if fast:
        whole = max(fast, key=parse_seconds)
        old = f"time() - {names.COUNTER_SINCE}{own} >= {number(plan.clock.real(whole))}"
        spent = f"(({share(plan, whole)} unless {old}) or {spent})"
        first = f" While all that is counted is within {whole}, that window is newer."
    yield Rule(
        f"1 - {spent} / {names.ERROR_BUDGET_RATIO}{own}",
        names.PERIOD_BUDGET_REMAINING,
        labels=plan.labels,
        comment=f"The share of the budget that is left.{first}",
    )


def _sources(plan: Plan) -> Iterator[Rule]:
    if plan.measure.sources:
        sources = (
            f'label_replace({expr}, "{names.SOURCE}", "{source}", "", "")' if source else expr
            for expr, source in plan.measure.sources
        )
        yield Rule(
            "\nor ".join(sources),
            names.SLI_SOURCE,
            labels=plan.labels,
            comment="What the numbers of each group come from.",
        )
    if plan.measure.estimate_error is not None:
        yield Rule(
            plan.measure.estimate_error(plan.clock.text("1h")),
            names.ESTIMATE_ERROR,
            labels=plan.labels,
            comment="How far the share of the last hour may be off, where the exporter estimates it.",
        )


def tiers(plan: Plan) -> Iterator[Tier]:
    """Yield the tiers that can fire; of readiness one that pages, since that asks for the present."""
    paging = False
    for tier in plan.objective.alerting.tiers if plan.objective.alerting.enabled else ():
        budgets = {
            error_budget(target)
            for target in (plan.objective.target, *(o.target for o in plan.objective.overrides))
            if target is not None
        }
        if all(plan.factor(tier) * budget >= 1 for budget in budgets):
            continue
        if plan.objective.indicator.counts_time and plan.pages(tier):
            if paging:
                continue
            paging = True
        yield tier


def burn_condition(plan: Plan, tier: Tier) -> str:
    """Return when the alert of a tier fires."""
    return _condition(plan, tier)[0]


def _condition(plan: Plan, tier: Tier) -> tuple[str, str]:
    """Return the expression of a tier, and what it means in a sentence."""
    own, asked = plan.own, condition(plan, tier)
    budget, ignoring = f"{names.ERROR_BUDGET_RATIO}{own}", f"ignoring ({names.EVENT})"
    limit = f"> {number(asked.factor)} * {budget}"
    first, longest = share(plan, asked.windows[0]), canonical(asked.windows[0])
    lines = [f"{share(plan, window)} {limit}" for window in asked.windows]
    comment = "The long and the short window burn" if asked.failures else "Both windows burn"
    if asked.most_servers_now:
        error, total = (
            f"{names.SERVERS_NOW}{own.equal(names.EVENT, event)}" for event in (names.ERROR, names.TOTAL)
        )
        lines.insert(0, f"{error} / {ignoring} {total} > 0.5")
        comment = "More than half of the servers are not ready now, and the last minutes burn"
    if asked.z:
        by_chance = f"{asked.z:.3f} * sqrt({budget} / {ignoring} {events(plan, longest, names.TOTAL)})"
        first = f"{first} - {by_chance}"
        lines.insert(1, f"{first} {limit}")  # the value of the first line is the one in texts
    lines[1:] = [line if line.startswith("and ") else f"and {line}" for line in lines[1:]]
    if asked.failures:
        lines.append(
            f"and {ignoring} {events(plan, longest, names.ERROR)} > {number(asked.failures)}",
        )
        comment += (
            ", and servers were not ready for ten minutes in all"
            if plan.objective.indicator.counts_time
            else f", and at least {plan.objective.alerting.min_failures} events failed (a little less, because `increase` extrapolates)"
        )
    comment += "."
    if plan.pages(tier):
        comment += " It fires on for a while, so that bursts are one page."
    if asked.z:
        comment += f" Chance alone would explain it in {1 - plan.objective.alerting.confidence:.0%} of cases at most."
    if asked.beyond_stated_error:
        assert plan.measure.stated_error is not None
        stated, group = plan.measure.stated_error(plan.clock.text(longest)), on(plan.objective.group_by)
        lines.append(f"unless {group} {first} - {group} ({stated}) <= {group} {limit[2:]}")
        comment += " An estimate must burn beyond its stated error."
    return "\n".join(lines) + _unless_excluded(plan), comment


def _burn_alert(plan: Plan, tier: Tier) -> Rule:
    objective, asked = plan.objective, condition(plan, tier)
    expr, comment = _condition(plan, tier)
    return Rule(
        expr,
        alert=objective.burn_alert,
        for_=asked.for_ and plan.clock.text(asked.for_, 1),
        keep_firing_for=plan.clock.text(asked.keep_firing_for, 1),
        labels=_alert_labels(
            plan,
            plan.severity(tier),
            {names.TIER: tier.name, names.URGENCY: str(urgency(plan, tier))},
            objective.alerting.labels.get(tier.name, {}),
        ),
        annotations=_burning(plan, tier),
        comment=comment,
    )


def urgency(plan: Plan, tier: Tier) -> int:
    """Return the tier's place among the objective's tiers: by severity, then by how fast the budget burns."""

    def rank(tier: Tier) -> tuple[int, float]:
        return names.SEVERITIES.index(plan.severity(tier)), -plan.factor(tier)

    ranks = sorted(rank(each) for each in plan.objective.alerting.tiers)
    return min(1 + ranks.index(rank(tier)), names.URGENCIES)


def _budget_alerts(plan: Plan) -> Iterator[Rule]:
    """Yield the tickets about the budget itself; a calendar's is known only to those who ask for its range."""
    objective, own = plan.objective, plan.own
    if not objective.alerting.enabled or objective.calendar is not None:
        return
    left = f"{names.PERIOD_BUDGET_REMAINING}{own}"
    yesterday, earlier = (f"{left} offset {plan.clock.text(ago)}" for ago in (_DAY, _THREE_DAYS))
    for ticket in _in_force(plan, alert_settings.NEARLY_SPENT):
        assert ticket.threshold is not None
        ahead = number(parse_seconds(ticket.threshold.promql) / DAY)
        mine = f"{names.PERIOD_BUDGET_REMAINING}{own.also(*ticket.models.parts)}"
        yield _objective_alert(
            plan,
            ticket,
            f"{mine} / ({yesterday} - {mine} > 0) < {ahead}\n"
            f"and {mine} * 2 / ({earlier} - {yesterday} > 0) < {ahead}\n"
            f"and {mine} > 0\n"
            f"and {on(objective.group_by)} {names.COUNTER}{own}",
            f"at the last day's pace, the error budget of {objective.name} for {objective.window.in_sentence} is used up "
            'in {{ $value | printf "%.2g" }} days',
            "At the pace of the last day, and at that of the two days before, the budget is spent within "
            f"{ticket.threshold.words}. {_target(objective)}",
            "At the pace of the last day, and at that of the two days before, the budget is spent within "
            f"{ticket.threshold.words}.",
        )
    fired = own.equal("alertname", objective.burn_alert).equal("alertstate", "firing")
    failed = (
        number(plan.clock.real(NOT_READY_OF_A_TICKET))
        if objective.indicator.counts_time
        else _FAILURES_TO_CALL_SPENT
    )
    for ticket in _in_force(plan, alert_settings.SPENT):
        mine = f"{names.PERIOD_BUDGET_REMAINING}{own.also(*ticket.models.parts)}"
        yield _objective_alert(
            plan,
            ticket,
            f"{mine} < 0\n"
            f"and ignoring ({names.EVENT}) {events(plan, objective.window.nominal, names.ERROR)} > {failed}\n"
            f"and {on(objective.group_by)} {names.COUNTER}{own}\n"
            f"unless {yesterday} < 0\n"
            f"unless {on(objective.group_by)} max_over_time({names.ALERTS}{fired}[{plan.clock.text(_DAY)}])",
            f"the error budget of {objective.name} for {objective.window.in_sentence} is used up, and no burn alert fired",
            "No burn alert fired in the last day: failures were too few at a time, or the "
            f"rules were not evaluated. {_target(objective)}",
            "Spent without an alert in the last day; a group that serves no more, or had few failures, is left out.",
        )


def _unmeasured_alert(plan: Plan) -> Iterator[Rule]:
    settings = {setting.name: setting for setting in plan.measure.wrong_settings}
    if not settings:  # also where alerting is off: status reads the reason
        return

    def by_reason(texts: Mapping[str, str]) -> str:
        cases = (
            f'{{{{ if eq $labels.{names.REASON} "{reason}" }}}}{text}{{{{ end }}}}'
            for reason, text in texts.items()
        )
        return "".join(cases)

    for ticket in _in_force(plan, alert_settings.UNMEASURED):
        yield Rule(
            _reasons(plan, ticket.models) + _unless_excluded(plan),
            alert=ticket.name,
            for_=plan.clock.text(ticket.for_, 1),
            labels=_alert_labels(plan, ticket.severity, plan.labels),
            annotations={
                **_own_texts(plan),
                "summary": f"{_who(plan)}: the objective {plan.objective.name} cannot be measured",
                "description": by_reason(
                    {name: f"{s.words[0].upper()}{s.words[1:]}." for name, s in settings.items()}
                )
                + " The burn alerts of this objective cannot fire.",
                "cause": f"{{{{ $labels.{names.REASON} }}}}",
                "action": _own_texts(plan).get("action")
                or by_reason({name: f"{s.fix[0].upper()}{s.fix[1:]}." for name, s in settings.items()}),
                **_links(plan, ticket.name),
            },
            comment="A setting leaves a group without numbers, and so without alerts.",
        )


def _reasons(plan: Plan, models: Matchers) -> str:
    """Return the groups that a wrong setting leaves without numbers, of these models, with the reason."""
    return "\nor ".join(
        f'label_replace({setting.expr}, "{names.REASON}", "{setting.name}", "", "")'
        for setting in plan.measured(plan.objective.threshold_seconds, models).wrong_settings
    )


def _in_force(plan: Plan, alert: Tunable) -> Iterator[Tunable]:
    """Return an alert of the objective as it is tuned; a group without a model has the general settings."""
    tuning = plan.options.tuning
    if "model" not in plan.objective.group_by:
        tuning = tuning.without_overrides(alert.name)
    return alert.tuned(tuning)


def _objective_alert(
    plan: Plan, alert: Tunable, expr: str, summary: str, description: str, comment: str
) -> Rule:
    clock, own = plan.clock, _own_texts(plan)
    return Rule(
        expr + _unless_excluded(plan),
        alert=alert.name,
        for_=alert.for_ and clock.text(alert.for_, 1),
        keep_firing_for=alert.keep_firing_for and clock.text(alert.keep_firing_for, 1),
        labels=_alert_labels(plan, alert.severity, {}),
        annotations={
            **own,
            "summary": f"{_who(plan)}: {summary}",
            "description": description,
            "action": own.get("action") or action(alert.name, plan.objective.indicator.all_steps()),
            **_links(plan, alert.name),
        },
        comment=comment,
    )


def _alert_labels(
    plan: Plan, severity: str, extra: Mapping[str, str], of_tier: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the labels that the expression does not carry; Prometheus evaluates each as a template."""
    objective = plan.objective
    owner = {names.OWNER: escape_template(objective.owner)} if objective.owner else {}
    seen_by = {names.SEEN_BY: objective.indicator.seen_by} if objective.indicator.seen_by else {}
    given = {**objective.labels, **(of_tier or {})}
    return {
        **{label: escape_template(value) for label, value in given.items()},
        names.SEVERITY: severity,
        **extra,
        names.COMPONENT: "slo",
        names.STACK: names.OWN_STACK,
        **seen_by,
        **owner,
    }


def escape_template(text: str) -> str:
    """Keep Prometheus from running a user's text as a template."""
    return text.replace("{{", '{{ "{{" }}')


def action(alert: str, steps: str) -> str:
    """Return the action of an alert of an objective that has none of its own."""
    return f"Postpone risky changes. {steps}" if alert in names.BUDGET_ALERTS else steps


def _burning(plan: Plan, tier: Tier) -> dict[str, str]:
    """Return the texts of a burn alert.

    They hold no query: Prometheus writes each text again for each alert at each evaluation, most of all in a storm.
    The bridge asks once how many failed.
    """
    objective = plan.objective
    own = _own_texts(plan) | {
        name: escape_template(text)
        for name, text in objective.alerting.annotations.get(tier.name, {}).items()
    }
    allowed = _of_model(
        _percent(error_budget(objective.target)),
        [(_percent(error_budget(each.target)), each) for each in objective.overrides if each.target],
    )
    threshold = _of_model(
        objective.indicator.threshold_text or objective.name,
        [(each.threshold, each) for each in objective.overrides if each.threshold],
    )
    # The value of an expression is that of its first line. No window: there may be less data than that.
    said = (
        f"{_VALUE_IN_PERCENT} of {objective.indicator.failed_words.format(threshold)}, at most {allowed} may"
    )
    where, more = f"the last {canonical(tier.long)} and of the last {canonical(tier.short)}", ""
    if plan.pages(tier) and objective.indicator.counts_time:
        said = f"not ready on {_VALUE_IN_PERCENT} of its servers"
        where = f"the last {canonical(tier.short)}"
        more = ", while more than half of the servers are not ready"
    return {
        **own,
        "summary": f"{_who(plan)}: {said}",
        "description": f"{_promise(objective)}. The alert fires where, at the pace of {where}, the error budget of "
        f"{objective.window.in_sentence} is used up within {in_words(objective.window.seconds / plan.factor(tier))}{more}.",
        "action": own.get("action") or objective.indicator.all_steps(),
        **_links(plan, objective.indicator.burn_alert),
    }


def _of_model(usual: str, overrides: Sequence[tuple[str, Override]]) -> str:
    """Return the text of the first override of the alert's model, or the usual, as a template of Prometheus."""
    for text, override in reversed(overrides):
        chosen = Matchers().choosing("model", override.models).choosing("version", override.versions)
        conditions = (
            f"(eq $labels.{label} {value})"
            if operator == "="
            else f'(match "^(?:{value[1:-1]})$" $labels.{label})'
            for label, operator, value in chosen.split
        )
        usual = f"{{{{ if and {' '.join(conditions)} }}}}{text}{{{{ else }}}}{usual}{{{{ end }}}}"
    return usual


def _own_texts(plan: Plan) -> dict[str, str]:
    return {name: escape_template(text) for name, text in plan.objective.annotations.items()}


def _who(plan: Plan) -> str:
    if plan.objective.group_by == names.GROUPING:
        return "{{ $labels.model }}{{ with $labels.version }} version {{ . }}{{ end }}"
    if plan.objective.group_by == ("model",):
        return "{{ $labels.model }}"
    return ", ".join(f"{label} {{{{ $labels.{label} }}}}" for label in plan.objective.group_by) or "the fleet"


def _target(objective: Objective) -> str:
    return f"Objective: {_percent(objective.target)} over {objective.window.in_sentence} ({_promise(objective)})."


def _promise(objective: Objective) -> str:
    return escape_template(objective.description.strip().rstrip(".")) or f"Objective {objective.name}"


def _percent(share: float) -> str:
    return f"{number(round(share * 100, 10))}%"


def _links(plan: Plan, alert: str) -> dict[str, str]:
    labels = [label for label in names.GROUPING if label in plan.objective.group_by]
    return links.alert_links(plan.options, alert, links.MODEL, labels)

"""The texts of alerts, as Prometheus templates: what burns, how fast, how long the budget lasts, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from triton_exporter.catalogue.state import DISTRIBUTION_SOURCES
from triton_exporter.common.duration import DAY
from triton_slo import links, names
from triton_slo.alert_settings.tunable import Tunable
from triton_slo.burn.amounts import BURN_RATE, WHOLE_PERIOD
from triton_slo.burn.causes import list_of_causes
from triton_slo.indicators.common.sources import CAVEATS
from triton_slo.objective.model import Tier
from triton_slo.promql import number, quote
from triton_slo.rules.plan import Plan
from triton_slo.rules.unknown import standstills
from triton_slo.rules.windows import BURST_WINDOW, canonical


def escape_template(text: str) -> str:
    """Keep Prometheus from running a user's text as a template."""
    return text.replace("{{", '{{ "{{" }}')


def burning(plan: Plan, tier: Tier, recurs: bool) -> dict[str, str]:
    """Return the annotations of a burn alert; its value is the burn rate over the long window.

    `recurs`: bursts may keep the alert firing while the short window shows no burn. Prometheus parses and runs each
    annotation of each firing alert in every evaluation: so they are few, and two of them ask one query each.
    """
    objective, who = plan.objective, _who(plan)
    own = _own_annotations(plan) | {
        name: escape_template(text)
        for name, text in objective.alerting.annotations.get(tier.name, {}).items()
    }
    windows = f"In the last {canonical(tier.long)} and in the last {canonical(tier.short)}"
    return {
        **own,
        "summary": f"{who}: error budget of objective {objective.name} burns at {BURN_RATE} the allowed rate",
        "description": (
            f"{_target_sentence(plan)} {windows}, the burn rate is above the limit of this alert."
            f"{_facts(plan, tier, recurs)}"
        ),
        **_cause(plan),
        "action": own.get("action")
        or action(objective.indicator.burn_alert, objective.indicator.all_steps()),
        **_links(plan, objective.indicator.burn_alert),
    }


def unknown(plan: Plan) -> dict[str, str]:
    """Return the annotations of the alert on unknown data, by its reason."""
    objective, who = plan.objective, _who(plan)
    after = objective.unknown.after
    explained = {
        "vanished": "The series of this objective have been absent for {after}: the model, its server or the "
        "exporter has disappeared.",
        **{reason.name: reason.words for reason in standstills(plan)},
    }
    cases = _by_reason({reason: words.format(after=after) for reason, words in explained.items()})
    counts = "; it counts as failed" if objective.unknown.policy == "bad" else ""
    return {
        **_own_annotations(plan),
        "summary": f"{who}: status of objective {objective.name} is unknown",
        "description": f"{cases} Unknown time does not count as good{counts}. {_target_sentence(plan)}",
        "cause": f"{{{{ $labels.{names.REASON} }}}}",
        "action": _own_annotations(plan).get("action")
        or "Check that the model's server responds and that Prometheus scrapes its exporter; then send "
        "the model a request.",
        **_links(plan, names.UNKNOWN_ALERT),
    }


def unmeasured(plan: Plan) -> dict[str, str]:
    """Return annotations of the ticket about a setting that leaves an objective without data, by the reason."""
    words = {
        setting.name: f"{setting.words[0].upper()}{setting.words[1:]}." for setting in plan.wrong_settings
    }
    fixes = {setting.name: f"{setting.fix[0].upper()}{setting.fix[1:]}." for setting in plan.wrong_settings}
    return {
        **_own_annotations(plan),
        "summary": f"{_who(plan)}: the objective {plan.objective.name} cannot be measured",
        "description": (
            f"{_by_reason(words)} The burn alerts of this objective cannot fire. {_target_sentence(plan)}"
        ),
        "cause": f"{{{{ $labels.{names.REASON} }}}}",
        "action": _own_annotations(plan).get("action") or _by_reason(fixes),
        **_links(plan, names.UNKNOWN_ALERT),
    }


def _by_reason(texts: Mapping[str, str]) -> str:
    return "".join(
        f'{{{{ if eq $labels.{names.REASON} "{reason}" }}}}{text}{{{{ end }}}}'
        for reason, text in texts.items()
    )


def nearly_spent(plan: Plan, ticket: Tunable) -> dict[str, str]:
    """Return annotations of the ticket about a nearly spent budget; its value is the seconds the rest lasts."""
    assert ticket.threshold is not None
    name = plan.objective.name
    return _about_budget(
        plan,
        names.NEARLY_SPENT_ALERT,
        f"error budget of objective {name} is nearly spent: it lasts {{{{ $value | humanizeDuration }}}} at the "
        "burn rate of the last day",
        "At the burn rate of the last day, and also at the burn rate of the two days before, the error "
        f"budget will be spent within {ticket.threshold.words}.",
    )


def spent(plan: Plan) -> dict[str, str]:
    """Return the annotations of the ticket about a spent budget."""
    return _about_budget(
        plan,
        names.SPENT_ALERT,
        f"error budget of objective {plan.objective.name} is spent, and no burn alert fired",
        "The error budget is spent, and no burn alert fired in the last day: the burn rate was too low or "
        "the failures were too few for a burn alert, or the rules were not evaluated.",
    )


def _about_budget(plan: Plan, alert: str, summary: str, facts: str) -> dict[str, str]:
    return {
        **_own_annotations(plan),
        "summary": f"{_who(plan)}: {summary}",
        "description": f"{_target_sentence(plan)} {facts}",
        "action": _own_annotations(plan).get("action") or action(alert, plan.objective.indicator.all_steps()),
        **_links(plan, alert),
    }


def action(alert: str, steps: str) -> str:
    """Return the action of an alert of an objective that has none of its own."""
    return f"Postpone risky changes. {steps}" if alert in names.BUDGET_ALERTS else steps


def _own_annotations(plan: Plan) -> dict[str, str]:
    return {name: escape_template(text) for name, text in plan.objective.annotations.items()}


def _who(plan: Plan) -> str:
    if plan.objective.group_by == names.GROUPING:
        return "{{ $labels.model }}{{ with $labels.version }} version {{ . }}{{ end }}"
    return ", ".join(f"{label} {{{{ $labels.{label} }}}}" for label in plan.objective.group_by) or "the fleet"


def _target_sentence(plan: Plan) -> str:
    """Return words for this group's target: where an override is in force, the recorded target and threshold."""
    objective = plan.objective
    share = f"{number(round(objective.target * 100, 10))} %"
    text = escape_template(objective.description.strip().rstrip(".")) or objective.name
    period = f"over {objective.window.in_sentence}"
    general = f"Objective: {share} {period} ({text})."
    if not objective.overrides:
        return general
    target, threshold = (
        f"{name}{{{_group_format(plan)}}}" for name in (names.OBJECTIVE_RATIO, names.THRESHOLD_SECONDS)
    )
    differs = [f"{target} != {number(objective.target)}"]
    if objective.threshold_seconds is not None:
        differs.append(f"{threshold} != {number(objective.threshold_seconds)}")
    percent, limit = (
        "{{ . | first | value | printf `%.10g` }} %",
        "{{ . | first | value | humanizeDuration }}",
    )
    effective = f"{{{{ with {_asked(plan, f'{target} * 100')} }}}}{percent}{{{{ end }}}}"
    limited = f"{{{{ with {_asked(plan, threshold)} }}}}, threshold {limit}{{{{ end }}}}"
    overridden = f"Objective of {_who(plan)}, by an override: {effective} {period}{limited}."
    return (
        f"{{{{ with {_asked(plan, ' or '.join(differs))} }}}}{overridden}{{{{ else }}}}{general}{{{{ end }}}}"
    )


def _facts(plan: Plan, tier: Tier, recurs: bool) -> str:
    """Return a sentence for each fact; one query asks for all, and `or` keeps the order of its operands."""
    unmarked = _time_left(plan)
    bursts = _bursts(plan, tier) if recurs else ()
    marked = [_recorded_time(plan), *_reset(plan), *bursts, *_caveats(plan)]
    cases = "{{ else ".join(f"if .Labels.{fact.label} }}}}{fact.words}" for fact in marked)
    words = f"{{{{ {cases}{{{{ else }}}}{unmarked.words}{{{{ end }}}}"
    asked = _asked(plan, "\nor ".join(fact.query for fact in (unmarked, *marked)), "$value")
    return f"{{{{ range {asked} }}}}{words}{{{{ end }}}}"


@dataclass(frozen=True, slots=True)
class _Fact:
    """A query, a label that only its results have (empty: none), and a sentence about each of them.

    No group can have that label (`names.NOT_OF_GROUP`); which one it is does not matter otherwise.
    """

    query: str
    label: str
    words: str


def _time_left(plan: Plan) -> _Fact:
    """Return the fact about the time until the budget is spent: `remaining * period / burn`."""
    period = number(plan.period_seconds)
    if plan.objective.calendar:
        period = f"scalar({names.PERIOD_DAYS}{plan.own} * {DAY})"
    value = f"%[{len(plan.objective.group_by) + 1}]f"
    query = f"clamp_min({names.PERIOD_BUDGET_REMAINING}{{{_group_format(plan)}}}, 0) * {period} / {value}"
    gone = "{{ if eq .Value 0.0 }} The error budget is spent."
    soon = "{{ else if lt .Value 60.0 }} At this burn rate, the error budget left is spent within a minute."
    lasts = (
        "{{ else }} At this burn rate, the error budget left is spent in "
        "{{ .Value | humanizeDuration }}.{{ end }}"
    )
    return _Fact(query, "", gone + soon + lasts)


def _recorded_time(plan: Plan) -> _Fact:
    """Return the recorded time where it is less than the period: windows and budget contain little more."""
    began = f"{names.SLI_EVENTS_SINCE}{{{_group_format(plan)}}}"
    if plan.objective.calendar:
        began = f"{began} > scalar({names.PERIOD_START}{plan.own})"
    query = f"time() - ({began}) < {number(round(WHOLE_PERIOD * plan.period_seconds, 3))}"
    words = (
        " The objective has been recorded only for {{ if lt .Value 60.0 }}less than a minute"
        "{{ else }}{{ .Value | humanizeDuration }}{{ end }}."
    )
    return _Fact(f'label_replace({query}, "{names.RUNG}", "new", "", "")', names.RUNG, words)


def _reset(plan: Plan) -> Iterator[_Fact]:
    """Yield the time until a calendar's budget resets, which may come before it is spent."""
    if plan.objective.calendar:
        query = f'label_replace({names.PERIOD_END}{plan.own} - time(), "{names.EDGE}", "end", "", "")'
        yield _Fact(query, names.EDGE, " The error budget resets in {{ .Value | humanizeDuration }}.")


def _bursts(plan: Plan, tier: Tier) -> Iterator[_Fact]:
    """Yield the fact that only recurring bursts keep the alert firing, while the short window shows no burn."""
    group, short = f"{{{_group_format(plan)}}}", canonical(tier.short)
    burn, factor = f"{names.sli_error(short)}{group}", plan.factor(tier)
    if len({variant.budget for variant in plan.variants}) > 1:
        burn = f"{burn} / {names.ERROR_BUDGET_RATIO}{group}"
    else:
        factor *= plan.variants[0].budget
    words = (
        f" The burn rate over {short} is below the limit, but bursts of failures recur, the latest "
        f"within {BURST_WINDOW}."
    )
    query = f"{burn} <= {number(round(factor, 12))}"
    yield _Fact(f'label_replace({query}, "{names.TIER}", "{tier.name}", "", "")', names.TIER, words)


def _caveats(plan: Plan) -> Iterator[_Fact]:
    """Yield the caveat of the source of the group's numbers, if it has one."""
    possible = plan.measure(plan.variants[-1]).possible_sources & CAVEATS.keys()
    if not possible:
        return
    series = f"{names.SLI_SOURCE}{{{_group_format(plan)}}}"
    query = f"0 * {series}"
    if possible & set(DISTRIBUTION_SOURCES):
        error = f"round(100 * {names.ESTIMATE_ERROR}{{{_group_format(plan)}}}, 0.1)"
        query = f"{error} * ignoring ({names.SOURCE}) group_right () {series}\nor {query}"
    off = '{{ if .Value }}, +-{{ .Value | printf "%g" }} points{{ end }}'
    cases = "".join(
        f'{{{{ if eq .Labels.{names.SOURCE} "{source}" }}}} '
        f"{caveat.word.capitalize()}{off if source in DISTRIBUTION_SOURCES else ''} ({source}): {caveat.meaning}."
        "{{ end }}"
        for source, caveat in CAVEATS.items()
        if source in possible
    )
    yield _Fact(query, names.SOURCE, cases)


def _cause(plan: Plan) -> dict[str, str]:
    """Return the annotation with the causes, largest share first; none where time or failures are not split."""
    split = plan.objective.indicator.cause_split
    if not split or plan.objective.group_by != names.GROUPING:
        return {}
    series = f"{names.CAUSE_SHARE}{{{names.INDICATOR}={quote(split)},model=%[1]q,version=%[2]q}}"
    return {"cause": list_of_causes(_asked(plan, f"sort_desc({series} > 0.01)"))}


def _asked(plan: Plan, query: str, *more: str) -> str:
    """Return the template expression that runs `query`; its selectors name the group by `_group_format`."""
    arguments = (*(f"$labels.{label}" for label in plan.objective.group_by), *more)
    return f"printf {' '.join((quote(query), *arguments))} | query"


def _group_format(plan: Plan) -> str:
    fixed = "".join(f",{label}={quote(value)}" for label, value in plan.fixed_labels.items())
    groups = "".join(f",{label}=%[{place}]q" for place, label in enumerate(plan.objective.group_by, 1))
    return f"{names.SLO}={quote(plan.objective.name)}{fixed}{groups}"


def _links(plan: Plan, alert: str) -> dict[str, str]:
    labels = [label for label in names.GROUPING if label in plan.objective.group_by]
    return links.alert_links(plan.options, alert, links.MODEL, labels)

"""What alerts say, as Prometheus templates: what burns, how fast, how long the budget lasts, and why."""

from __future__ import annotations

from triton_exporter.catalogue.state import DISTRIBUTION_SOURCES
from triton_exporter.duration import DAY
from triton_slo import conventions as names
from triton_slo.burn.condition import burning_over
from triton_slo.burn.condition_rules import expression
from triton_slo.indicators.sources import CAVEATS
from triton_slo.objective.model import CalendarWindow, Tier
from triton_slo.promql import number, quote
from triton_slo.rules.plan import Plan
from triton_slo.rules.unknown import reasons
from triton_slo.rules.windows import HOLD, canonical

_DASHBOARD = "/d/triton-model"
_PACE = '{{ if gt $value 100.0 }}over 100{{ else }}{{ $value | printf "%.1f" }}{{ end }}x'
"""Beyond 100 the number only shows how short the outage has been measured for."""


def literal(text: str) -> str:
    """Keep Prometheus from running a user's text as a template."""
    return text.replace("{{", '{{ "{{" }}')


def burning(plan: Plan, tier: Tier, recurs: bool) -> dict[str, str]:
    """Annotations of a burn alert; its value is the burn rate over the long window.

    `recurs`: bursts may hold the alert while the short window shows no burn.
    """
    objective, who = plan.objective, _who(plan)
    long, short = canonical(tier.long), canonical(tier.short)
    return {
        **_own(plan),
        "summary": f"{who}: {objective.name} error budget burns {_PACE} faster than allowed",
        "description": (
            f"{_promise(plan)} The error budget of {who} for {_period(plan)} burns {_PACE} faster than allowed, "
            f"measured over windows of up to {long}{_lately(plan, tier, short, recurs)}. "
            f"{_lasting(plan)}{_caveats(plan)}"
        ),
        **_causes(plan),
        "action": _own(plan).get("action") or _first_step(plan),
        **_links(plan, objective.indicator.burn_alert),
    }


def unknown(plan: Plan) -> dict[str, str]:
    """Annotations of the alert on unknown data, by its reason."""
    objective, who = plan.objective, _who(plan)
    after = objective.unknown.after
    explained = {
        "vanished": "Its series have been gone for {after}: the model, its server or the exporter disappeared.",
        **{reason.name: reason.words for reason in reasons(plan)},
    }
    cases = "".join(
        f'{{{{ if eq $labels.{names.REASON} "{reason}" }}}}{words.format(after=after)}{{{{ end }}}}'
        for reason, words in explained.items()
    )
    counts = ", and counts as failed" if objective.unknown.policy == "bad" else ""
    return {
        **_own(plan),
        "summary": f"{who}: status of the objective {objective.name} is unknown",
        "description": f"{cases} Unknown is not good{counts}: {_promise(plan)}",
        "cause": f"{{{{ $labels.{names.REASON} }}}}",
        "action": _own(plan).get("action")
        or "See whether the model's server and its exporter answer and are "
        "scraped; then send the model a request.",
        **_links(plan, names.UNKNOWN_ALERT),
    }


def _own(plan: Plan) -> dict[str, str]:
    return {name: literal(text) for name, text in plan.objective.annotations.items()}


def _who(plan: Plan) -> str:
    if plan.objective.group_by == names.GROUPING:
        return "{{ $labels.model }}{{ with $labels.version }} version {{ . }}{{ end }}"
    return ", ".join(f"{label} {{{{ $labels.{label} }}}}" for label in plan.objective.group_by) or "the fleet"


def _promise(plan: Plan) -> str:
    """What was promised to this group: where an override is in force, the recorded target and threshold."""
    objective = plan.objective
    share = f"{number(round(objective.target * 100, 10))} %"
    text = literal(objective.description.strip().rstrip(".")) or objective.name
    general = f"Promised for {share}: {text}."
    if not objective.overrides:
        return general
    target, threshold = (
        f"{one}{{{_group_format(plan)}}}" for one in (names.OBJECTIVE_RATIO, names.THRESHOLD_SECONDS)
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
    overridden = f"Promised for {_who(plan)} by an override: {effective}{limited}."
    return (
        f"{{{{ with {_asked(plan, ' or '.join(differs))} }}}}{overridden}{{{{ else }}}}{general}{{{{ end }}}}"
    )


def _lately(plan: Plan, tier: Tier, short: str, recurs: bool) -> str:
    """What the short window shows: the burn goes on, or only bursts that recur hold the alert."""
    now = f" and {short}"
    if not recurs:
        return now
    _, burning_now = burning_over(plan, tier)
    burning = expression(plan, tier, burning_now).replace(str(plan.own), f"{{{_group_format(plan)}}}")
    bursts = f", in recurring bursts, the last of them within {HOLD}"
    return f"{{{{ with {_asked(plan, burning)} }}}}{now}{{{{ else }}}}{bursts}{{{{ end }}}}"


def _period(plan: Plan) -> str:
    window = plan.objective.window
    return f"the {window.calendar}" if isinstance(window, CalendarWindow) else window.nominal


def _lasting(plan: Plan) -> str:
    """When the rest of the budget is gone: `remaining * period / burn`, asked of Prometheus.

    For a calendar period also when it resets, which may come first.
    """
    period, reset = number(plan.period_seconds), ""
    length = "{{ . | first | value | humanizeDuration }}"
    if isinstance(plan.objective.window, CalendarWindow):
        period = f"scalar({names.PERIOD_DAYS}{plan.own} * {DAY})"
        end = quote(f"{names.PERIOD_END}{plan.own} - time()")
        reset = f"{{{{ with query {end} }}}} It resets in {length}.{{{{ end }}}}"
    query = f"clamp_min({names.PERIOD_BUDGET_REMAINING}{{{_group_format(plan)}}}, 0) * {period} / %f"
    ask = f"printf {quote(query)}{_group_arguments(plan)} $value | query"
    gone = "{{ if eq (. | first | value) 0.0 }}Nothing of the budget is left."
    soon = "{{ else if lt (. | first | value) 60.0 }}At this rate the rest of it is gone within a minute."
    lasts = f"{soon}{{{{ else }}}}At this rate the rest of it is gone in {length}.{{{{ end }}}}"
    return f"{{{{ with {ask} }}}}{gone}{lasts}{{{{ end }}}}{reset}"


def _caveats(plan: Plan) -> str:
    """What the source of the group's numbers cannot see, asked of Prometheus; nothing where it sees everything."""
    possible = plan.measure(plan.variants[-1]).possible_sources & CAVEATS.keys()
    if not possible:
        return ""
    series = f"{names.SLI_SOURCE}{{{_group_format(plan)}}}"
    error = _asked(plan, f"round(100 * {names.ESTIMATE_ERROR}{{{_group_format(plan)}}}, 0.1)")
    off = f'{{{{ with {error} }}}}, +-{{{{ . | first | value | printf "%g" }}}} points{{{{ end }}}}'
    cases = "".join(
        f'{{{{ if eq .Labels.{names.SOURCE} "{source}" }}}} '
        f"{one.word.capitalize()}{off if source in DISTRIBUTION_SOURCES else ''} ({source}): {one.meaning}."
        "{{ end }}"
        for source, one in CAVEATS.items()
        if source in possible
    )
    ask = f"printf {quote(series)}{_group_arguments(plan)} | query"
    return f"{{{{ range {ask} }}}}{cases}{{{{ end }}}}"


def _causes(plan: Plan) -> dict[str, str]:
    split = plan.objective.indicator.cause_split
    if not split or plan.objective.group_by != names.GROUPING:
        return {}
    series = f"{names.CAUSE_SHARE}{{{names.INDICATOR}={quote(split)},model=%q,version=%q}}"
    ask = f"printf {quote(f'sort_desc({series} > 0.01)')} $labels.model $labels.version | query"
    each = (
        f"{{{{ if $i }}}}, {{{{ end }}}}{{{{ .Labels.{names.CAUSE} }}}} {{{{ .Value | humanizePercentage }}}}"
    )
    return {
        "cause": f"{{{{ with {ask} }}}}{{{{ range $i, $_ := . }}}}{each}{{{{ end }}}}"
        "{{ else }}not known{{ end }}"
    }


def _first_step(plan: Plan) -> str:
    """What to do about the largest cause, asked of Prometheus; a GPU held back is none of them: it overlaps."""
    indicator = plan.objective.indicator
    usual, steps = indicator.first_step, indicator.steps_by_cause
    if not steps or plan.objective.group_by != names.GROUPING:
        return usual
    fixed = f'{names.INDICATOR}={quote(indicator.cause_split)},{names.CAUSE}!="gpu_throttled"'
    query = f"topk(1, {names.CAUSE_SHARE}{{{fixed},model=%q,version=%q}})"
    cases = "".join(
        f"{{{{ {'else ' if number else ''}if match {quote(cause)} $cause }}}}{text}"
        for number, (cause, text) in enumerate(steps.items())
    )
    return (
        f"{{{{ with printf {quote(query)} $labels.model $labels.version | query }}}}"
        f'{{{{ $cause := . | first | label "{names.CAUSE}" }}}}{cases}{{{{ else }}}}{usual}{{{{ end }}}}'
        f"{{{{ else }}}}{usual}{{{{ end }}}}"
    )


def _asked(plan: Plan, query: str) -> str:
    """A template's question to Prometheus; each selector in `query` names its group by `_group_format`."""
    selectors = query.count(_group_format(plan))
    return f"printf {quote(query)}{_group_arguments(plan) * selectors} | query"


def _group_format(plan: Plan) -> str:
    fixed = "".join(f",{label}={quote(value)}" for label, value in plan.fixed_labels.items())
    groups = "".join(f",{label}=%q" for label in plan.objective.group_by)
    return f"{names.SLO}={quote(plan.objective.name)}{fixed}{groups}"


def _group_arguments(plan: Plan) -> str:
    return "".join(f" $labels.{label}" for label in plan.objective.group_by)


def _links(plan: Plan, alert: str) -> dict[str, str]:
    options = plan.options
    variables = "&".join(
        f"var-{label}={{{{ $labels.{label} | urlquery }}}}"
        for label in names.GROUPING
        if label in plan.objective.group_by
    )
    board = f"{options.dashboard_url.rstrip('/')}{_DASHBOARD}" + (f"?{variables}" if variables else "")
    return {"runbook_url": options.runbook_url.format(alert=alert), "dashboard_url": board}

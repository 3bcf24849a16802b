"""Alerts as Prometheus rules."""

from __future__ import annotations

import re
from collections.abc import Iterable

from triton_alerts.alert import Alert, Lookup
from triton_alerts.rules import alert_promql
from triton_slo import links, names
from triton_slo.artifact import Options
from triton_slo.rules.rulefile import Group, Rule

_FIRST_SCRAPE_SECONDS = 15.0
"""A Prometheus that has just started has no target for 5 s, 10 s if a tick is missed: it hands targets over that
rarely whatever the scrape interval, so no time scale may shorten the wait for them."""

_VARIABLES = {
    links.SERVER: ("instance",),
    links.MODEL: ("instance", "model", "version"),
    links.GPU: ("instance", "gpu_uuid"),
    links.ON_CALL: ("model",),
}
"""Dashboard -> its template variables that the labels of an alert choose."""


def group(family: str, alerts: Iterable[Alert], options: Options) -> Group:
    """Return one rule group holding a family, as it is tuned."""
    tuned = (tuned_alert for alert in alerts for tuned_alert in alert.tuned(options.tuning))
    return Group(f"triton-{family}", tuple(rule(alert, options) for alert in tuned))


def rule(alert: Alert, options: Options) -> Rule:
    """Return one alerting rule, links included."""
    return Rule(
        expr=expression(alert, options),
        alert=alert.name,
        for_=_for(alert, options),
        keep_firing_for=alert_promql.scaled(alert.keep_firing_for, options) if alert.keep_firing_for else "",
        labels=labels(alert),
        annotations=texts(alert, options),
    )


def expression(alert: Alert, options: Options) -> str:
    """Return the condition as Prometheus is to run it: the easier one counts where the alert already fires."""
    expr = alert_promql.fit_to_options(alert.with_threshold(alert.expr), options, alert.models)
    if not alert.until:
        return expr
    # Without the options' selector: an alert carries no label that its expression aggregates away.
    firing = f'{names.ALERTS}{{alertname="{alert.name}", alertstate="firing"}}'
    easier = alert_promql.fit_to_options(alert.with_threshold(alert.until), options, alert.models)
    return f"{expr}\nor\n(\n{easier}\n)\nand on ({', '.join(alert.labels)}) {firing}"


def _for(alert: Alert, options: Options) -> str:
    """Return the alert's `for`; what waits for targets to appear waits for the first scrape at any scale."""
    if not alert.for_:
        return ""
    if "absent(" in alert.expr:
        return alert_promql.scaled(alert.for_, options, _FIRST_SCRAPE_SECONDS)
    return alert_promql.scaled(alert.for_, options)


def labels(alert: Alert) -> dict[str, str]:
    """Return the labels every alert carries, whatever its expression yields."""
    return {
        names.SEVERITY: alert.severity,
        names.COMPONENT: alert.component,
        names.OWNER: alert.owner,
    }


def texts(alert: Alert, options: Options) -> dict[str, str]:
    """Return what a person reads, in Prometheus' template language."""
    shown = [label for label in _VARIABLES[alert.dashboard] if label in alert.labels]
    made = {
        "summary": with_windows(alert.with_numbers(alert.summary), options),
        "description": with_windows(alert.with_numbers(alert.description), options),
        "action": _first_step(alert, options),
        "cause": with_windows(alert.cause, options) + (_lookup_text(alert.cause_from, options)),
        **links.alert_links(options, alert.name, alert.dashboard, shown),
    }
    return {name: text for name, text in made.items() if text}


def with_windows(text: str, options: Options) -> str:
    """Return the text with each `[15m]` written as the window really is."""
    return re.sub(r"\[(\d+[smhdw])\]", lambda match: alert_promql.window(match[1], options), text)


def _lookup_text(lookup: Lookup | None, options: Options) -> str:
    if lookup is None:
        return ""
    return (
        f"{{{{ range $i, $s := {_template_query(lookup, options)} | sortByLabel `{lookup.label}` }}}}"
        f"{{{{ if $i }}}}, {{{{ end }}}}{{{{ $s.Labels.{lookup.label} }}}}{{{{ end }}}}"
    )


def _first_step(alert: Alert, options: Options) -> str:
    """Return what to do first about the one cause there is; with none or several, what is always right."""
    usual = with_windows(alert.action, options)
    lookup = alert.cause_from
    if lookup is None or not alert.steps:
        return usual
    cases = "{{ else ".join(f"if eq $cause `{cause}` }}}}{text}" for cause, text in alert.steps)
    return (
        f"{{{{ $found := {_template_query(lookup, options)} }}}}{{{{ if eq (len $found) 1 }}}}"
        f"{{{{ $cause := $found | first | label `{lookup.label}` }}}}"
        f"{{{{ {cases}{{{{ else }}}}{usual}{{{{ end }}}}{{{{ else }}}}{usual}{{{{ end }}}}"
    )


def _template_query(lookup: Lookup, options: Options) -> str:
    given = " ".join(f"$labels.{label}" for label in lookup.given)
    return f"query (printf `{alert_promql.fit_to_options(lookup.expr, options)}` {given})"

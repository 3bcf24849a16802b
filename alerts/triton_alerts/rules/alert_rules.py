"""Alerts as Prometheus rules."""

from __future__ import annotations

import re
from collections.abc import Iterable

from triton_alerts.alert import Alert, Lookup
from triton_alerts.catalogue import unknown
from triton_alerts.rules import alert_promql
from triton_slo import links, names
from triton_slo.artifact import Options
from triton_slo.rulefile import Group, Rule

_FIRST_SCRAPE_SECONDS = 15.0
"""Prometheus updates its targets every 5 s, whatever the scrape interval. After its start it has none for 5 s, or
10 s if it skips an update, so no time scale shortens the wait for them."""

_VARIABLES = {
    links.SERVER: ("instance",),
    links.MODEL: ("instance", "model", "version"),
    links.GPU: ("instance", "gpu_uuid"),
    links.ON_CALL: ("model",),
}
"""Dashboard -> its template variables that the labels of an alert choose."""


def group(family: str, alerts: Iterable[Alert], options: Options) -> Group:
    """Return the rule group of a family, with the alert settings of the options."""
    tuned = (tuned_alert for alert in alerts for tuned_alert in alert.tuned(options.tuning))
    rules = tuple(rule(alert, options) for alert in tuned)
    if family != "unknown":
        return Group(f"triton-{family}", rules)
    copied = Rule(
        alert_promql.fit_to_options(unknown.COPIED, options),
        names.MODEL_EXPECTED_COPY,
        comment="Which models a server should serve, so that a day of them is cheap to read.",
    )
    return Group(f"triton-{family}", (copied, *rules), alert_promql.scaled(unknown.INTERVAL, options))


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
    """Return the expression of the rule; where the alert already fires, its easier condition is enough."""
    expr = alert_promql.fit_to_options(alert.with_threshold(alert.expr), options, alert.models)
    if not alert.until:
        return expr
    # Without the options' selector: an alert carries no label that its expression aggregates away.
    firing = f'{names.ALERTS}{{alertname="{alert.name}", alertstate="firing"}}'
    easier = alert_promql.fit_to_options(alert.with_threshold(alert.until), options, alert.models)
    return f"{expr}\nor\n(\n{easier}\n)\nand on ({', '.join(alert.labels)}) {firing}"


def _for(alert: Alert, options: Options) -> str:
    """Return the alert's `for`; an alert about absent targets waits for the first scrape at any time scale."""
    if not alert.for_:
        return ""
    if "absent(" in alert.expr:
        return alert_promql.scaled(alert.for_, options, _FIRST_SCRAPE_SECONDS)
    return alert_promql.scaled(alert.for_, options)


def labels(alert: Alert) -> dict[str, str]:
    """Return the labels of every alert, besides those of its expression."""
    return {
        names.SEVERITY: alert.severity,
        names.COMPONENT: alert.component,
        names.OWNER: alert.owner,
        names.STACK: names.OWN_STACK,
    }


def texts(alert: Alert, options: Options) -> dict[str, str]:
    """Return the annotations, in Prometheus' template language."""
    shown = [label for label in _VARIABLES[alert.dashboard] if label in alert.labels]
    annotations = {
        "summary": with_windows(alert.with_numbers(alert.summary), options),
        "description": with_windows(alert.with_numbers(alert.description), options),
        "action": _first_step(alert, options),
        "cause": with_windows(alert.cause, options) + (_lookup_text(alert.cause_from, options)),
        **links.alert_links(options, alert.name, alert.dashboard, shown),
    }
    return {name: text for name, text in annotations.items() if text}


def with_windows(text: str, options: Options) -> str:
    """Return the text with each window, such as `[15m]`, at the time scale of the options."""
    return re.sub(r"\[(\d+[smhdw])\]", lambda match: alert_promql.window(match[1], options), text)


def _lookup_text(lookup: Lookup | None, options: Options) -> str:
    if lookup is None:
        return ""
    return (
        f"{{{{ range $i, $s := {_template_query(lookup, options)} | sortByLabel `{lookup.label}` }}}}"
        f"{{{{ if $i }}}}, {{{{ end }}}}{{{{ $s.Labels.{lookup.label} }}}}{{{{ end }}}}"
    )


def _first_step(alert: Alert, options: Options) -> str:
    """Return the step for the cause if there is exactly one, else the general first step."""
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

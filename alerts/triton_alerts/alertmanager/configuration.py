"""Alertmanager's configuration: routes, grouping, receivers and inhibition."""

from __future__ import annotations

from typing import Any

from triton_alerts.alertmanager.inhibition import in_force
from triton_alerts.alertmanager.receivers import receiver, ticket_hours, webhook
from triton_alerts.rules import alert_promql
from triton_slo import readable_yaml
from triton_slo.artifact import Artifact, Options
from triton_slo.burn.burn_alerts import Inhibition
from triton_slo.burn.causes import WORDS

FILE = "alertmanager.yml"
TEMPLATES = "tritonwatch.tmpl"
BRIDGE = "bridge"
"""The receiver of pages and tickets: the bridge sends them to their channels."""

Block = dict[str, Any]
"""A mapping of the configuration, as Alertmanager reads it from YAML."""

# External label where several Prometheus servers are federated; elsewhere it is empty.
_CLUSTER = "cluster"
_OF_A_MODEL = [_CLUSTER, "model"]
_OF_A_SERVER = [_CLUSTER, "instance"]
_DELIVERY = 'alertname=~"AlertBridge.*|AlertmanagerNotificationsFailing|AlertmanagerDown"'
_MIN_REPEAT_SECONDS = 600
"""Least repeat interval, at any time scale."""

# Texts of the messages that Alertmanager sends without the bridge: Markdown that is readable as plain text, too
# (Teams shows one newline as a space). At most ten alerts: Opsgenie takes 15,000 characters, Teams 28 KB. No link
# without a host, because it works only in Grafana.
_TEMPLATE_TEXT = """\
{{ define "triton.name" }}{{ if .Annotations.summary }}{{ .Annotations.summary }} ({{ .Labels.alertname }})\
{{ else }}{{ .Labels.alertname }}{{ end }}{{ end }}
{{ define "triton.more" }}{{ if gt (len .) 1 }} and {{ len (slice . 1) }} more{{ end }}{{ end }}
{{ define "triton.title" }}[{{ .Status | toUpper }}] \
{{ if .Alerts.Firing }}{{ template "triton.name" (index .Alerts.Firing 0) }}\
{{ template "triton.more" .Alerts.Firing }}\
{{ else }}{{ template "triton.name" (index .Alerts 0) }}{{ template "triton.more" .Alerts }}{{ end }}{{ end }}
{{ define "triton.text" }}{{ range $place, $alert := .Alerts }}{{ if lt $place 10 }}\
{{ .Status | toUpper }} {{ template "triton.name" . }}

{{ .Annotations.description }}

{{ with .Annotations.cause }}- Cause: {{ . | CAUSE_WORDS }}
{{ end }}{{ with .Annotations.action }}- First: {{ . }}
{{ end }}{{ with .Annotations.runbook_url }}- Runbook: {{ . }}
{{ end }}{{ with .Annotations.dashboard_url }}{{ if match "^https?://" . }}- Dashboard: {{ . }}
{{ end }}{{ end }}
{{ end }}{{ end }}{{ if gt (len .Alerts) 10 }}and {{ len (slice .Alerts 10) }} more
{{ end }}{{ end }}
""".replace("CAUSE_WORDS", WORDS)


def artifacts(options: Options) -> tuple[Artifact, ...]:
    """Return the configuration, and the templates it loads from beside it."""
    return (
        Artifact("alertmanager", FILE, readable_yaml.render(config(options))),
        Artifact("alertmanager", TEMPLATES, _TEMPLATE_TEXT),
    )


def config(options: Options) -> Block:
    """Return the configuration at the options' time scale."""
    configuration: Block = {
        "global": {"resolve_timeout": "5m"},
        "templates": [TEMPLATES],
        "route": _root(options),
        "inhibit_rules": [_inhibit_rule(inhibition) for inhibition in in_force(options.tuning)],
        "receivers": _receivers(options),
    }
    if options.ticket_hours:
        configuration["time_intervals"] = [ticket_hours(options.ticket_hours)]
    return configuration


def _root(options: Options) -> Block:
    """Return the tree of routes: the first match wins, and the root receives alerts of other rules."""
    return {
        "receiver": BRIDGE,
        "group_by": [_CLUSTER, "alertname"],
        **_times(options, "30s", "5m", "12h"),
        "routes": [
            _watchdog(options),
            *_delivery(options),
            *_others(options),
            {"receiver": "info", "matchers": ['severity=~"none|info"']},
            _pages_and_tickets(options),
        ],
    }


def _watchdog(options: Options) -> Block:
    return {
        "receiver": "watchdog",
        "matchers": ['alertname="Watchdog"'],
        "group_by": [_CLUSTER, "alertname"],
        # The repeat falls between two intervals, so that there is one ping in every second interval: each minute.
        # A repeat shorter than the interval would do, too, but Alertmanager warns of it at each start.
        "group_wait": "0s",
        "group_interval": alert_promql.scaled("30s", options),
        "repeat_interval": alert_promql.scaled("45s", options, 1.0),
    }


def _delivery(options: Options) -> list[Block]:
    """Return the route of alerts about delivery to the fallback, because the bridge may not deliver them."""
    if not options.fallback:
        return []
    return [
        {
            "receiver": "fallback",
            "matchers": [_DELIVERY],
            "group_by": [_CLUSTER, "alertname"],
            **_times(options, "10s", "1m", "1h"),
            "continue": True,
        }
    ]


def _pages_and_tickets(options: Options) -> Block:
    """Return the route of pages and tickets: both are in one group, since a ticket may become a page."""
    of_a_server = {"receiver": BRIDGE, "matchers": ['model=""'], "group_by": _OF_A_SERVER}
    in_hours = {
        "receiver": BRIDGE,
        "matchers": ['severity="warning"'],
        "active_time_intervals": ["ticket-hours"],
        "routes": [{**of_a_server, "active_time_intervals": ["ticket-hours"]}],
    }
    return {
        "receiver": BRIDGE,
        "matchers": ['severity=~"critical|warning"'],
        "group_by": _OF_A_MODEL,
        # The interval is also the time until a failed delivery is repeated, or a resolved alert is sent.
        **_times(options, "30s", "1m", "4h"),
        "routes": [*([in_hours] if options.ticket_hours else []), of_a_server],
    }


def _others(options: Options) -> list[Block]:
    """Return the routes of pages and tickets to receivers other than the bridge."""
    hours = {"active_time_intervals": ["ticket-hours"]} if options.ticket_hours else {}
    routes = []
    for name, severity, when, addresses in (
        ("page-to", "critical", {}, options.page_to),
        ("ticket-to", "warning", hours, options.ticket_to),
    ):
        route = {
            "receiver": name,
            "matchers": [f'severity="{severity}"'],
            "group_by": _OF_A_MODEL,
            **_times(options, "30s", "1m", "4h"),
            **when,
            "continue": True,
            "routes": [{"receiver": name, "matchers": ['model=""'], "group_by": _OF_A_SERVER, **when}],
        }
        routes += [route] if addresses else []
    return routes


def _times(options: Options, wait: str, interval: str, repeat: str) -> dict[str, str]:
    return {
        "group_wait": alert_promql.scaled(wait, options),
        "group_interval": alert_promql.scaled(interval, options),
        "repeat_interval": alert_promql.scaled(repeat, options, _MIN_REPEAT_SECONDS),
    }


def _receivers(options: Options) -> list[Block]:
    bridge = webhook(options.webhook_url, options.webhook_token_file)
    # A heartbeat does not resolve.
    heartbeats = [{**bridge, "send_resolved": False}]
    if options.watchdog_url:
        heartbeats.append({**webhook(options.watchdog_url, ""), "send_resolved": False})
    return [
        {"name": BRIDGE, "webhook_configs": [bridge]},
        {"name": "watchdog", "webhook_configs": heartbeats},
        # Without an integration on purpose: info is shown on dashboards, never sent.
        {"name": "info"},
        *([receiver("fallback", [options.fallback])] if options.fallback else []),
        *([receiver("page-to", options.page_to)] if options.page_to else []),
        *([receiver("ticket-to", options.ticket_to)] if options.ticket_to else []),
    ]


def _inhibit_rule(inhibition: Inhibition) -> Block:
    return {
        "source_matchers": list(inhibition.source),
        "target_matchers": list(inhibition.target),
        "equal": [_CLUSTER, *inhibition.equal],
    }

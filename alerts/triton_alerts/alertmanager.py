"""Alertmanager's configuration: routes, grouping, receivers and inhibition.

Twice: whole, for an Alertmanager of this stack alone, and as a fragment for one that routes other alerts too. After it,
its receivers: the bridge, and services other than Slack that get pages and tickets. Secrets are named by file, never
written into the configuration.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit, urlunsplit

import yaml

from triton_alerts import rules
from triton_alerts.inhibitions import in_force
from triton_exporter.common.duration import parse_seconds
from triton_slo import names, yaml_text
from triton_slo.amounts import WORDS
from triton_slo.artifact import Artifact, Options

FILE = "alertmanager.yml"
FRAGMENT = "fragment.yml"
TEMPLATES = "tritonwatch.tmpl"
_PREFIX = "tritonwatch-"
"""Of our names in a configuration, which may have receivers of others too."""
BRIDGE = f"{_PREFIX}bridge"
"""The receiver of pages and tickets: the bridge sends them to their channels."""

Block = dict[str, Any]
"""A mapping of the configuration, as Alertmanager reads it from YAML."""

# External label where several Prometheus servers are federated; elsewhere it is empty.
_CLUSTER = "cluster"
_OF_A_MODEL = [_CLUSTER, "model"]
_OF_A_SERVER = [_CLUSTER, "instance"]
_OURS = f'{names.STACK}="{names.OWN_STACK}"'
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
        Artifact("alertmanager", FILE, yaml_text.render(config(options))),
        Artifact("alertmanager", FRAGMENT, yaml_text.render(fragment(options)).replace("\n", _HOW_TO, 1)),
        Artifact("alertmanager", TEMPLATES, _TEMPLATE_TEXT),
    )


def config(options: Options) -> Block:
    """Return the configuration at the options' time scale."""
    configuration: Block = {
        "global": {"resolve_timeout": "5m"},
        "templates": [TEMPLATES],
        "route": _root(options),
        "inhibit_rules": [
            {
                "source_matchers": [_OURS, *inhibition.source],
                "target_matchers": [_OURS, *inhibition.target],
                "equal": [_CLUSTER, *inhibition.equal],
            }
            for inhibition in in_force(options.tuning)
        ],
        "receivers": _receivers(options),
    }
    return configuration


_HOW_TO = """
# For an Alertmanager that routes other alerts too: append each list below to the list of the same name in its
# configuration. The route comes first in `routes`: one of yours that takes every alert would take ours as well.
# An inhibit rule of yours that goes by severity silences ours too, unless its target has stack!="tritonwatch".
"""


def fragment(options: Options) -> Block:
    """Return what another configuration needs for our alerts, and for no others."""
    whole = config(options)
    route = {"matchers": [_OURS], **whole.pop("route")}
    del whole["global"]
    if not (options.fallback or options.page_to or options.ticket_to):
        del whole["templates"]
    return {"route": {"routes": [route]}, **whole}


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
            {"receiver": f"{_PREFIX}info", "matchers": ['severity=~"none|info"']},
            # Both are in one group, since a ticket may become a page: that waits for the next interval, at which Alertmanager
            # sends only what has changed. It is also the time until a failed delivery is repeated, or an end is sent.
            _by_subject(options, BRIDGE, 'severity=~"critical|warning"', "15s"),
        ],
    }


def _watchdog(options: Options) -> Block:
    return {
        "receiver": f"{_PREFIX}watchdog",
        "matchers": ['alertname="Watchdog"'],
        "group_by": [_CLUSTER, "alertname"],
        # The repeat falls between two intervals, so that there is one ping in every second interval: each minute.
        # A repeat shorter than the interval would do, too, but Alertmanager warns of it at each start.
        "group_wait": "0s",
        "group_interval": rules.scaled("30s", options),
        "repeat_interval": rules.scaled("45s", options, 1.0),
    }


def _delivery(options: Options) -> list[Block]:
    """Return the route of alerts about delivery to the fallback, because the bridge may not deliver them."""
    if not options.fallback:
        return []
    return [
        {
            "receiver": f"{_PREFIX}fallback",
            "matchers": [_DELIVERY],
            "group_by": [_CLUSTER, "alertname"],
            **_times(options, "10s", "1m", "1h"),
            "continue": True,
        }
    ]


def _others(options: Options) -> list[Block]:
    """Return the routes of pages and tickets to receivers other than the bridge."""
    return [
        {**_by_subject(options, f"{_PREFIX}{name}", f'severity="{severity}"', "1m"), "continue": True}
        for name, severity, addresses in (
            ("page-to", "critical", options.page_to),
            ("ticket-to", "warning", options.ticket_to),
        )
        if addresses
    ]


def _by_subject(options: Options, receiver: str, matcher: str, interval: str) -> Block:
    """Return a route whose groups are the alerts of a model, or of a server where they name no model."""
    return {
        "receiver": receiver,
        "matchers": [matcher],
        "group_by": _OF_A_MODEL,
        **_times(options, "10s", interval, "4h"),
        "routes": [{"receiver": receiver, "matchers": ['model=""'], "group_by": _OF_A_SERVER}],
    }


def _times(options: Options, wait: str, interval: str, repeat: str) -> dict[str, str]:
    return {
        "group_wait": rules.scaled(wait, options),
        "group_interval": rules.scaled(interval, options),
        "repeat_interval": rules.scaled(repeat, options, _MIN_REPEAT_SECONDS),
    }


def _receivers(options: Options) -> list[Block]:
    bridge = webhook(options.webhook_url, options.webhook_token_file)
    # A heartbeat does not resolve.
    heartbeats = [{**bridge, "send_resolved": False}]
    if options.watchdog_url:
        heartbeats.append({**webhook(options.watchdog_url, ""), "send_resolved": False})
    return [
        {"name": BRIDGE, "webhook_configs": [bridge]},
        {"name": f"{_PREFIX}watchdog", "webhook_configs": heartbeats},
        # Without an integration on purpose: info is shown on dashboards, never sent.
        {"name": f"{_PREFIX}info"},
        *([receiver(f"{_PREFIX}fallback", [options.fallback])] if options.fallback else []),
        *([receiver(f"{_PREFIX}page-to", options.page_to)] if options.page_to else []),
        *([receiver(f"{_PREFIX}ticket-to", options.ticket_to)] if options.ticket_to else []),
    ]


def receiver_options(text: str) -> dict[str, Any]:
    """Return the options of receivers that a written configuration was generated with, and what each one set.

    Empty for a file that `generate` did not write.
    """
    try:
        written = yaml.safe_load(text)
        named = {one["name"]: one for one in written["receivers"]}
        bridge = named[BRIDGE]["webhook_configs"][0]
        watchdog = named[f"{_PREFIX}watchdog"]["webhook_configs"][1:]
        options = {
            "--webhook-url": bridge["url"],
            "--webhook-token-file": bridge.get("http_config", {})
            .get("authorization", {})
            .get("credentials_file"),
            "--watchdog-url": watchdog[0]["url"] if watchdog else None,
            **{f"--{name}": named.get(f"{_PREFIX}{name}") for name in ("fallback", "page-to", "ticket-to")},
        }
    except (yaml.YAMLError, LookupError, TypeError, AttributeError):
        return {}
    return {option: value for option, value in options.items() if value}


def sends_to(loaded: str, url: str) -> bool:
    """Return whether a configuration, as Alertmanager shows it, has the receiver of the bridge with this URL."""
    try:
        [bridge] = [one for one in yaml.safe_load(loaded)["receivers"] if one["name"] == BRIDGE]
        # Alertmanager 0.26 and later do not show a URL.
        return any(one["url"] in (url, "<secret>") for one in bridge["webhook_configs"])
    except (yaml.YAMLError, LookupError, TypeError, ValueError):
        return False


def contains(loaded: str, generated: str) -> bool:
    """Return whether a configuration, as Alertmanager shows it, has what was generated: whole, or as the fragment."""
    theirs, ours = yaml.safe_load(loaded), yaml.safe_load(generated)
    names = {receiver["name"] for receiver in theirs["receivers"]}
    trees = [theirs["route"], *theirs["route"].get("routes", ())]
    return (
        names >= {receiver["name"] for receiver in ours["receivers"]}
        and any(_has(tree, ours["route"]) for tree in trees)
        and all(
            any(_has(it, rule) for it in theirs.get("inhibit_rules", ())) for rule in ours["inhibit_rules"]
        )
    )


def _has(loaded: Any, wanted: Any) -> bool:
    """Return whether a part is loaded; Alertmanager adds defaults, sorts matchers, and writes 90s as 1m30s."""
    if isinstance(wanted, dict):
        return isinstance(loaded, dict) and all(_has(loaded.get(key), part) for key, part in wanted.items())
    if isinstance(wanted, list):
        if not isinstance(loaded, list) or len(loaded) != len(wanted):
            return False
        matchers = all(isinstance(part, str) for part in wanted)
        return sorted(loaded) == sorted(wanted) if matchers else all(map(_has, loaded, wanted))
    return bool(loaded == wanted) or (
        (seconds := _seconds(wanted)) is not None and seconds == _seconds(loaded)
    )


def _seconds(value: object) -> float | None:
    try:
        return parse_seconds(str(value))
    except ValueError:
        return None


ADDRESSES = (
    "https://HOST/PATH[#token-file=FILE], webhook:///FILE, pagerduty:///FILE, opsgenie:///FILE, jsm:///FILE, "
    "teams:///FILE, incidentio:///FILE?source=ID, irm:///FILE, mailto:TO?from=FROM&smarthost=HOST:PORT"
)
"""FILE contains the key, token or address; it is a path on the machine of Alertmanager."""
_TITLE = '{{ template "triton.title" . }}'
_TEXT = '{{ template "triton.text" . }}'
# A path without a host works only in Grafana, and PagerDuty refuses such a link.
_LINKS = {
    text: f"{{{{ with (index .Alerts 0).Annotations.{annotation} }}}}"
    '{{ if match "^https?://" . }}{{ . }}{{ end }}{{ end }}'
    for text, annotation in (("Runbook", "runbook_url"), ("Dashboard", "dashboard_url"))
}
_JSM = "https://api.atlassian.com/jsm/ops/integration/"
_LOGIN = ("username", "password_file")
_INCIDENT_IO = "https://api.incident.io/v2/alert_events/alertmanager/"


def webhook(url: str, token_file: str) -> dict[str, Any]:
    """Return a webhook that receives resolved alerts, too; `token_file` contains its bearer token."""
    settings: dict[str, Any] = {"url": url, "send_resolved": True}
    if token_file:
        settings["http_config"] = {"authorization": {"type": "Bearer", "credentials_file": token_file}}
    return settings


def receiver(name: str, addresses: Iterable[str]) -> dict[str, Any]:
    """Return the receiver that notifies these addresses. Raises ValueError if one is not valid."""
    settings: dict[str, Any] = {"name": name}
    for address in addresses:
        kind, receiver_config = integration(address)
        settings.setdefault(kind, []).append(receiver_config)
    return settings


def integration(address: str) -> tuple[str, dict[str, Any]]:
    """Return the kind of an integration and its settings. Raises ValueError."""
    parts = urlsplit(address)
    file, query = unquote(parts.path), {name: values[0] for name, values in parse_qs(parts.query).items()}
    match parts.scheme:
        case "http" | "https" if parts.username or parts.password:
            raise ValueError("holds a password, which the configuration would show; write webhook:///FILE")
        case "http" | "https" if parts.hostname:
            token = parse_qs(parts.fragment).get("token-file", [""])[0]
            return "webhook_configs", webhook(urlunsplit(parts._replace(fragment="")), token)
        case "webhook" if file:
            return "webhook_configs", {"url_file": file, "send_resolved": True}
        case "irm" if file:
            # The documentation of Grafana IRM recommends 100 alerts.
            return "webhook_configs", {"url_file": file, "send_resolved": True, "max_alerts": 100}
        case "incidentio" if file and "source" in query:
            return "webhook_configs", webhook(_INCIDENT_IO + query["source"], file)
        case "pagerduty" if file:
            return "pagerduty_configs", _pagerduty(file)
        case "opsgenie" | "jsm" if file:
            api = query.get("api_url") or {"opsgenie": "https://api.opsgenie.com/", "jsm": _JSM}[parts.scheme]
            return "opsgenie_configs", _opsgenie(file, api)
        case "teams" if file:
            settings = {"title": _TITLE, "text": _TEXT, "send_resolved": True}
            return "msteamsv2_configs", {"webhook_url_file": file, **settings}
        case "mailto" if parts.path:
            return "email_configs", _email(parts.path, query)
    raise ValueError(f"{address!r} is none of {ADDRESSES}")


def _pagerduty(key_file: str) -> dict[str, Any]:
    return {
        "routing_key_file": key_file,
        "send_resolved": True,
        "description": _TITLE,
        "severity": '{{ if eq .CommonLabels.severity "warning" }}warning{{ else }}critical{{ end }}',
        "details": {"text": _TEXT},
        "client": "tritonwatch",
        "links": [{"text": text, "href": href} for text, href in _LINKS.items()],
    }


def _opsgenie(key_file: str, api_url: str) -> dict[str, Any]:
    return {
        "api_key_file": key_file,
        "api_url": api_url,
        "send_resolved": True,
        "message": _TITLE,
        "description": _TEXT,
        "priority": '{{ if eq .CommonLabels.severity "warning" }}P3{{ else }}P1{{ end }}',
        "details": dict(_LINKS),
    }


def _email(to: str, query: dict[str, str]) -> dict[str, Any]:
    needed = ("from", "smarthost", *(_LOGIN if query.keys() & _LOGIN else ()))
    if missing := [name for name in needed if name not in query]:
        raise ValueError(f"mailto:{to} lacks {' and '.join(missing)}")
    if unknown := sorted(query.keys() - {*needed, "require_tls"}):
        raise ValueError(
            f"mailto:{to} has {unknown[0]}, which is not one of {', '.join((*needed, 'require_tls'))}"
        )
    settings: dict[str, Any] = {
        "to": to,
        "from": query["from"],
        "smarthost": query["smarthost"],
        "send_resolved": True,
        "headers": {"Subject": _TITLE},
        "html": "",
        "text": _TEXT,
    }
    if "username" in query:
        settings |= {"auth_username": query["username"], "auth_password_file": query["password_file"]}
    if query.get("require_tls") == "false":
        settings["require_tls"] = False
    return settings

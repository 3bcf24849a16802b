"""Receivers of Alertmanager: the bridge, and services other than Slack that get pages and tickets.

Secrets are named by file, never written into the configuration.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit, urlunsplit

from triton_alerts import hours

ADDRESSES = (
    "https://HOST/PATH[#token-file=FILE], webhook:///FILE, pagerduty:///FILE, opsgenie:///FILE, jsm:///FILE, "
    "teams:///FILE, incidentio:///FILE?source=ID, irm:///FILE, mailto:TO?from=FROM&smarthost=HOST:PORT"
)
"""FILE contains the key, token or address; it is a path on the machine of Alertmanager."""
TICKET_HOURS = "tritonwatch-ticket-hours"
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


def ticket_hours(text: str) -> dict[str, Any]:
    """Return the time interval in which tickets are sent. Raises ValueError on text in another form."""
    when = hours.parse(text)
    interval: dict[str, Any] = {
        "weekdays": list(when.days),
        "times": [{"start_time": when.start, "end_time": when.end}],
    }
    if when.place:
        interval["location"] = when.place
    return {"name": TICKET_HOURS, "time_intervals": [interval]}

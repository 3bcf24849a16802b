"""Pages that help with an incident: runbook, dashboard, query, Alertmanager and its form for silences."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

from triton_alerts.bridge import text
from triton_alerts.bridge.incidents.incident import Incident, Matcher
from triton_alerts.bridge.incidents.notification import Member, subject_labels
from triton_exporter.family import escape
from triton_slo.names import ALERTS


@dataclass(frozen=True, slots=True)
class Style:
    """Style of the bridge's messages: buttons need Socket Mode; `grafana` completes relative dashboard links."""

    buttons: bool = False
    grafana: str = ""


def links(incident: Incident, lead: Member, style: Style) -> list[tuple[str, str]]:
    """Return the pages that help, with their names; an address may be empty or unsafe."""
    dashboard = lead.annotations.get("dashboard_url", "")
    if dashboard.startswith("/"):
        dashboard = f"{style.grafana.rstrip('/')}{dashboard}"
    if text.safe_url(dashboard):
        end = incident.closed_at
        wanted = {"var_model": lead.labels.get("model", ""), "from": str(int((incident.since - 1800) * 1000))}
        wanted["to"] = str(int((end + 900) * 1000)) if end is not None else "now"
        dashboard = text.with_query(dashboard, **{name: value for name, value in wanted.items() if value})
    labelled = [("Runbook", lead.annotations.get("runbook_url", "")), ("Dashboard", dashboard)]
    labelled.append(("Query", _expression_url(lead)))
    if incident.open and incident.external_url:
        about = subject_labels(lead.labels) or incident.group_labels
        group = (Matcher(name=name, values=frozenset({value})) for name, value in sorted(about.items()))
        labelled.append(("Alertmanager", f"{incident.external_url}/#/alerts?filter={_filter(group)}"))
        if not style.buttons:
            labelled += _silences(incident)
    return labelled


def _silences(incident: Incident) -> list[tuple[str, str]]:
    """Return Alertmanager's form for each silence that the incident's alerts need together."""
    sets = [matchers for matchers in incident.matchers if matchers]
    return [
        (
            "Silence" if len(sets) == 1 else f"Silence {number} of {len(sets)}",
            f"{incident.external_url}/#/silences/new?filter={_filter(matchers)}",
        )
        for number, matchers in enumerate(sets, 1)
    ]


def _expression_url(lead: Member) -> str:
    """Return the URL of the expression in Prometheus, or of ALERTS if the first is too long for Slack."""
    if len(lead.generator_url) <= text.MAX_URL_LENGTH:
        return lead.generator_url
    try:
        parts = urlsplit(lead.generator_url)
    except ValueError:
        return ""
    if not parts.path.endswith("/graph"):
        return lead.generator_url
    chosen = {
        name: value for name, value in lead.labels.items() if name in ("alertname", "model", "instance")
    }
    selector = ", ".join(f'{name}="{escape(value)}"' for name, value in sorted(chosen.items()))
    query = urlencode({"g0.expr": f"{ALERTS}{{{selector}}}", "g0.tab": "1"})
    return urlunsplit(parts._replace(query=query))


def _filter(matchers: Iterable[Matcher]) -> str:
    """Return matchers as a part of an address, as Alertmanager's pages read them."""
    return quote("{" + text.clean(",".join(map(str, matchers))) + "}")

"""Artifacts of generators: text with the path to write it to. Callers write the file."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Literal

from triton_slo.alert_settings import Tuning

_WIDE = re.compile("([\U00010000-\U0010ffff])")

Format = Literal["prometheus", "operator", "vmalert"]


@dataclass(frozen=True, slots=True)
class Artifact:
    """One file to write: `part` is the subfolder (rules, alertmanager, dashboards)."""

    part: str
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Options:
    """Options that all generators take besides the objectives.

    `time_scale` multiplies every window and `for` (1 is real time; the demo uses less); no window becomes
    shorter than 4 times `scrape_interval_seconds`. `selector` is PromQL matchers without braces, added to
    every selector (`cluster="eu1"`).
    """

    time_scale: float = 1.0
    scrape_interval_seconds: float = 15.0
    format: Format = "prometheus"
    selector: str = ""
    runbook_url: str = "https://github.com/tritonwatch/tritonwatch/blob/main/alerts/runbooks/{alert}.md"
    dashboard_url: str = ""
    webhook_url: str = "http://bridge:9096/alertmanager"
    """Address to which Alertmanager sends pages and tickets: the Slack bridge, or the bridge of the demo."""
    webhook_token_file: str = ""
    """File, as Alertmanager sees it, that contains the bearer token of the webhook."""
    fallback: str = ""
    """Address of alerts about the way to Slack, by another way, such as `pagerduty:///file/with/key`."""
    page_to: tuple[str, ...] = ()
    """Receivers of pages besides the bridge, as addresses such as that of `fallback`."""
    ticket_to: tuple[str, ...] = ()
    """Receivers of tickets besides the bridge, as addresses such as that of `fallback`."""
    watchdog_url: str = ""
    """Webhook outside the stack that raises an alarm when the watchdog no longer arrives."""
    ticket_hours: str = ""
    """Hours in which tickets are sent (`monday:friday 08:00-18:00 Europe/Berlin`); empty: at any time."""
    links: tuple[tuple[str, str], ...] = ()
    """Titles and addresses of pages that every dashboard links to, such as the logs or the traces."""
    tuning: Tuning = field(default_factory=Tuning)
    """Changes that alerts.yaml makes to the alert catalogue."""


def scalar(text: str) -> str:
    """Write a string so that every YAML reader gives back the same string."""
    # JSON strings are YAML strings, but for characters beyond 16 bits, which JSON writes as two halves.
    return "".join(
        f"\\U{ord(part):08x}" if _WIDE.match(part) else json.dumps(part)[1:-1] for part in _WIDE.split(text)
    ).join('""')

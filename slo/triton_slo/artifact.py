"""What generators take and return: options, files, and rules with their text in three formats.

A rule file is written directly: it has one shape, and a general YAML writer takes most of the time that generation takes
(and folds PromQL where nobody can read it).
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from triton_slo import names
from triton_slo.alert_settings import Tuning
from triton_slo.promql import for_metricsql
from triton_slo.yaml_text import HEADER

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
    runbook_url: str = names.RUNBOOK_URL
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


@dataclass(frozen=True, slots=True)
class Rule:
    """A recording rule (`record`) or an alert (`alert`); durations are PromQL text, `for_` is `for`."""

    expr: str
    record: str = ""
    alert: str = ""
    for_: str = ""
    keep_firing_for: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    comment: str = ""
    """A sentence on what the rule, and those after it without one, are for."""


@dataclass(frozen=True, slots=True)
class Group:
    """Rules evaluated one after another, each seeing what the ones before recorded."""

    name: str
    rules: tuple[Rule, ...]
    interval: str = ""
    """Time between two evaluations of the group; empty: as often as the server evaluates rules."""
    comment: str = ""


def render(groups: Iterable[Group], name: str, format: Format) -> str:
    """Write groups as a Prometheus rule file, a PrometheusRule resource, or a file for vmalert."""
    body = "".join(_group_text(group, format) for group in groups)
    if format != "operator":
        return f"{HEADER}groups:\n{body}"
    head = (
        f"{HEADER}apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata:\n"
        f"  name: {scalar(name)}\n  labels:\n    app.kubernetes.io/part-of: tritonwatch\nspec:\n  groups:\n"
    )
    return head + "".join(f"  {line}\n" if line else "\n" for line in body.splitlines())


def _group_text(group: Group, format: Format) -> str:
    # vmalert writes results over the network and reads them back. Without this, a rule would see its
    # neighbour's result one evaluation late, or not at all.
    extra = "    concurrency: 1\n" if format == "vmalert" else ""
    extra += f"    interval: {group.interval}\n" if group.interval else ""
    return f"{_comment(group.comment, 2)}  - name: {scalar(group.name)}\n{extra}    rules:\n" + "".join(
        _rule_text(rule, format) for rule in group.rules
    )


def _rule_text(rule: Rule, format: Format) -> str:
    expr = for_metricsql(rule.expr) if format == "vmalert" else rule.expr
    lines = [f"      - record: {rule.record}" if rule.record else f"      - alert: {rule.alert}"]
    if rule.labels:
        labels = ", ".join(f"{name}: {scalar(value)}" for name, value in rule.labels.items())
        lines.append(f"        labels: {{{labels}}}")
    lines.append(f"        expr: {_expression_text(expr)}")
    if rule.for_:
        lines.append(f"        for: {rule.for_}")
    if rule.keep_firing_for:
        lines.append(f"        keep_firing_for: {rule.keep_firing_for}")
    if rule.annotations:
        lines.append("        annotations:")
        lines += [f"          {name}: {_quoted(value)}" for name, value in rule.annotations.items()]
    return _comment(rule.comment, 6) + "\n".join(lines) + "\n"


def _comment(text: str, indent: int) -> str:
    return "".join(f"{' ' * indent}# {line}\n" for line in textwrap.wrap(text, 112))


def _expression_text(text: str) -> str:
    if "\n" not in text:
        return _quoted(text)
    if not all(line.isprintable() for line in text.splitlines()):
        return scalar(text)
    return "|-\n" + "\n".join(f"          {line}" for line in text.splitlines())


def _quoted(text: str) -> str:
    """Write one line as a person would: PromQL is full of double quotes."""
    return f"'{text}'" if '"' in text and "'" not in text and text.isprintable() else scalar(text)

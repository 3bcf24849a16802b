"""Rule files as values, and their text in the three formats.

The text is written directly: a rule file has one shape, and a general YAML writer takes most of the time that
generation takes (and folds PromQL where nobody can read it).
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from triton_slo.artifact import Format, scalar
from triton_slo.promql import for_metricsql
from triton_slo.yaml_text import HEADER


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

"""Check alerting rules for mistakes that promtool accepts.

The rules of thumb follow Cloudflare's pint (https://cloudflare.github.io/pint/), as far as they can be judged
without a Prometheus: one function each, in CHECKS. After them, what the catalogue of metrics says about the series of
an expression, and how rule files are read with the line on which each rule begins.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import promql_parser
import yaml
from promql_parser import (
    AggregateExpr,
    BinaryExpr,
    Call,
    Expr,
    MatrixSelector,
    NumberLiteral,
    ParenExpr,
    SubqueryExpr,
    VectorSelector,
)

from triton_exporter.catalogue import METRICS, Metric
from triton_exporter.catalogue.external import headroom
from triton_exporter.common.problem import Problem
from triton_exporter.common.yaml_files import FAST_LOADER, YAML_FAULTS
from triton_slo import bridge_series, expression, names

_COMPARISONS = frozenset({">", "<", ">=", "<=", "==", "!="})
_ANNOTATIONS = ("summary", "description", "runbook_url", "dashboard_url")
_NAME = re.compile(
    r"(?:Triton|TrtLlm|Llm|Vllm|Gpu|Prometheus|Alertmanager|AlertBridge)(?:[A-Z0-9][a-z0-9]*)+|Watchdog"
)
_OURS = re.compile(r"triton_|nv_|vllm:")
_RATES = frozenset({"rate", "increase", "irate", "resets"})
_WINDOWED = _RATES | {"delta", "idelta", "deriv", "changes", "predict_linear"}
_ABSENCE = frozenset({"absent", "absent_over_time"})


@dataclass(frozen=True)
class AlertingRule:
    """One alerting rule of a rule file."""

    place: str
    rule: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(self.rule["alert"])

    @cached_property
    def nodes(self) -> tuple[Expr, ...]:
        """All parts of the expression; the whole comes first."""
        return tuple(expression.parts(promql_parser.parse(str(self.rule["expr"]))))

    def calls(self, *names: str) -> Iterator[Call]:
        """Return the calls of these functions."""
        return (node for node in self.nodes if isinstance(node, Call) and node.func.name in names)

    def texts(self) -> Iterator[str]:
        """Return the annotations."""
        return map(str, dict(self.rule.get("annotations") or {}).values())


Check = Callable[[AlertingRule, float], Iterable[str]]
"""Finds the mistakes of one rule, in words; the number is the scrape interval in seconds."""


def problems(groups: Sequence[Mapping[str, Any]], scrape_interval_seconds: float = 15.0) -> list[Problem]:
    """Return everything found in the alerting rules of these groups (as read from a rule file)."""
    rules = [
        AlertingRule(f"{beginning(group, rule)}: {rule['alert']}", rule)
        for group in groups
        for rule in group.get("rules", ())
        if "alert" in rule
    ]
    mistakes = [
        Problem(rule.place, reason, fix)
        for rule in rules
        for check, fix in CHECKS.items()
        for reason in dict.fromkeys(check(rule, scrape_interval_seconds))
    ]
    return mistakes + list(_duplicates(rules))


def check_file(
    name: str, groups: Iterable[Mapping[str, Any]], scrape_interval_seconds: float
) -> list[Problem]:
    """Return everything found in one rule file, a rule at a time where one cannot be read at all."""
    readable, mistakes = [], []
    for group in groups:
        rules = []
        for rule in group.get("rules") or ():
            mistake = _unreadable(rule)
            if mistake:
                place = beginning({"file": name, "name": group.get("name")}, rule)
                mistakes.append(Problem(place, mistake, "run promtool check rules to see where"))
            else:
                rules.append(rule)
        readable.append({"file": name, "name": group.get("name"), "rules": rules})
    return [*mistakes, *problems(readable, scrape_interval_seconds)]


def _unreadable(rule: object) -> str:
    if not isinstance(rule, dict) or "expr" not in rule or not {"alert", "record"} & set(rule):
        return "not a rule: it lacks expr, or alert or record"
    try:
        promql_parser.parse(str(rule["expr"]))
    except ValueError as error:
        return f"{rule.get('alert') or rule.get('record')}: {error}"
    if not all(isinstance(rule.get(key) or {}, dict) for key in ("labels", "annotations")):
        return f"{rule.get('alert') or rule.get('record')}: labels or annotations are not a mapping"
    return ""


def value_in_label(rule: AlertingRule, _: float) -> Iterator[str]:
    """Report a label that changes with the value: it makes a new alert each time."""
    for name, value in dict(rule.rule.get("labels") or {}).items():
        if re.search(r"\$value|\.Value\b", str(value)):
            yield f"label {name} has the value, so the alert starts again whenever it changes"


def no_comparison(rule: AlertingRule, _: float) -> Iterator[str]:
    """Report an expression without a comparison: its alert fires for every series."""
    compares = any(isinstance(node, BinaryExpr) and str(node.op) in _COMPARISONS for node in rule.nodes)
    if not compares and not any(rule.calls("vector", *_ABSENCE)):
        yield "the expression compares nothing, so the alert fires whenever the series exist"


def regexp_without_effect(rule: AlertingRule, _: float) -> Iterator[str]:
    """Report a regular expression that is a plain word, or that everything matches."""
    for selector in selectors(rule.nodes):
        for matcher in selector.matchers.matchers:
            if "Re" not in str(matcher.op):
                continue
            if matcher.value == ".*":
                yield f"matcher on {matcher.name} matches everything"
            elif re.fullmatch(r"[\w:/ -]*", matcher.value):
                yield f"matcher on {matcher.name} is a plain word: = or != has the same effect"


def short_window(rule: AlertingRule, scrape_interval_seconds: float) -> Iterator[str]:
    """Report a window with less than two samples: it yields nothing."""
    for call in rule.calls(*_WINDOWED):
        for argument in call.args:
            if isinstance(argument, MatrixSelector):
                seconds = argument.range.total_seconds()
                if seconds < 2 * scrape_interval_seconds:
                    yield f"{call.func.name} over {seconds:g} s sees less than two scrapes"


def labels_and_annotations(rule: AlertingRule, _: float) -> Iterator[str]:
    """Report labels and annotations that are missing: every alert needs them to be routed and understood."""
    labels, annotations = (dict(rule.rule.get(key) or {}) for key in ("labels", "annotations"))
    if labels.get(names.SEVERITY) not in names.SEVERITIES:
        yield f"label severity is none of {', '.join(names.SEVERITIES)}"
    if not labels.get(names.COMPONENT):
        yield "label component is missing"
    for name in _ANNOTATIONS:
        if not annotations.get(name):
            yield f"annotation {name} is missing"
    if "\n" in str(annotations.get("summary", "")):
        yield "annotation summary is longer than one line"


def unknown_label_in_text(rule: AlertingRule, _: float) -> Iterator[str]:
    """Report a text that shows a label the expression has aggregated away, or that misspells one."""
    yielded = labels_of(rule.nodes[0])
    if yielded is None:
        return
    for label in sorted({name for text in rule.texts() for name in re.findall(r"\$labels\.(\w+)", text)}):
        if label not in yielded | set(rule.rule.get("labels") or ()):
            yield f"an annotation shows label {label}, which the expression does not yield"


def unmatched_vectors(rule: AlertingRule, _: float) -> Iterator[str]:
    """Report two vectors with different labels, and no on() or ignoring(): they never match."""
    for node in rule.nodes:
        if not isinstance(node, BinaryExpr) or str(node.op) == "or":
            continue
        if node.modifier is not None and node.modifier.matching is not None:
            continue
        left, right = labels_of(node.lhs), labels_of(node.rhs)
        if left and right and left != right:
            yield f"the sides of {node.op} differ in {', '.join(sorted(left ^ right))} and never meet"


def counter_without_rate(rule: AlertingRule, _: float) -> Iterator[str]:
    """Report a counter without a rate: its own value depends on how long the process has run."""
    bare = Counter(str(selector) for selector in selectors(rule.nodes))
    for call in rule.calls(*_RATES, "changes", *_ABSENCE, "last_over_time"):
        bare.subtract(str(selector) for selector in selectors(expression.parts(call)))
    for node in rule.nodes:
        if isinstance(node, AggregateExpr) and str(node.op) == "group":  # whether it is there
            bare.subtract(str(selector) for selector in selectors(expression.parts(node)))
    names = {str(selector): selector.name or "" for selector in selectors(rule.nodes)}
    for text, count in bare.items():
        if count > 0 and metric_kind(names[text]) == "counter":
            yield f"counter {names[text]} is used without rate or increase"


def rate_of_gauge(rule: AlertingRule, _: float) -> Iterator[str]:
    """Report a rate of a gauge: it counts every decrease of the gauge as a reset."""
    for call in rule.calls(*_RATES - {"resets"}):
        for selector in selectors(expression.parts(call)):
            if metric_kind(selector.name or "") == "gauge":
                yield f"{call.func.name} of the gauge {selector.name}: use delta or deriv"


def unguarded_division(rule: AlertingRule, _: float) -> Iterator[str]:
    """Report a division by what may be 0: one NaN or infinity makes a whole sum or average useless."""
    for whole in rule.nodes:
        if not isinstance(whole, AggregateExpr):
            continue
        for node in expression.parts(whole.expr):
            if isinstance(node, BinaryExpr) and str(node.op) == "/" and may_be_zero(node.rhs):
                yield f"{whole.op} over a division by what may be 0"


def unstable_threshold(rule: AlertingRule, _: float) -> Iterator[str]:
    """Report a threshold without `for`: a single sample over it, or one missed scrape, is noise."""
    recorded = all(is_recorded(selector.name or "") for selector in selectors(rule.nodes))
    if rule.rule.get("for") or recorded:
        return
    if any(rule.calls(*_ABSENCE)):
        yield "absent() without `for` fires at every missed scrape"
    elif not any(isinstance(node, MatrixSelector | SubqueryExpr) for node in rule.nodes) and not any(
        rule.calls("vector", "time")
    ):
        yield "a threshold without `for` and without a window fires on a single sample"


def unknown_series(rule: AlertingRule, _: float) -> Iterator[str]:
    """Report a series of our stack that nobody exposes."""
    for selector in selectors(rule.nodes):
        name = selector.name or ""
        if _OURS.match(name) and family(name) is None:
            yield f"nobody exposes {name}"


def badly_named(rule: AlertingRule, _: float) -> Iterator[str]:
    """Report a name that does not begin with the component that the alert is about."""
    if not _NAME.fullmatch(rule.name):
        yield "the name is not in CamelCase with the component first"


CHECKS: dict[Check, str] = {
    value_in_label: "show the value in an annotation",
    no_comparison: "compare with a threshold",
    regexp_without_effect: "use = or !=, or drop the matcher",
    short_window: "use a window of at least four scrapes",
    labels_and_annotations: "add it",
    unknown_label_in_text: "keep the label in by() or without(), or correct its name",
    unmatched_vectors: "aggregate both sides alike, or add on(...)",
    counter_without_rate: "use rate() or increase()",
    rate_of_gauge: "use delta() or deriv()",
    unguarded_division: "divide after aggregating, or keep only divisors above 0: (... > 0)",
    unstable_threshold: "add `for` or a window",
    unknown_series: "correct the name; docs/metrics lists them",
    badly_named: "TritonModelLoadFailed is an example",
}
"""Check -> how to fix what it finds."""


def _duplicates(rules: Sequence[AlertingRule]) -> Iterator[Problem]:
    seen: dict[tuple[str, str, str], str] = {}
    for rule in rules:
        key = (rule.name, str(rule.rule["expr"]), str(sorted(dict(rule.rule.get("labels") or {}).items())))
        if key in seen:
            yield Problem(rule.place, f"the same rule as {seen[key]}", "keep one")
        seen.setdefault(key, rule.place)


_TARGET = frozenset({"instance", "job"})
"""Labels that Prometheus itself puts on every series."""
_KNOWN = {metric.name: metric for metric in (*METRICS, *headroom.METRICS, *bridge_series.METRICS)}


def selectors(parts: Iterable[Expr]) -> Iterator[VectorSelector]:
    """Yield the series that are selected."""
    for node in parts:
        if isinstance(node, VectorSelector):
            yield node
        elif isinstance(node, MatrixSelector):
            yield node.vector_selector


def family(name: str) -> Metric | None:
    """Return the catalogue's row of a series, also of one with the suffix of a histogram or summary."""
    for suffix in ("", "_bucket", "_sum", "_count"):
        metric = _KNOWN.get(name.removesuffix(suffix)) if name.endswith(suffix) else None
        if metric is not None and (not suffix or metric.kind in {"histogram", "summary"}):
            return metric
    return None


def metric_kind(name: str) -> str:
    """Return counter, gauge, ... from the catalogue or the name; empty when unknown."""
    metric = family(name)
    if metric is None:
        return "counter" if name.endswith("_total") else ""
    return "counter" if metric.name != name else metric.kind


def is_recorded(name: str) -> bool:
    """Return whether a rule recorded this series: its name has a colon, and is not one of vLLM's own."""
    return ":" in name and not name.startswith("vllm:")


def labels_of(expr: Expr) -> expression.LabelNames:
    """Return the labels an expression yields; None where the catalogue does not list them."""
    return expression.labels(expr, _of_series)


def _of_series(selector: VectorSelector) -> frozenset[str] | None:
    metric = family(selector.name or "")
    if metric is None:
        return None
    bucket = {"le"} if (selector.name or "").endswith("_bucket") else set()
    return frozenset({*metric.labels, *_TARGET, *bucket})


def may_be_zero(expr: Expr) -> bool:
    """Return whether a divisor can be 0: it is neither another number nor filtered by a comparison."""
    while isinstance(expr, ParenExpr):
        expr = expr.expr
    if isinstance(expr, NumberLiteral):
        return expr.val == 0
    return not (isinstance(expr, BinaryExpr) and str(expr.op) in _COMPARISONS)


class _Lined(dict[Any, Any]):
    """A mapping of a YAML file, with the line on which it begins."""

    line = 0


class _LinedLoader(FAST_LOADER):  # type: ignore[misc]
    """Reads mappings with their lines."""


def _lined(loader: yaml.SafeLoader, node: yaml.MappingNode) -> Iterator[_Lined]:
    mapping = _Lined()
    mapping.line = node.start_mark.line + 1
    yield mapping
    mapping.update(loader.construct_mapping(node))


_LinedLoader.add_constructor("tag:yaml.org,2002:map", _lined)


def beginning(group: Mapping[str, Any], rule: object) -> str:
    """Return `file:line: group` as far as they are known."""
    line = f":{rule.line}" if isinstance(rule, _Lined) else ""
    return f"{group['file']}{line}: {group['name']}" if "file" in group else str(group["name"])


def rule_groups(text: str) -> list[Mapping[str, Any]] | None:
    """Return the groups of a rule file or a PrometheusRule resource; None if the text is neither."""
    try:
        read = yaml.load(text, Loader=_LinedLoader)  # noqa: S506 - a SafeLoader that remembers lines
    except YAML_FAULTS:
        return None
    if isinstance(read, dict) and read.get("kind") == "PrometheusRule":
        read = read.get("spec")
    groups = read.get("groups") if isinstance(read, dict) else None
    return [group for group in groups if isinstance(group, dict)] if isinstance(groups, list) else None

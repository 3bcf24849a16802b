"""Alerts as Prometheus rules.

First the rules and their texts, then how an expression that is written at real time is fitted to the options: windows,
offsets, times and matchers. That part reads PromQL as tokens, not as a tree: enough for the expressions of the
catalogue, which the tests give to promtool before and after.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from triton_alerts.alert import Alert
from triton_alerts.catalogue import unknown
from triton_exporter.catalogue import METRICS
from triton_exporter.catalogue.external import headroom
from triton_exporter.common.duration import duration_text, parse_seconds
from triton_slo import links, names
from triton_slo.artifact import Group, Options, Rule
from triton_slo.promql import Matchers

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
        fit_to_options(unknown.COPIED, options),
        names.MODEL_EXPECTED_COPY,
        comment="Which models a server should serve, so that a day of them is cheap to read.",
    )
    return Group(f"triton-{family}", (copied, *rules), scaled(unknown.INTERVAL, options))


def rule(alert: Alert, options: Options) -> Rule:
    """Return one alerting rule, links included."""
    return Rule(
        expr=expression(alert, options),
        alert=alert.name,
        for_=_for(alert, options),
        keep_firing_for=scaled(alert.keep_firing_for, options) if alert.keep_firing_for else "",
        labels=labels(alert),
        annotations=texts(alert, options),
    )


def expression(alert: Alert, options: Options) -> str:
    """Return the expression of the rule; where the alert already fires, its easier condition is enough."""
    expr = fit_to_options(alert.with_threshold(alert.expr), options, alert.models)
    if not alert.until:
        return expr
    # Without the options' selector: an alert carries no label that its expression aggregates away.
    firing = f'{names.ALERTS}{{alertname="{alert.name}", alertstate="firing"}}'
    easier = fit_to_options(alert.with_threshold(alert.until), options, alert.models)
    return f"{expr}\nor\n(\n{easier}\n)\nand on ({', '.join(alert.labels)}) {firing}"


def _for(alert: Alert, options: Options) -> str:
    """Return the alert's `for`; an alert about absent targets waits for the first scrape at any time scale."""
    if not alert.for_:
        return ""
    if "absent" in alert.expr:
        return scaled(alert.for_, options, _FIRST_SCRAPE_SECONDS)
    return scaled(alert.for_, options)


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
        "action": with_windows(alert.action, options),
        "threshold": alert.with_threshold("$threshold") if "$threshold" in alert.lately else "",
        **links.alert_links(options, alert.name, alert.dashboard, shown),
    }
    return {name: text for name, text in annotations.items() if text}


def with_windows(text: str, options: Options) -> str:
    """Return the text with each window, such as `[15m]`, at the time scale of the options."""
    return re.sub(r"\[(\d+[smhdw])\]", lambda match: window(match[1], options), text)


_DURATION = r"(?:\d+(?:ms|[smhdw]))+"
_TOKEN = re.compile(
    rf"""(?P<string>"(?:\\.|[^"\\])*")
    | (?P<range>\[{_DURATION}(?::(?:{_DURATION})?)?\])
    | (?P<offset>\boffset\s+{_DURATION})
    | (?P<duration>\b{_DURATION}\b)
    | (?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)
    | (?P<matchers>\{{[^}}]*\}})
    | (?P<other>\s+|\d[\d.eE]*|.)""",
    re.VERBOSE,
)
_LABEL_LISTS = frozenset({"by", "without", "on", "ignoring", "group_left", "group_right"})
_ALL = Matchers()
_OF_A_MODEL = frozenset(
    [
        re.sub("_(bucket|sum|count)$", "", metric.name)
        for metric in (*METRICS, *headroom.METRICS)
        if "model" in metric.labels
    ]
    + [names.MODEL_EXPECTED_COPY]
)
_WORDS = _LABEL_LISTS | {"and", "or", "unless", "bool", "offset", "inf", "nan"}


def scaled(nominal: str, options: Options, min_seconds: float = 1.0) -> str:
    """Return a nominal time (`for`, offset, group_wait) at the options' scale; never under `min_seconds`."""
    return duration_text(max(1, round(max(parse_seconds(nominal) * options.time_scale, min_seconds))))


def window(nominal: str, options: Options) -> str:
    """Return a nominal range at the options' scale; never under four scrapes, or rates would see nothing."""
    return scaled(nominal, options, 4 * options.scrape_interval_seconds)


def fit_to_options(expr: str, options: Options, models: Matchers = _ALL) -> str:
    """Return the expression of the rule: at the options' time scale, with their selector, for these models only."""
    tokens = list(_tokens(expr))
    metrics = set(_metric_positions(tokens))
    of_models = set(_deciding_positions(tokens, metrics)) if models.parts else set()
    written: list[str] = []
    for position, (kind, text) in enumerate(tokens):
        if kind == "matchers" and position - 1 in metrics:
            extra = models.parts if position - 1 in of_models else ()
            written[-1] = tokens[position - 1][1] + _with_matchers(text, *extra, options.selector)
        elif position in metrics:
            extra = models.parts if position in of_models else ()
            written.append(text + _with_matchers("", *extra, options.selector))
        else:
            written.append(_fitted(kind, text, options))
    return "".join(written)


def _tokens(expr: str) -> Iterator[tuple[str, str]]:
    for match in _TOKEN.finditer(expr):
        assert match.lastgroup is not None
        yield match.lastgroup, match.group()


def _metric_positions(tokens: list[tuple[str, str]]) -> Iterator[int]:
    """Yield the names that are neither words of the language, functions, nor labels in a by/on list."""
    depth_of_list = 0
    in_list_next = False
    for position, (kind, text) in enumerate(tokens):
        if depth_of_list or in_list_next:
            depth_of_list += {"(": 1, ")": -1}.get(text, 0)
            in_list_next = in_list_next and text.isspace()
            if depth_of_list or text == ")" or in_list_next:
                continue
        if kind != "name":
            continue
        if text in _LABEL_LISTS:
            # `group_left` may stand without a list; then what follows is not a list either.
            in_list_next = _next_text(tokens, position) == "("
        elif text.lower() not in _WORDS and _next_text(tokens, position) not in {"(", "by", "without"}:
            yield position


def _deciding_positions(tokens: list[tuple[str, str]], metrics: set[int]) -> Iterator[int]:
    """Yield the selectors that decide for which models an expression has a result.

    This is the first selector of a model's series in each operand of an outermost `or`. The others, which are
    joined to it, are left out: their label `model` may name another model, such as the step of an ensemble.
    """
    depth, chosen = 0, False
    for position, (_, text) in enumerate(tokens):
        depth += {"(": 1, ")": -1}.get(text, 0)
        if depth == 0 and text == "or":
            chosen = False
        elif not chosen and position in metrics and re.sub("_(bucket|sum|count)$", "", text) in _OF_A_MODEL:
            chosen = True
            yield position


def _next_text(tokens: list[tuple[str, str]], position: int) -> str:
    return next((text for _, text in tokens[position + 1 :] if not text.isspace()), "")


def _with_matchers(braces: str, *more: str) -> str:
    inner = ",".join(part for part in (braces[1:-1], *more) if part)
    return f"{{{inner}}}" if inner else ""


def _fitted(kind: str, text: str, options: Options) -> str:
    match kind:
        case "range":
            size, colon, step = text[1:-1].partition(":")
            return f"[{window(size, options)}{colon}{scaled(step, options) if step else ''}]"
        case "offset":
            return f"offset {scaled(text.split()[1], options)}"
        case "duration":
            return f"{max(1, round(parse_seconds(text) * options.time_scale))}"
        case _:
            return text

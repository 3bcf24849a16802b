"""Rules that record traffic once, so that no panel has to read every model of every server again.

A panel over 1,000 models on 10 servers would read some 40,000 series four times for each of its points; these
make it 1,000, or 10 (measured by tests/bench/bench_dashboards.py).
"""

from __future__ import annotations

from collections.abc import Callable

from triton_dashboards.query import total
from triton_dashboards.traffic import NOT_CANCELED
from triton_exporter.catalogue import Metric, triton
from triton_exporter.duration import render as duration
from triton_slo.artifact import Options
from triton_slo.conventions import TRAFFIC, model_traffic, server_traffic
from triton_slo.rules.rulefile import Group, Rule, render

_WINDOW_SECONDS = 120
_LEVELS: tuple[tuple[Callable[[str], str], tuple[str, ...]], ...] = (
    (model_traffic, ("cluster", "job", "model")),
    (server_traffic, ("cluster", "job", "instance")),
)


def groups(options: Options) -> tuple[Group, ...]:
    """Rule groups, one a level."""
    return tuple(
        Group(
            f"triton-dashboards-{labels[-1]}",
            tuple(Rule(record=name(what), expr=_figure(what, labels, options)) for what in TRAFFIC),
        )
        for name, labels in _LEVELS
    )


def rules_text(options: Options) -> str:
    """Return the rule file, in the form asked for."""
    return render(groups(options), "triton-dashboards", options.format)


def _figure(what: str, labels: tuple[str, ...], options: Options) -> str:
    """Expression of one figure. Times are recorded in seconds per second; Triton counts microseconds."""
    success = total(_rate(triton.REQUEST_SUCCESS, options), *labels)
    failures = total(_rate(triton.REQUEST_FAILURE, options, NOT_CANCELED), *labels)
    expressions = {
        "requests": f"({success} + {failures}) or {success}",
        "failures": failures,
        "request_seconds": f"{total(_rate(triton.REQUEST_DURATION_US, options), *labels)} / 1e6",
        "queue_seconds": f"{total(_rate(triton.QUEUE_DURATION_US, options), *labels)} / 1e6",
        "inferences": total(_rate(triton.INFERENCE_COUNT, options), *labels),
        "executions": total(_rate(triton.EXEC_COUNT, options), *labels),
        "pending": total(_selected(triton.PENDING_REQUESTS, options), *labels),
    }
    return expressions[what]


def _rate(metric: Metric, options: Options, *matchers: str) -> str:
    seconds = max(_WINDOW_SECONDS * options.time_scale, 4 * options.scrape_interval_seconds)
    return f"rate({_selected(metric, options, *matchers)}[{duration(seconds)}])"


def _selected(metric: Metric, options: Options, *matchers: str) -> str:
    inside = ", ".join((*matchers, *([options.selector] if options.selector else [])))
    return f"{metric}{{{inside}}}" if inside else metric.name

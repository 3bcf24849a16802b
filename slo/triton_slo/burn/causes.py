"""The cause split: where time went, why requests failed, in which state a model was, whether GPUs slowed down.

Recorded once for all objectives, by indicator, model and version; shares of one indicator need not add up to
one, because a GPU can be held back while a request computes.
"""

from __future__ import annotations

from collections.abc import Iterator

from triton_exporter.catalogue import Metric, gpu, probe, state, triton
from triton_slo import conventions as names
from triton_slo.artifact import Options
from triton_slo.promql import Matchers, by, on, parse_selector
from triton_slo.rules.rulefile import Rule
from triton_slo.rules.windows import Clock

_WINDOW = "1h"
_TIMES: tuple[tuple[str, Metric], ...] = (
    ("queue", triton.QUEUE_DURATION_US),
    ("compute_input", triton.COMPUTE_INPUT_DURATION_US),
    ("compute_infer", triton.COMPUTE_INFER_DURATION_US),
    ("compute_output", triton.COMPUTE_OUTPUT_DURATION_US),
)
_SLOWING = "sw_power_cap|hw_slowdown|sw_thermal|hw_thermal|hw_power_brake"
"""Throttle reasons that take speed away; idle and app_clocks are normal."""


def cause_rules(options: Options) -> Iterator[Rule]:
    """Shares over the last hour."""
    matchers, fixed = parse_selector(options.selector)
    selector = Matchers(matchers)
    window = Clock(options.time_scale, options.scrape_interval_seconds).text(_WINDOW)

    def rule(indicator: str, expr: str, cause: str = "") -> Rule:
        labels = {names.INDICATOR: indicator, **({names.CAUSE: cause} if cause else {}), **fixed}
        return Rule(expr=expr, record=names.CAUSE_SHARE, labels=labels)

    for cause, metric in _TIMES:
        yield rule("latency", _share_of_time(metric, selector, window), cause)
    yield rule("latency", _throttled(selector, window), "gpu_throttled")
    requests, probes = 'reason!="CANCELED"', f'result!~"success|{"|".join(probe.SAYS_NOTHING)}"'
    yield rule("errors", _failures(triton.REQUEST_FAILURE, selector.also(requests), "reason", window))
    yield rule("probe", _failures(probe.REQUESTS, selector.also(probes), "result", window))
    yield rule("readiness", _states(selector, window))


def _share_of_time(metric: Metric, selector: Matchers, window: str) -> str:
    """Share of the requests' time; a batch counts its time once for each request, so it is capped at 1."""
    part, whole = (
        f"sum {by(names.GROUPING)} (rate({m}{selector}[{window}]))"
        for m in (metric, triton.REQUEST_DURATION_US)
    )
    return f"clamp_max({part} / {on(names.GROUPING)} ({whole} > 0), 1)"


def _failures(metric: Metric, failed: Matchers, told_by: str, window: str) -> str:
    """Share of the failures that each reason has, which the label `told_by` names."""
    rate = f"rate({metric}{failed}[{window}])"
    named = f'label_replace({rate}, "{names.CAUSE}", "failure:$1", "{told_by}", "(.*)")'
    each = f"sum {by((*names.GROUPING, names.CAUSE))} ({named})"
    return f"{each}\n/ {on(names.GROUPING)} group_left ()\n(sum {by(names.GROUPING)} ({rate}) > 0)"


def _states(selector: Matchers, window: str) -> str:
    """Share of the time not ready that each state took; first loads are none of it, as for the indicator.

    A version can be READY to Triton and not ready, because its ready endpoint or the last probe says so.
    """

    def looks(metric: Metric, matchers: Matchers) -> str:
        """Looks rather than shares of them: those at a first load can be taken off those at any load."""
        return f"sum_over_time({metric}{matchers}[{window}])"

    def called(expr: str, name: str) -> str:
        return f'label_replace({expr}, "state", "{name}", "", "")'

    bad = looks(state.MODEL_STATE, selector.also('state!~"ready|unloaded|unloading"'))
    claimed = looks(state.MODEL_STATE, selector.equal("state", "ready"))
    unkept = f"{claimed} - ignoring (state) {looks(state.MODEL_READY, selector)}"
    lost = (
        f"(\n  {bad}\n  - {called(looks(state.MODEL_FIRST_LOAD, selector), 'loading')}"
        f"\n  or {bad}\n  or {called(unkept, 'not_answering')}\n)"
    )
    named = f'label_replace({lost}, "{names.CAUSE}", "state:$1", "state", "(.*)")'
    each = f"sum {by((*names.GROUPING, names.CAUSE))} ({named})"
    return f"{each}\n/ {on(names.GROUPING)} group_left ()\n(sum {by(names.GROUPING)} ({lost}) > 0)"


def _throttled(selector: Matchers, window: str) -> str:
    """Share of time in which any of the model's GPUs was held back."""
    slowing = selector.also(f'reason=~"{_SLOWING}"')
    held = f"max by (gpu_uuid) (avg_over_time({gpu.THROTTLE_REASON}{slowing}[{window}]))"
    runs_on = f"group by (model, version, gpu_uuid) ({gpu.MODEL_GPU_INFO}{selector})"
    return f"max {by(names.GROUPING)} (\n  {runs_on}\n  * on (gpu_uuid) group_left ()\n  {held}\n)"

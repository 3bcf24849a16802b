"""Check whether requests are traced, and recommend a trace rate for the traffic that Triton has."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from triton_exporter.catalogue import triton
from triton_exporter.doctor.finding import Finding, TritonFacts, first_names
from triton_exporter.exposition.exposition_values import Exposition
from triton_exporter.tracing.trace_setting import TraceSetting

SAFE_TRACES_PER_SECOND = 20.0
"""Traced requests a second that a real server took without trouble, with a wide margin."""

MAX_REQUESTS_PER_SECOND = 2000.0
"""No rate is recommended above this: Triton 2.51 ended at 8,000 requests/s with every 100th traced."""

_PREPARED = (
    "--trace-config mode=opentelemetry "
    "--trace-config opentelemetry,url=http://127.0.0.1:4318/v1/traces "
    "(alone these trace nothing, and a rate can be set without a restart); "
)


def check_tracing(facts: TritonFacts) -> Iterator[Finding]:
    """Report how many requests are traced and at which rate to trace, unless all models are traced."""
    traffic = requests_per_second(facts)
    if traffic is None:
        return
    in_all = sum(traffic.values())
    models = sorted(model for model, requests in traffic.items() if requests or not in_all)
    untraced = tuple(model for model in models if not _is_traced(facts.setting_of(model)))
    is_prepared = facts.traces is not None and facts.traces.mode == "opentelemetry"
    if is_prepared and models and not untraced:
        return
    yield Finding(
        "advice",
        "Traces would show exact distributions and queue-full rejections",
        f"measured for {facts.watched_seconds:.1f} s: {in_all:.1f} requests/s, "
        f"{_trace_state(facts, traffic, models)}",
        ("" if is_prepared else f"start Triton with {_PREPARED}")
        + "tritonwatch exporter --otlp-listen 127.0.0.1:4318; then "
        + _rate_to_set(facts, in_all),
        "about 2 kB for each traced request",
        untraced if len(untraced) < len(models) else (),
    )


def _rate_to_set(facts: TritonFacts, in_all: float) -> str:
    if in_all > MAX_REQUESTS_PER_SECOND:
        return (
            f"trace only while there are fewer than {MAX_REQUESTS_PER_SECOND:.0f} requests/s: "
            "at 8,000 a Triton 2.51 ended, also with every 100th request traced (server#7795)"
        )
    if not in_all:
        return (
            "run `tritonwatch doctor` again while the models have their usual traffic: it recommends a rate"
        )
    rate = max(1, math.ceil(in_all / SAFE_TRACES_PER_SECOND))
    setting = f'{{"trace_level": ["TIMESTAMPS"], "trace_rate": "{rate}"}}'
    return (
        f"curl -d '{setting}' {facts.url}/v2/trace/setting (traces {_share(rate)}, "
        f"{in_all / rate:.1f} a second at this traffic; at every start of Triton, or as flags: "
        f"--trace-config level=TIMESTAMPS --trace-config rate={rate})"
    )


def _is_traced(setting: TraceSetting | None) -> bool:
    return setting is not None and setting.is_in_use and setting.rate > 0


def _trace_state(facts: TritonFacts, traffic: Mapping[str, float], models: Sequence[str]) -> str:
    of_all, own = facts.traces, facts.model_traces
    traced = [f"{model} ({_share(own[model].rate)})" for model in sorted(own) if _is_traced(own[model])]
    states = [f"traced by a setting of their own: {first_names(traced)}"] if traced else []
    if of_all is not None and _is_traced(of_all):
        if untraced := [model for model in models if model in own and not _is_traced(own[model])]:
            states.append(f"not traced by a setting of their own: {first_names(untraced)}")
        if others := [model for model in models if model not in own]:
            which = " of the other models" if len(others) < len(models) else ""
            a_second = sum(traffic[model] for model in others) / of_all.rate
            states.append(f"{_share(of_all.rate)}{which} is traced, {a_second:.1f} a second now")
    if states:
        return "; ".join(states)
    is_prepared = of_all is not None and of_all.mode == "opentelemetry"
    return "prepared for traces, none taken" if is_prepared else "not prepared for traces"


def _share(rate: int) -> str:
    return "every request" if rate == 1 else f"one request in {rate}"


def requests_per_second(facts: TritonFacts) -> Mapping[str, float] | None:
    """Return the requests a second of each model between the two readings of the metrics."""
    if facts.first is None or facts.second is None or facts.watched_seconds <= 0:
        return None
    first, second = requests_by_model(facts.first), requests_by_model(facts.second)
    return {
        model: max(0.0, count - first.get(model, 0.0)) / facts.watched_seconds
        for model, count in second.items()
    }


def requests_by_model(exposition: Exposition) -> Mapping[str, float]:
    """Return how many requests of each model have ended since Triton started: failed ones are traced, too."""
    totals: Counter[str] = Counter()
    for name in (triton.REQUEST_SUCCESS.name, triton.REQUEST_FAILURE.name):
        family = exposition.families.get(name)
        for series, value in zip(family.series, family.values, strict=True) if family else ():
            if math.isfinite(value):
                totals[series.labels.get("model", "")] += value  # type: ignore[assignment]
    del totals[""]
    return totals

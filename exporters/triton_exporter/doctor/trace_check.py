"""Check whether requests are traced, and compute how many would be at the traffic that Triton has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from triton_exporter.doctor.finding import Finding, TritonFacts, first_names
from triton_exporter.tracing.allotment import MAX_REQUESTS_PER_SECOND, SAFE_TRACES_PER_SECOND, allot
from triton_exporter.tracing.request_rates import requests_by_model

_PREPARED = (
    "--trace-config mode=opentelemetry "
    "--trace-config opentelemetry,url=http://127.0.0.1:4318/v1/traces (and no level: so Triton traces nothing "
    "until it is asked to), and "
)


def check_tracing(facts: TritonFacts) -> Iterator[Finding]:
    """Report how many requests would be traced at the traffic that Triton has, if some models are not traced."""
    traffic = requests_per_second(facts)
    if traffic is None:
        return
    in_all = sum(traffic.values())
    untraced = tuple(
        sorted(model for model, requests in traffic.items() if requests and model not in facts.model_traces)
    )
    is_prepared = facts.traces is not None and facts.traces.mode == "opentelemetry" and not facts.traces.on
    if is_prepared and facts.model_traces and not untraced:
        return
    yield Finding(
        "advice",
        "Traces would show exact distributions and queue-full rejections",
        f"measured for {facts.watched_seconds:.1f} s: {in_all:.1f} requests/s, {_trace_state(facts, in_all)}. "
        + _would_set(traffic, in_all),
        ("" if is_prepared else _PREPARED)
        + "tritonwatch exporter --otlp-listen 127.0.0.1:4318 "
        + f"--govern-traces {SAFE_TRACES_PER_SECOND:.0f}",
        "about 2 kB for each traced request. The exporter then sets Triton's trace rates, follows the traffic, and "
        "turns traces off when Triton answers slowly or is not ready. Above "
        f"{MAX_REQUESTS_PER_SECOND:.0f} requests/s it traces nothing: at 8,000 a Triton 2.51 ended "
        "(server#7795)",
        untraced if facts.model_traces else (),
    )


def _trace_state(facts: TritonFacts, in_all: float) -> str:
    setting = facts.traces
    if setting is not None and setting.on and setting.rate > 0:
        return f"one request in {setting.rate} is traced, {in_all / setting.rate:.1f} a second now"
    if facts.model_traces:
        own = [f"{model} (one request in {own.rate})" for model, own in sorted(facts.model_traces.items())]
        return f"traced by a setting of their own: {first_names(own)}"
    is_prepared = setting is not None and setting.mode == "opentelemetry"
    return "prepared for traces, none taken" if is_prepared else "not prepared for traces"


def _would_set(traffic: Mapping[str, float], in_all: float) -> str:
    """Return what the governor would set at this traffic."""
    if in_all > MAX_REQUESTS_PER_SECOND:
        return "At this traffic the exporter would set nothing."
    if not in_all:
        return "The exporter would set nothing until requests come, and then what their number allows."
    busy = {model: requests for model, requests in traffic.items() if requests}
    trace_rates = allot(busy, SAFE_TRACES_PER_SECOND)
    busiest = sorted(busy, key=busy.__getitem__, reverse=True)
    settings = first_names([f"{model} rate {trace_rates[model]}" for model in busiest])
    return f"At this traffic the exporter would set: {settings}."


def requests_per_second(facts: TritonFacts) -> Mapping[str, float] | None:
    """Return the requests a second of each model between the two readings of the metrics."""
    if facts.first is None or facts.second is None or facts.watched_seconds <= 0:
        return None
    first, second = requests_by_model(facts.first), requests_by_model(facts.second)
    return {
        model: max(0.0, count - first.get(model, 0.0)) / facts.watched_seconds
        for model, count in second.items()
    }

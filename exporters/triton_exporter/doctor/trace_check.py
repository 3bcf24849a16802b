"""Check whether requests are traced, and compute how many would be at the traffic that Triton has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from triton_exporter.doctor.finding import Finding, TritonFacts, first_names
from triton_exporter.tracing.allotment import MAX_REQUESTS_PER_SECOND, SAFE_TRACES_PER_SECOND, allot
from triton_exporter.tracing.request_rates import requests_by_model
from triton_exporter.tracing.trace_setting import TraceSetting

_PREPARED = (
    "--trace-config mode=opentelemetry "
    "--trace-config opentelemetry,url=http://127.0.0.1:4318/v1/traces (and no level: so Triton traces nothing "
    "until it is asked to), and "
)


def check_tracing(facts: TritonFacts) -> Iterator[Finding]:
    """Report how many requests would be traced at the traffic that Triton has, unless all models are traced."""
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
        f"{_trace_state(facts, traffic, models)}. " + _would_set(traffic, in_all),
        ("" if is_prepared else _PREPARED)
        + "tritonwatch exporter --otlp-listen 127.0.0.1:4318 "
        + f"--govern-traces {SAFE_TRACES_PER_SECOND:.0f}",
        "about 2 kB for each traced request. The exporter then sets Triton's trace rates, follows the traffic, and "
        "turns traces off when Triton answers slowly or is not ready. Above "
        f"{MAX_REQUESTS_PER_SECOND:.0f} requests/s it traces nothing: at 8,000 a Triton 2.51 ended "
        "(server#7795)",
        untraced if len(untraced) < len(models) else (),
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

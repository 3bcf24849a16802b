"""Recommend settings of a Triton that make it more observable: each finding with its flag and its cost."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from triton_exporter.catalogue import Metric, triton
from triton_exporter.catalogue.state import NOT_TRITON
from triton_exporter.exposition.parse import Exposition
from triton_exporter.printable import listed, printable
from triton_exporter.snapshot import ModelVersion, Snapshot
from triton_exporter.tracing.allotment import (
    MOST_REQUESTS_PER_SECOND,
    SAFE_TRACES_PER_SECOND,
    allot,
)
from triton_exporter.triton.claims import claims
from triton_exporter.triton.unreachable import what_to_check

Grade = Literal["problem", "advice"]

_DEFAULT_BOUNDS = frozenset({"100", "500", "2000", "5000"})


@dataclass(frozen=True, slots=True)
class Finding:
    """Something to change: what is seen, what to do about it (a flag or snippet), and what that costs.

    `models` are those that it is about; empty: the server, with all of its models.
    """

    grade: Grade
    title: str
    seen: str
    do: str = ""
    cost: str = ""
    models: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TritonFacts:
    """The facts about one Triton.

    `statuses` holds the HTTP status of every endpoint that was asked, `first` and `second` its metrics,
    `seconds` apart; `metrics_failure` is why they are missing. `logging` and `tracing` are its settings,
    `gpu` what was found of GPUs, `can_estimate` whether numpy is installed here.
    """

    url: str
    metrics_url: str
    snapshot: Snapshot
    statuses: Mapping[str, int] = field(default_factory=dict)
    first: Exposition | None = None
    second: Exposition | None = None
    seconds: float = 0.0
    metrics_failure: str = ""
    logging: Mapping[str, object] = field(default_factory=dict)
    tracing: Mapping[str, object] = field(default_factory=dict)
    gpu: tuple[Finding, ...] = ()
    can_estimate: bool = True

    @property
    def release(self) -> tuple[int, int]:
        """Version of the server, such as (2, 51); (0, 0) when it is unknown."""
        match = re.match(r"(\d+)\.(\d+)", self.snapshot.triton_version)
        return (int(match[1]), int(match[2])) if match else (0, 0)

    @property
    def is_other_server(self) -> bool:
        """True if another server than Triton answers."""
        return self.snapshot.api_failure == NOT_TRITON

    def has(self, metric: Metric) -> bool:
        """Return whether Triton shows this family."""
        return self.first is not None and metric.name in self.first.families


Check = Callable[[TritonFacts], Iterator[Finding]]


def examine(facts: TritonFacts) -> list[Finding]:
    """Everything worth changing, problems first."""
    if facts.is_other_server:
        checks: tuple[Check, ...] = (_reachable,)
    elif facts.snapshot.api_failure:
        # Metrics may answer all the same: from another Triton of that machine, whose traffic this is not about.
        # A dcgm-exporter answers for itself.
        checks = (_reachable, _metrics, _gpus)
    else:
        checks = CHECKS
    findings = [finding for check in checks for finding in check(facts)]
    return sorted(findings, key=lambda finding: finding.grade != "problem")


def requests_per_second(facts: TritonFacts) -> Mapping[str, float] | None:
    """Successful requests a second of each model between the two readings of the metrics."""
    if facts.first is None or facts.second is None or facts.seconds <= 0:
        return None
    first, second = (
        _by_model(exposition, triton.REQUEST_SUCCESS) for exposition in (facts.first, facts.second)
    )
    return {model: max(0.0, count - first.get(model, 0.0)) / facts.seconds for model, count in second.items()}


def _reachable(facts: TritonFacts) -> Iterator[Finding]:
    failure = facts.snapshot.api_failure
    if failure == "refused":
        yield Finding(
            "problem",
            "Triton's API refuses connections",
            f"nothing listens at {facts.url}. Triton opens its port only when all start-up loads have ended, "
            "and by default one failed load ends the server.",
            "--exit-on-error=false keeps the server up with the models that load; its log has what failed "
            "(tritonwatch exporter --triton-log FILE counts it)",
            "a server that starts without some of its models: watch triton_model_ready",
        )
    elif facts.is_other_server:
        yield Finding(
            "problem",
            "This is not a Triton",
            f"{facts.url}: {facts.snapshot.api_failure_text}",
            "give --triton the address of Triton's HTTP API (port 8000 unless --http-port is another)",
        )
    elif failure:
        yield Finding("problem", "Triton's API does not answer", f"{facts.url}: {failure}", _reach(failure))


_TRUST = (
    "--triton-ca-file FILE trusts who signed its certificate; where it demands one of ours: --triton-cert-file "
    "and --triton-key-file. The name in the URL must be in its certificate"
)


def _reach(failure: str) -> str:
    return _TRUST if failure == "tls" else what_to_check(failure)


def _metrics(facts: TritonFacts) -> Iterator[Finding]:
    if facts.metrics_failure:
        yield Finding(
            "problem",
            "Triton's metrics do not answer",
            f"{facts.metrics_url}: {facts.metrics_failure}",
            _TRUST
            if facts.metrics_failure.startswith("tls:")
            else "check --triton-metrics; the server needs --allow-metrics=true (the default) and --metrics-port",
        )
    elif facts.first is not None and not facts.first.families:
        yield Finding(
            "problem",
            "The metrics page is empty",
            f"{facts.metrics_url} answers with nothing: Triton's metrics port answers 200 to every path.",
            "--triton-metrics must end in /metrics",
        )
    if facts.first is not None and facts.first.faults:
        kinds = ", ".join(f"{count} {kind}" for kind, count in facts.first.faults.items())
        yield Finding("problem", "Triton's metrics hold broken lines", f"lines by kind: {kinds}")


def _restricted(facts: TritonFacts) -> Iterator[Finding]:
    closed = [endpoint for endpoint, status in facts.statuses.items() if status == 403]
    if closed:
        yield Finding(
            "problem",
            "Triton restricts what the exporter reads",
            f"403 from: {', '.join(closed)}.",
            "tritonwatch exporter --triton-headers-file FILE, holding the header of --http-restricted-api",
            "the key of the group model-repository also opens load and unload; the exporter only reads",
        )


def _namespacing(facts: TritonFacts) -> Iterator[Finding]:
    broken = facts.statuses.get("statistics", 200) not in (200, 403) and facts.statuses.get("index") == 200
    if broken:
        yield Finding(
            "problem",
            "Statistics do not answer",
            f"/v2/models/stats answers {facts.statuses['statistics']} though the index works: "
            "--model-namespacing=true breaks it.",
            "--model-namespacing=false",
            "model names must be unique over all repositories",
        )


def _counters(facts: TritonFacts) -> Iterator[Finding]:
    if facts.first is None or facts.snapshot.statistics is None:
        return
    served = sum(statistics.success for statistics in facts.snapshot.statistics)
    # The later reading: it must include every request that the statistics counted before.
    shown = _total(facts.second or facts.first, triton.REQUEST_SUCCESS)
    if served > 0 and facts.has(triton.REQUEST_SUCCESS) and shown == 0:
        yield Finding(
            "problem",
            "Latency counters are off",
            f"statistics know {served} requests, the metrics show 0: no objective can be measured.",
            "--metrics-config counter_latencies=true",
            "none that was ever measured; it is the default",
        )


def _histograms(facts: TritonFacts) -> Iterator[Finding]:
    if not facts.has(triton.FIRST_RESPONSE_MS):
        if facts.release >= (2, 65):
            yield Finding(
                "advice",
                "Latency histograms are off",
                "without them the exporter estimates distributions from sums of several requests, and objectives "
                "of the kind first_response have no data.",
                "--metrics-config histogram_latencies=true, and buckets in each config.pbtxt "
                "(see the next lines)\n" + _BUCKETS,
                "7 series a model or more",
            )
        elif any(config.decoupled for config in facts.snapshot.configs.values()) and facts.release >= (2, 52):
            yield Finding(
                "advice",
                "Time to first response of decoupled models is not shown",
                "this version can measure it; until then objectives of the kind first_response have no data.",
                "--metrics-config histogram_latencies=true",
                "7 series a decoupled model",
            )
        elif facts.release > (0, 0):
            yield Finding(
                "advice",
                "Time to first response cannot be measured",
                f"Triton {facts.snapshot.triton_version} does not export it of these models: objectives of the "
                "kind first_response have no data.",
                "Triton 26.01 (2.65) or later, or 24.11 (2.52) or later for decoupled models, with "
                "--metrics-config histogram_latencies=true",
                "an upgrade",
            )
    elif facts.first is not None:
        family = facts.first.families[triton.FIRST_RESPONSE_MS.name]
        bounds: dict[str, set[str]] = {}
        for series in family.series:
            if series.labels.get("le", "+Inf") != "+Inf":
                bounds.setdefault(series.labels.get("model", ""), set()).add(
                    series.labels["le"].removesuffix(".0")
                )
        useless = sorted(model for model, les in bounds.items() if les == _DEFAULT_BOUNDS)
        if useless:
            yield Finding(
                "advice",
                "Histogram buckets are Triton's defaults",
                f"buckets from 100 ms to 5 s do not fit most objectives; models: {_some(useless)}.",
                "in config.pbtxt (takes effect with an unload and load):\n" + _BUCKETS,
                "one series a bucket and model",
                tuple(useless),
            )


def _estimates(facts: TritonFacts) -> Iterator[Finding]:
    if not facts.can_estimate and not facts.has(triton.FIRST_RESPONSE_MS):
        yield Finding(
            "advice",
            "Distributions are means of intervals",
            "numpy is not installed here: without it the exporter counts all requests between two readings at "
            "their mean, which hides slow requests among fast ones.",
            "pip install 'tritonwatch[distributions]' where the exporter runs (its image has it)",
            "some 30 MB of memory",
        )


def _summaries(facts: TritonFacts) -> Iterator[Finding]:
    if facts.has(triton.REQUEST_SUMMARY_US):
        yield Finding(
            "advice",
            "Summaries are on",
            "their quantiles cannot be added up over servers, and up to a third of the throughput has been "
            "reported lost to them.",
            "--metrics-config summary_latencies=false, unless the exporter has no histogram to read instead",
            "the exporter then estimates distributions from sums of several requests",
        )


def _gpus(facts: TritonFacts) -> Iterator[Finding]:
    yield from facts.gpu


def _readiness(facts: TritonFacts) -> Iterator[Finding]:
    if facts.snapshot.api_failure or facts.snapshot.index is None:
        return
    current = claims(facts.snapshot)
    failed = [key for key, claim in current.items() if claim.state == "unavailable"]
    loading = [key for key, claim in current.items() if claim.state == "loading"]
    bare = [key for key, claim in current.items() if claim.bare]
    if failed:
        yield Finding(
            "problem",
            "Models failed to load",
            _some(_named(failed)),
            "see their reasons in /state or Triton's log",
            models=_models(failed),
        )
    if not facts.snapshot.ready and facts.snapshot.live:
        culprits = (
            _some(_named([*failed, *loading]))
            or "none that it names: a model without a version folder does this"
        )
        yield Finding(
            "problem",
            "The whole server is not ready",
            f"with strict readiness one model is enough; culprits: {culprits}.",
            "--strict-readiness=false, with triton_model_ready for what really matters",
            "Kubernetes then sends traffic while a model loads; requests for that one fail",
        )
    if bare:
        yield Finding(
            "advice",
            "Models are listed without a version",
            f"{_some(key.model for key in bare)}: never asked to load, or their config cannot be read, or a part "
            "failed; Triton counts both alike.",
            "tritonwatch exporter --expect MODEL for what should serve, and --triton-log for the reason",
            models=_models(bare),
        )


def _log(facts: TritonFacts) -> Iterator[Finding]:
    if "log_file" in facts.logging and not facts.logging["log_file"]:
        yield Finding(
            "advice",
            "Failed hot reloads and broken configs are in the log only",
            "no API reports them, and this Triton logs to its standard error.",
            "--log-file=/shared/triton.log, and tritonwatch exporter --triton-log /shared/triton.log",
            "a volume shared by the two containers, and rotation of that file",
        )


def _queues(facts: TritonFacts) -> Iterator[Finding]:
    endless = sorted(
        {
            key.model
            for key, config in facts.snapshot.configs.items()
            if config.dynamic_batching and config.queue.max_queue_size <= 0 and not config.priority_queues
        }
    )
    if endless:
        yield Finding(
            "advice",
            "Queues without a limit",
            f"{_some(endless)}: under overload everybody waits, and nothing is rejected.",
            "in config.pbtxt: dynamic_batching { default_queue_policy { max_queue_size: 100 } }",
            "clients get 503 when the queue is full, which no Triton metric counts (traces do)",
            tuple(endless),
        )


_PREPARED = (
    "--trace-config mode=opentelemetry "
    "--trace-config opentelemetry,url=http://127.0.0.1:4318/v1/traces (and no level: so Triton traces nothing "
    "until it is asked to), and "
)


def _tracing(facts: TritonFacts) -> Iterator[Finding]:
    traffic = requests_per_second(facts)
    if traffic is None:
        return
    in_all = sum(traffic.values())
    level = facts.tracing.get("trace_level", [])
    on = level not in ([], ["OFF"], "OFF")
    prepared = facts.tracing.get("trace_mode") == "opentelemetry" and not on
    yield Finding(
        "advice",
        "Traces would show exact distributions and queue-full rejections",
        f"measured for {facts.seconds:.1f} s: {in_all:.1f} requests/s, {_trace_state(facts, on, in_all)}. "
        + _would_set(traffic, in_all),
        ("" if prepared else _PREPARED)
        + "tritonwatch exporter --otlp-listen 127.0.0.1:4318 "
        + f"--govern-traces {SAFE_TRACES_PER_SECOND:.0f}",
        "about 2 kB for each traced request. The exporter then sets Triton's trace rates, follows the traffic, and "
        "turns traces off when Triton answers slowly or is not ready. Above "
        f"{MOST_REQUESTS_PER_SECOND:.0f} requests/s it traces nothing: at 8,000 a Triton 2.51 ended "
        "(server#7795)",
    )


def _trace_state(facts: TritonFacts, on: bool, in_all: float) -> str:
    mode, rate = str(facts.tracing.get("trace_mode", "")), str(facts.tracing.get("trace_rate", ""))
    if on and rate.isdecimal() and int(rate) > 0:
        return f"every {rate}. one traced since its start, {in_all / int(rate):.1f} a second now"
    return "prepared for traces, none taken" if mode == "opentelemetry" else "not prepared for traces"


def _would_set(traffic: Mapping[str, float], in_all: float) -> str:
    """Return what the governor would set at this traffic."""
    if in_all > MOST_REQUESTS_PER_SECOND:
        return "At this traffic the exporter would set nothing."
    if not in_all:
        return "The exporter would set nothing until requests come, and then what their number allows."
    rates = allot({model: rate for model, rate in traffic.items() if rate}, SAFE_TRACES_PER_SECOND)
    busiest = sorted(rates, key=lambda model: traffic[model], reverse=True)
    settings = _some([f"{model} rate {rates[model]}" for model in busiest])
    return f"At this traffic the exporter would set: {settings}."


def _age(facts: TritonFacts) -> Iterator[Finding]:
    missing = [text for release, text in _SINCE if (0, 0) < facts.release < release]
    if missing:
        yield Finding(
            "advice",
            f"Triton {facts.snapshot.triton_version} is not the newest",
            "a newer one shows more.",
            "; ".join(missing),
            "an upgrade",
        )


# Which release first showed what; 2.48 is 24.07 and so on (NVIDIA's support matrix maps the numbers).
_SINCE = (
    ((2, 48), "2.48 (24.07): failures by reason"),
    ((2, 52), "2.52 (24.11): load durations, histogram of decoupled models"),
    ((2, 64), "2.64 (25.12): a model whose process died is not ready"),
    ((2, 65), "2.65 (26.01): latency histogram of every model"),
)

_BUCKETS = (
    "model_metrics { metric_control: [ {\n"
    f'  metric_identifier: {{ family: "{triton.FIRST_RESPONSE_MS}" }}\n'
    "  histogram_options: { buckets: [ 1, 2, 5, 10, 25, 50, 100, 250, 500, 1000 ] }\n"
    "} ] }"
)

CHECKS: tuple[Check, ...] = (
    _reachable,
    _metrics,
    _restricted,
    _namespacing,
    _counters,
    _readiness,
    _histograms,
    _estimates,
    _summaries,
    _gpus,
    _log,
    _queues,
    _tracing,
    _age,
)


def _total(exposition: Exposition, metric: Metric) -> float:
    family = exposition.families.get(metric.name)
    return math.fsum(family.values) if family is not None else 0.0


def _by_model(exposition: Exposition, metric: Metric) -> Mapping[str, float]:
    family = exposition.families.get(metric.name)
    totals: dict[str, float] = {}
    for series, value in zip(family.series, family.values, strict=True) if family else ():
        model = series.labels.get("model", "")
        totals[model] = totals.get(model, 0.0) + value
    return totals


def _named(versions: Iterable[ModelVersion]) -> list[str]:
    return [f"{key.model}:{key.version}" for key in versions]


def _models(versions: Iterable[ModelVersion]) -> tuple[str, ...]:
    return tuple(sorted({key.model for key in versions}))


def _some(names: Iterable[str]) -> str:
    return listed([printable(name) for name in names], 5)

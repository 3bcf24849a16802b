"""Recommend settings of a Triton that make it more observable: each finding with its flag and its cost.

In this order: what its API answers and how it was started, what its metrics show, its traces; `examine` runs all.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from triton_exporter.catalogue import Metric, triton
from triton_exporter.catalogue.state import NOT_TRITON
from triton_exporter.common.options import is_grpc
from triton_exporter.doctor.defects import check_defects
from triton_exporter.doctor.finding import Finding, TritonFacts, first_names
from triton_exporter.exposition.parse import Exposition
from triton_exporter.http.client import STATISTICS_PATH
from triton_exporter.snapshot import NO_API, ModelVersion, claims, what_to_check
from triton_exporter.tracing.trace_setting import TraceSetting

_MANY = 100
"""Executions from which their batch sizes count."""
TRUST = (
    "--triton-ca-file FILE trusts who signed its certificate; where it demands one of ours: --triton-cert-file "
    "and --triton-key-file. The name in the URL must be in its certificate"
)

_OPENS_API = (
    "Triton's OpenAI front end has one with --enable-kserve-frontends (port 8000 unless --kserve-http-port is "
    "another), tritonserver with --allow-http=true (its default)."
)

# Which release first showed what; 2.48 is 24.07 and so on (NVIDIA's support matrix maps the numbers).
_SINCE = (
    ((2, 48), "2.48 (24.07): failures by reason"),
    ((2, 52), "2.52 (24.11): load durations, histogram of decoupled models"),
    ((2, 65), "2.65 (26.01): latency histogram of every model"),
)


def check_reachable(facts: TritonFacts) -> Iterator[Finding]:
    """Report an API that does not answer, or not as Triton does."""
    failure = facts.snapshot.api_failure
    if failure == NO_API:
        if not facts.metrics_failure:
            yield Finding(
                "advice",
                "Only Triton's metrics are read",
                "errors, latency and queue are measured. Which models are loaded or failed to load, and whether "
                "they are ready, is not known: objectives of the kind readiness have no data.",
                f"tritonwatch exporter --triton URL, if this Triton has an API. {_OPENS_API}",
                "Triton's API has no authentication: let the exporter alone reach its port",
            )
    elif failure == NOT_TRITON and not facts.is_other_server:
        yield Finding(
            "problem",
            "Triton's metrics answer and its API does not",
            f"{facts.url}: {facts.snapshot.api_failure_text}: a front end of Triton without the KServe API answers "
            "there, or another server. Of models, only what the metrics show is known.",
            f"{_OPENS_API} Without an API, leave --triton out and give --triton-metrics alone.",
        )
    elif failure == "refused" and not facts.metrics_failure:
        yield Finding(
            "problem",
            "Triton's metrics answer and its API does not",
            f"nothing listens at {facts.url}: this API is off, or on another port, or this Triton is ending. Of models, "
            "only what the metrics show is known.",
            "--allow-http=true (the default), and in --triton the port of --http-port; or, where gRPC is on, --triton "
            "grpc://HOST:8001 (--grpc-port). Without an API, leave --triton out and give --triton-metrics alone.",
            "Triton has no authentication: let the exporter alone reach that port (--http-address)",
        )
    elif failure == "refused":
        yield Finding(
            "problem",
            "Triton's API refuses connections",
            f"nothing listens at {facts.url}. Triton opens its port only when all start-up loads have ended, "
            "and by default one failed load ends the server."
            + (f" Its log: {facts.start_failure}" if facts.start_failure else ""),
            "--exit-on-error=false keeps the server up with the models that load; its log has what failed "
            "(tritonwatch exporter --triton-log FILE counts it)",
            "a server that starts without some of its models: watch triton_model_ready",
        )
    elif facts.is_other_server:
        yield Finding(
            "problem",
            "This is not a Triton",
            f"{facts.url}: {facts.snapshot.api_failure_text}",
            "give --triton the URL of Triton's API: http://HOST:8000 (--http-port), or grpc://HOST:8001 (--grpc-port)",
        )
    elif failure:
        seen = f"{facts.url}: {facts.snapshot.api_failure_text or failure}"
        remedy = TRUST if failure == "tls" else what_to_check(failure)
        yield Finding("problem", "Triton's API does not answer", seen, remedy)
    elif not facts.snapshot.live:
        error = facts.start_failure or "its log has the error (doctor --triton-log FILE reads it)."
        yield Finding(
            "problem",
            "Triton failed to start",
            f"its process runs, is not live and serves no model: {error}",
            "repair that and restart Triton; --exit-on-error=true (the default) ends such a process, so that "
            "whoever supervises it sees the failure",
        )


def check_restricted(facts: TritonFacts) -> Iterator[Finding]:
    """Report endpoints that Triton refuses to the exporter."""
    closed = [endpoint for endpoint, status in facts.statuses.items() if status == 403]
    if closed:
        yield Finding(
            "problem",
            "Triton restricts what the exporter reads",
            f"403 from: {', '.join(closed)}.",
            "tritonwatch exporter --triton-headers-file FILE, holding the header of --http-restricted-api, or over gRPC "
            "triton-grpc-protocol-KEY of --grpc-restricted-protocol",
            "the key of the group model-repository also opens load and unload; the exporter only reads",
        )


def check_namespacing(facts: TritonFacts) -> Iterator[Finding]:
    """Report statistics that --model-namespacing breaks."""
    broken = facts.statuses.get("statistics", 200) not in (200, 403) and facts.statuses.get("index") == 200
    if broken:
        yield Finding(
            "problem",
            "Statistics do not answer",
            f"{STATISTICS_PATH} answers {facts.statuses['statistics']} though the index works: "
            "--model-namespacing=true breaks it.",
            "--model-namespacing=false",
            "model names must be unique over all repositories",
        )


def check_readiness(facts: TritonFacts) -> Iterator[Finding]:
    """Report models that failed, and what keeps the whole server from being ready."""
    if facts.snapshot.api_failure or facts.snapshot.index is None:
        return
    current = claims(facts.snapshot)
    failed = [key for key, claim in current.items() if claim.state == "unavailable"]
    loading = [key for key, claim in current.items() if claim.state == "loading"]
    unversioned = [key for key, claim in current.items() if claim.is_unversioned]
    if failed:
        yield Finding(
            "problem",
            "Models failed to load",
            first_names(_version_names(failed)),
            "see their reasons in /state or Triton's log",
            models=_model_names(failed),
        )
    if facts.snapshot.ready is False and facts.snapshot.live:
        culprits = (
            first_names(_version_names([*failed, *loading]))
            or "none that it names: a model without a version folder does this"
        )
        yield Finding(
            "problem",
            "The whole server is not ready",
            f"with strict readiness one model is enough; culprits: {culprits}.",
            "--strict-readiness=false, with triton_model_ready for what really matters",
            "Kubernetes then sends traffic while a model loads; requests for that one fail",
        )
    if unversioned:
        yield Finding(
            "advice",
            "Models are listed without a version",
            f"{first_names(key.model for key in unversioned)}: never asked to load, or their config cannot be "
            "read, or a part failed; Triton lists all of these alike.",
            "tritonwatch exporter --expect MODEL for what should serve, and --triton-log for the reason",
            models=_model_names(unversioned),
        )


def check_log(facts: TritonFacts) -> Iterator[Finding]:
    """Advise to share the log where it is the only source of some failures."""
    if "log_file" in facts.logging and not facts.logging["log_file"]:
        yield Finding(
            "advice",
            "Failed hot reloads and broken configs are in the log only",
            "no API reports them, and this Triton logs to its standard error.",
            "--log-file=/shared/triton.log, and tritonwatch exporter --triton-log /shared/triton.log",
            "a volume shared by the two containers, and rotation of that file",
        )


def check_queues(facts: TritonFacts) -> Iterator[Finding]:
    """Report models whose queues grow without a limit."""
    endless = sorted(
        {
            key.model
            for key, config in facts.snapshot.configs.items()
            if config.dynamic_batching
            and config.queue.max_queue_size <= 0
            and not config.priority_queues
            and config.max_batch_size > 1  # with batches of one, a limit stalls the queue
        }
    )
    if endless:
        yield Finding(
            "advice",
            "Queues without a limit",
            f"{first_names(endless)}: under overload everybody waits, and nothing is rejected.",
            "in config.pbtxt: dynamic_batching { default_queue_policy { max_queue_size: 100 } }",
            "clients get 503 when the queue is full, which no Triton metric counts (traces do)",
            tuple(endless),
        )


def check_stalled_queues(facts: TritonFacts) -> Iterator[Finding]:
    """Report queues whose limit lets requests wait beside a free instance, or keeps batches small."""
    limited = {
        key: config for key, config in facts.snapshot.configs.items() if config.queue.max_queue_size > 0
    }
    stalled = [key for key, config in limited.items() if config.max_batch_size <= 1]
    small = [key for key, config in limited.items() if config.queue.max_queue_size < config.max_batch_size]
    if stalled:
        yield Finding(
            "problem",
            "A queue limit with batches of one lets requests wait beside a free instance",
            f"{first_names(_version_names(stalled))}: with max_queue_size and max_batch_size 1, Triton 2.51 often "
            "starts the next request only when another one comes, or after half a second: at half load requests "
            "waited three times as long.",
            "remove max_queue_size, or set max_batch_size above 1 where the model can batch",
            "without the limit everybody waits under overload",
            _model_names(stalled),
        )
    if small:
        yield Finding(
            "advice",
            "A queue limit keeps batches small",
            f"{first_names(_version_names(small))}: max_queue_size is below max_batch_size, and a batch is made of "
            "requests that wait.",
            "set max_queue_size to at least twice max_batch_size",
            "under overload more requests wait before one is rejected",
            _model_names(small),
        )


def check_delays(facts: TritonFacts) -> Iterator[Finding]:
    """Report delays with which batches stay as small as without, or that instances with time to spare do not need.

    Where a delay is longer than an execution and gathers less than one more request, one by one they would keep up too.
    """
    useless = []
    for statistics in facts.snapshot.statistics or ():
        config = facts.snapshot.configs.get(statistics.key)
        executions = sum(batch.executions for batch in statistics.batches)
        requests = sum(batch.size * batch.executions for batch in statistics.batches)
        busy_ns = sum(batch.busy_ns for batch in statistics.batches)
        delay_ns = 1000 * config.max_queue_delay_microseconds if config else 0
        enough = 2 if delay_ns * executions > busy_ns else 1.1
        if delay_ns and executions >= _MANY and requests < enough * executions:
            useless.append(statistics.key)
    if useless:
        yield Finding(
            "advice",
            "A queue delay gains nothing",
            f"{first_names(_version_names(useless))}: requests wait for others, and most executions have one.",
            "in config.pbtxt: dynamic_batching { } without max_queue_delay_microseconds",
            "none at this traffic; `tritonwatch advise` says from which traffic on there is one",
            _model_names(useless),
        )


def check_idle_gpus(facts: TritonFacts) -> Iterator[Finding]:
    """Report models whose requests wait for their one instance while its GPU is idle."""
    if facts.first is None or facts.second is None or not facts.has(triton.GPU_UTILIZATION):
        return
    busiest = max(facts.second.families[triton.GPU_UTILIZATION.name].values, default=1.0)
    waiting = []
    for key, config in facts.snapshot.configs.items():
        one = all(group.kind == "KIND_GPU" and group.count == 1 for group in config.instance_groups)
        if (
            config.instance_groups
            and one
            and _grown(facts, triton.QUEUE_DURATION_US, key)
            > _grown(facts, triton.COMPUTE_INFER_DURATION_US, key)
        ):
            waiting.append(key)
    if waiting and busiest < 0.5:
        yield Finding(
            "advice",
            "Requests wait for one instance on an idle GPU",
            f"{first_names(_version_names(waiting))}: they wait longer than they are computed, and the GPU is busy "
            f"{busiest:.0%} of the time.",
            "in config.pbtxt: instance_group [{ kind: KIND_GPU count: 2 }], and dynamic_batching { }",
            "a second copy of the model in the GPU's memory",
            _model_names(waiting),
        )


def _grown(facts: TritonFacts, metric: Metric, key: ModelVersion) -> float:
    """Return what a counter of a model version grew by between the two readings."""
    values = []
    for exposition in (facts.first, facts.second):
        family = exposition.families.get(metric.name) if exposition is not None else None
        values.append(
            math.fsum(
                value
                for series, value in zip(family.series, family.values, strict=True)
                if (series.labels.get("model"), series.labels.get("version")) == key
            )
            if family is not None
            else 0.0
        )
    return values[1] - values[0]


def check_release(facts: TritonFacts) -> Iterator[Finding]:
    """Report what a newer Triton would show."""
    missing = [text for release, text in _SINCE if (0, 0) < facts.release < release]
    if missing:
        yield Finding(
            "advice",
            f"Triton {facts.snapshot.triton_version} is not the newest",
            "a newer one shows more.",
            "; ".join(missing),
            "an upgrade",
        )


def _version_names(versions: Iterable[ModelVersion]) -> list[str]:
    return [f"{key.model}:{key.version}" for key in versions]


def _model_names(versions: Iterable[ModelVersion]) -> tuple[str, ...]:
    return tuple(sorted({key.model for key in versions}))


_DEFAULT_BOUNDS = frozenset({"100", "500", "2000", "5000"})
_BUCKETS = (
    "model_metrics { metric_control: [ {\n"
    f'  metric_identifier: {{ family: "{triton.FIRST_RESPONSE_MS}" }}\n'
    "  histogram_options: { buckets: [ 1, 2, 5, 10, 25, 50, 100, 250, 500, 1000 ] }\n"
    "} ] }"
)


def check_metrics(facts: TritonFacts) -> Iterator[Finding]:
    """Report metrics that do not answer, are empty or have broken lines."""
    if facts.metrics_failure:
        remedy = (
            "check --triton-metrics; the server needs --allow-metrics=true (the default) and --metrics-port"
        )
        if facts.metrics_failure.startswith("tls:"):
            remedy = TRUST
        elif facts.metrics_failure.startswith(("HTTP 4", "HTTP 5")) and facts.metrics_failure != "HTTP 404":
            remedy = what_to_check("http_error")
        where = f"{facts.metrics_url}: {facts.metrics_failure}"
        yield Finding("problem", "Triton's metrics do not answer", where, remedy)
    if facts.first is not None and facts.first.faults:
        kinds = ", ".join(f"{count} {kind}" for kind, count in facts.first.faults.items())
        yield Finding("problem", "Triton's metrics hold broken lines", f"lines by kind: {kinds}")


def check_counters(facts: TritonFacts) -> Iterator[Finding]:
    """Report latency counters that are off."""
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


def check_missing_histograms(facts: TritonFacts) -> Iterator[Finding]:
    """Report histograms that are off, or that this Triton does not have."""
    if facts.has(triton.FIRST_RESPONSE_MS):
        return
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


def check_default_buckets(facts: TritonFacts) -> Iterator[Finding]:
    """Report models whose histograms have the bounds that fit few objectives."""
    if facts.first is None or not facts.has(triton.FIRST_RESPONSE_MS):
        return
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
            f"buckets from 100 ms to 5 s do not fit most objectives; models: {first_names(useless)}.",
            "in config.pbtxt (takes effect with an unload and load):\n" + _BUCKETS,
            "one series a bucket and model",
            tuple(useless),
        )


def check_summaries(facts: TritonFacts) -> Iterator[Finding]:
    """Advise against summaries."""
    if facts.has(triton.REQUEST_SUMMARY_US):
        yield Finding(
            "advice",
            "Summaries are on",
            "their quantiles cannot be added up over servers, and up to a third of the throughput has been "
            "reported lost to them.",
            "--metrics-config summary_latencies=false, unless the exporter has no histogram to read instead",
            "the exporter then estimates distributions from sums of several requests",
        )


def _total(exposition: Exposition, metric: Metric) -> float:
    family = exposition.families.get(metric.name)
    return math.fsum(family.values) if family is not None else 0.0


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
    flags = f"--trace-config level=TIMESTAMPS --trace-config rate={rate}"
    traces = f"traces {_share(rate)}, {in_all / rate:.1f} a second at this traffic"
    if is_grpc(facts.url):
        return f"the flags {flags} ({traces})"
    return f"curl -d '{setting}' {facts.url}/v2/trace/setting ({traces}; at every start of Triton, or as flags: {flags})"


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


Check = Callable[[TritonFacts], Iterator[Finding]]


def examine(facts: TritonFacts) -> list[Finding]:
    """Return everything worth changing, problems first."""
    if facts.is_other_server:
        checks: tuple[Check, ...] = (check_reachable,)
    elif facts.snapshot.api_failure:
        # Metrics may answer all the same: from another Triton of that machine, whose traffic this is not about,
        # unless they alone were named. A dcgm-exporter answers for itself.
        of_metrics = (check_default_buckets, check_summaries) if facts.snapshot.api_failure == NO_API else ()
        checks = (check_reachable, check_metrics, *of_metrics, _check_gpus)
    else:
        checks = CHECKS
    findings = [finding for check in checks for finding in check(facts)]
    return sorted(findings, key=lambda finding: finding.grade != "problem")


def _check_gpus(facts: TritonFacts) -> Iterator[Finding]:
    yield from facts.gpu


CHECKS: tuple[Check, ...] = (
    check_reachable,
    check_metrics,
    check_restricted,
    check_namespacing,
    check_counters,
    check_readiness,
    check_defects,
    check_missing_histograms,
    check_default_buckets,
    check_summaries,
    _check_gpus,
    check_log,
    check_queues,
    check_stalled_queues,
    check_delays,
    check_idle_gpus,
    check_tracing,
    check_release,
)

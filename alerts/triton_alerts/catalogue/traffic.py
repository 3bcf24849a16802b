"""Alerts about traffic: queues, rejections, stalled models, canaries."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from triton_alerts.alert import Alert, Lookup
from triton_alerts.broken import BACKLOG_REQUESTS, QUEUE_BACKLOG
from triton_exporter.catalogue import Metric, models, probe, state, triton
from triton_exporter.catalogue.external import headroom
from triton_slo import links, signals
from triton_slo.alert_settings import AlertThreshold
from triton_slo.indicators.errors import CANCELED

_MODEL = ("instance", "model", "version")


def _per_second(metric: Metric, window: str) -> str:
    """Return the rate per second of each model version of a server; gpu_uuid splits some of Triton's series."""
    return f"sum without (gpu_uuid) (rate({metric}[{window}]))"


def _count(metric: Metric | str, window: str) -> str:
    """Return how much of a counter each model version of a server has counted in a window."""
    return f"sum without (gpu_uuid, reason) (increase({metric}[{window}]))"


def _rate(window: str) -> signals.Reader:
    return lambda metric: _per_second(metric, window)


def _summed_rate(window: str) -> signals.Reader:
    return lambda metric: f"sum {_BY} (rate({metric}[{window}]))"


def _longest(window: str) -> signals.Reader:
    return lambda metric: f"max_over_time({metric}[{window}])"


def _summed(metric: Metric) -> str:
    return f"sum {_BY} ({metric})"


def _more_than(counter: Metric | str, share: float, window: str = "5m") -> str:
    """Return the expression of requests counted apart from successes that are more than a share of these."""
    counted = _count(counter, window)
    return (
        f"{counted} > 0\nunless {_ON} {counted} <= {_ON} {share} * {_count(triton.REQUEST_SUCCESS, window)}"
    )


_REJECTED, _CANCELED = (
    f'{triton.REQUEST_FAILURE}{{reason="{reason}"}}' for reason in ("REJECTED", "CANCELED")
)


def _fullness(read: Callable[[Metric], str]) -> str:
    return f"sum {_BY} ({read(triton.PENDING_REQUESTS)})\n/ {_ON} (max {_BY} ({models.QUEUE_SIZE_LIMIT}) > 0)"


def _by_version(metric: Metric, matchers: str = "") -> str:
    return f"sum by (model, version) (rate({metric}{matchers}[15m]))"


_MEAN_LATENCY = (
    f"({_by_version(triton.REQUEST_DURATION_US)} / 1e6 / ({_by_version(triton.REQUEST_SUCCESS)} > 0))"
)
_BUSIEST_VERSION = f"topk by (model) (1, {_by_version(triton.REQUEST_SUCCESS)})"
_BAD = _by_version(triton.REQUEST_FAILURE, f'{{reason!="{CANCELED}"}}')
_ERROR_RATIO = f"({_BAD} / ({_BAD} + {_by_version(triton.REQUEST_SUCCESS)} > 0))"
_ENOUGH = f"sum by (model, version) (increase({triton.REQUEST_SUCCESS}[15m])) > 200"

_SILENT = f"min_over_time(sum by (model) (rate({triton.REQUEST_SUCCESS}[10m]))[1h:10m] offset %s)"
"""The slowest ten minutes of an hour, by model."""

_ON = f"on ({', '.join(_MODEL)})"
_BY = f"by ({', '.join(_MODEL)})"
_MEAN_QUEUE = f"""(
  sum {_BY} (rate({triton.QUEUE_DURATION_US}[5m])) / (sum {_BY} (rate({triton.REQUEST_SUCCESS}[5m])) > 0)
)"""
"""Microseconds."""
_ANSWERED, _ANSWERED_LATELY = (_per_second(triton.REQUEST_SUCCESS, window) for window in ("5m", "1m"))
# After a pause the rate of five minutes is too low for a while; that of a minute is soon 0 where a model hangs.
_WAIT = f"""\
sum without (gpu_uuid) ({triton.PENDING_REQUESTS})
/ ({_ANSWERED_LATELY} > {_ANSWERED} or {_ANSWERED})"""
"""Seconds until a request that comes now is taken from the queue (Little's law); infinite where none is answered."""

# One series for each step of each ensemble: `model` is the ensemble, `step` the step.
_STEPS = f"""\
max by (instance, model, step) (
  label_replace({models.ENSEMBLE_STEP}, "step", "$1", "step_model", "(.+)")
)"""
_FAILING_STEPS = f"""\
label_replace(
  sum by (instance, model) (rate({triton.REQUEST_FAILURE}{{reason="BACKEND"}}[5m])) > 0,
  "step", "$1", "model", "(.+)"
)"""

_traffic_alert = partial(Alert, component="traffic", labels=_MODEL)

QUEUES = (
    _traffic_alert(
        name="TritonModelStalled",
        # Latency counters see only what completes; a hung instance shows in the queue alone.
        expr=f"""\
sum without (gpu_uuid) (min_over_time({triton.PENDING_REQUESTS}[5m])) > 0
and on (instance, model, version) {_per_second(triton.EXEC_COUNT, "5m")} == 0""",
        severity="critical",
        for_="2m",
        keep_firing_for="2m",
        lately=f"{_count(triton.EXEC_COUNT, '2m')} == bool 0",
        summary="Model {{ $labels.model }} version {{ $labels.version }} made no progress for over [5m] on "
        "{{ $labels.instance }} while {{ $value }} requests waited",
        description="No request was executed: the model's instances hang. Latency graphs do not show this, because "
        "they contain only completed requests.",
        action="Take the server out of service, save a stack trace of the hung process, then restart the "
        "process.",
        silence="instance and model",
    ),
    _traffic_alert(
        name=QUEUE_BACKLOG,
        # Where none is answered for five minutes, TritonModelStalled fires.
        expr=f"""\
{_WAIT} > $threshold < Inf
and sum without (gpu_uuid) ({triton.PENDING_REQUESTS}) > {BACKLOG_REQUESTS}""",
        lately=f"max_over_time((\n{_WAIT}\n)[2m:15s]) > bool 0.5 * $threshold",
        threshold=AlertThreshold(
            30,
            "seconds",
            "time that a request would wait in the queue",
            "Many clients give up after 30 seconds.",
        ),
        severity="warning",
        for_="30s",
        keep_firing_for="5m",
        summary="Requests for model {{ $labels.model }} version {{ $labels.version }} piled up on {{ $labels.instance }}: "
        'one had to wait about {{ $value | printf "%.0f" | humanizeDuration }}',
        description="Estimated: the requests that wait, divided by how many were answered per second in [1m] or [5m]; a queue "
        "timeout rejects them earlier. More arrive than the model answers, or its executions hang. Latency graphs show it "
        "only once the requests are answered.",
        action="Compare the request rate and the time of an execution with an hour ago: is the demand higher, or is "
        "execution slower?",
        silence="model, during a load test",
    ),
    _traffic_alert(
        name="TritonQueueDominates",
        # A batcher that waits for a full batch, as configured, does not lack capacity.
        expr=f"""\
{signals.QUEUE_SHARE.expr(_rate("5m"))} > $threshold
and {_ON} {_per_second(triton.REQUEST_SUCCESS, "5m")} > 1
and {_ON} {_MEAN_QUEUE} > 5000
unless {_ON} {_MEAN_QUEUE} <= {_ON} 2e6 * max {_BY} ({models.MAX_QUEUE_DELAY})""",
        # Jobs of every hour are one alert.
        until=f"{signals.QUEUE_SHARE.expr(_rate('1h'))} > 0.9 * $threshold",
        lately=f"{_MEAN_QUEUE.replace('5m', '2m')} > bool 5000",
        threshold=signals.QUEUE_SHARE.threshold,
        severity="warning",
        for_="10m",
        keep_firing_for="2h",
        summary="Requests for model {{ $labels.model }} version {{ $labels.version }} spent "
        "{{ $value | humanizePercentage }} of their time waiting on {{ $labels.instance }}",
        description="There are too few instances for the load, or the batcher waits too long for a full batch.",
        action="Compare the mean batch size with max_batch_size, then add instances or shorten "
        "max_queue_delay_microseconds.",
        silence="model, during a load test",
    ),
    _traffic_alert(
        name="TritonRequestsRejected",
        expr=_more_than(_REJECTED, 0.01),
        until=_more_than(_REJECTED, 0.005, "1h"),
        lately=_count(_REJECTED, "2m"),
        severity="warning",
        for_="5m",
        keep_firing_for="15m",
        summary="Model {{ $labels.model }} version {{ $labels.version }} rejected {{ printf `%.0f` $value }} "
        "requests on {{ $labels.instance }}",
        description="Within [5m] more than 1% of the requests waited longer than the queue timeout and were rejected with 503 "
        "(the number is of [1h] once it is less than that). Triton does not count requests that it rejects because the queue is full, so the true "
        "number may be higher.",
        action="Add instances of the model or servers, or reduce the request rate of the client that sends most; then "
        "review the limits of the queue.",
        silence="model, during a load test",
    ),
    _traffic_alert(
        name="TritonQueueNearFull",
        expr=f"{_fullness(str)} > $threshold",
        until=f"{_fullness(_longest('1h'))} > 0.5 * $threshold",
        lately=f"{_fullness(_longest('2m'))} > bool 0.5 * $threshold",
        threshold=AlertThreshold(
            0.8,
            "share",
            "share of the queue's limit that waits",
            "Triton refuses requests from 100 % on and counts that nowhere: a fifth of the queue is left as "
            "time to act.",
        ),
        severity="warning",
        # With random arrivals at 95 % load, a queue is above four fifths for a minute or two, many times a day.
        for_="5m",
        keep_firing_for="2h",
        summary="The queue of {{ $labels.model }} version {{ $labels.version }} on {{ $labels.instance }} was "
        "{{ $value | humanizePercentage }} full",
        description="When the queue is full, Triton rejects requests with 503 and does not count them: the next burst "
        "would be rejected.",
        action="Add instances of the model or servers, or reduce the request rate of the client that sends most.",
        silence="model, during a load test",
    ),
    _traffic_alert(
        name="TritonQueueFull",
        expr=_more_than(state.QUEUE_FULL_ESTIMATE, 0.01),
        until=_more_than(state.QUEUE_FULL_ESTIMATE, 0.005, "1h"),
        lately=_count(state.QUEUE_FULL_ESTIMATE, "2m"),
        severity="warning",
        for_="2m",
        keep_firing_for="15m",
        summary="Model {{ $labels.model }} version {{ $labels.version }} on {{ $labels.instance }} rejected "
        "about {{ printf `%.0f` $value }} requests because its queue was full",
        description="Clients received 503. The number is of [5m], or of [1h] once it is less than 1%, and from traces; no metric of Triton counts these requests.",
        action="Add instances of the model or servers, or reduce the request rate of the client that sends most.",
        silence="model, during a load test",
    ),
    _traffic_alert(
        name="TritonInstancesSaturated",
        expr=f"{signals.INSTANCES_BUSY.expr(_summed_rate('5m'), _summed)} > $threshold",
        until=f"{signals.INSTANCES_BUSY.expr(_summed_rate('1h'), _summed)} > 0.9 * $threshold",
        lately=f"{signals.INSTANCES_BUSY.expr(_summed_rate('2m'), _summed)} > bool 0.5 * $threshold",
        threshold=signals.INSTANCES_BUSY.threshold,
        severity="warning",
        for_="15m",
        keep_firing_for="15m",
        summary="The instances of {{ $labels.model }} version {{ $labels.version }} on "
        "{{ $labels.instance }} were busy {{ $value | humanizePercentage }} of the time",
        description="The model has hardly any capacity left: additional requests must wait in the queue.",
        action="Plan more instances or replicas before the next peak.",
        silence="model, during a load test",
    ),
    _traffic_alert(
        name="TritonModelHeadroomLow",
        expr=f'min by (model, version, slo) ({headroom.RATIO}{{bound="least"}}) < $threshold',
        threshold=AlertThreshold(
            1.2,
            "number",
            "least traffic that may break the objective, over the present traffic",
            "A busy hour is often a fifth above the one before.",
            below=True,
        ),
        severity="warning",
        for_="1h",
        keep_firing_for="1h",
        labels=("model", "version", "slo"),
        summary="Objective {{ $labels.slo }} of model {{ $labels.model }} version {{ $labels.version }} may break at "
        "{{ printf `%.2f` $value }} times the traffic that it had",
        description="Predicted by `tritonwatch advise --watch` from the counters of the last hour; the number is the lower "
        "end of the interval. Below 1 the objective may be broken already.",
        action="Run `tritonwatch advise` for the model: it names the change that helps.",
        silence="model, during a load test",
    ),
    _traffic_alert(
        name="TritonClientCancellations",
        expr=f"""\
{_count(_CANCELED, "10m")}
> $threshold * ({_count(triton.REQUEST_SUCCESS, "10m")} + {_count(_CANCELED, "10m")})""",
        threshold=AlertThreshold(
            0.2,
            "share",
            "share of the requests that their clients cancel",
            "Streaming clients cancel some requests in normal use, as people stop an answer; one in five is "
            "more than that.",
        ),
        severity="info",
        for_="15m",
        keep_firing_for="30m",
        summary="Clients cancelled {{ printf `%.0f` $value }} requests to model {{ $labels.model }} within [10m] on "
        "{{ $labels.instance }}",
        description="More than $threshold of the requests were cancelled, most often because the clients' deadline is "
        "shorter than the model's latency.",
        action="Compare the clients' deadline with the model's latency.",
        silence="model",
    ),
    _traffic_alert(
        name="TritonTrafficVanished",
        # The end of a job is not a fault. Therefore the traffic must have been continuous, also in the next hour of
        # yesterday and of the same day last week, if these are known.
        expr=f"""\
sum by (model) (rate({triton.REQUEST_SUCCESS}[10m])) == 0
and on (model) {_SILENT % "1h"} > $threshold
unless on (model) {_SILENT % "23h"} == 0
unless on (model) {_SILENT % "167h"} == 0""",
        # One hour later, the hour before has no traffic either: yesterday's traffic shows that the model needs it.
        until=f"""\
sum by (model) (rate({triton.REQUEST_SUCCESS}[10m])) == 0
and on (model) {_SILENT % "23h"} > 0""",
        threshold=AlertThreshold(
            1,
            "number",
            "requests per second that the model completed before",
            "At one request a second, ten minutes without any are 600 missing; a model with less traffic has "
            "such pauses.",
        ),
        severity="warning",
        labels=("model",),
        for_="10m",
        keep_firing_for="5m",
        summary="Model {{ $labels.model }} completed no request within [10m]",
        description="It completed requests continuously one hour ago, and also at this time yesterday and last week, but then "
        "no server completed any. Either no requests "
        "arrive (because of a gateway, a client or a route), or every request fails before it completes.",
        action="Send one request by hand: if it succeeds, the fault is upstream of Triton.",
        silence="model, when its clients are moved",
    ),
)

QUALITY = (
    _traffic_alert(
        name="TritonProbeFailing",
        # A probe whose input the model refuses shows nothing about the model.
        expr=f"""\
{probe.SUCCESS} == 0
unless {_ON} sum {_BY} (rate({probe.REQUESTS}{{result="bad_input"}}[5m])) > 0""",
        severity="warning",
        for_="3m",
        keep_firing_for="2m",
        summary="Test requests (probes) to model {{ $labels.model }} version {{ $labels.version }} on "
        "{{ $labels.instance }} fail",
        description="The exporter sends these requests. Even if the model reports ready, requests "
        "of clients most likely fail too.",
        action="Send the same request by hand and read the answer; then look at the model's log.",
        cause_from=Lookup(
            f'sum by (result) (increase({probe.REQUESTS}{{%q, result!="success"}}[5m])) > 0',
            _MODEL,
            "result",
        ),
        silence="instance and model, during planned work",
    ),
    _traffic_alert(
        name="TritonEnsembleStepFailing",
        expr=f"""\
{_STEPS}
* on (instance, step) group_left
{_FAILING_STEPS} > 0
and on (instance, model) sum by (instance, model) (rate({triton.REQUEST_FAILURE}{{reason="OTHER"}}[5m])) > 0""",
        severity="warning",
        labels=("instance", "model", "step"),
        for_="5m",
        keep_firing_for="15m",
        summary="Requests to ensemble {{ $labels.model }} on {{ $labels.instance }} failed because of its step "
        "{{ $labels.step }}",
        description="This step failed within [5m]. The ensemble's own failure counter does not show which step failed, and "
        "does not count exactly.",
        action="Search Triton's log for errors of the step, not of the ensemble.",
        silence="model",
    ),
    _traffic_alert(
        name="TritonCanarySlower",
        expr=f"""\
{_MEAN_LATENCY} > on (model) group_left $threshold * ({_MEAN_LATENCY} and on (model, version)
{_BUSIEST_VERSION})
and on (model, version) {_ENOUGH}""",
        threshold=AlertThreshold(
            1.3,
            "number",
            "mean latency divided by the mean latency of the version with the most traffic",
            "The alert asks for 200 requests: where latency varies by its own mean, two standard errors of "
            "their mean are 14 %, and 30 % is over twice that.",
            least=1.0,
        ),
        severity="warning",
        labels=("model", "version"),
        for_="15m",
        keep_firing_for="30m",
        summary="Version {{ $labels.version }} of model {{ $labels.model }} was much slower than the version "
        'with the most traffic: {{ $value | printf "%.2g" | humanizeDuration }} on average',
        description="Its requests take more than $threshold times as long as those to the version with the most "
        "traffic.",
        action="Stop the rollout of this version, then compare queue and compute time of both.",
        silence="model and version, if the difference is intended",
    ),
    _traffic_alert(
        name="TritonCanaryFailing",
        expr=f"""\
{_ERROR_RATIO} > on (model) group_left
$threshold + 2 * ({_ERROR_RATIO} and on (model, version) {_BUSIEST_VERSION})
and on (model, version) {_ENOUGH}
and on (model, version) 15m * {_BAD} > 10""",
        threshold=AlertThreshold(
            0.01,
            "share",
            "share of failed requests above twice that of the version with the most traffic",
            "Of 200 requests one or two fail by chance where few fail at all: that is 0.5 to 1 %.",
        ),
        severity="warning",
        labels=("model", "version"),
        for_="5m",
        keep_firing_for="30m",
        summary="Version {{ $labels.version }} of model {{ $labels.model }} failed "
        "{{ $value | humanizePercentage }} of its requests within [15m], far more than the version with the most traffic",
        description="This is more than twice the share of the version with the most "
        "traffic, plus $threshold.",
        action="Stop the rollout of this version and route its traffic back to the previous version.",
        silence="model and version",
    ),
    _traffic_alert(
        name="TritonCacheThrashing",
        # Triton's evictions are a gauge although they only grow, so delta, not increase.
        expr=f"""\
sum by (instance) (rate({triton.CACHE_HITS_PER_MODEL}[15m]))
/ (sum by (instance) (rate({triton.CACHE_HITS_PER_MODEL}[15m]))
  + sum by (instance) (rate({triton.CACHE_MISSES_PER_MODEL}[15m])) > 1) < $threshold
and on (instance) {triton.CACHE_UTIL} > 0.95
and on (instance) delta({triton.CACHE_EVICTIONS}[15m]) > 100""",
        threshold=AlertThreshold(
            0.05,
            "share",
            "share of requests answered from the full response cache",
            "A lookup hashes the whole input; below one hit in twenty it costs more than the hits save.",
            below=True,
        ),
        severity="info",
        labels=("instance",),
        for_="30m",
        keep_firing_for="30m",
        dashboard=links.SERVER,
        summary="The response cache of {{ $labels.instance }} was full and answered only "
        "{{ $value | humanizePercentage }} of requests",
        description="The cache continuously evicts entries. The lookups cost more time than they save.",
        action="Enlarge the cache, or disable it for models whose inputs rarely repeat.",
        silence="instance",
    ),
    _traffic_alert(
        name="TritonCountersOff",
        # Not the rate of the counter: it is 0 too where each load of a model serves one request.
        expr=f"""\
rate({state.REQUEST_DURATION.count}[10m]) > 0
and on (instance, model, version) sum without (gpu_uuid) (max_over_time({triton.REQUEST_SUCCESS}[10m])) == 0""",
        severity="info",
        for_="10m",
        keep_firing_for="10m",
        summary="Triton on {{ $labels.instance }} counted no request of {{ $labels.model }} within [10m], although it served some",
        description="The model serves requests while its request counters stay at 0: Triton was started with counter_latencies=false, which freezes all of them. "
        "Its objectives have no data, and most alerts cannot fire.",
        action="Start Triton without --metrics-config counter_latencies=false.",
        silence="instance",
    ),
    _traffic_alert(
        name="TritonPinnedMemoryExhausted",
        expr=f"{signals.PINNED_MEMORY.expr(str)} > $threshold",
        until=f"{signals.PINNED_MEMORY.expr(signals.mean_30m)} > 0.9 * $threshold",
        threshold=signals.PINNED_MEMORY.threshold,
        severity="info",
        labels=("instance",),
        for_="15m",
        keep_firing_for="15m",
        dashboard=links.SERVER,
        summary="{{ $value | humanizePercentage }} of the pinned memory of {{ $labels.instance }} was in use",
        description="When this pool is exhausted, Triton copies through pageable memory, which is slower.",
        action="Raise --pinned-memory-pool-byte-size.",
        silence="instance",
    ),
)

ALERTS = (*QUEUES, *QUALITY)

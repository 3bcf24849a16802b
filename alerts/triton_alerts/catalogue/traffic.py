"""Do requests flow, and where do they get stuck?"""

from __future__ import annotations

from triton_alerts.alert import Alert, Lookup
from triton_exporter.catalogue import Metric, model, probe, state, triton
from triton_slo.alerting import signals

_MODEL = ("instance", "model", "version")


def _rate(metric: Metric, window: str, matchers: str = "") -> str:
    """Per second, one series for each model version of a server; gpu_uuid splits some of Triton's series."""
    return f"sum without (gpu_uuid) (rate({metric}{matchers}[{window}]))"


def _rate_5m(metric: Metric) -> str:
    return _rate(metric, "5m")


def _busy(metric: Metric) -> str:
    return f"sum {_BY} (rate({metric}[5m]))"


def _summed(metric: Metric) -> str:
    return f"sum {_BY} ({metric})"


def _failures(window: str, matchers: str) -> str:
    return f"sum without (gpu_uuid, reason) (rate({triton.REQUEST_FAILURE}{matchers}[{window}]))"


def _by_version(metric: Metric, matchers: str = "") -> str:
    return f"sum by (model, version) (rate({metric}{matchers}[15m]))"


_MEAN_LATENCY = f"({_by_version(triton.REQUEST_DURATION_US)} / ({_by_version(triton.REQUEST_SUCCESS)} > 0))"
_BUSIEST_VERSION = f"topk by (model) (1, {_by_version(triton.REQUEST_SUCCESS)})"
_BAD = _by_version(triton.REQUEST_FAILURE, '{reason!="CANCELED"}')
_ERROR_RATIO = f"({_BAD} / ({_BAD} + {_by_version(triton.REQUEST_SUCCESS)} > 0))"
_ENOUGH = f"sum by (model, version) (increase({triton.REQUEST_SUCCESS}[15m])) > 200"

_ON = f"on ({', '.join(_MODEL)})"
_BY = f"by ({', '.join(_MODEL)})"
_MEAN_QUEUE = f"""(
  sum {_BY} (rate({triton.QUEUE_DURATION_US}[5m])) / (sum {_BY} (rate({triton.REQUEST_SUCCESS}[5m])) > 0)
)"""
"""Microseconds."""
# One series for each step of each ensemble: `model` is the ensemble, `step` the step.
_STEPS = f"""\
max by (instance, model, step) (
  label_replace({model.ENSEMBLE_STEP}, "step", "$1", "step_model", "(.+)")
)"""
_FAILING_STEPS = f"""\
label_replace(
  sum by (instance, model) (rate({triton.REQUEST_FAILURE}{{reason="BACKEND"}}[5m])) > 0,
  "step", "$1", "model", "(.+)"
)"""

QUEUES = (
    Alert(
        name="TritonModelStalled",
        # Latency counters see only what completes; a hung instance shows in the queue alone.
        expr=f"""\
sum without (gpu_uuid) (min_over_time({triton.PENDING_REQUESTS}[5m])) > 0
and on (instance, model, version) {_rate(triton.EXEC_COUNT, "5m")} == 0""",
        severity="critical",
        component="traffic",
        labels=_MODEL,
        hold="2m",
        keep="2m",
        summary="Model {{ $labels.model }} version {{ $labels.version }} executes nothing on "
        "{{ $labels.instance }} while {{ $value }} requests wait",
        description="At least {{ $value }} requests have been waiting for model {{ $labels.model }} version "
        "{{ $labels.version }} on {{ $labels.instance }} for [5m], and not one batch was executed. Its "
        "instances hang. Latency graphs show nothing: they only see requests that end.",
        action="Take the server out of service, keep a stack trace of the hung process, then restart it.",
        silence="instance and model",
    ),
    Alert(
        name="TritonQueueGrowing",
        expr=f"""\
sum without (gpu_uuid) ({triton.PENDING_REQUESTS}) > 10
and on (instance, model, version) sum without (gpu_uuid) (deriv({triton.PENDING_REQUESTS}[10m])) > 0""",
        severity="warning",
        component="traffic",
        labels=_MODEL,
        hold="5m",
        summary="{{ $value }} requests wait for model {{ $labels.model }} version {{ $labels.version }} on "
        "{{ $labels.instance }}, and the queue grows",
        description="More requests arrive for model {{ $labels.model }} version {{ $labels.version }} on "
        "{{ $labels.instance }} than it completes. Waiting time and memory grow until clients give up.",
        action="Compare the request rate with yesterday's: more demand, or slower execution?",
        silence="model, during a load test",
    ),
    Alert(
        name="TritonQueueDominates",
        # A batcher that waits for a full batch, as configured, does not lack capacity.
        expr=f"""\
{signals.QUEUE_SHARE.expr(_rate_5m)} > $threshold
and {_ON} {_rate(triton.REQUEST_SUCCESS, "5m")} > 1
and {_ON} {_MEAN_QUEUE} > 5000
unless {_ON} {_MEAN_QUEUE} <= {_ON} 2e6 * max {_BY} ({model.MAX_QUEUE_DELAY})""",
        threshold=signals.QUEUE_SHARE.threshold,
        severity="warning",
        component="traffic",
        labels=_MODEL,
        hold="10m",
        summary="Requests for model {{ $labels.model }} version {{ $labels.version }} spend "
        "{{ $value | humanizePercentage }} of their time waiting on {{ $labels.instance }}",
        description="{{ $value | humanizePercentage }} of the time of requests for model {{ $labels.model }} "
        "version {{ $labels.version }} on {{ $labels.instance }} is queueing, not computing: too few "
        "instances for the load, or a batcher that waits too long for company.",
        action="Compare the mean batch size with max_batch_size, then add instances or shorten the delay.",
        silence="model, during a load test",
    ),
    Alert(
        name="TritonRequestsRejected",
        expr=f"""{_failures("5m", '{reason="REJECTED"}')} > 0""",
        severity="warning",
        component="traffic",
        labels=_MODEL,
        hold="5m",
        keep="5m",
        summary="Model {{ $labels.model }} version {{ $labels.version }} rejects {{ printf `%.2f` $value }} "
        "requests/s on {{ $labels.instance }}",
        description="Requests for model {{ $labels.model }} version {{ $labels.version }} on "
        "{{ $labels.instance }} wait longer than the queue's timeout and are rejected with 503. Requests "
        "refused because the queue is full are not even counted: the true number is higher.",
        action="Add capacity, or ask the loudest client to send less; then review the queue's limits.",
        silence="model, during a load test",
    ),
    Alert(
        name="TritonQueueNearFull",
        expr=f"""\
sum {_BY} ({triton.PENDING_REQUESTS})
/ {_ON} (max {_BY} ({model.QUEUE_SIZE_LIMIT}) > 0) > 0.8""",
        severity="warning",
        component="traffic",
        labels=_MODEL,
        hold="2m",
        keep="5m",
        summary="The queue of {{ $labels.model }} version {{ $labels.version }} on {{ $labels.instance }} is "
        "{{ $value | humanizePercentage }} full",
        description="The queue of model {{ $labels.model }} version {{ $labels.version }} on "
        "{{ $labels.instance }} holds {{ $value | humanizePercentage }} of what it may. When it is full "
        "Triton answers 503, and counts that nowhere.",
        action="Add capacity now; the next burst is refused.",
        silence="model, during a load test",
    ),
    Alert(
        name="TritonQueueFull",
        expr=f"sum without (gpu_uuid) (rate({state.QUEUE_FULL_ESTIMATE}[5m])) > 0",
        severity="warning",
        component="traffic",
        labels=_MODEL,
        hold="2m",
        keep="5m",
        summary="Model {{ $labels.model }} version {{ $labels.version }} on {{ $labels.instance }} refuses "
        "about {{ printf `%.2f` $value }} requests/s because its queue is full",
        description="Traces show that Triton refuses requests for model {{ $labels.model }} version "
        "{{ $labels.version }} on {{ $labels.instance }}, about {{ printf `%.2f` $value }} a second, because "
        "the queue is full. No metric of Triton counts them.",
        action="Add capacity, or ask the loudest client to send less.",
        silence="model, during a load test",
    ),
    Alert(
        name="TritonInstancesSaturated",
        expr=f"{signals.INSTANCES_BUSY.expr(_busy, _summed)} > $threshold",
        threshold=signals.INSTANCES_BUSY.threshold,
        severity="warning",
        component="traffic",
        labels=_MODEL,
        hold="15m",
        summary="The instances of {{ $labels.model }} version {{ $labels.version }} on "
        "{{ $labels.instance }} are busy {{ $value | humanizePercentage }} of the time",
        description="The instances of model {{ $labels.model }} version {{ $labels.version }} on "
        "{{ $labels.instance }} execute {{ $value | humanizePercentage }} of the time. Any more load queues.",
        action="Plan more instances or replicas before the next peak.",
        silence="model, during a load test",
    ),
    Alert(
        name="TritonClientCancellations",
        expr=f"""\
{_failures("10m", '{reason="CANCELED"}')}
> 0.2 * ({_rate(triton.REQUEST_SUCCESS, "10m")} + {_failures("10m", '{reason="CANCELED"}')})""",
        severity="info",
        component="traffic",
        labels=_MODEL,
        hold="15m",
        summary="Clients cancel {{ printf `%.2f` $value }} requests/s to model {{ $labels.model }} on "
        "{{ $labels.instance }}",
        description="More than a fifth of the requests to model {{ $labels.model }} version "
        "{{ $labels.version }} on {{ $labels.instance }} are cancelled by their clients, most often because "
        "the clients' deadline is shorter than the model's latency.",
        action="Compare the clients' deadline with the model's latency.",
        silence="model",
    ),
    Alert(
        name="TritonTrafficVanished",
        expr=f"""\
sum by (model) (rate({triton.REQUEST_SUCCESS}[10m])) == 0
and on (model) sum by (model) (rate({triton.REQUEST_SUCCESS}[1h] offset 1h)) > 1""",
        severity="warning",
        component="traffic",
        labels=("model",),
        hold="10m",
        summary="Model {{ $labels.model }} gets no requests any more",
        description="Model {{ $labels.model }} completed more than one request a second an hour ago and "
        "completes none now, on any server. Either nobody asks any more (a gateway, a client, a route), or "
        "every request fails before it completes.",
        action="Send one request by hand: if it works, the trouble is upstream.",
        silence="model, when its clients are moved",
    ),
)

QUALITY = (
    Alert(
        name="TritonProbeFailing",
        # A probe whose input the model refuses says nothing about the model.
        expr=f"""\
{probe.SUCCESS} == 0
unless {_ON} sum {_BY} (rate({probe.REQUESTS}{{result="bad_input"}}[5m])) > 0""",
        severity="warning",
        component="traffic",
        labels=_MODEL,
        hold="3m",
        keep="2m",
        summary="Model {{ $labels.model }} version {{ $labels.version }} on {{ $labels.instance }} does not "
        "answer a test request",
        description="Test inferences that the exporter sends to model {{ $labels.model }} version "
        "{{ $labels.version }} on {{ $labels.instance }} fail. Whatever its readiness says, clients most "
        "likely fail too.",
        action="Send the same request by hand and read the answer; then look at the model's log.",
        cause_from=Lookup(
            f"sum by (result) (increase({probe.REQUESTS}{{instance=%q,model=%q,version=%q,"
            'result!="success"}[5m])) > 0',
            _MODEL,
            "result",
        ),
        silence="instance and model, during planned work",
    ),
    Alert(
        name="TritonEnsembleStepFailing",
        expr=f"""\
{_STEPS}
* on (instance, step) group_left
{_FAILING_STEPS} > 0""",
        severity="warning",
        component="traffic",
        labels=("instance", "model", "step"),
        hold="5m",
        keep="5m",
        summary="Ensemble {{ $labels.model }} on {{ $labels.instance }} fails because of its step "
        "{{ $labels.step }}",
        description="Step {{ $labels.step }} of the ensemble {{ $labels.model }} fails executions on "
        "{{ $labels.instance }}. The ensemble is only as good as its steps, and its own error count says "
        "neither which step nor, exactly, how many.",
        action="Look for errors of the step in Triton's log, not of the ensemble.",
        silence="model",
    ),
    Alert(
        name="TritonCanarySlower",
        expr=f"""\
{_MEAN_LATENCY} > on (model) group_left 1.3 * ({_MEAN_LATENCY} and on (model, version) {_BUSIEST_VERSION})
and on (model, version) {_ENOUGH}""",
        severity="warning",
        component="traffic",
        labels=("model", "version"),
        hold="15m",
        summary="Version {{ $labels.version }} of model {{ $labels.model }} is much slower than the version "
        "with the most traffic",
        description="Requests to version {{ $labels.version }} of model {{ $labels.model }} take "
        "{{ $value | humanize }} us on average, over 30 % more than those to the version that serves most of "
        "the traffic.",
        action="Stop the rollout of this version, then compare queue and compute time of both.",
        silence="model and version, if the difference is intended",
    ),
    Alert(
        name="TritonCanaryFailing",
        expr=f"""\
{_ERROR_RATIO} > on (model) group_left
0.01 + 2 * ({_ERROR_RATIO} and on (model, version) {_BUSIEST_VERSION})
and on (model, version) {_ENOUGH}""",
        severity="warning",
        component="traffic",
        labels=("model", "version"),
        hold="5m",
        summary="Version {{ $labels.version }} of model {{ $labels.model }} fails "
        "{{ $value | humanizePercentage }} of its requests, far more than the version with the most traffic",
        description="{{ $value | humanizePercentage }} of the requests to version {{ $labels.version }} of "
        "model {{ $labels.model }} fail: over twice the share, and one point more, of the version that "
        "serves most of the traffic.",
        action="Stop the rollout of this version and send its traffic back.",
        silence="model and version",
    ),
    Alert(
        name="TritonCacheThrashing",
        # Triton's evictions are a gauge although they only grow, so delta, not increase.
        expr=f"""\
sum by (instance) (rate({triton.CACHE_HITS_PER_MODEL}[15m]))
/ (sum by (instance) (rate({triton.CACHE_HITS_PER_MODEL}[15m]))
  + sum by (instance) (rate({triton.CACHE_MISSES_PER_MODEL}[15m])) > 1) < 0.05
and on (instance) {triton.CACHE_UTIL} > 0.95
and on (instance) delta({triton.CACHE_EVICTIONS}[15m]) > 100""",
        severity="info",
        component="traffic",
        labels=("instance",),
        hold="30m",
        dashboard="server",
        summary="The response cache of {{ $labels.instance }} is full and answers only "
        "{{ $value | humanizePercentage }} of requests",
        description="The response cache of {{ $labels.instance }} is full, throws entries out all the time "
        "and answers {{ $value | humanizePercentage }} of requests. Looking things up costs more than it "
        "saves.",
        action="Enlarge the cache, or switch it off for models whose inputs hardly repeat.",
        silence="instance",
    ),
    Alert(
        name="TritonCountersOff",
        expr=f"""\
sum without (gpu_uuid) (rate({triton.REQUEST_SUMMARY_US.count}[10m])) > 0
and on (instance, model, version) {_rate(triton.REQUEST_SUCCESS, "10m")} == 0""",
        severity="info",
        component="traffic",
        labels=_MODEL,
        hold="10m",
        summary="Triton on {{ $labels.instance }} does not count the requests of {{ $labels.model }}",
        description="Model {{ $labels.model }} serves requests on {{ $labels.instance }} while its request "
        "counters stand still: Triton was started with counter_latencies=false, which freezes all of them. "
        "Objectives and most alerts are blind there.",
        action="Start Triton without --metrics-config counter_latencies=false.",
        silence="instance",
    ),
    Alert(
        name="TritonPinnedMemoryExhausted",
        expr=f"{signals.PINNED_MEMORY.expr(str)} > $threshold",
        threshold=signals.PINNED_MEMORY.threshold,
        severity="info",
        component="traffic",
        labels=("instance",),
        hold="15m",
        dashboard="server",
        summary="{{ $value | humanizePercentage }} of the pinned memory of {{ $labels.instance }} is in use",
        description="The pinned memory pool of the Triton server behind {{ $labels.instance }} is nearly "
        "used up. Triton then copies through ordinary memory, which is slower.",
        action="Raise --pinned-memory-pool-byte-size.",
        silence="instance",
    ),
)

ALERTS = (*QUEUES, *QUALITY)

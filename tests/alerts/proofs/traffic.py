"""Define the proofs of the traffic family."""

from __future__ import annotations

from alerts.proofs.proof import Fires, boundary, fires, quiet, reset
from alerts.proofs.proof_series import MODEL, SERVER, VERSION, only, series
from triton_exporter.catalogue import models, probe, state, triton
from triton_exporter.catalogue.external import headroom

_PENDING = series(triton.PENDING_REQUESTS, VERSION)
_EXEC = series(triton.EXEC_COUNT, VERSION, gpu_uuid="GPU-5a1e")
_SUCCESS = series(triton.REQUEST_SUCCESS, VERSION)
_QUEUE = series(triton.QUEUE_DURATION_US, VERSION)
_DURATION = series(triton.REQUEST_DURATION_US, VERSION)
_SUCCESS_2 = series(triton.REQUEST_SUCCESS, MODEL, version="2")
_DURATION_2 = series(triton.REQUEST_DURATION_US, MODEL, version="2")
_OBSERVED = series(state.REQUEST_DURATION.count, VERSION)
_HITS = series(triton.CACHE_HITS_PER_MODEL, VERSION)
_MISSES = series(triton.CACHE_MISSES_PER_MODEL, VERSION)
_UTIL = series(triton.CACHE_UTIL)
_EVICTIONS = series(triton.CACHE_EVICTIONS)
_POOL_USED = series(triton.PINNED_POOL_USED_BYTES)
_POOL_ALL = series(triton.PINNED_POOL_TOTAL_BYTES)
_VERSION_2 = {"model": "ranker", "version": "2"}


def _failed(reason: str, version: str = "1") -> str:
    return series(triton.REQUEST_FAILURE, MODEL, version=version, reason=reason)


_IDENTITY = only(VERSION, "instance", "model", "version")
_LIMIT = series(models.QUEUE_SIZE_LIMIT, VERSION)
_REFUSED = series(state.QUEUE_FULL_ESTIMATE, VERSION)
_BUSY = series(models.BUSY_SECONDS, VERSION)
_INSTANCES = series(models.INSTANCES, VERSION, kind="KIND_GPU", gpu="0")
_PROBED = series(probe.SUCCESS, VERSION)
_PIPELINE = {**SERVER, "model": "pipeline", "version": "1"}
_STEP = series(models.ENSEMBLE_STEP, _PIPELINE, position="1", step_model="ranker", step_version="-1")


def _probes(result: str) -> str:
    return series(probe.REQUESTS, VERSION, result=result)


_OBJECTIVE = {"model": "ranker", "version": "1", "slo": "queue"}


def _headroom(bound: str) -> str:
    return series(headroom.RATIO, _OBJECTIVE, instance="advise:9098", job="tritonwatch-advise", bound=bound)


_LOW = {_headroom("least"): "1.1x600", _headroom("estimate"): "1.3x600"}
_STALLED = {_PENDING: "0x20 5x60", _EXEC: "0+10x20 200x60"}
_WAITING = {_QUEUE: "0+6000000x100", _DURATION: "0+10000000x100", _SUCCESS: "0+30x100"}
_VANISHED = {
    _SUCCESS: "0+60x480 28800x200",
    series(triton.REQUEST_SUCCESS, SERVER, model="rare", version="1"): "0+10x480 4800x200",
    series(triton.REQUEST_SUCCESS, SERVER, model="restarted", version="1"): "0+60x480 0+60x200",
}
# Version 1 serves ten requests a second in 10 ms each, version 2 two in 20 ms.
_SLOW_CANARY = {
    _SUCCESS: "0+150x120",
    _DURATION: "0+1500000x120",
    _SUCCESS_2: "0+30x120",
    _DURATION_2: "0+600000x120",
}
_BAD_CANARY = {
    _SUCCESS: "0+150x120",
    _failed("BACKEND"): "0x120",
    _SUCCESS_2: "0+27x120",
    _failed("BACKEND", "2"): "0+3x120",
}
_THRASHING = {_HITS: "0+1x300", _MISSES: "0+99x300", _UTIL: "0.99x300", _EVICTIONS: "0+5x300"}

QUEUES = (
    fires(
        "TritonModelStalled",
        "fires when requests wait and nothing is executed",
        _STALLED,
        "13m",
        Fires(VERSION, "5"),
        before="11m30s",
    ),
    quiet(
        "TritonModelStalled",
        "is quiet about a busy queue that moves",
        {_PENDING: "50x80", _EXEC: "0+1x80"},
        "15m",
    ),
    quiet("TritonModelStalled", "is quiet about an idle model", {_PENDING: "0x80", _EXEC: "200x80"}, "15m"),
    reset(
        "TritonModelStalled",
        "takes a restart for no stall",
        {_PENDING: "5x80", _EXEC: "900+10x20 0+10x60"},
        "8m",
    ),
    fires(
        "TritonQueueBacklog",
        "fires while a model hangs, though some requests are still answered",
        {_PENDING: "0x20 75+75x60", _SUCCESS: "0+75x20 1500+1x60"},
        "11m",
        Fires(VERSION, "7h 30m 0s"),
        before="5m45s",
    ),
    quiet(
        "TritonQueueBacklog",
        "is quiet about a long queue that is answered in time",
        {_PENDING: "2900x80", _SUCCESS: "0+1500x80"},
        "15m",
    ),
    quiet(
        "TritonQueueBacklog",
        "is quiet about a burst after a pause that is answered in time",
        {_PENDING: "0x40 200x80", _SUCCESS: "900x40 900+120x80"},
        "11m30s",
    ),
    quiet(
        "TritonQueueBacklog",
        "is quiet about a few requests that wait for a slow execution",
        {_PENDING: "10x80", _SUCCESS: "0+0.1x80"},
        "15m",
    ),
    reset(
        "TritonQueueBacklog",
        "counts what was answered before a restart",
        {_PENDING: "25x80", _SUCCESS: "9000+15x20 0+15x60"},
        "8m",
    ),
    fires(
        "TritonQueueDominates",
        "fires when requests wait longer than they compute",
        _WAITING,
        "14m",
        Fires(VERSION, "60%"),
        before="11m",
    ),
    boundary(
        "TritonQueueDominates", "is quiet at exactly one half", _WAITING | {_QUEUE: "0+5000000x100"}, "15m"
    ),
    quiet(
        "TritonQueueDominates",
        "is quiet about a batcher that waits for more requests as configured",
        _WAITING | {series(models.MAX_QUEUE_DELAY, VERSION): "0.2x100"},
        "15m",
    ),
    quiet(
        "TritonQueueDominates",
        "is quiet about a fast model whose requests wait two of their three milliseconds for a batch",
        {
            _QUEUE: "0+60000x100",
            _DURATION: "0+81000x100",
            _SUCCESS: "0+30x100",
            series(models.MAX_QUEUE_DELAY, VERSION): "0.002x100",
        },
        "15m",
    ),
    boundary(
        "TritonQueueDominates",
        "is quiet at exactly twice the delay: one for the batch, one behind the batch before",
        _WAITING | {series(models.MAX_QUEUE_DELAY, VERSION): "0.1x100"},
        "15m",
    ),
    fires(
        "TritonQueueDominates",
        "fires when requests wait longer than the delay of their batcher explains",
        _WAITING | {series(models.MAX_QUEUE_DELAY, VERSION): "0.09x100"},
        "14m",
        Fires(VERSION, "60%"),
    ),
    fires(
        "TritonQueueDominates",
        "takes another version's delay for no excuse",
        _WAITING | {series(models.MAX_QUEUE_DELAY, VERSION | {"version": "2"}): "0.5x100"},
        "14m",
        Fires(VERSION, "60%"),
    ),
    quiet(
        "TritonQueueDominates",
        "is quiet about a few milliseconds",
        {_QUEUE: "0+120000x100", _DURATION: "0+200000x100", _SUCCESS: "0+30x100"},
        "15m",
    ),
    quiet(
        "TritonQueueDominates",
        "is quiet at one request in five seconds",
        _WAITING | {_SUCCESS: "0+3x100"},
        "15m",
    ),
    reset(
        "TritonQueueDominates",
        "fires on after a reset of all counters",
        {
            _QUEUE: "0+6000000x40 0+6000000x60",
            _DURATION: "0+10000000x40 0+10000000x60",
            _SUCCESS: "0+30x40 0+30x60",
        },
        "18m",
        Fires(VERSION, "60%"),
    ),
    fires(
        "TritonRequestsRejected",
        "fires when requests outlast the queue's timeout",
        {_failed("REJECTED"): "0+3x100"},
        "7m",
        Fires(VERSION, "60"),
        before="5m",
    ),
    quiet("TritonRequestsRejected", "is quiet about other failures", {_failed("BACKEND"): "0+3x100"}, "12m"),
    reset(
        "TritonRequestsRejected",
        "takes a counter that begins again for no rejection",
        {_failed("REJECTED"): "90x40 0x60"},
        "15m",
    ),
    fires(
        "TritonClientCancellations",
        "fires when a quarter is cancelled",
        {_failed("CANCELED"): "0+30x120", _SUCCESS: "0+90x120"},
        "17m",
        Fires(VERSION, "1200"),
        before="14m",
    ),
    boundary(
        "TritonClientCancellations",
        "is quiet below a fifth",
        {_failed("CANCELED"): "0+15x120", _SUCCESS: "0+85x120"},
        "20m",
    ),
    quiet(
        "TritonClientCancellations",
        "is quiet about other failures",
        {_failed("BACKEND"): "0+30x120", _SUCCESS: "0+90x120"},
        "20m",
    ),
    reset(
        "TritonClientCancellations",
        "takes a restart for no cancellation",
        {_failed("CANCELED"): "300x60 0x60", _SUCCESS: "0+90x60 0+90x60"},
        "25m",
    ),
    fires(
        "TritonTrafficVanished",
        "fires when a busy model gets nothing any more, not for a rare one, not after a restart",
        _VANISHED,
        "2h22m",
        Fires(only(MODEL, "model")),
        before="2h18m",
    ),
    quiet("TritonTrafficVanished", "is quiet while requests come", {_SUCCESS: "0+60x60"}, "15m"),
    reset("TritonTrafficVanished", "takes a restart for no end", {_SUCCESS: "0+60x60 0+60x60"}, "30m"),
)

LIMITS = (
    fires(
        "TritonQueueNearFull",
        "fires at nine tenths of the limit",
        {_PENDING: "90x60", _LIMIT: "100x60"},
        "5m",
        Fires(_IDENTITY, "90%"),
        before="4m45s",
    ),
    boundary(
        "TritonQueueNearFull", "is quiet at exactly four fifths", {_PENDING: "80x60", _LIMIT: "100x60"}, "10m"
    ),
    quiet("TritonQueueNearFull", "is quiet where the queue has no limit", {_PENDING: "90x60"}, "10m"),
    fires(
        "TritonQueueFull",
        "fires when traces show refusals",
        {_REFUSED: "0+3x60"},
        "3m",
        Fires(VERSION, "36"),
        before="2m",
    ),
    quiet("TritonQueueFull", "is quiet about old refusals", {_REFUSED: "9x60"}, "10m"),
    reset("TritonQueueFull", "takes a restart for no refusal", {_REFUSED: "9x20 0x40"}, "12m"),
    fires(
        "TritonInstancesSaturated",
        "fires when two instances are busy nearly all the time",
        {_BUSY: "0+28.5x100", _INSTANCES: "2x100"},
        "22m",
        Fires(_IDENTITY, "95%"),
        before="15m",
    ),
    quiet(
        "TritonInstancesSaturated", "is quiet at half load", {_BUSY: "0+15x100", _INSTANCES: "2x100"}, "22m"
    ),
    reset(
        "TritonInstancesSaturated",
        "takes a restart for no load",
        {_BUSY: "900x40 0x60", _INSTANCES: "2x100"},
        "22m",
    ),
    fires(
        "TritonModelHeadroomLow",
        "fires when a fifth more traffic may break an objective",
        _LOW,
        "1h5m",
        Fires(_OBJECTIVE, "1.10"),
        before="59m",
    ),
    boundary("TritonModelHeadroomLow", "is quiet at the threshold", {_headroom("least"): "1.2x300"}, "1h5m"),
    quiet(
        "TritonModelHeadroomLow",
        "is quiet about a headroom that was low for the busiest half hour",
        {_headroom("least"): "1.5x60 1.1x120 1.5x200"},
        "1h30m",
    ),
    quiet(
        "TritonModelHeadroomLow",
        "is quiet where the least is not known",
        {_headroom("estimate"): "1.1x300"},
        "1h5m",
    ),
    reset(
        "TritonModelHeadroomLow",
        "outlives a restart of the command",
        {_headroom("least"): "1.1x245 _x40 1.1x300"},
        "1h15m",
        Fires(_OBJECTIVE, "1.10"),
    ),
)

QUALITY = (
    fires(
        "TritonProbeFailing",
        "fires when test requests fail, and says how",
        {_PROBED: "0x40", _probes("timeout"): "0+1x40", _probes("success"): "7x40"},
        "5m",
        Fires(VERSION, cause="timeout"),
    ),
    boundary("TritonProbeFailing", "is quiet before the three minutes are over", {_PROBED: "0x40"}, "2m45s"),
    quiet(
        "TritonProbeFailing",
        "is quiet when the probe itself is wrong",
        {_PROBED: "0x40", _probes("bad_input"): "0+1x40"},
        "9m",
    ),
    quiet(
        "TritonProbeFailing",
        "is quiet while probes work",
        {_PROBED: "1x40", _probes("success"): "0+1x40"},
        "9m",
    ),
    reset(
        "TritonProbeFailing",
        "is quiet after a restart of the exporter",
        {_PROBED: "1x40", _probes("success"): "9+1x20 0+1x20"},
        "9m",
    ),
    fires(
        "TritonEnsembleStepFailing",
        "fires for the step, and names the ensemble",
        {
            _STEP: "1x60",
            _failed("BACKEND"): "0+3x60",
            series(triton.REQUEST_FAILURE, _PIPELINE, reason="OTHER"): "0+6x60",
        },
        "7m",
        Fires({"instance": SERVER["instance"], "model": "pipeline", "step": "ranker"}),
        before="5m",
    ),
    quiet(
        "TritonEnsembleStepFailing",
        "is quiet where only requests fail that clients send to the step itself",
        {
            _STEP: "1x60",
            _failed("BACKEND"): "0+3x60",
            series(triton.REQUEST_FAILURE, _PIPELINE, reason="OTHER"): "6x60",
        },
        "12m",
    ),
    quiet(
        "TritonEnsembleStepFailing",
        "is quiet about a model that is in no ensemble",
        {_failed("BACKEND"): "0+3x60"},
        "12m",
    ),
    reset(
        "TritonEnsembleStepFailing",
        "takes a restart for no failure",
        {_STEP: "1x60", _failed("BACKEND"): "9x20 0x40"},
        "12m",
    ),
    fires(
        "TritonCanarySlower",
        "fires for the version that takes twice as long",
        _SLOW_CANARY,
        "20m",
        Fires(_VERSION_2, "20ms"),
        before="15m",
    ),
    quiet(
        "TritonCanarySlower",
        "is quiet about a fifth more",
        _SLOW_CANARY | {_DURATION_2: "0+360000x120"},
        "25m",
    ),
    quiet(
        "TritonCanarySlower",
        "is quiet while the version has hardly any requests",
        _SLOW_CANARY | {_SUCCESS_2: "0+3x120", _DURATION_2: "0+60000x120"},
        "25m",
    ),
    reset(
        "TritonCanarySlower",
        "is quiet when a version's counters begin again",
        {
            _SUCCESS: "0+150x120",
            _DURATION: "0+1500000x120",
            _SUCCESS_2: "9000+30x60 0+30x60",
            _DURATION_2: "99999999+300000x60 0+300000x60",
        },
        "25m",
    ),
    fires(
        "TritonCanaryFailing",
        "fires for the version that fails a tenth",
        _BAD_CANARY,
        "10m",
        Fires(_VERSION_2, "10%"),
        before="5m",
    ),
    quiet(
        "TritonCanaryFailing",
        "is quiet when both versions fail alike",
        _BAD_CANARY | {_SUCCESS: "0+135x120", _failed("BACKEND"): "0+15x120"},
        "20m",
    ),
    reset(
        "TritonCanaryFailing",
        "takes failure counters that outlive a reload for no failures",
        _BAD_CANARY | {_SUCCESS_2: "0+30x60 0+30x60", _failed("BACKEND", "2"): "50x120"},
        "25m",
    ),
    fires(
        "TritonCacheThrashing",
        "fires when a full cache hardly ever hits",
        _THRASHING,
        "50m",
        Fires(only(SERVER, "instance"), "1%"),
        before="30m",
    ),
    quiet(
        "TritonCacheThrashing",
        "is quiet about a full cache that hits",
        _THRASHING | {_HITS: "0+50x300"},
        "50m",
    ),
    reset(
        "TritonCacheThrashing",
        "is quiet when a restart emptied the cache",
        _THRASHING | {_UTIL: "0.99x20 0.1x280", _EVICTIONS: "9000x20 0x280"},
        "50m",
    ),
    fires(
        "TritonCountersOff",
        "fires when the histogram moves and counters do not",
        {_OBSERVED: "0+15x100", _SUCCESS: "0x100"},
        "12m",
        Fires(VERSION),
        before="10m",
    ),
    quiet(
        "TritonCountersOff", "is quiet while both move", {_OBSERVED: "0+15x100", _SUCCESS: "0+15x100"}, "15m"
    ),
    reset(
        "TritonCountersOff",
        "is quiet after a restart",
        {_OBSERVED: "0+15x40 0+15x60", _SUCCESS: "0+15x40 0+15x60"},
        "20m",
    ),
    quiet(
        "TritonCountersOff",
        "is quiet about a model that is loaded for one request at a time",
        {_OBSERVED: " ".join(f"{load}x7" for load in range(12)), _SUCCESS: " ".join(["1x1 stale _x5"] * 12)},
        "20m",
    ),
    fires(
        "TritonPinnedMemoryExhausted",
        "fires at 97 percent",
        {_POOL_USED: "97x100", _POOL_ALL: "100x100"},
        "15m",
        Fires(SERVER, "97%"),
        before="14m45s",
    ),
    boundary(
        "TritonPinnedMemoryExhausted",
        "is quiet at exactly 95 percent",
        {_POOL_USED: "95x100", _POOL_ALL: "100x100"},
        "20m",
    ),
    quiet(
        "TritonPinnedMemoryExhausted",
        "is quiet where no pool is configured",
        {_POOL_USED: "0x100", _POOL_ALL: "0x100"},
        "20m",
    ),
)

PROOFS = (*QUEUES, *LIMITS, *QUALITY)

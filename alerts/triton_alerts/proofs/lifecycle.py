"""Proofs of the lifecycle family."""

from __future__ import annotations

from triton_alerts.proof import Fires, Proof
from triton_exporter.catalogue import EXPORTER_JOB, Metric, state

_SERVER = {"instance": "gpu-1:9095", "job": EXPORTER_JOB}


def _series(metric: Metric, **labels: str) -> str:
    inner = ",".join(f'{name}="{value}"' for name, value in (_SERVER | labels).items())
    return f"{metric}{{{inner}}}"


def _failures(model: str, reason: str = "python_error") -> str:
    return _series(state.MODEL_LOAD_FAILURES, model=model, reason=reason)


_LOAD_FAILED = Fires(
    labels={**_SERVER, "model": "ranker"},
    summary="Model ranker failed to load on gpu-1:9095",
    description="Triton tried to load model ranker on gpu-1:9095 within the last 15m and could not. A "
    "version that was serving before may still serve; a version that never loaded does not.",
    cause="python_error",
)
_UNAVAILABLE = _series(state.MODEL_STATE, model="ranker", version="1", state="unavailable")
_NOT_READY_SINCE = _series(state.MODEL_NOT_READY_SINCE, model="ranker", version="1")


def _not_ready(duration: str, cause: str = "") -> Fires:
    return Fires(
        labels={**_SERVER, "model": "ranker", "version": "1"},
        summary=f"Model ranker version 1 has not been ready for {duration} on gpu-1:9095",
        description=f"Model ranker version 1 should serve on gpu-1:9095 and has not been ready for "
        f"{duration}. Requests for it fail there.",
        cause=cause,
    )


_LIVE = _series(state.SERVER_LIVE)
_UP = _series(state.UP)
_DOWN = Fires(
    labels=_SERVER,
    summary="Triton behind gpu-1:9095 is down",
    description="Neither the API nor the metrics port of the Triton server behind gpu-1:9095 answers. It "
    "serves no model: the process is gone, or it is still loading models at start-up.",
)
_NOT_LIVE = Fires(
    labels=_SERVER,
    summary="Triton behind gpu-1:9095 exposes metrics but does not serve",
    description="The metrics port of the Triton server behind gpu-1:9095 answers while its API is not live: "
    "it is draining, stuck in shutdown, or its API port is closed to the exporter.",
)

PROOFS = (
    Proof(
        "TritonModelLoadFailed",
        "fires at the first failed attempt, with the class of its reason",
        {_failures("ranker"): "0x7 1x60", _failures("ranker", "other"): "0x67", _failures("fine"): "0x67"},
        "2m15s",
        (_LOAD_FAILED,),
    ),
    Proof(
        "TritonModelLoadFailed",
        "fires for a failure older than the exporter, whose counter was born at 1",
        {_failures("ranker"): "1x200", _UNAVAILABLE: "1x200"},
        "30m",
        (_LOAD_FAILED,),
    ),
    Proof(
        "TritonModelLoadFailed",
        "is quiet while every load works",
        {_failures("ranker"): "0x60", _UNAVAILABLE: "0x60"},
        "10m",
    ),
    Proof("TritonModelLoadFailed", "is quiet without series", {}, "10m"),
    Proof(
        "TritonModelLoadFailed",
        "takes an exporter's restart for no failure",
        {_failures("ranker"): "5x20 0x60"},
        "10m",
    ),
    Proof(
        "TritonModelLoadFailed",
        "still fires at the end of its window",
        {_failures("ranker"): "0x4 1x200"},
        "15m",
        (_LOAD_FAILED,),
    ),
    Proof(
        "TritonModelLoadFailed",
        "ends when the window and the grace after it have passed",
        {_failures("ranker"): "0x4 1x200"},
        "25m",
    ),
    Proof(
        "TritonModelNotReadyProlonged",
        "fires once the episode is longer than ten minutes",
        {_NOT_READY_SINCE: "60x100", _failures("ranker", "out_of_memory"): "2x100"},
        "11m15s",
        (_not_ready("10m 15s", "out_of_memory"),),
    ),
    Proof(
        "TritonModelNotReadyProlonged",
        "is quiet at exactly ten minutes",
        {_NOT_READY_SINCE: "60x100"},
        "11m",
    ),
    Proof(
        "TritonModelNotReadyProlonged",
        "fires in one episode while Triton retries the load every 15 s",
        {_NOT_READY_SINCE: "0x100", _UNAVAILABLE: "1 0 " * 50},
        "20m",
        (_not_ready("20m 0s"),),
    ),
    Proof("TritonModelNotReadyProlonged", "is quiet without series: every model is ready", {}, "30m"),
    Proof(
        "TritonModelNotReadyProlonged",
        "ends after the model became ready and its series went away",
        {_NOT_READY_SINCE: "0x60 _x100"},
        "26m",
    ),
    Proof(
        "TritonModelNotReadyProlonged",
        "starts again from zero with a new episode",
        {_NOT_READY_SINCE: "0x20 _x80 1500x60"},
        "30m",
    ),
    Proof(
        "TritonServerDown",
        "fires after a minute with both ports closed",
        {_LIVE: "1x3 0x20", _UP: "1x3 0x20"},
        "2m",
        (_DOWN,),
    ),
    Proof(
        "TritonServerDown",
        "is quiet before the minute is over",
        {_LIVE: "1x3 0x20", _UP: "1x3 0x20"},
        "1m45s",
    ),
    Proof("TritonServerDown", "is quiet while the server serves", {_LIVE: "1x20", _UP: "1x20"}, "4m"),
    Proof(
        "TritonServerDown",
        "leaves a draining server to TritonServerNotLive",
        {_LIVE: "0x20", _UP: "1x20"},
        "4m",
    ),
    Proof("TritonServerDown", "is quiet without series: that is TritonExporterDown's to tell", {}, "4m"),
    Proof(
        "TritonServerNotLive",
        "fires when only the metrics port answers for two minutes",
        {_LIVE: "0x20", _UP: "1x20"},
        "2m",
        (_NOT_LIVE,),
    ),
    Proof(
        "TritonServerNotLive",
        "is quiet before the two minutes are over",
        {_LIVE: "0x20", _UP: "1x20"},
        "1m45s",
    ),
    Proof("TritonServerNotLive", "is quiet while the server serves", {_LIVE: "1x20", _UP: "1x20"}, "4m"),
    Proof(
        "TritonServerNotLive", "leaves a dead server to TritonServerDown", {_LIVE: "0x20", _UP: "0x20"}, "4m"
    ),
    Proof("TritonServerNotLive", "is quiet without series", {}, "4m"),
)

"""Define the proofs of the lifecycle family."""

from __future__ import annotations

from alerts.proofs.proof import Fires, boundary, fires, quiet, reset
from alerts.proofs.proof_series import MODEL, SERVER, VERSION, only, series
from triton_exporter.catalogue import models, processes, state, triton
from triton_exporter.catalogue.external import stack
from triton_slo import names

_UNAVAILABLE = series(state.MODEL_STATE, VERSION, state="unavailable")
_LOADING = series(state.MODEL_STATE, VERSION, state="loading")
_UNLOADED = series(state.MODEL_STATE, VERSION, state="unloaded")
_MISSING = series(state.MODEL_STATE, MODEL, state="missing")
_SINCE = series(state.MODEL_NOT_READY_SINCE, VERSION)
_READY = series(state.MODEL_READY, VERSION)
_RESTARTED = {_SINCE: "0x19 stale _x3 360x100", _READY: "0x19 stale _x3 0x100"}
"""An exporter that is away from 5:00 to 6:00, and dates the episode from its start."""
_EXPECTED = series(state.MODEL_EXPECTED, MODEL)
_COPY = series(names.MODEL_EXPECTED_COPY, only(MODEL, "instance", "model"))
_LIVE = series(state.SERVER_LIVE)
_UP = series(state.UP)
_SERVER_READY = series(state.SERVER_READY)
_OTHER = {series(state.SERVER_LIVE, SERVER, instance="gpu-2:9095"): "1x100"}
"""Another server of the job, which is up."""
_SERVED_ELSEWHERE = {
    **_OTHER,
    series(state.MODEL_EXPECTED, MODEL, instance="gpu-2:9095"): "1x40",
    series(state.MODEL_READY, VERSION, instance="gpu-2:9095"): "1x40",
}
_SUCCESS = series(triton.REQUEST_SUCCESS, VERSION)
_ELSEWHERE = {"instance": "gpu-2:9095"}


def _failures(reason: str = "python_error") -> str:
    return series(state.MODEL_LOAD_FAILURES, MODEL, reason=reason)


def _replicas(ready: int, expected: int = 4) -> dict[str, str]:
    """`ranker` on this many servers, of which the first ones are ready."""
    return {
        series(metric, VERSION, instance=f"gpu-{place}:9095"): f"{int(place < count)}x100"
        for metric, count in ((state.MODEL_READY, ready), (state.MODEL_EXPECTED, expected))
        for place in range(expected)
    }


REPLICAS = (
    fires(
        "TritonModelReplicasLow",
        "fires when half of the servers have lost a model",
        _replicas(2),
        "5m",
        Fires(only(MODEL, "model"), "50%"),
        before="4m45s",
    ),
    quiet("TritonModelReplicasLow", "is quiet when one of four is not ready", _replicas(3), "15m"),
    quiet("TritonModelReplicasLow", "is quiet where one server is expected", _replicas(1, 1), "15m"),
    quiet("TritonModelReplicasLow", "leaves a model that nobody serves to the page", _replicas(0), "15m"),
)

_SECOND = series(state.MODEL_STATE, VERSION, version="2", state="unavailable")
_SECOND_READY = series(state.MODEL_READY, VERSION, version="2")
_BOTH = {_READY: "1x100", _SECOND_READY: "1x19 0x80", _SECOND: "0x19 1x80"}
"""Version 2 is lost after five minutes, version 1 serves on."""

VERSIONS = (
    fires(
        "TritonModelVersionLost",
        "fires when one of two versions is unavailable everywhere",
        _BOTH,
        "6m30s",
        Fires({**only(MODEL, "model"), "version": "2"}),
        before="5m45s",
    ),
    quiet(
        "TritonModelVersionLost",
        "is quiet while another server has the version ready",
        {**_BOTH, series(state.MODEL_READY, VERSION, **_ELSEWHERE, version="2"): "1x100"},
        "15m",
    ),
    quiet(
        "TritonModelVersionLost",
        "is quiet when the version was unloaded on purpose",
        {
            _READY: "1x100",
            _SECOND_READY: "1x19 0x80",
            series(state.MODEL_STATE, VERSION, version="2", state="unloaded"): "0x19 1x80",
        },
        "15m",
    ),
    quiet(
        "TritonModelVersionLost",
        "leaves a model that nobody serves to the page",
        {**_BOTH, _READY: "1x19 0x80"},
        "15m",
    ),
    reset(
        "TritonModelVersionLost",
        "is quiet when the version is ready again within a minute",
        {**_BOTH, _SECOND_READY: "1x19 0x2 1x80", _SECOND: "0x19 1x2 0x80"},
        "15m",
    ),
)

MODELS = (
    fires(
        "TritonModelLoadFailed",
        "fires at the first failed attempt, with the class of its reason",
        {_failures(): "0x7 1x60", _failures("other"): "0x67"},
        "2m30s",
        Fires(MODEL, cause="python_error"),
    ),
    fires(
        "TritonModelLoadFailed",
        "fires for a failure older than the exporter, whose counter was born at 1",
        {_failures(): "1x200", _UNAVAILABLE: "1x200"},
        "30m",
        Fires(MODEL, cause="python_error"),
    ),
    fires(
        "TritonModelLoadFailed",
        "names every class of reason that was seen",
        {_failures(): "0x7 1x60", _failures("out_of_memory"): "0x7 2x60"},
        "2m30s",
        Fires(MODEL, cause="out_of_memory, python_error"),
    ),
    quiet(
        "TritonModelLoadFailed",
        "is quiet while every load works",
        {_failures(): "0x60", _UNAVAILABLE: "0x60"},
        "10m",
    ),
    quiet(
        "TritonModelLoadFailed",
        "is quiet about a model unloaded on purpose",
        {_failures(): "0x60", _UNLOADED: "1x60", _UNAVAILABLE: "0x60"},
        "10m",
    ),
    reset(
        "TritonModelLoadFailed",
        "takes an exporter's restart for no failure",
        {_failures(): "5x20 0x60"},
        "10m",
    ),
    boundary(
        "TritonModelLoadFailed",
        "still fires at the end of its window",
        {_failures(): "0x4 1x200"},
        "15m",
        Fires(MODEL, cause="python_error"),
    ),
    boundary(
        "TritonModelLoadFailed",
        "ends when the window and the grace after it have passed",
        {_failures(): "0x4 1x200"},
        "25m",
    ),
    fires(
        "TritonModelNotReadyProlonged",
        "fires once the episode is longer than ten minutes",
        {_SINCE: "60x100", _failures("out_of_memory"): "2x100"},
        "11m15s",
        Fires(VERSION, "10m 15s", "out_of_memory"),
    ),
    fires(
        "TritonModelNotReadyProlonged",
        "names no version where Triton lists none",
        {series(state.MODEL_NOT_READY_SINCE, MODEL, version=""): "0x100"},
        "20m",
        Fires(MODEL, "20m 0s"),
    ),
    boundary("TritonModelNotReadyProlonged", "is quiet at exactly ten minutes", {_SINCE: "60x100"}, "11m"),
    fires(
        "TritonModelNotReadyProlonged",
        "fires in one episode while Triton retries the load every 15 s",
        {_SINCE: "0x100", _UNAVAILABLE: "1 0 " * 50, _LOADING: "0 1 " * 50},
        "20m",
        Fires(VERSION, "20m 0s"),
    ),
    quiet(
        "TritonModelNotReadyProlonged",
        "ends after the model became ready and its series went away",
        {_SINCE: "0x60 _x100"},
        "22m30s",
    ),
    fires(
        "TritonModelNotReadyProlonged",
        "is not delayed by a restart of the exporter",
        _RESTARTED,
        "10m15s",
        Fires(VERSION, "10m 15s"),
    ),
    fires(
        "TritonModelNotReadyProlonged",
        "counts from the restarted exporter's own date once that is ten minutes old",
        _RESTARTED,
        "16m15s",
        Fires(VERSION, "10m 15s"),
    ),
    boundary(
        "TritonModelNotReadyProlonged",
        "does not count from an episode that has ended",
        {_SINCE: "0x8 _x12 300x60", _READY: "0x8 1x11 0x60"},
        "14m45s",
    ),
    reset(
        "TritonModelNotReadyProlonged",
        "starts again from zero with a new episode",
        {_SINCE: "0x20 _x80 1500x60"},
        "30m",
    ),
    fires(
        "TritonModelDownEverywhere",
        "fires when the only server that had the model lost it",
        {_EXPECTED: "1x100", _LIVE: "1x100", _READY: "1x8 0x92"},
        "2m45s",
        Fires(only(MODEL, "model")),
        before="2m30s",
    ),
    quiet(
        "TritonModelDownEverywhere",
        "is quiet while another server serves the model",
        {
            _EXPECTED: "1x100",
            _LIVE: "1x100",
            _READY: "1x8 0x92",
            series(state.MODEL_READY, VERSION, **_ELSEWHERE): "1x100",
        },
        "10m",
    ),
    quiet(
        "TritonModelDownEverywhere",
        "is quiet where the exporter of a server that had the model does not answer",
        {
            _EXPECTED: "1x100",
            _LIVE: "1x100",
            _READY: "1x8 0x92",
            series(state.MODEL_READY, VERSION, **_ELSEWHERE): "1x4 stale",
            series(stack.UP, SERVER, **_ELSEWHERE): "1x4 0x96",
        },
        "10m",
    ),
    quiet(
        "TritonModelDownEverywhere",
        "leaves a server that is down to TritonMostServersDown",
        {_EXPECTED: "1x100", _LIVE: "1x8 0x92", _READY: "1x8 0x92"},
        "10m",
    ),
    fires(
        "TritonModelDownEverywhere",
        "does not end when the last server that lacked the model dies",
        {_EXPECTED: "1x100", _LIVE: "1x24 0x76", _READY: "1x8 0x92"},
        "15m",
        Fires(only(MODEL, "model")),
    ),
    fires(
        "TritonModelDownEverywhere",
        "fires for a model that has not become ready on any server for ten minutes, and says why",
        {_EXPECTED: "1x100", _LIVE: "1x100", _READY: "0x100", _SINCE: "60x100", _failures(): "0 1x100"},
        "11m15s",
        Fires(only(MODEL, "model"), cause="python_error"),
    ),
    fires(
        "TritonModelDownEverywhere",
        "is not delayed by a restart of the exporter",
        {_EXPECTED: "1x19 stale _x3 1x100", _LIVE: "1x19 stale _x3 1x100", **_RESTARTED},
        "10m15s",
        Fires(only(MODEL, "model")),
    ),
    boundary(
        "TritonModelDownEverywhere",
        "is quiet while a first load is under ten minutes old",
        {_EXPECTED: "1x100", _LIVE: "1x100", _READY: "0x100", _SINCE: "60x100"},
        "10m45s",
    ),
    quiet(
        "TritonModelDownEverywhere",
        "is quiet about one replica that does not become ready",
        {
            _EXPECTED: "1x100",
            _LIVE: "1x100",
            _READY: "0x100",
            _SINCE: "60x100",
            series(state.MODEL_READY, VERSION, **_ELSEWHERE): "1x100",
        },
        "20m",
    ),
    quiet(
        "TritonModelDownEverywhere",
        "is quiet about a model that was unloaded on purpose",
        {_EXPECTED: "1x8 0x92", _LIVE: "1x100", _READY: "1x8 0x92"},
        "10m",
    ),
    fires(
        "TritonModelDownEverywhere",
        "takes a server of another cluster for no replica",
        {
            series(state.MODEL_EXPECTED, MODEL, cluster="eu"): "1x100",
            series(state.SERVER_LIVE, cluster="eu"): "1x100",
            series(state.MODEL_READY, VERSION, cluster="eu"): "1x8 0x92",
            series(state.MODEL_READY, VERSION, cluster="us"): "1x100",
        },
        "4m15s",
        Fires({"model": "ranker", "cluster": "eu"}),
    ),
    fires(
        "TritonExpectedModelMissing",
        "fires for a model that Triton lists by its name alone, or not at all",
        {_MISSING: "1x60"},
        "5m",
        Fires(MODEL),
        before="4m45s",
    ),
    quiet(
        "TritonExpectedModelMissing", "is quiet once Triton knows the model", {_MISSING: "1x8 0x60"}, "12m"
    ),
    fires(
        "TritonModelStuckLoading",
        "fires after half an hour in one load",
        {_LOADING: "1x140"},
        "30m",
        Fires(VERSION),
        before="29m45s",
    ),
    quiet("TritonModelStuckLoading", "takes retries for no long load", {_LOADING: "1 1 1 0 " * 60}, "50m"),
    fires(
        "TritonModelFlapping",
        "fires at the fifth change within half an hour",
        {_READY: "1 0 1 0 1 0x100"},
        "10m",
        Fires(VERSION, "5"),
    ),
    boundary("TritonModelFlapping", "is quiet at four changes", {_READY: "1 0 1 0 1 1x100"}, "10m"),
    quiet(
        "TritonModelFlapping",
        "is quiet when one restart shows as two changes",
        {_READY: "1x20 0x8 1x80"},
        "15m",
    ),
    fires(
        "TritonModelUnloadedInUse",
        "fires when a model that answered requests was unloaded",
        {_UNLOADED: "0x20 1x60", _SUCCESS: "0+10x20 stale", _READY: "1x20 0x60"},
        "7m30s",
        Fires(MODEL),
        before="7m",
    ),
    quiet(
        "TritonModelUnloadedInUse",
        "is quiet about a superseded version",
        {
            _UNLOADED: "0x20 1x60",
            _SUCCESS: "0+10x20 stale",
            _READY: "1x20 0x60",
            series(state.MODEL_READY, MODEL, version="2"): "1x80",
        },
        "10m",
    ),
    quiet(
        "TritonModelUnloadedInUse",
        "is quiet about a model nobody asked",
        {_UNLOADED: "0x20 1x60", _SUCCESS: "40x20 stale", _READY: "1x20 0x60"},
        "10m",
    ),
    reset(
        "TritonModelUnloadedInUse",
        "takes a reload for no unload",
        {_UNLOADED: "0x20 1 0x60", _SUCCESS: "0+10x20 0+10x60", _READY: "1x20 0 1x60"},
        "10m",
    ),
    fires(
        "TritonModelVersionSkew",
        "fires for both versions when two servers have not agreed for two hours",
        {_READY: "1x500", series(state.MODEL_READY, MODEL, version="2", **_ELSEWHERE): "1x500"},
        "2h",
        Fires(only(VERSION, "model", "version"), "1"),
        Fires({"model": "ranker", "version": "2"}, "1"),
        before="1h59m",
    ),
    quiet(
        "TritonModelVersionSkew",
        "is quiet when all servers serve the same versions",
        {_READY: "1x500", series(state.MODEL_READY, VERSION, **_ELSEWHERE): "1x500"},
        "2h5m",
    ),
)

SERVERS = (
    fires(
        "TritonModelLostServer",
        "fires for a model whose server is down, and that is ready on the other",
        {_COPY: "1x40", _LIVE: "1x3 0x37", _READY: "1x3 0x37", **_SERVED_ELSEWHERE},
        "3m",
        Fires(only(MODEL, "model")),
    ),
    fires(
        "TritonModelLostServer",
        "fires on when the server is back and its exporter is gone",
        {_COPY: "1x19 stale", _LIVE: "1x3 0x8 1x8 stale", _READY: "1x3 0x8 1x8 stale"},
        "12m",
        Fires(only(MODEL, "model")),
    ),
    fires(
        "TritonModelLostServer",
        "fires for seven hours after that, as long as its readiness tickets look back",
        {_COPY: "1x1700", _LIVE: "1x3 0x8 1x1700", _READY: "1x3 0x8 1x1700"},
        "6h50m",
        Fires(only(MODEL, "model")),
    ),
    quiet(
        "TritonModelLostServer",
        "is quiet about a model that is not ready on a live server, too",
        {
            _COPY: "1x40",
            _LIVE: "1x3 0x37",
            _READY: "1x3 0x37",
            **_SERVED_ELSEWHERE,
            series(state.MODEL_NOT_READY_SINCE, VERSION, **_ELSEWHERE): "60x40",
        },
        "5m",
    ),
    boundary(
        "TritonModelLostServer",
        "is quiet after these hours",
        {_COPY: "1x1700", _LIVE: "1x3 0x8 1x1700", _READY: "1x3 0x8 1x1700"},
        "7h6m",
    ),
    fires(
        "TritonAllServersDown",
        "fires when no server has come up within twenty minutes",
        {_LIVE: "0x100"},
        "20m",
        Fires(only(SERVER, "job")),
        before="19m45s",
    ),
    fires(
        "TritonAllServersDown",
        "fires when the last live server is gone for half a minute",
        {_LIVE: "1x3 0x20", series(state.SERVER_LIVE, SERVER, **_ELSEWHERE): "1x1 0x22"},
        "1m30s",
        Fires(only(SERVER, "job")),
    ),
    boundary("TritonAllServersDown", "is quiet before half a minute is over", {_LIVE: "1x3 0x20"}, "1m15s"),
    quiet(
        "TritonAllServersDown",
        "is quiet while one server lives",
        {_LIVE: "1x3 0x20", series(state.SERVER_LIVE, SERVER, **_ELSEWHERE): "1x23"},
        "5m",
    ),
    fires(
        "TritonMostServersDown",
        "fires when the only server of a model is down for half a minute, though others live",
        {_EXPECTED: "1x40", _LIVE: "1x3 0x37", _READY: "1x3 0x37", **_OTHER},
        "1m30s",
        Fires(SERVER, "1"),
        before="1m15s",
    ),
    fires(
        "TritonMostServersDown",
        "fires when one of three servers is left",
        {**_replicas(1, 3), _LIVE: "1x3 0x97", **_OTHER},
        "2m",
        Fires(SERVER, "1"),
    ),
    quiet(
        "TritonMostServersDown",
        "is quiet when two of three are left",
        {**_replicas(2, 3), _LIVE: "1x3 0x97", **_OTHER},
        "8m",
    ),
    fires(
        "TritonMostServersDown",
        "fires when it has not come up within twenty minutes",
        {_EXPECTED: "1x100", _LIVE: "0x100", _READY: "0x100", **_OTHER},
        "20m",
        Fires(SERVER, "1"),
    ),
    quiet(
        "TritonMostServersDown",
        "is quiet while another server serves its models",
        {_EXPECTED: "1x40", _LIVE: "1x3 0x37", _READY: "1x3 0x37", **_SERVED_ELSEWHERE},
        "8m",
    ),
    quiet(
        "TritonMostServersDown",
        "is quiet about a model that is not ready on the other server either",
        {
            _EXPECTED: "1x40",
            _LIVE: "1x3 0x37",
            _READY: "0x40",
            **_SERVED_ELSEWHERE,
            series(state.MODEL_READY, VERSION, **_ELSEWHERE): "0x40",
            series(state.MODEL_NOT_READY_SINCE, VERSION, **_ELSEWHERE): "60x40",
        },
        "8m",
    ),
    quiet(
        "TritonMostServersDown",
        "is quiet about models that nobody expects",
        {_EXPECTED: "0x40", _LIVE: "1x3 0x37", _READY: "1x3 0x37", **_OTHER},
        "8m",
    ),
    fires(
        "TritonServerDown",
        "fires after a minute with both ports closed",
        {_LIVE: "1x3 0x20", _UP: "1x3 0x20"},
        "2m",
        Fires(SERVER),
        before="1m45s",
    ),
    quiet("TritonServerDown", "is quiet while the server serves", {_LIVE: "1x20", _UP: "1x20"}, "4m"),
    quiet(
        "TritonServerDown",
        "leaves a draining server to TritonServerNotLive",
        {_LIVE: "1 0x20", _UP: "1x20"},
        "4m",
    ),
    quiet(
        "TritonServerDown",
        "leaves a server that never came up to TritonServerNotStarting",
        {_LIVE: "0x20", _UP: "0x20"},
        "4m",
    ),
    quiet(
        "TritonServerNotStarting",
        "is quiet while the metrics port answers",
        {_LIVE: "0x100", _UP: "1x100"},
        "24m",
    ),
    fires(
        "TritonServerNotStarting",
        "fires after twenty minutes without one answer",
        {_LIVE: "0x100", _UP: "0x100"},
        "20m",
        Fires(SERVER),
        before="19m45s",
    ),
    quiet(
        "TritonServerNotStarting",
        "leaves a server that served before to TritonServerDown",
        {_LIVE: "1 0x100", _UP: "1 0x100"},
        "24m",
    ),
    fires(
        "TritonServerNotLive",
        "fires when only the metrics port answers for two minutes",
        {_LIVE: "0x20", _UP: "1x20"},
        "2m",
        Fires(SERVER),
        before="1m45s",
    ),
    quiet("TritonServerNotLive", "is quiet while the server serves", {_LIVE: "1x20", _UP: "1x20"}, "4m"),
    quiet(
        "TritonServerNotLive", "leaves a dead server to TritonServerDown", {_LIVE: "0x20", _UP: "0x20"}, "4m"
    ),
    fires(
        "TritonServerRestarting",
        "fires at the fifth change within half an hour",
        {_LIVE: "1 0 1 0 1 0x100"},
        "10m",
        Fires(SERVER, "5"),
    ),
    boundary(
        "TritonServerRestarting", "is quiet at four changes: two restarts", {_LIVE: "1 0 1 0 1x100"}, "10m"
    ),
    quiet("TritonServerRestarting", "is quiet while the server stays up", {_LIVE: "1x100"}, "20m"),
    fires(
        "TritonServerNotReady",
        "fires after ten minutes alive and not ready",
        {_LIVE: "1x60", _SERVER_READY: "0x60"},
        "10m",
        Fires(SERVER),
        before="9m45s",
    ),
    quiet(
        "TritonServerNotReady",
        "leaves a dead server to TritonServerDown",
        {_LIVE: "0x60", _SERVER_READY: "0x60"},
        "14m",
    ),
    fires(
        "TritonMetricsUnreachable",
        "fires when only the API answers for five minutes",
        {_LIVE: "1x60", _UP: "0x60"},
        "5m",
        Fires(SERVER),
        before="4m45s",
    ),
    quiet(
        "TritonMetricsUnreachable",
        "leaves a dead server to TritonServerDown",
        {_LIVE: "0x60", _UP: "0x60"},
        "10m",
    ),
)

_INSTANCES = series(models.INSTANCES, VERSION, kind="gpu", gpu="0")
_RUNNING = series(processes.MODEL_PROCESSES, VERSION)
_DEATHS = series(processes.MODEL_PROCESS_DEATHS, VERSION)
_GROWTH = series(processes.RELOAD_GROWTH, MODEL, part="shm")
_GROWTH_OF_SERVER = series(processes.RELOAD_GROWTH, MODEL, part="server")
_SHM, _SHM_USED = series(processes.SHM_SIZE), series(processes.SHM_USED)
_DEAD = {_INSTANCES: "2x200", _RUNNING: "2x19 1x180", _DEATHS: "0x19 1x180"}

PROCESSES = (
    fires(
        "TritonModelProcessDied",
        "fires while a process is missing",
        _DEAD,
        "40m",
        Fires(VERSION),
        before="5m45s",
    ),
    fires(
        "TritonModelProcessDied",
        "fires when Triton has started it again",
        {**_DEAD, _RUNNING: "2x200"},
        "7m",
        Fires(VERSION),
    ),
    fires(
        "TritonModelProcessDied",
        "fires when it died before the exporter came",
        {**_DEAD, _RUNNING: "1x200", _DEATHS: "0x200"},
        "7m",
        Fires(VERSION),
    ),
    quiet(
        "TritonModelProcessDied",
        "is quiet while processes of an earlier load remain",
        {_INSTANCES: "2x200", _RUNNING: "3x200", _DEATHS: "0x200"},
        "20m",
    ),
    quiet("TritonModelProcessDied", "is quiet where processes are not visible", {_INSTANCES: "2x200"}, "20m"),
    reset(
        "TritonModelProcessDied",
        "is quiet when the exporter starts again",
        {_INSTANCES: "2x200", _RUNNING: "2x200", _DEATHS: "3x19 0x180"},
        "10m",
    ),
    fires(
        "TritonModelReloadLeaks",
        "fires after three reloads that each left something",
        {_GROWTH: "_x20 31000000x120 30000000x120 32000000x200"},
        "70m",
        Fires({**MODEL, "part": "shm"}, "28.61Mi"),
    ),
    fires(
        "TritonModelReloadLeaks",
        "fires for the same region at each of three reloads",
        {_GROWTH: "_x20 30000000x440", _GROWTH_OF_SERVER: "_x20 4096x120 8192x120 4096x200"},
        "70m",
        Fires({**MODEL, "part": "shm"}, "28.61Mi"),
    ),
    quiet(
        "TritonModelReloadLeaks",
        "is quiet after two reloads",
        {_GROWTH: "_x20 31000000x120 30000000x300"},
        "90m",
    ),
    quiet(
        "TritonModelReloadLeaks",
        "is quiet when one of the reloads gave memory back",
        {_GROWTH: "31000000x120 -9000000x120 30000000x120 32000000x100"},
        "110m",
    ),
    boundary(
        "TritonModelReloadLeaks",
        "is quiet at exactly 20 MB",
        {_GROWTH: "20000000x120 21000000x120 22000000x200"},
        "90m",
    ),
    fires(
        "TritonShmNearFull",
        "fires when /dev/shm fills within four hours",
        {_SHM: "8e9x400", _SHM_USED: "4500000000+5000000x400"},
        "90m",
        Fires(SERVER, "1h 25m 0s"),
    ),
    boundary(
        "TritonShmNearFull",
        "is quiet until half of it is used, and for 15 minutes",
        {_SHM: "10e9x400", _SHM_USED: "4500000000+5000000x400"},
        "39m",
    ),
    quiet(
        "TritonShmNearFull",
        "is quiet after models were loaded at once",
        {_SHM: "8e9x400", _SHM_USED: "4e9x199 6e9x200"},
        "80m",
    ),
    quiet(
        "TritonShmNearFull", "is quiet when full and steady", {_SHM: "8e9x400", _SHM_USED: "8e9x400"}, "90m"
    ),
)

PROOFS = (*MODELS, *VERSIONS, *REPLICAS, *SERVERS, *PROCESSES)

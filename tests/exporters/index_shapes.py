"""Run a real Triton with every shape of its repository index, and read the exporter's states.

`PYTHONPATH=tests python -m exporters.index_shapes` prints the table of docs/exporter.md.
"""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from support.exporter import RunningExporter, exporting
from support.loopback import free_ports
from support.repository import Repository, write
from support.triton import control, infer
from support.waiting import eventually
from triton_exporter.snapshot import ModelVersion
from tritonwatch.local.triton import TritonPorts, TritonServer

HEAD = (
    "| what happened | Triton's index | its ready endpoint | `/state` | `/state` with `--expect` and "
    "`--triton-log` |\n|---|---|---|---|---|\n"
)
_MAX_TEXT = 90
_SETTLED_SECONDS = 2.5
_FROM_MEMORY = {
    "backend": "python",
    "max_batch_size": 8,
    "instance_group": [{"kind": "KIND_CPU"}],
    "input": [{"name": "X", "data_type": "TYPE_FP32", "dims": [1]}],
    "output": [{"name": "Y", "data_type": "TYPE_FP32", "dims": [1]}],
}


@dataclass(frozen=True)
class IndexServers:
    """One Triton, an exporter that knows nothing but its APIs, and one with a list of models and the log."""

    server: TritonServer
    repository: Repository
    twin: Repository
    alone: RunningExporter
    with_list: RunningExporter

    def load(self, model: str, **parameters: object) -> None:
        control(self.server, "load", model, **parameters)

    def unload(self, model: str) -> None:
        control(self.server, "unload", model)

    def infer(self, model: str) -> None:
        with contextlib.suppress(requests.ConnectionError):
            infer(self.server, model)


@dataclass(frozen=True)
class Shape:
    """One way a model can be: how it comes about, and whether the operator lists it."""

    title: str
    model: str
    make: Callable[[IndexServers], None]
    version: str = "1"
    listed: bool = True


def _idle(servers: IndexServers) -> None:
    servers.repository.model("idle")


def _wanted(servers: IndexServers) -> None:
    servers.repository.model("wanted")


def _failed(servers: IndexServers) -> None:
    servers.repository.model("failed", **{"raise": "weights missing"})
    servers.load("failed")


def _failed_then_unloaded(servers: IndexServers) -> None:
    servers.repository.model("stuck", **{"raise": "weights missing"})
    servers.load("stuck")
    servers.unload("stuck")


def _bad_config(servers: IndexServers) -> None:
    write(servers.repository.model("badconfig") / "config.pbtxt", "nonsense {")
    servers.load("badconfig")


def _no_backend(servers: IndexServers) -> None:
    config = servers.repository.model("nobackend") / "config.pbtxt"
    write(config, config.read_text().replace('backend: "python"', 'backend: "nosuch"'))
    servers.load("nobackend")


def _ensemble(servers: IndexServers) -> None:
    servers.repository.model("badpart", **{"raise": "no tokenizer"})
    servers.repository.ensemble("ensemble", "badpart")
    servers.load("ensemble")


def _versionless(servers: IndexServers) -> None:
    shutil.rmtree(servers.repository.model("versionless") / "1")
    servers.load("versionless")


def _twin(servers: IndexServers) -> None:
    servers.repository.model("twin")
    servers.twin.model("twin")
    servers.load("twin")


def _from_memory(servers: IndexServers) -> None:
    code = (servers.repository.model("donor") / "1" / "model.py").read_bytes()
    file = base64.b64encode(code).decode()
    servers.load("frommemory", config=json.dumps(_FROM_MEMORY), **{"file:1/model.py": file})


def _deleted(servers: IndexServers) -> None:
    folder = servers.repository.model("deleted")
    servers.load("deleted")
    shutil.rmtree(folder)


def _hot_reload(servers: IndexServers) -> None:
    folder = servers.repository.model("reloaded") / "1"
    servers.load("reloaded")
    write(folder / "raise", "new weights are bad")
    write(folder / "model.py", (folder / "model.py").read_text() + "\n")
    servers.load("reloaded")


def _superseded(servers: IndexServers) -> None:
    servers.repository.model("versions")
    servers.load("versions")
    servers.repository.version("versions", "2")
    servers.load("versions")


def _unloaded(servers: IndexServers) -> None:
    servers.repository.model("unloaded")
    servers.load("unloaded")
    servers.unload("unloaded")


SHAPES = (
    Shape("the model serves", "anchor", lambda _servers: None),
    Shape("the load failed", "failed", _failed),
    Shape("the load failed, then the model was unloaded", "stuck", _failed_then_unloaded),
    Shape("no load was requested", "idle", _idle, "", False),
    Shape("no load was requested, but the model is expected", "wanted", _wanted, ""),
    Shape("`config.pbtxt` cannot be parsed", "badconfig", _bad_config, ""),
    Shape("there is no such backend", "nobackend", _no_backend),
    Shape("a step of the ensemble failed", "ensemble", _ensemble, ""),
    Shape("no version folder", "versionless", _versionless, ""),
    Shape("the same name in two repositories", "twin", _twin, ""),
    Shape("loaded from memory", "frommemory", _from_memory),
    Shape("its folder was deleted while it serves", "deleted", _deleted),
    Shape("a hot reload failed, the old copy serves", "reloaded", _hot_reload),
    Shape("superseded by a newer version", "versions", _superseded),
    Shape("unloaded on purpose", "unloaded", _unloaded, listed=False),
)


def rows(directory: Path) -> Iterator[tuple[str, ...]]:
    """One row for each shape, as seen on servers started below `directory`: the cells of HEAD."""
    directory.mkdir(parents=True, exist_ok=True)
    with _servers(directory / "shapes", "explicit") as servers:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda shape: shape.make(servers), SHAPES))
        _settle(servers)
        for shape in SHAPES:
            yield _row(servers, shape)
        yield from _on_the_way(servers)
    yield from _closed(directory / "closed")


def _on_the_way(servers: IndexServers) -> Iterator[tuple[str, ...]]:
    servers.repository.model("slow", load_seconds=2.5)
    with _meanwhile(servers.load, "slow"):
        _until(servers, "slow", "loading")
        yield _row(servers, Shape("loading", "slow", _failed))
    servers.repository.model("busy", delay_seconds=2)
    servers.load("busy")
    with _meanwhile(servers.infer, "busy"):
        time.sleep(0.5)
        with _meanwhile(servers.unload, "busy"):
            _until(servers, "busy", "unloading")
            yield _row(servers, Shape("unloading, with requests under way", "busy", _failed))


def _closed(directory: Path) -> Iterator[tuple[str, ...]]:
    repository = Repository(directory / "models")
    repository.model("slowly", load_seconds=2, delay_seconds=2)
    shape = Shape("", "slowly", _failed)
    with _servers(directory, "none", live=False) as servers:
        _phase(servers, "down or starting")
        yield ("the server starts: its ports are closed until all loads are over", *_row(servers, shape)[1:])
        servers.server.wait_live()
        _until(servers, "slowly", "ready")
        with _meanwhile(servers.infer, "slowly"):
            time.sleep(0.5)
            assert servers.server.process is not None
            servers.server.process.terminate()
            _phase(servers, "draining")
            yield ("the server drains: the API is closed, metrics still answer", *_row(servers, shape)[1:])


@contextlib.contextmanager
def _servers(directory: Path, control: str, *, live: bool = True) -> Iterator[IndexServers]:
    repository, twin = Repository(directory / "models"), Repository(directory / "others")
    twin.path.mkdir(parents=True)
    arguments = [f"--model-repository={twin.path}"]
    if control == "explicit":
        repository.model("anchor")
        arguments.append("--load-model=anchor")
    ports = TritonPorts(*free_ports(3))
    server = TritonServer(repository.path, directory, ports, control=control, arguments=arguments)
    listed = (
        {shape.model: () for shape in SHAPES if shape.listed} if control == "explicit" else {"slowly": ()}
    )
    with ExitStack() as ends:
        ends.callback(server.kill)
        server.start()
        if live:
            server.wait_live()
        urls = (server.http_url, server.metrics_url)
        alone = ends.enter_context(exporting(*urls))
        with_list = ends.enter_context(exporting(*urls, expected=listed, triton_log=server.log))
        yield IndexServers(server, repository, twin, alone, with_list)


@contextlib.contextmanager
def _meanwhile(call: Callable[[str], None], model: str) -> Iterator[None]:
    thread = threading.Thread(target=call, args=(model,))
    thread.start()
    try:
        yield
    finally:
        thread.join()


def _row(servers: IndexServers, shape: Shape) -> tuple[str, ...]:
    alone, with_list = (
        _reported(servers, exporter, shape) for exporter in (servers.alone, servers.with_list)
    )
    same = "the same" if with_list == alone else with_list
    return shape.title, _index(servers, shape), _ready(servers, shape), alone, same


def _index(servers: IndexServers, shape: Shape) -> str:
    try:
        index = requests.post(f"{servers.server.http_url}/v2/repository/index", timeout=5).json()
    except requests.ConnectionError:
        return "refused"
    for entry in index:
        if entry["name"] == shape.model and entry.get("version", "") == shape.version:
            state = f"`{entry['state']}`" if "state" in entry else "the name only"
            return _short(servers, state, entry.get("reason"))
    return "no entry"


def _ready(servers: IndexServers, shape: Shape) -> str:
    try:
        answer = requests.get(
            f"{servers.server.http_url}/v2/models/{shape.model}/versions/1/ready", timeout=5
        )
    except requests.ConnectionError:
        return "refused"
    return str(answer.status_code)


def _reported(servers: IndexServers, exporter: RunningExporter, shape: Shape) -> str:
    model = _model(exporter, shape.model, shape.version)
    if model is None:
        # Without a list no source names a model that Triton does not mention.
        return "not shown"
    words = [f"`{model['state']}`", "ready" if model["ready"] else "not ready"]
    if model["expected"]:
        words.append("expected")
    if exporter.exporter.model_states.lifecycle.load_failures.reloads.keys() & {
        (shape.model, "python_error")
    }:
        words.append("1 failed reload counted")
    return _short(servers, ", ".join(words), model["reason"])


def _model(exporter: RunningExporter, model: str, version: str) -> dict[str, Any] | None:
    models: Iterable[dict[str, Any]] = exporter.get("/state").json()["models"]
    named = {entry["version"]: entry for entry in models if entry["model"] == model}
    # Where no poll ever found a version, the exporter names none.
    return named.get(version, named.get(""))


def _short(servers: IndexServers, word: str, reason: str | None) -> str:
    if not reason:
        return word
    text = reason.splitlines()[0].replace(f"{servers.repository.path.parent}/", "").replace("|", "/")
    return f"{word}: {text if len(text) <= _MAX_TEXT else text[:_MAX_TEXT] + ' ...'}"


def _until(servers: IndexServers, model: str, state: str) -> None:
    def in_state(exporter: RunningExporter) -> bool:
        reported = _model(exporter, model, "1")
        return reported is not None and reported["state"] == state

    eventually(lambda: in_state(servers.alone) and in_state(servers.with_list), f"{model} {state}")


def _settle(servers: IndexServers) -> None:
    """Wait until Triton is done with every shape, and the exporter has polled the result for a while."""
    url = f"{servers.server.http_url}/v2/repository/index"

    def done() -> bool:
        # Triton answers an unload, and a load that supersedes a version, before the old copy is gone.
        states = {entry.get("state") for entry in requests.post(url, timeout=5).json()}
        return states.isdisjoint({"LOADING", "UNLOADING"})

    eventually(done, "Triton still loads or unloads")
    until = time.time() + _SETTLED_SECONDS
    lifecycles = [exporter.exporter.model_states.lifecycle for exporter in (servers.alone, servers.with_list)]
    gone = ModelVersion("unloaded", "1")
    eventually(
        lambda: all(
            lifecycle.snapshot.at > until
            and (record := lifecycle.records.get(gone)) is not None
            and record.claim.state == "unloaded"
            for lifecycle in lifecycles
        ),
        "the exporters do not see the last shape unloaded",
    )


def _phase(servers: IndexServers, phase: str) -> None:
    exporters = (servers.alone, servers.with_list)
    eventually(
        lambda: all(phase == exporter.get("/state").json()["triton"]["phase"] for exporter in exporters),
        phase,
    )


def table(directory: Path) -> str:
    """Return the rows as Markdown."""
    return HEAD + "".join(f"| {' | '.join(row)} |\n" for row in rows(directory))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as here:
        print(table(Path(here)), end="")

"""A real Triton in every shape its repository index can take, and what the exporter says of each.

`PYTHONPATH=tests python -m exporters.index_shapes` prints the table that docs/exporter.md holds.
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

from support.exporter import Running, exporting
from support.repository import Repository, write
from support.triton import control, infer
from support.waiting import eventually
from triton_exporter.snapshot import ModelVersion
from tritonwatch.local.triton import TritonPorts, TritonServer, free_ports

HEAD = (
    "| what happened | Triton's index | its ready endpoint | `/state` | `/state` with `--expect` and "
    "`--triton-log` |\n|---|---|---|---|---|\n"
)
_LONGEST = 90
_SETTLED_SECONDS = 2.5
_FROM_MEMORY = {
    "backend": "python",
    "max_batch_size": 8,
    "instance_group": [{"kind": "KIND_CPU"}],
    "input": [{"name": "X", "data_type": "TYPE_FP32", "dims": [1]}],
    "output": [{"name": "Y", "data_type": "TYPE_FP32", "dims": [1]}],
}


@dataclass(frozen=True)
class World:
    """One Triton, an exporter that knows nothing but its APIs, and one with a list of models and the log."""

    server: TritonServer
    repository: Repository
    twin: Repository
    alone: Running
    told: Running

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
    make: Callable[[World], None]
    version: str = "1"
    listed: bool = True


def _idle(world: World) -> None:
    world.repository.model("idle")


def _wanted(world: World) -> None:
    world.repository.model("wanted")


def _failed(world: World) -> None:
    world.repository.model("failed", **{"raise": "weights missing"})
    world.load("failed")


def _failed_then_unloaded(world: World) -> None:
    world.repository.model("stuck", **{"raise": "weights missing"})
    world.load("stuck")
    world.unload("stuck")


def _bad_config(world: World) -> None:
    write(world.repository.model("badconfig") / "config.pbtxt", "nonsense {")
    world.load("badconfig")


def _no_backend(world: World) -> None:
    config = world.repository.model("nobackend") / "config.pbtxt"
    write(config, config.read_text().replace('backend: "python"', 'backend: "nosuch"'))
    world.load("nobackend")


def _ensemble(world: World) -> None:
    world.repository.model("badpart", **{"raise": "no tokenizer"})
    world.repository.ensemble("ensemble", "badpart")
    world.load("ensemble")


def _versionless(world: World) -> None:
    shutil.rmtree(world.repository.model("versionless") / "1")
    world.load("versionless")


def _twin(world: World) -> None:
    world.repository.model("twin")
    world.twin.model("twin")
    world.load("twin")


def _from_memory(world: World) -> None:
    code = (world.repository.model("donor") / "1" / "model.py").read_bytes()
    file = base64.b64encode(code).decode()
    world.load("frommemory", config=json.dumps(_FROM_MEMORY), **{"file:1/model.py": file})


def _deleted(world: World) -> None:
    folder = world.repository.model("deleted")
    world.load("deleted")
    shutil.rmtree(folder)


def _hot_reload(world: World) -> None:
    folder = world.repository.model("reloaded") / "1"
    world.load("reloaded")
    write(folder / "raise", "new weights are bad")
    write(folder / "model.py", (folder / "model.py").read_text() + "\n")
    world.load("reloaded")


def _superseded(world: World) -> None:
    world.repository.model("versions")
    world.load("versions")
    world.repository.version("versions", "2")
    world.load("versions")


def _unloaded(world: World) -> None:
    world.repository.model("unloaded")
    world.load("unloaded")
    world.unload("unloaded")


SHAPES = (
    Shape("it serves", "anchor", lambda _world: None),
    Shape("the load failed", "failed", _failed),
    Shape("the load failed, then it was unloaded", "stuck", _failed_then_unloaded),
    Shape("never asked to load", "idle", _idle, "", False),
    Shape("never asked to load, but listed by the operator", "wanted", _wanted, ""),
    Shape("`config.pbtxt` cannot be parsed", "badconfig", _bad_config, ""),
    Shape("there is no such backend", "nobackend", _no_backend),
    Shape("a part of the ensemble failed", "ensemble", _ensemble, ""),
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
    with _world(directory / "shapes", "explicit") as world:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda shape: shape.make(world), SHAPES))
        _settle(world)
        for shape in SHAPES:
            yield _row(world, shape)
        yield from _on_the_way(world)
    yield from _closed(directory / "closed")


def _on_the_way(world: World) -> Iterator[tuple[str, ...]]:
    world.repository.model("slow", load_seconds=2.5)
    with _meanwhile(world.load, "slow"):
        _until(world, "slow", "loading")
        yield _row(world, Shape("loading", "slow", _failed))
    world.repository.model("busy", delay_seconds=2)
    world.load("busy")
    with _meanwhile(world.infer, "busy"):
        time.sleep(0.5)
        with _meanwhile(world.unload, "busy"):
            _until(world, "busy", "unloading")
            yield _row(world, Shape("unloading, with requests under way", "busy", _failed))


def _closed(directory: Path) -> Iterator[tuple[str, ...]]:
    repository = Repository(directory / "models")
    repository.model("slowly", load_seconds=2, delay_seconds=2)
    shape = Shape("", "slowly", _failed)
    with _world(directory, "none", live=False) as world:
        _phase(world, "down or starting")
        yield ("the server starts: its ports are closed until all loads are over", *_row(world, shape)[1:])
        world.server.wait_live()
        _until(world, "slowly", "ready")
        with _meanwhile(world.infer, "slowly"):
            time.sleep(0.5)
            assert world.server.process is not None
            world.server.process.terminate()
            _phase(world, "draining")
            yield ("the server drains: the API is closed, metrics still answer", *_row(world, shape)[1:])


@contextlib.contextmanager
def _world(directory: Path, control: str, *, live: bool = True) -> Iterator[World]:
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
        told = ends.enter_context(exporting(*urls, expected=listed, log=server.log))
        yield World(server, repository, twin, alone, told)


@contextlib.contextmanager
def _meanwhile(call: Callable[[str], None], model: str) -> Iterator[None]:
    thread = threading.Thread(target=call, args=(model,))
    thread.start()
    try:
        yield
    finally:
        thread.join()


def _row(world: World, shape: Shape) -> tuple[str, ...]:
    alone, told = (_said(world, exporter, shape) for exporter in (world.alone, world.told))
    same = "the same" if told == alone else told
    return shape.title, _index(world, shape), _ready(world, shape), alone, same


def _index(world: World, shape: Shape) -> str:
    try:
        index = requests.post(f"{world.server.http_url}/v2/repository/index", timeout=5).json()
    except requests.ConnectionError:
        return "refused"
    for entry in index:
        if entry["name"] == shape.model and entry.get("version", "") == shape.version:
            state = f"`{entry['state']}`" if "state" in entry else "the name only"
            return _short(world, state, entry.get("reason"))
    return "no entry"


def _ready(world: World, shape: Shape) -> str:
    try:
        answer = requests.get(f"{world.server.http_url}/v2/models/{shape.model}/versions/1/ready", timeout=5)
    except requests.ConnectionError:
        return "refused"
    return str(answer.status_code)


def _said(world: World, exporter: Running, shape: Shape) -> str:
    found = _model(exporter, shape.model, shape.version)
    if found is None:
        # Without a list nobody knows of a model that Triton does not mention.
        return "not shown"
    words = [f"`{found['state']}`", "ready" if found["ready"] else "not ready"]
    if found["expected"]:
        words.append("expected")
    if exporter.exporter.states.lifecycle.reload_failures.keys() & {(shape.model, "python_error")}:
        words.append("1 failed reload counted")
    return _short(world, ", ".join(words), found["reason"])


def _model(exporter: Running, model: str, version: str) -> dict[str, Any] | None:
    models: Iterable[dict[str, Any]] = exporter.get("/state").json()["models"]
    named = {one["version"]: one for one in models if one["model"] == model}
    # Where no look ever saw a version, the exporter names none.
    return named.get(version, named.get(""))


def _short(world: World, word: str, reason: str | None) -> str:
    if not reason:
        return word
    text = reason.splitlines()[0].replace(f"{world.repository.path.parent}/", "").replace("|", "/")
    return f"{word}: {text if len(text) <= _LONGEST else text[:_LONGEST] + ' ...'}"


def _until(world: World, model: str, state: str) -> None:
    def in_state(exporter: Running) -> bool:
        found = _model(exporter, model, "1")
        return found is not None and found["state"] == state

    eventually(lambda: in_state(world.alone) and in_state(world.told), f"{model} {state}")


def _settle(world: World) -> None:
    """Wait until Triton is done with every shape, and both have looked for a while at what came of it."""
    url = f"{world.server.http_url}/v2/repository/index"

    def done() -> bool:
        # Triton answers an unload, and a load that supersedes a version, before the old copy is gone.
        states = {entry.get("state") for entry in requests.post(url, timeout=5).json()}
        return states.isdisjoint({"LOADING", "UNLOADING"})

    eventually(done, "Triton still loads or unloads")
    until = time.time() + _SETTLED_SECONDS
    looks = [exporter.exporter.states.lifecycle for exporter in (world.alone, world.told)]
    gone = ModelVersion("unloaded", "1")
    eventually(
        lambda: all(
            lifecycle.snapshot.at > until
            and (record := lifecycle.records.get(gone)) is not None
            and record.claim.state == "unloaded"
            for lifecycle in looks
        ),
        "the exporters do not see the last shape unloaded",
    )


def _phase(world: World, phase: str) -> None:
    exporters = (world.alone, world.told)
    eventually(lambda: all(phase == one.get("/state").json()["triton"]["phase"] for one in exporters), phase)


def table(directory: Path) -> str:
    """The rows as Markdown."""
    return HEAD + "".join(f"| {' | '.join(row)} |\n" for row in rows(directory))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as here:
        print(table(Path(here)), end="")

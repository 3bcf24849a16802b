"""Test the state of a real Triton's models in every shape of its repository index."""

from __future__ import annotations

import base64
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import requests

from support.exporter import RunningExporter, ScrapedPage, exporting
from support.repository import Repository, write
from support.triton import api_of, control, drained, infer, live_triton, over_both
from support.waiting import eventually
from triton_alerts.bridge.evidence.facts import reasons_in
from triton_exporter.catalogue import models, own, state
from tritonwatch.local import TritonServer

pytestmark = pytest.mark.real


@dataclass(frozen=True)
class Explicit:
    """A real Triton that loads only what a test asks for, and two exporters: each sees the same over its transport."""

    server: TritonServer
    repository: Repository
    twin: Repository
    exporter: RunningExporter
    over_grpc: RunningExporter

    def load(self, model: str, **parameters: object) -> int:
        return control(self.server, "load", model, **parameters)

    def unload(self, model: str) -> int:
        return control(self.server, "unload", model)

    def infer(self, model: str) -> int:
        return infer(self.server, model)

    def expect(self, *models: str) -> None:
        for each in (self.exporter, self.over_grpc):
            each.exporter.model_states.lifecycle.expected = dict.fromkeys(models, ())

    def wait(self, condition: Callable[[ScrapedPage], object]) -> ScrapedPage:
        """Wait until both exporters show it; return the page of the one that reads HTTP."""
        page = self.exporter.wait(condition)
        self.over_grpc.wait(condition)
        return page

    def reading_the_log(self) -> AbstractContextManager[RunningExporter]:
        """Run a third exporter, which reads Triton's log, too, until the block ends."""
        return exporting(self.server.http_url, self.server.metrics_url, triton_log=self.server.log)

    def wait_for(self, wanted: str, model: str, version: str = "1") -> ScrapedPage:
        return self.wait(
            lambda page: page.value(state.MODEL_STATE, model=model, version=version, state=wanted)
        )


@pytest.fixture(scope="module")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Explicit]:
    directory = tmp_path_factory.mktemp("state-truth")
    repository, twin = Repository(directory / "models"), Repository(directory / "others")
    repository.model("anchor")
    twin.path.mkdir()
    arguments = [f"--model-repository={twin.path}", "--load-model=anchor"]
    with (
        live_triton(repository.path, directory, "explicit", arguments) as server,
        over_both(server) as exporters,
    ):
        yield Explicit(server, repository, twin, *exporters)


def failures(page: ScrapedPage, model: str) -> float:
    counts = page.series(state.MODEL_LOAD_FAILURES)
    return sum(value for labels, value in counts.items() if ("model", model) in labels)


def since(page: ScrapedPage, model: str, version: str = "1") -> float | None:
    return page.value(state.MODEL_NOT_READY_SINCE, model=model, version=version)


def load_seconds(page: ScrapedPage, model: str, version: str = "1") -> float | None:
    return page.value(state.MODEL_LOAD_DURATION_ESTIMATED, model=model, version=version)


@pytest.mark.thorough
def test_a_failed_ensemble_counts_once_whatever_its_steps_do(tmp_path: Path) -> None:
    """Triton writes its lines again at each load and unload of a step, and polls see but a few of these."""
    repository = Repository(tmp_path / "models")
    repository.model("finestep")
    repository.model("failingstep", **{"raise": "no tokenizer"})
    repository.ensemble("cycled", "finestep", "failingstep")
    with (
        live_triton(repository.path, tmp_path, "explicit", auto_complete=True) as server,
        exporting(server.http_url, server.metrics_url, triton_log=server.log, state_interval=1.0) as exporter,
    ):
        exporter.wait(lambda page: page.value(state.SERVER_LIVE))
        assert 200 != control(server, "load", "cycled")
        for _ in range(2):
            for step in ("finestep", "failingstep"):
                control(server, "unload", step)
                control(server, "load", step)
        page = exporter.wait(lambda page: failures(page, "failingstep") == 3)

    assert (1, 0) == (failures(page, "cycled"), failures(page, "finestep"))


def test_draining_answers_metrics_but_is_not_live(tmp_path: Path) -> None:
    """After SIGTERM the API port closes at once while metrics are still served: up 1, live 0, states unknown."""
    repository = Repository(tmp_path / "models")
    repository.model("slowly", delay_seconds=4)
    with live_triton(repository.path, tmp_path) as server, over_both(server) as exporters:
        seen = drained(server, exporters, "slowly")
        assert server.process is not None
        # Triton waits up to 30 s for connections that stay open: the exporters must leave none.
        assert 0 == server.process.wait(20)

    for page, phase in seen:
        assert 1 == page.value(state.UP)
        assert 0 == page.value(state.MODEL_READY, model="slowly", version="1")
        assert 1 == page.value(state.MODEL_STATE, model="slowly", version="1", state="unknown")
        assert "draining" == phase
        assert since(page, "slowly") is not None


def test_a_restart_accounts_for_every_model_that_served(tmp_path: Path) -> None:
    """Up is 0 while it starts; then a failed load is a new failure, and a model without a version missing."""
    repository = Repository(tmp_path / "models")
    repository.model("good")
    repository.model("breaks", **{"raise": "weights missing"})
    repository.model("vanishes")
    with live_triton(repository.path, tmp_path) as server, over_both(server) as exporters:
        befores = [each.wait(lambda page: failures(page, "breaks") == 1) for each in exporters]
        server.stop(timeout_seconds=2)
        downs = [each.wait(lambda page: page.value(state.UP) == 0) for each in exporters]
        shutil.rmtree(repository.path / "vanishes" / "1")
        server.start()
        afters = [each.wait(lambda page: failures(page, "breaks") == 2) for each in exporters]

    for before, down, after in zip(befores, downs, afters, strict=True):
        assert 1 == before.value(state.MODEL_READY, model="vanishes", version="1")
        assert 0 == down.value(state.MODEL_READY, model="good", version="1")
        assert since(before, "breaks") == since(after, "breaks")
        assert 1 == after.value(state.MODEL_READY, model="good", version="1")
        assert 1 == after.value(state.MODEL_STATE, model="vanishes", version="1", state="missing")
        assert 1 == after.value(state.MODEL_EXPECTED, model="vanishes")


@pytest.mark.thorough
def test_polling_retries_are_one_episode(tmp_path: Path) -> None:
    """In poll mode a broken model flaps between unavailable and loading: one episode, an attempt each."""
    repository = Repository(tmp_path / "models")
    repository.model("flaps", **{"raise": "weights missing"})
    with (
        live_triton(repository.path, tmp_path, "poll", ["--repository-poll-secs=1"]) as server,
        over_both(server) as exporters,
    ):
        for exporter in exporters:
            first = exporter.wait(lambda page: failures(page, "flaps") >= 1)
            exporter.wait(lambda p: p.value(state.MODEL_STATE, model="flaps", version="1", state="loading"))
            attempts = failures(first, "flaps") + 2
            last = exporter.wait(lambda page, attempts=attempts: failures(page, "flaps") >= attempts)  # type: ignore[misc]
            assert since(first, "flaps") is not None
            assert since(first, "flaps") == since(last, "flaps")


def test_a_failed_load_is_unavailable_and_counted_once_an_attempt(triton: Explicit) -> None:
    """Each attempt that leaves a trace counts once, the episode goes on, and a good load ends it."""
    folder = triton.repository.model("fails", **{"raise": "weights missing"})
    triton.exporter.scrape(5)
    assert 400 == triton.load("fails")
    first = triton.wait_for("unavailable", "fails")
    first = triton.wait(lambda page: failures(page, "fails") == 1)

    assert 0 == first.value(state.MODEL_READY, model="fails", version="1")
    assert 1 == first.value(state.MODEL_EXPECTED, model="fails")
    assert 1 == first.value(state.MODEL_LOAD_FAILURES, model="fails", reason="python_error")

    write(folder / "1" / "raise", "CUDA out of memory")
    triton.load("fails")
    second = triton.wait(lambda page: failures(page, "fails") == 2)

    assert 1 == second.value(state.MODEL_LOAD_FAILURES, model="fails", reason="out_of_memory")
    assert since(first, "fails") == since(second, "fails")

    (folder / "1" / "raise").unlink()
    assert 200 == triton.load("fails")
    page = triton.wait_for("ready", "fails")

    assert since(page, "fails") is None
    assert 2 == failures(page, "fails")


def test_a_model_nobody_asked_for_is_not_loaded_and_not_expected(triton: Explicit) -> None:
    """A bare entry of the index is not a failure as long as nobody expects the model."""
    triton.repository.model("idle")
    page = triton.wait_for("not_loaded", "idle", "")

    assert 0 == page.value(state.MODEL_EXPECTED, model="idle")
    assert since(page, "idle", "") is None


def test_an_expected_model_with_a_broken_config_is_missing(triton: Explicit) -> None:
    """Triton shows a config it cannot parse as a bare entry and stays ready; the operator's list shows it."""
    folder = triton.repository.model("badconfig")
    write(folder / "config.pbtxt", "nonsense {")
    assert 200 != triton.load("badconfig")
    page = triton.wait_for("not_loaded", "badconfig", "")

    assert 0 == page.value(state.MODEL_EXPECTED, model="badconfig")

    triton.expect("badconfig")
    page = triton.wait_for("missing", "badconfig", "")

    assert 1 == page.value(state.MODEL_EXPECTED, model="badconfig")
    assert since(page, "badconfig", "") is not None


def test_an_incident_keeps_the_load_error_of_a_model_that_was_deleted(triton: Explicit) -> None:
    """Triton then lists it no more, which is true and does not say what was wrong."""
    folder = triton.repository.model("deleted", **{"raise": "weights missing"})
    triton.expect("deleted")
    triton.load("deleted")
    triton.wait_for("unavailable", "deleted")
    shutil.rmtree(folder)
    triton.wait_for("missing", "deleted", "")
    shown = triton.exporter.get("/state").json()

    assert "weights missing" in reasons_in(shown, {"deleted"}, 0.0)["deleted v1"]


def test_an_expected_model_without_a_version_is_missing_though_unlisted(triton: Explicit) -> None:
    """Triton leaves a model without version folders out of its index altogether."""
    folder = triton.repository.model("versionless")
    shutil.rmtree(folder / "1")
    triton.load("versionless")
    triton.expect("versionless")
    page = triton.wait_for("missing", "versionless", "")

    assert 0 == page.value(state.MODEL_READY, model="versionless", version="")


def test_an_ensemble_whose_part_failed_is_missing(triton: Explicit) -> None:
    """The ensemble is a bare entry, its part is unavailable with the reason."""
    triton.repository.model("badpart", **{"raise": "no such tokenizer"})
    triton.repository.ensemble("badensemble", "badpart")
    triton.expect("badensemble")
    assert 200 != triton.load("badensemble")

    triton.wait_for("unavailable", "badpart")
    page = triton.wait_for("missing", "badensemble", "")
    assert 1 == page.value(state.MODEL_EXPECTED, model="badensemble")


def test_a_name_in_two_repositories_is_unavailable_without_a_version(triton: Explicit) -> None:
    """Triton names no version for it and stays ready."""
    triton.repository.model("twin")
    triton.twin.model("twin")
    assert 200 != triton.load("twin")
    page = triton.wait_for("unavailable", "twin", "")
    page = triton.wait(lambda page: failures(page, "twin"))

    assert 1 == page.value(state.MODEL_LOAD_FAILURES, model="twin", reason="bad_config")


def test_a_model_loaded_from_memory_is_ready(triton: Explicit) -> None:
    """The index misses it, statistics know it."""
    folder = triton.repository.model("donor")
    model = base64.b64encode((folder / "1" / "model.py").read_bytes()).decode()
    config = (
        '{"backend": "python", "max_batch_size": 8, "instance_group": [{"kind": "KIND_CPU"}],'
        '"input": [{"name": "X", "data_type": "TYPE_FP32", "dims": [1]}],'
        '"output": [{"name": "Y", "data_type": "TYPE_FP32", "dims": [1]}]}'
    )
    assert 200 == triton.load("frommemory", config=config, **{"file:1/model.py": model})
    page = triton.wait_for("ready", "frommemory")

    index = requests.post(f"{triton.server.http_url}/v2/repository/index", timeout=5).json()
    assert "frommemory" not in {entry["name"] for entry in index}
    assert 1 == page.value(state.MODEL_READY, model="frommemory", version="1")


def test_a_model_is_asked_for_by_its_very_name(triton: Explicit) -> None:
    """Triton decodes no percent escapes; one with a `?`, which only gRPC can address, is ready by the index too."""
    names = ("a+b,c@d:e=f", "{g}%2B", "why?")
    for name in names:
        triton.repository.model(name)
    triton.repository.ensemble("asks", *names)  # clients escape such names; an ensemble loads its steps
    assert 200 == triton.load("asks")
    page = triton.wait(
        lambda page: (
            all(page.value(state.MODEL_READY, model=name, version="1") for name in names)
            and page.labels(models.INFO, "model") >= set(names[:2])
        )  # asked for by the same path
    )

    assert "why?" not in page.labels(models.INFO, "model")
    triton.over_grpc.wait(lambda page: "why?" in page.labels(models.INFO, "model"))


def test_unloading_on_purpose_starts_no_episode(triton: Explicit) -> None:
    """An unloaded model is not ready, not expected and not missed; a reload makes it ready again."""
    triton.repository.model("comesandgoes")
    triton.load("comesandgoes")
    triton.wait_for("ready", "comesandgoes")
    triton.unload("comesandgoes")
    page = triton.wait_for("unloaded", "comesandgoes")

    assert 0 == page.value(state.MODEL_READY, model="comesandgoes", version="1")
    assert 0 == page.value(state.MODEL_EXPECTED, model="comesandgoes")
    assert since(page, "comesandgoes") is None
    assert 0 == failures(page, "comesandgoes")

    triton.load("comesandgoes")
    assert 1 == triton.wait_for("ready", "comesandgoes").value(state.MODEL_EXPECTED, model="comesandgoes")


def test_loading_takes_the_server_but_not_the_others_out_of_readiness(triton: Explicit) -> None:
    """While one model loads the server is not ready, and the other models are."""
    triton.wait_for("ready", "anchor")  # a load under way at the first poll would have no beginning
    # After an index that took 1.6 s, as on a busy machine while a load begins, the next poll waits 6.4 s.
    triton.repository.model("slow", load_seconds=8)
    took: list[float] = []

    def load() -> None:
        started = time.monotonic()
        triton.load("slow")
        took.append(time.monotonic() - started)

    loader = threading.Thread(target=load)
    loader.start()
    try:
        triton.wait_for("loading", "slow")
        # A poll asks for readiness before it asks for the index: the load may begin in between.
        page = triton.wait(lambda page: page.value(state.SERVER_READY) == 0)
    finally:
        loader.join()

    assert 1 == page.value(state.MODEL_STATE, model="slow", version="1", state="loading")
    assert 1 == page.value(state.MODEL_READY, model="anchor", version="1")
    assert since(page, "slow") is not None
    assert load_seconds(page, "slow") is None
    ready = triton.wait_for("ready", "slow")
    assert since(ready, "slow") is None
    for _ in range(3):
        if load_seconds(ready, "slow") is not None:
            break
        # On a busy machine a poll can fail while Triton loads; then nothing is reported, and the next load is.
        triton.unload("slow")
        triton.wait_for("unloaded", "slow")
        load()
        ready = triton.wait_for("ready", "slow")
    # The model sleeps 8 s while it loads, and Triton answers the request to load afterwards. How far a
    # poll can be off is in test_load_time; here two seconds are left for polls on a busy machine.
    assert 2.0 <= (load_seconds(ready, "slow") or 0) <= took[-1] + 2.0

    triton.unload("slow")
    assert load_seconds(triton.wait_for("unloaded", "slow"), "slow") is None
    assert load_seconds(ready, "anchor") is None, "a load at the start of a server is seen by nobody"


def test_unloading_waits_for_requests_and_is_not_an_outage(triton: Explicit) -> None:
    """A model that is being unloaded while it still works is unloading, on purpose."""
    triton.repository.model("busy", delay_seconds=4)
    triton.load("busy")
    worker = threading.Thread(target=triton.infer, args=("busy",))
    worker.start()
    eventually(lambda: triton.repository.is_executing("busy"), "busy does not work")
    unloader = threading.Thread(target=triton.unload, args=("busy",))
    unloader.start()
    try:
        page = triton.wait_for("unloading", "busy")
    finally:
        worker.join()
        unloader.join()

    assert 0 == page.value(state.MODEL_READY, model="busy", version="1")
    assert since(page, "busy") is None
    triton.wait_for("unloaded", "busy")


def test_a_model_whose_folder_is_deleted_goes_on_being_ready(triton: Explicit) -> None:
    """The index forgets it, statistics still list it: it serves."""
    folder = triton.repository.model("orphan")
    triton.load("orphan")
    triton.wait_for("ready", "orphan")
    shutil.rmtree(folder)
    time.sleep(0.5)
    page = triton.exporter.scrape()

    assert 1 == page.value(state.MODEL_READY, model="orphan", version="1")
    assert 200 == triton.infer("orphan")


def test_a_failed_model_stays_unavailable_after_an_unload(triton: Explicit) -> None:
    """Triton keeps the old reason: unloading does not fix a failure, and is not a second one."""
    triton.repository.model("stuck", **{"raise": "weights missing"})
    triton.load("stuck")
    triton.wait_for("unavailable", "stuck")
    triton.unload("stuck")
    time.sleep(0.5)
    page = triton.wait(lambda page: failures(page, "stuck"))

    assert 1 == page.value(state.MODEL_STATE, model="stuck", version="1", state="unavailable")
    assert 1 == failures(page, "stuck")


def test_an_ensemble_goes_with_its_part_and_comes_back(triton: Explicit) -> None:
    """Unloading a part unloads the ensemble on purpose; nothing is missing."""
    triton.repository.model("part")
    triton.repository.ensemble("whole", "part")
    triton.load("whole")
    triton.wait_for("ready", "whole")
    triton.unload("part")
    triton.wait_for("unloaded", "part")
    page = triton.wait(lambda page: page.value(state.MODEL_READY, model="whole", version="1") == 0)

    assert 0 == page.value(state.MODEL_EXPECTED, model="whole")
    assert since(page, "whole") is None

    triton.load("part")
    triton.wait_for("ready", "whole")


@pytest.mark.parametrize("transport", ["http", pytest.param("grpc", marks=pytest.mark.thorough)])
def test_a_stopped_server_is_away_within_one_timeout(triton: Explicit, transport: str) -> None:
    """At whatever request of a poll the process is stopped; the next poll after its return finds it."""
    url = api_of(triton.server, transport)
    assert triton.server.process is not None
    with exporting(url, triton.server.metrics_url, timeout=4.0, state_interval=0.05) as exporter:
        for _ in range(2):
            exporter.wait(lambda page: page.value(state.MODEL_READY, model="anchor", version="1"))
            triton.server.process.send_signal(signal.SIGSTOP)
            started = time.monotonic()
            try:
                # Not a scrape, which waits for the metrics of the stopped process.
                while (shown := exporter.get("/state").json())["triton"]["live"]:
                    assert time.monotonic() - started < 7.5, "two timeouts, less what the first poll had left"
                    time.sleep(0.05)
            finally:
                triton.server.process.send_signal(signal.SIGCONT)
            assert not any(model["ready"] for model in shown["models"])


def test_a_model_whose_process_died_is_not_ready_once_its_requests_fail(triton: Explicit) -> None:
    """Up to 25.11 Triton calls it READY; without a probe, the failures of its backend show it."""
    mine = {"model": "stubless", "version": "1"}
    folder = triton.repository.model("stubless")
    triton.load("stubless")
    triton.wait_for("ready", "stubless")
    assert 200 == triton.infer("stubless")
    assert triton.server.process is not None
    for child in psutil.Process(triton.server.process.pid).children(recursive=True):
        if any("/stubless/" in word for word in child.cmdline()):
            child.kill()
    page = triton.wait(
        lambda page: 500 == triton.infer("stubless") and page.value(state.MODEL_READY, **mine) == 0
    )
    models = triton.exporter.get("/state").json()["models"]
    shown = next(model for model in models if model["model"] == "stubless")

    assert 0 == page.value(state.MODEL_READY, **mine)
    assert 1 == page.value(state.MODEL_STATE, **mine, state="ready")
    assert since(page, "stubless") is not None
    assert ("metrics", True) == (shown["source"], shown["reason"].startswith("not_answering: "))

    write(folder / "1" / "model.py", (folder / "1" / "model.py").read_text() + "\n")
    assert 200 == triton.load("stubless")
    assert 200 == triton.infer("stubless")
    triton.wait(lambda page: page.value(state.MODEL_READY, **mine))


def test_versions_that_are_added_and_removed_are_followed(triton: Explicit) -> None:
    """A new version serves beside the old one, a removed one is unloaded on purpose and not missed."""
    folder = triton.repository.model("versions", config="version_policy { all {} }")
    triton.load("versions")
    triton.wait_for("ready", "versions", "1")
    triton.repository.version("versions", "2")
    triton.load("versions")
    page = triton.wait_for("ready", "versions", "2")
    assert 1 == page.value(state.MODEL_READY, model="versions", version="1")

    shutil.rmtree(folder / "1")
    triton.load("versions")
    page = triton.wait_for("unloaded", "versions", "1")

    assert since(page, "versions", "1") is None
    assert 1 == page.value(state.MODEL_READY, model="versions", version="2")
    assert 1 == page.value(state.MODEL_EXPECTED, model="versions")


def test_a_failed_hot_reload_is_read_from_the_log(triton: Explicit) -> None:
    """With Triton's log the failure is counted with its class, and distinguished from one that stops service."""
    folder = triton.repository.model("relogged")
    triton.load("relogged")
    triton.wait_for("ready", "relogged")
    with triton.reading_the_log() as exporter:
        exporter.wait(lambda page: page.value(state.MODEL_READY, model="relogged", version="1"))
        write(folder / "1" / "raise", "CUDA out of memory")
        write(folder / "config.pbtxt", (folder / "config.pbtxt").read_text() + "# touched\n")
        assert 200 != triton.load("relogged")
        mine = {"model": "relogged", "reason": "out_of_memory"}
        page = exporter.wait(lambda page: page.value(state.MODEL_RELOAD_FAILURES, **mine))
        models = exporter.get("/state").json()["models"]
    without_log = triton.exporter.scrape()

    # The old copy serves, and index and health show nothing of it.
    assert 200 == triton.infer("relogged")
    assert (1, 0) == (
        without_log.value(state.MODEL_READY, model="relogged", version="1"),
        failures(without_log, "relogged"),
    )
    assert 1 == page.value(state.MODEL_RELOAD_FAILURES, **mine)
    assert 1 == page.value(state.MODEL_LOAD_FAILURES, **mine)
    assert 1 == page.value(state.MODEL_READY, model="relogged", version="1")
    failure = next(model["last_load_failure"] for model in models if model["model"] == "relogged")
    assert ("log", "1", True) == (failure["source"], failure["version"], "out of memory" in failure["text"])


def test_an_ensemble_that_cannot_load_is_counted_once(triton: Explicit) -> None:
    """Triton repeats the line about the ensemble whenever it loads anything; another reason counts again."""
    with triton.reading_the_log() as exporter:
        exporter.wait(lambda page: page.value(state.SERVER_LIVE))
        part = triton.repository.model("flakypart", **{"raise": "no tokenizer"})
        triton.repository.model("finepart")
        triton.repository.ensemble("counted", "flakypart", "finepart")
        assert 200 != triton.load("counted")
        for _ in range(2):
            assert 200 == triton.load("finepart")
        write(part / "1" / "raise", "no vocabulary")
        triton.load("flakypart")
        page = exporter.wait(lambda page: failures(page, "counted") >= 2)

    assert 2 == failures(page, "counted")
    assert 2 == failures(page, "flakypart")


def test_a_restarted_exporter_reports_why_an_ensemble_failed(triton: Explicit) -> None:
    """The reason is in the log alone, from before the exporter's start; the old failure is not counted again."""
    triton.repository.model("earlypart", **{"raise": "no tokenizer"})
    triton.repository.ensemble("early", "earlypart")
    assert 200 != triton.load("early")
    mine = {"model": "early", "version": ""}
    with triton.reading_the_log() as exporter:
        page = exporter.wait(lambda page: page.value(state.MODEL_STATE, **mine, state="missing"))
        models = exporter.get("/state").json()["models"]
    shown = next(model for model in models if model["model"] == "early")

    assert 1 == page.value(state.MODEL_EXPECTED, model="early")
    assert "no tokenizer" in shown["reason"]
    assert 0 == failures(page, "early")


@pytest.mark.parametrize(
    ("model", "old", "new", "reason"),
    [
        ("stepless", '"finestep"', '"nosuchstep"', "dependency_failed"),
        ("mistyped", "TYPE_FP32", "TYPE_INT32", "bad_config"),
        pytest.param(
            "unversioned",
            "model_version: -1",
            "model_version: 7",
            "dependency_failed",
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_an_ensemble_that_does_not_fit_its_steps_is_counted(
    triton: Explicit, model: str, old: str, new: str, reason: str
) -> None:
    """A step that does not exist, another datatype or a version that is not there: the log alone shows it."""
    with triton.reading_the_log() as exporter:
        exporter.wait(lambda page: page.value(state.SERVER_LIVE))
        triton.repository.model("finestep")
        config = triton.repository.ensemble(model, "finestep") / "config.pbtxt"
        write(config, config.read_text().replace(old, new))
        assert 200 != triton.load(model)
        page = exporter.wait(lambda page: failures(page, model))

    assert 1 == page.value(state.MODEL_LOAD_FAILURES, model=model, reason=reason)
    assert 1 == failures(page, model)


def test_unloading_a_step_is_not_a_failed_load_of_its_ensemble(triton: Explicit) -> None:
    """Triton then writes that the ensemble contains models that are not available, and unloads it."""
    triton.repository.model("ownstep")
    triton.repository.model("otherstep")
    triton.repository.ensemble("stepped", "ownstep", "otherstep")
    triton.load("stepped")
    with triton.reading_the_log() as exporter:
        exporter.wait(lambda page: page.value(state.MODEL_READY, model="stepped", version="1"))
        for step in ("ownstep", "otherstep"):
            triton.unload(step)
            exporter.wait(
                lambda page, step=step: page.value(  # type: ignore[misc]
                    state.MODEL_STATE, model=step, version="1", state="unloaded"
                )
            )
        assert 200 != triton.load("nosuchmodel")  # its line in the log comes after those of the ensemble
        lines = triton.server.log.read_bytes().count(
            b"ensemble stepped contains models that are not available"
        )
        page = exporter.wait(lambda page: (page.value(own.LOG_LINES) or 0) > 0)

    assert lines > 0
    assert 0 == failures(page, "stepped")


def test_a_broken_config_is_read_from_the_log(triton: Explicit) -> None:
    """Without a list of expected models, the log shows that the model was asked for, and why it is missing."""
    folder = triton.repository.model("logconfig")
    with triton.reading_the_log() as exporter:
        exporter.wait(lambda page: page.value(state.SERVER_LIVE))
        write(folder / "config.pbtxt", "nonsense {")
        assert 200 != triton.load("logconfig")
        mine = {"model": "logconfig", "version": ""}
        page = exporter.wait(lambda page: page.value(state.MODEL_STATE, **mine, state="missing"))

    assert 1 == page.value(state.MODEL_EXPECTED, model="logconfig")
    assert 1 == page.value(state.MODEL_LOAD_FAILURES, model="logconfig", reason="bad_config")


def test_each_version_has_exactly_one_state(triton: Explicit) -> None:
    """After any of the other tests, states are exclusive, ready means ready, and both transports show the same."""
    triton.repository.model("unasked")
    triton.repository.model("neverready", **{"raise": "weights missing"})
    triton.load("neverready")
    triton.wait_for("ready", "anchor")
    triton.wait_for("not_loaded", "unasked", "")
    page = triton.wait_for("unavailable", "neverready")
    other = triton.over_grpc.scrape()
    for metric in (state.MODEL_STATE, state.MODEL_READY, state.MODEL_EXPECTED):
        # A state that one of them never saw has no series there, and is 0 at the other.
        shown, too = ({key for key, value in each.series(metric).items() if value} for each in (page, other))
        assert shown == too
    states: dict[tuple[str, str], list[str]] = {}
    for series, value in page.series(state.MODEL_STATE).items():
        labels = dict(series)
        if value:
            states.setdefault((labels["model"], labels["version"]), []).append(labels["state"])

    assert all(len(current) == 1 for current in states.values())
    for (model, version), (current,) in states.items():
        assert (current == "ready") == page.value(state.MODEL_READY, model=model, version=version)


def test_a_new_version_that_fails_is_a_failure_of_its_own(triton: Explicit) -> None:
    """The old version serves on; the new one is unavailable and not ready."""
    # The last test of this file, with one look: Triton 2.51 has died of signal 11 some 0.3 s after this load.
    triton.repository.model("halfnew", config="version_policy { all {} }")
    triton.load("halfnew")
    triton.wait_for("ready", "halfnew", "1")
    triton.repository.version("halfnew", "2", **{"raise": "weights missing"})
    assert 200 != triton.load("halfnew")
    page = triton.wait(
        lambda page: (
            failures(page, "halfnew")
            and page.value(state.MODEL_STATE, model="halfnew", version="2", state="unavailable")
        )
    )

    assert 1 == page.value(state.MODEL_READY, model="halfnew", version="1")
    assert since(page, "halfnew", "2") is not None
    assert 1 == failures(page, "halfnew")

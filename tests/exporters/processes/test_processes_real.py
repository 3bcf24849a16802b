"""Test the series and alerts about processes and shared memory on real Tritons, one with a model that leaks."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from support.exporter import ScrapedPage, exporting
from support.fast_prometheus import INTERVAL_SECONDS, SCALE, fast_prometheus
from support.loopback import answering
from support.repository import Repository, write
from support.tools import ROOT
from support.triton import control, infer, live_triton
from support.waiting import eventually
from triton_alerts.generate import artifacts
from triton_exporter.catalogue import Metric, models, processes
from triton_exporter.family import series
from triton_exporter.processes import Processes
from triton_exporter.snapshot import IndexEntry, ModelVersion, Snapshot
from triton_slo.artifact import Options
from tritonwatch.local import TritonServer

pytestmark = pytest.mark.real

MIB = 1 << 20


@dataclass
class Watched:
    """A Triton, and a reader of its processes whose readings come when the test wants."""

    server: TritonServer
    repository: Repository
    processes: Processes = field(init=False)

    def __post_init__(self) -> None:
        self.processes = Processes(self.server.metrics_url)
        self.processes.observe_snapshot(Snapshot(1.0, index=()))

    def read(self) -> dict[str, float]:
        """Return all series after one more reading that finds Triton: a busy machine may answer too late."""

        def found() -> dict[str, float]:
            self.processes.poll(1.0)
            return {
                sample.series: sample.value
                for family in self.processes.families(1.0)
                for sample in family.samples
            }

        return eventually(found, "no process of Triton is found")

    def stubs(self, model: str, version: str = "1") -> list[psutil.Process]:
        """Return the processes of a model version, in the way of `ps`."""
        assert self.server.process is not None
        found = []
        for child in psutil.Process(self.server.process.pid).children():
            with contextlib.suppress(psutil.Error):
                if f"/{model}/{version}/model.py" in " ".join(child.cmdline()):
                    found.append(child)
        return found

    def reload(self, model: str) -> None:
        """Load a model again, as after a change of its code, and take the two readings that show its end."""
        for program in (self.repository.path / model).glob("*/model.py"):
            write(program, program.read_text() + "#\n")
        before = self.stubs(model)
        assert 200 == control(self.server, "load", model)
        eventually(lambda: not any(stub.is_running() for stub in before), "the old processes stay")
        self.read()
        self.read()


def _series(metric: Metric, labels: Mapping[str, str]) -> str:
    return series(metric, *(labels[label] for label in metric.labels))


@contextlib.contextmanager
def watching(tmp_path: Path, prepare: str = "") -> Iterator[Watched]:
    """Run a Triton with `echo` (versions 1 and 3, two instances each) and `other`."""
    repository = Repository(tmp_path / "models")
    folder = repository.model("echo", "1", "3", config="version_policy: { all {} }\n")
    write(folder / "config.pbtxt", (folder / "config.pbtxt").read_text().replace("count: 1", "count: 2"))
    repository.model("other_1_2")
    if prepare:
        for program in repository.path.glob("other_1_2/*/model.py"):
            write(program, program.read_text().replace("def initialize(self, args):", prepare))
    arguments = [f"--load-model={model}" for model in ("echo", "other_1_2")]
    with live_triton(repository.path, tmp_path, control="explicit", arguments=arguments) as server:
        yield Watched(server, repository)


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """One Triton for the tests that read it, then unload a model, and at last kill a process."""
    with watching(tmp_path_factory.mktemp("processes")) as running:
        yield running


@pytest.fixture
def triton(started: Watched) -> Watched:
    """The same Triton, and a reader that has read nothing yet."""
    return Watched(started.server, started.repository)


def test_memory_is_that_of_the_processes_of_each_model_version(triton: Watched) -> None:
    """Several instances and versions, and the same as the operating system reports."""
    assert 200 == infer(triton.server, "echo", "3")
    shown = triton.read()
    stubs = {
        version: triton.stubs(*version)
        for version in (
            ModelVersion("echo", "1"),
            ModelVersion("echo", "3"),
            ModelVersion("other_1_2", "1"),
        )
    }
    resident = {version: sum(stub.memory_info().rss for stub in its) for version, its in stubs.items()}
    assert triton.server.process is not None
    whole = psutil.Process(triton.server.process.pid).memory_info().rss

    assert [2, 2, 1] == [len(its) for its in stubs.values()]
    for version, its in stubs.items():
        labels = version._asdict()
        assert len(its) == shown[_series(processes.MODEL_PROCESSES, labels)]
        assert resident[version] == pytest.approx(shown[_series(processes.MODEL_RSS, labels)], rel=0.05)
        assert 0 < shown[_series(processes.MODEL_PSS, labels)] < resident[version]
        assert 0 < shown[_series(processes.MODEL_CPU, labels)]
        assert 0 == shown[_series(processes.MODEL_PROCESS_DEATHS, labels)]
        assert MIB * len(its) == shown[_series(processes.MODEL_SHM, labels)]
    assert whole == pytest.approx(shown[_series(processes.SERVER_RSS, {})], rel=0.05)
    assert 0 < shown[_series(processes.SERVER_PSS, {})] <= whole
    space = os.statvfs("/dev/shm")
    assert space.f_blocks * space.f_frsize == shown[_series(processes.SHM_SIZE, {})]
    assert 5 * MIB <= shown[_series(processes.SHM_USED, {})]


def test_the_page_of_an_exporter_has_them_without_any_option(triton: Watched) -> None:
    """What a user sees beside a Triton whose processes are visible."""
    with exporting(triton.server.http_url, triton.server.metrics_url) as exporter:
        page = exporter.wait(
            lambda page: (
                page.value(processes.MODEL_PSS, model="other_1_2", version="1")
                and page.value(models.INSTANCES, model="echo", version="3", kind="cpu", gpu="") == 2
            )
        )

    assert 2 == page.value(processes.MODEL_PROCESSES, model="echo", version="3")
    assert page.value(processes.SHM_ORPHANED) == 0


def test_two_tritons_on_one_host_are_not_mixed_up(triton: Watched, tmp_path: Path) -> None:
    """Each exporter shows the processes of the Triton that answers it, and of none after that has ended."""
    repository = Repository(tmp_path / "models")
    repository.model("alone")
    with live_triton(repository.path, tmp_path) as other:
        second = Watched(other, repository)
        of_first, of_second = triton.read(), second.read()
        other.kill()
        second.processes.poll(1.0)

    counted = [
        {name for name in shown if name.startswith(f"{processes.MODEL_PROCESSES}{{")}
        for shown in (of_first, of_second)
    ]
    assert {_series(processes.MODEL_PROCESSES, {"model": "alone", "version": "1"})} == counted[1]
    assert 3 == len(counted[0] - counted[1])
    assert counted[0].isdisjoint(counted[1])
    assert [] == list(second.processes.families(1.0))


def test_a_triton_elsewhere_has_no_processes_here(triton: Watched) -> None:
    """A Triton that runs here is not taken for another one that the exporter watches through a proxy."""
    with answering("") as url:
        remote = Processes(url)
        remote.observe_snapshot(Snapshot(1.0, index=()))
        remote.poll(1.0)

    assert [] == list(remote.families(1.0))
    triton.read()


_AS_NOBODY = """
import json, os, sys
from pathlib import Path
from exporters.processes.test_processes_real import watching
with watching(Path(sys.argv[1])) as triton:
    os.seteuid(65534)
    triton.read()
    shown = triton.read()
    os.seteuid(0)  # to end Triton
print(json.dumps(shown))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be somebody else")
def test_another_user_sees_resident_memory_and_guesses_nothing(tmp_path: Path) -> None:
    """No PSS, which the log says once; and all that any user may read. Alone in a process namespace, as in a pod."""
    alone = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", _AS_NOBODY, tmp_path]
    done = subprocess.run(
        alone,
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"PYTHONPATH": str(ROOT / "tests")},
    )
    if "unshare failed" in done.stderr:
        pytest.skip("no process namespaces here")
    assert 0 == done.returncode, done.stderr
    shown = json.loads(done.stdout)
    mine = {"model": "echo", "version": "1"}

    assert 1 == done.stderr.count("may not read the PSS")
    assert 2 == shown[_series(processes.MODEL_PROCESSES, mine)]
    assert shown[_series(processes.MODEL_RSS, mine)] > 10 * MIB
    assert shown[_series(processes.SERVER_RSS, {})] > 10 * MIB
    assert [] == [name for name in shown if "proportional" in name]
    assert 2 * MIB == shown[_series(processes.MODEL_SHM, mine)]


def test_an_unloaded_model_has_no_processes_and_no_deaths(triton: Watched) -> None:
    """An end on purpose is no death, and a reload neither."""
    index = (IndexEntry("echo", "1", "READY"), IndexEntry("other_1_2", "1", "READY"))
    triton.processes.observe_snapshot(Snapshot(1.0, index=index))
    triton.read()
    triton.reload("echo")
    assert 200 == control(triton.server, "unload", "other_1_2")
    eventually(lambda: not triton.stubs("other_1_2"), "it stays")
    triton.read()
    shown = triton.read()

    unloaded = {"model": "other_1_2", "version": "1"}
    assert 0 == shown[_series(processes.MODEL_PROCESSES, unloaded)]
    assert _series(processes.MODEL_RSS, unloaded) not in shown
    assert 2 == shown[_series(processes.MODEL_PROCESSES, {"model": "echo", "version": "1"})]
    deaths = [value for name, value in shown.items() if name.startswith(str(processes.MODEL_PROCESS_DEATHS))]
    assert [0, 0, 0] == deaths
    assert 0 == shown[_series(processes.SHM_ORPHANED, {})]


def test_a_killed_process_is_counted_and_missing(triton: Watched) -> None:
    """Triton 2.51 does not start it again and leaves a zombie; its region belongs to no process any more."""
    triton.read()
    triton.read()
    killed = triton.stubs("echo")[0]
    killed.send_signal(signal.SIGKILL)
    eventually(lambda: killed.status() == psutil.STATUS_ZOMBIE, "it does not end")
    triton.read()
    shown = triton.read()
    again = triton.read()

    mine = {"model": "echo", "version": "1"}
    assert 1 == shown[_series(processes.MODEL_PROCESSES, mine)]
    assert 1 == shown[_series(processes.MODEL_PROCESS_DEATHS, mine)]
    assert MIB == shown[_series(processes.SHM_ORPHANED, {})]
    assert 1 == again[_series(processes.MODEL_PROCESS_DEATHS, mine)]


_LEAKS = """\
def initialize(self, args):
        import time, uuid
        time.sleep(1.5)
        with open(f"/dev/shm/triton_leak_of_test_{uuid.uuid4().hex}", "wb") as file:
            file.write(bytes(64 << 20))"""


def test_a_model_that_leaves_memory_at_each_reload_shows_how_much(tmp_path: Path) -> None:
    """64 MiB of /dev/shm at each, as at a new version, and nothing in the parts that do not leak, nor of the other model."""
    try:
        with watching(tmp_path, prepare=_LEAKS) as triton:
            triton.read()
            triton.read()
            growths = []
            for load in range(3):
                if load == 2:  # a new version, which replaces the other one
                    versions = triton.repository.path / "other_1_2"
                    shutil.copytree(versions / "1", versions / "2")
                triton.reload("other_1_2")
                shown = triton.read()
                growths.append(
                    {
                        part: shown[_series(processes.RELOAD_GROWTH, {"model": "other_1_2", "part": part})]
                        for part in processes.RELOAD_PARTS
                    }
                )
    finally:
        for left in Path("/dev/shm").glob("triton_leak_of_test_*"):
            left.unlink()

    for growth in growths:
        assert 64 * MIB == pytest.approx(growth["shm"], abs=24 * MIB)
        assert abs(growth["processes"]) < 4 * MIB
        assert growth["server"] < 8 * MIB
    assert _series(processes.RELOAD_GROWTH, {"model": "echo", "part": "shm"}) not in shown


def test_the_alerts_fire_for_a_model_that_leaks_and_for_a_killed_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of three reloads leaves the same 64 MiB; then a process is killed, and a reload ends that alert."""
    monkeypatch.setattr("triton_exporter.processes.INTERVAL_SECONDS", 1.0)
    monkeypatch.setattr("triton_exporter.processes.MAX_SHARE", 1.0)
    options = Options(time_scale=SCALE, scrape_interval_seconds=INTERVAL_SECONDS)
    made = [each for each in artifacts((), options) if each.name == "triton-lifecycle.yml"]
    leaky = {"model": "other_1_2", "version": "1"}

    def grown(page: ScrapedPage) -> list[float | None]:
        return [
            page.value(processes.RELOAD_GROWTH, model="other_1_2", part=part)
            for part in processes.RELOAD_PARTS
        ]

    def reloaded(before: list[float | None]) -> list[float | None]:
        triton.reload("other_1_2")
        return grown(exporter.wait(lambda page: grown(page) != before))

    try:
        with (
            watching(tmp_path, prepare=_LEAKS) as triton,
            exporting(triton.server.http_url, triton.server.metrics_url) as exporter,
            fast_prometheus(exporter.url, made, tmp_path / "watch") as watch,
        ):
            # Another value at each reading: after three the first load is known.
            worked: set[float | None] = set()
            exporter.wait(
                lambda page: worked.add(page.value(processes.SERVER_CPU)) or len(worked - {None}) > 2
            )
            measured: list[float | None] = [None, None, None]
            for _ in range(3):
                measured = reloaded(measured)
                for part, value in zip(processes.RELOAD_PARTS, measured, strict=True):
                    watch.wait_seen(f'{processes.RELOAD_GROWTH}{{part="{part}"}} == {value}')
            leak = watch.wait("TritonModelReloadLeaks", model="other_1_2", part="shm")
            (stub,) = triton.stubs("other_1_2")
            stub.send_signal(signal.SIGKILL)
            watch.wait("TritonModelProcessDied", **leaky)
            others = watch.alerts("TritonModelProcessDied", model="echo")
            triton.reload("other_1_2")
            watch.wait_gone("TritonModelProcessDied", **leaky)
    finally:
        for left in Path("/dev/shm").glob("triton_leak_of_test_*"):
            left.unlink()

    # Other tests use the same /dev/shm at the same time.
    assert re.match(
        r"Memory grew by \d+.*MiB at each reload of model other_1_2", leak["annotations"]["summary"]
    )
    assert [] == others

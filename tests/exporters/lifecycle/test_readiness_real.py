"""Test every row of the table of /ready on a real Triton, and the probe of the Kubernetes example with the exporter killed."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import requests
import yaml

from support.exporter import RunningExporter, exporting
from support.loopback import free_ports
from support.repository import Repository, write
from support.triton import control, drained, infer, live_triton
from support.waiting import eventually
from triton_exporter.probe.probe_settings import ProbeSettings
from tritonwatch.local import Child, TritonServer

pytestmark = pytest.mark.real

EXAMPLE = Path(__file__).parents[3] / "compose/kubernetes/example/triton.yaml"


@dataclass(frozen=True)
class Asked:
    """A real Triton that loads on request, and what its exporter answers."""

    server: TritonServer
    repository: Repository
    exporter: RunningExporter

    def load(self, model: str) -> int:
        return control(self.server, "load", model)

    def unload(self, model: str) -> None:
        control(self.server, "unload", model)

    def answers(self, status: int, text: str, query: str = "") -> None:
        """Wait until the page has this status and this text."""
        last = ""

        def same() -> bool:
            nonlocal last
            response = self.exporter.get(f"/ready{query}")
            last = f"{query} {response.status_code} {response.text}"
            return response.status_code == status and text in response.text

        eventually(same, lambda: last)


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    directory = tmp_path_factory.mktemp("readiness")
    repository = Repository(directory / "models")
    repository.model("good")
    with (
        live_triton(
            repository.path, directory, "explicit", ["--load-model=good"], auto_complete=True
        ) as server,
        exporting(server.http_url, server.metrics_url) as exporter,
    ):
        yield Asked(server, repository, exporter)


def test_a_failed_load_is_named_with_its_reason(asked: Asked) -> None:
    """By default every model that Triton was asked to load must be ready; a query can name or need fewer."""
    asked.answers(200, "ready: 1 of 1 models\n")
    folder = asked.repository.model("fails", **{"raise": "weights missing"})
    assert 400 == asked.load("fails")

    reason = "not ready: 1 of 2 models\nfails: unavailable: Internal: RuntimeError: weights missing"
    asked.answers(503, reason)
    asked.answers(503, reason, "?models=good,fails")
    asked.answers(200, "ready: 1 of 2 models\nfails: unavailable", "?policy=any")
    asked.answers(200, "ready: 1 of 1 models\n", "?models=good")

    (folder / "1" / "raise").unlink()
    asked.load("fails")
    asked.unload("fails")
    asked.answers(200, "ready: 1 of 1 models\n")


def test_a_first_load_is_tolerated_for_a_time_and_never_alone(asked: Asked) -> None:
    """A hot reload, during which the old copy serves, and an unload on purpose are in nobody's way."""
    folder = asked.repository.model("slow", load_seconds=6)
    loader = threading.Thread(target=asked.load, args=("slow",))
    loader.start()
    try:
        asked.answers(503, "not ready: 1 of 2 models\nslow: loading\n")
        asked.answers(200, "slow: loading for the first time, which is tolerated", "?loading=10m")
        asked.answers(503, "not ready: 0 of 1 models: one at least must be", "?models=slow&loading=10m")
        asked.answers(503, "slow: loading\n", "?loading=1")
    finally:
        loader.join()
    asked.answers(200, "ready: 2 of 2 models\n")

    write(folder / "1" / "model.py", (folder / "1" / "model.py").read_text() + "\n")
    loader = threading.Thread(target=asked.load, args=("slow",))
    loader.start()
    while loader.is_alive():
        assert 200 == asked.exporter.get("/ready").status_code
        loader.join(0.5)

    asked.unload("slow")
    asked.answers(200, "ready: 1 of 1 models\n")
    asked.answers(503, "slow: unloaded: unloaded", "?models=good,slow")


def test_what_is_missing_counts_only_where_it_is_expected(asked: Asked) -> None:
    """Named in the query, or in the operator's list, which then is all that counts."""
    write(asked.repository.model("unread") / "config.pbtxt", "nonsense {")
    asked.load("unread")
    asked.answers(200, "ready: 1 of 1 models\n")
    asked.answers(503, "gone: missing: Triton does not list it", "?models=good,gone")
    asked.answers(503, "good:9: missing: Triton does not list it", "?models=good:9")
    asked.answers(503, "unread: not_loaded: Triton lists it without a version", "?models=unread")

    with exporting(asked.server.http_url, asked.server.metrics_url, expected={"gone": ()}) as exporter:
        Asked(asked.server, asked.repository, exporter).answers(503, "not ready: 0 of 1 models")

    asked.unload("good")
    asked.answers(503, "not ready: 0 of 0 models: one at least must be")
    asked.load("good")
    asked.answers(200, "ready: 1 of 1 models\n")


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("?policy=most", "policy 'most' is not one of all, any"),
        ("?policy=", "policy '' is not one of all, any"),
        ("?models=", "models: '' is not a model or model:version"),
        ("?models=good,", "models: '' is not a model or model:version"),
        ("?models=good:x", "models: 'good:x' is not a model or model:version"),
        ("?model=good", "'model' is not a parameter; there are models, policy, loading"),
        ("?loading=soon", "loading: 'soon' is not a duration"),
        ("?loading=nan", "loading: nan is not from"),
        ("?loading=-1", "loading: -1 is not from"),
        ("?%00%ff=%ed%a0%80", "is not a parameter"),
    ],
)
def test_a_wrong_query_is_refused_with_what_is_wrong(asked: Asked, query: str, text: str) -> None:
    """Never 503, which would look like a fault of Triton's."""
    response = asked.exporter.get(f"/ready{query}")

    assert 400 == response.status_code
    assert text in response.text


def test_hostile_names_are_looked_for_and_escaped(asked: Asked) -> None:
    """Thousands of names, and bytes that would steer a terminal; the body stays short."""
    asked.answers(200, "ready: 1 of 1 models\n")
    many = asked.exporter.get("/ready?models=" + ",".join(f"m{number}" for number in range(4000)))
    odd = asked.exporter.get("/ready?models=%1b[31m,%ed%a0%80," + "x" * 9000)

    assert (503, True) == (many.status_code, "and 3980 more" in many.text and len(many.text) < 2000)
    assert (503, True) == (odd.status_code, "\\x1b[31m: missing" in odd.text and len(odd.text) < 2000)


def test_a_server_that_does_not_answer_is_named(tmp_path: Path) -> None:
    """Stopped, draining, and gone: each with the phase that /state shows."""
    repository = Repository(tmp_path / "models")
    repository.model("slowly", delay_seconds=3)
    with (
        live_triton(repository.path, tmp_path) as server,
        exporting(server.http_url, server.metrics_url) as exporter,
    ):
        asked = Asked(server, repository, exporter)
        asked.answers(200, "ready: 1 of 1 models\n")
        assert server.process is not None
        server.process.send_signal(signal.SIGSTOP)
        asked.answers(503, "not ready: Triton: does not answer\n")
        server.process.send_signal(signal.SIGCONT)
        asked.answers(200, "ready: 1 of 1 models\n")
        drained(server, [exporter], "slowly")
        asked.answers(503, "not ready: Triton: draining\n")
        server.process.wait(15)
        asked.answers(503, "not ready: Triton: down or starting\n")


def test_a_probe_must_have_worked_and_goes_on_working(tmp_path: Path) -> None:
    """A covered model waits for its first probe, and one whose process has died is not ready."""
    repository = Repository(tmp_path / "models")
    repository.model("echo", delay_seconds=1)
    repository.model("other")
    probes = ProbeSettings(models=("echo",), interval_seconds=1, timeout_seconds=5)
    with (
        live_triton(
            repository.path, tmp_path, "explicit", ["--load-model=echo", "--load-model=other"]
        ) as server,
        exporting(server.http_url, server.metrics_url, probes=probes) as exporter,
    ):
        asked = Asked(server, repository, exporter)
        asked.answers(503, "not ready: 1 of 2 models\necho: ready: no probe of it has ended yet")
        asked.answers(200, "ready: 2 of 2 models\n")
        assert server.process is not None
        for child in psutil.Process(server.process.pid).children(recursive=True):
            if any("/echo/" in word for word in child.cmdline()):
                child.kill()
        asked.answers(503, "echo: ready: its last probe ended with failed: ")
        asked.answers(200, "ready: 1 of 1 models\n", "?models=other")


def test_the_example_of_kubernetes_outlives_the_exporter(asked: Asked, tmp_path: Path) -> None:
    """The command of the manifest, as the kubelet runs it: with a killed exporter Triton's own readiness decides."""
    (port,) = free_ports(1)
    words = ["exporter", "--triton", asked.server.http_url, "--triton-metrics", asked.server.metrics_url]
    words += ["--gpu=none", f"--listen=127.0.0.1:{port}", "--expect=good"]
    exporter = Child("exporter", [sys.executable, "-m", "tritonwatch", *words], tmp_path / "exporter.log")
    container = yaml.safe_load(EXAMPLE.read_text())["spec"]["template"]["spec"]["containers"][0]
    command = [
        word.replace("127.0.0.1:9401", f"127.0.0.1:{port}").replace(
            "http://127.0.0.1:8000", asked.server.http_url
        )
        for word in container["readinessProbe"]["exec"]["command"]
    ]

    def probe() -> tuple[int, str]:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=7, check=False)
        return ended.returncode, ended.stdout + ended.stderr

    exporter.start()
    try:
        eventually(lambda: probe() == (0, "ready: 1 of 1 models\n"), lambda: str(probe()))
        asked.unload("good")
        eventually(lambda: probe()[0] == 1 and "good: unloaded" in probe()[1], lambda: str(probe()))
        assert 200 == requests.get(f"{asked.server.http_url}/v2/health/ready", timeout=5).status_code
        wrong = [word.replace("/ready?loading", "/ready?laoding") for word in command]
        assert 0 == subprocess.run(wrong, capture_output=True, timeout=7, check=False).returncode
        assert exporter.process is not None
        exporter.process.kill()
        exporter.process.wait()
        assert (0, "") == probe(), "Triton itself calls itself ready"
        with pytest.raises(requests.ConnectionError):  # what an httpGet probe would see
            requests.get(f"http://127.0.0.1:{port}/ready", timeout=5)
    finally:
        exporter.stop()
        asked.load("good")
    assert 200 == infer(asked.server, "good")


def test_without_exporter_and_triton_the_example_is_not_ready() -> None:
    """Nothing listens on the ports of the manifest here."""
    container = yaml.safe_load(EXAMPLE.read_text())["spec"]["template"]["spec"]["containers"][0]
    command = [
        word.replace(":9401", ":1").replace(":8000", ":1")
        for word in container["readinessProbe"]["exec"]["command"]
    ]

    assert 0 != subprocess.run(command, timeout=7, check=False).returncode

"""Test a Triton of which only the metrics can be reached: an OpenAI front end without KServe, closed ports, a mesh.

Real Triton, real Prometheus with the generated rules; durations are divided by 360.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

from exporters.faults import body, faulty
from support.exporter import exporting
from support.fast_prometheus import INTERVAL_SECONDS, SCALE, fast_prometheus
from support.loopback import Handler, answering, free_ports
from support.repository import Repository
from support.tools import ROOT
from support.triton import infer, live_triton
from support.waiting import eventually
from triton_alerts.generate import artifacts
from triton_exporter.catalogue import llm, state
from triton_exporter.distribution import distributions
from triton_exporter.lifecycle import tracker
from triton_slo import names
from triton_slo.artifact import Options
from triton_slo.generate import artifacts as slo_artifacts
from triton_slo.objective.reading import read
from tritonwatch.cli import main
from tritonwatch.local import TritonPorts, TritonServer

pytestmark = pytest.mark.real

KINDS = ("readiness", "errors", "latency", "queue")
FILES = [ROOT / "slo" / "objectives" / f"{kind}.yaml" for kind in KINDS]
BUSY = {"model": "busy", "version": "1"}
IDLE_SECONDS = 8.0
"""Time without a request after the traffic: 48 minutes of the rules, in which a readiness objective would page."""


@contextmanager
def busy(server: TritonServer) -> Iterator[None]:
    """Send requests to one model until the block ends."""
    done = threading.Event()

    def send() -> None:
        while not done.wait(0.05):
            infer(server, "busy")

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@contextmanager
def openai_front_end(metrics_url: str) -> Iterator[str]:
    """Serve a Triton's metrics as its OpenAI front end does, which answers 404 to everything of KServe."""

    def answer(request: Handler) -> None:
        if request.path == "/metrics":
            request.reply(requests.get(metrics_url, timeout=5).text)
        else:
            request.reply({"detail": "Not Found"}, 404)

    with answering(answer) as url:
        yield url


def test_nothing_is_guessed_and_no_readiness_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Errors, latency and queue are measured; a model is ready while its requests succeed, then unknown; a dead
    Triton is found by its metrics."""
    monkeypatch.setattr(tracker, "SERVES_SECONDS", 3.0)
    monkeypatch.setattr(distributions, "UNKNOWN_SECONDS", 3.0)
    repository = Repository(tmp_path / "models")
    for model in ("busy", "idle"):
        repository.model(model)
    options = Options(time_scale=SCALE, scrape_interval_seconds=INTERVAL_SECONDS)
    objectives = read([(file.name, file.read_text()) for file in FILES]).objectives
    rules = [*artifacts((), options), *slo_artifacts(objectives, options)]
    with (
        live_triton(repository.path, tmp_path) as server,
        exporting("", server.metrics_url) as exporter,
        fast_prometheus(exporter.url, rules, tmp_path / "watch") as watch,
    ):
        with busy(server):
            page = exporter.wait(lambda page: page.value(state.MODEL_STATE, **BUSY, state="ready"))
            for kind in KINDS[1:]:
                watch.wait_seen(f'{names.COUNTER}{{slo="{kind}", model="busy"}} > 0')
        exporter.wait(lambda page: page.value(state.MODEL_STATE, **BUSY, state="unknown"))
        time.sleep(IDLE_SECONDS)
        watch.wait("TritonSLOUnmeasured", slo="readiness", model="busy")
        pending_or_firing = watch.samples(
            'ALERTS{alertname!~"Watchdog|TritonSLOUnmeasured|TritonTrafficVanished|.*Bridge.*"}'
        )
        readiness = watch.samples(f'{names.COUNTER}{{slo="readiness"}}')

        def checked_models() -> str:
            """Return what check says, once Prometheus has models: on a busy machine a scrape may come too late."""
            assert 1 == main(["check", str(FILES[0]), "--prometheus", watch.url])
            printed = capsys.readouterr().err
            return "" if "has no series of any model" in printed else printed

        checked = eventually(checked_models, "Prometheus never had a model")
        server.kill()
        watch.wait("TritonAllServersDown")

    assert (1, 1) == (page.value(state.UP), page.value(state.SERVER_LIVE))
    assert 1 == page.value(state.MODEL_STATE, model="idle", version="1", state="unknown")
    for metric in (state.MODEL_READY, state.MODEL_EXPECTED, state.MODEL_NOT_READY_SINCE, state.SERVER_READY):
        assert {} == page.series(metric)
    assert [] == [sample["metric"] for sample in pending_or_firing]
    assert [] == readiness
    assert "readiness: indicator: busy, idle: the exporter reads only Triton's metrics" in checked
    assert "give the exporter --triton" in checked


def test_a_success_of_a_triton_that_has_ended_makes_nothing_ready(tmp_path: Path) -> None:
    """It counts for a minute, but only while Triton's metrics answer."""
    repository = Repository(tmp_path / "models")
    repository.model("busy")
    with (
        live_triton(repository.path, tmp_path) as server,
        exporting("", server.metrics_url) as exporter,
    ):
        with busy(server):
            exporter.wait(lambda page: page.value(state.MODEL_STATE, **BUSY, state="ready"))
        server.kill()
        began = time.monotonic()
        exporter.wait(lambda page: page.value(state.MODEL_STATE, **BUSY, state="unknown"))
        page = exporter.scrape(5)

    assert time.monotonic() - began < tracker.SERVES_SECONDS
    assert 0 == page.value(state.SERVER_LIVE)


def test_an_api_that_answers_404_hides_no_triton(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It was `triton_up 0` and live 0, which pages after 20 minutes, for a Triton that serves."""
    repository = Repository(tmp_path / "models")
    repository.model("busy")
    with (
        live_triton(repository.path, tmp_path) as server,
        openai_front_end(server.metrics_url) as url,
        exporting(url, f"{url}/metrics") as exporter,
        busy(server),
    ):
        page = exporter.wait(lambda page: page.value(state.MODEL_STATE, **BUSY, state="ready"))
        shown = exporter.get("/state").json()["triton"]
        assert 1 == main(["doctor", "--triton", url, "--triton-metrics", url, "--gpu=none", "--watch=10ms"])
        printed = " ".join(capsys.readouterr().out.split())
        proposal = tmp_path / "proposed.yaml"
        assert 0 == main(["init", "--triton-metrics", url, "--out", str(proposal)])

    assert 1 == page.value(state.UP)
    for metric in (state.SERVER_LIVE, state.SERVER_READY, state.MODEL_READY, state.MODEL_EXPECTED):
        assert {} == page.series(metric)
    assert ("unknown", "GET /v2 answers HTTP 404") == (shown["phase"], shown["api_failure_text"])
    assert "--enable-kserve-frontends" in printed
    proposed = read([(proposal.name, proposal.read_text())])
    assert (KINDS[1:], ()) == (tuple(each.name for each in proposed.objectives), tuple(proposed.problems))
    assert "busy: mean" in proposal.read_text()


def test_both_ports_closed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The exporter with the metrics alone shows the models as unknown, and the doctor what an API would give."""
    repository = Repository(tmp_path / "models")
    repository.model("idle")
    closed = ("--allow-http=false", "--allow-grpc=false", "--allow-metrics=true")
    server = TritonServer(
        repository.path, tmp_path, TritonPorts(*free_ports(3)), "none", closed, auto_complete=False
    )
    try:
        server.start()
        eventually(lambda: requests.get(server.metrics_url, timeout=2).ok, server.log.read_text)
        with exporting("", server.metrics_url) as exporter:
            page = exporter.wait(lambda page: page.series(state.MODEL_STATE))
            shown = exporter.get("/state").json()
        words = ["doctor", "--triton-metrics", server.metrics_url, "--gpu=none", "--watch=10ms", "--json"]
        assert 0 == main(words)
        findings = {each["title"]: each["do"] for each in json.loads(capsys.readouterr().out)}
    finally:
        server.kill()

    assert 1 == page.value(state.MODEL_STATE, model="idle", version="1", state="unknown")
    assert ("metrics only", True, None) == tuple(shown["triton"][name] for name in ("phase", "live", "ready"))
    assert ("unknown", "metrics") == tuple(shown["models"][0][name] for name in ("state", "source"))
    assert "--enable-kserve-frontends" in findings["Only Triton's metrics are read"]


def test_an_engine_without_triton_shows_its_language_model() -> None:
    """vLLM, trtllm-serve and NIM have no `nv_...`; another server's page is still refused (test_not_triton.py)."""
    text = b'# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting{model_name="org/m"} 3\n'
    with faulty({"/metrics": body(text)}) as engine, exporting("", f"{engine.url}/metrics") as exporter:
        page = exporter.wait(lambda page: page.series(llm.REQUESTS))

    assert 1 == page.value(state.UP)
    assert 3 == page.value(llm.REQUESTS, model="org/m", version="", state="waiting")
    assert {} == page.series(state.MODEL_STATE)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (
            [],
            "--triton: is missing (fix: give --triton URL, or --triton-metrics URL where only the metrics can be",
        ),
        (["--triton-metrics=x:1", "--expect=m"], "--expect: needs Triton's API"),
        (["--triton-metrics=x:1", "--probe=m"], "--probe: needs Triton's API"),
    ],
)
def test_what_needs_an_api_says_so(
    words: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """An option that could do nothing is a mistake."""
    assert 0 != main(["exporter", *words])
    assert problem in capsys.readouterr().err

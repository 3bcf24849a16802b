"""Test the findings of `tritonwatch doctor` on a model's page: for a real Triton, and for one that is down."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

from support import history, web_fleet
from support.bridge import Clock
from support.loopback import free_ports
from support.repository import Repository
from support.triton import live_triton
from support.waiting import eventually
from support.web_fleet import text_of
from triton_exporter.doctor.finding import TritonFacts
from triton_exporter.snapshot import Snapshot
from tritonwatch.cli import main
from tritonwatch.web.sources import DoctorReader

PAGE = "Settings that expose more metrics"


@contextmanager
def serving(*options: str) -> Iterator[str]:
    """Yield the address of a real `tritonwatch web`, whose answers are a second old at most."""
    [port] = free_ports(1)
    command = [
        sys.executable,
        "-m",
        "tritonwatch",
        "web",
        f"--listen=127.0.0.1:{port}",
        "--scrape-interval=1s",
    ]
    with subprocess.Popen([*command, *options]) as process:
        # Without `finally` a failed assertion of the caller would wait for a process that nobody ends.
        try:
            site = f"http://127.0.0.1:{port}"
            eventually(lambda: requests.get(f"{site}/-/ready", timeout=2).ok, "the page is served")
            yield site
        finally:
            process.terminate()


def findings(site: str, model: str, at: str = "") -> str:
    """Return the text of the last part of a model's page, once Triton has answered it."""

    def shown() -> str:
        answer = requests.get(f"{site}/model", params={"model": model, "at": at}, timeout=60)
        text = text_of(answer.text).partition(PAGE)[2]
        return "" if "it has not answered yet" in text else text

    return eventually(shown, f"no findings about {model}")


@pytest.mark.real
def test_a_models_page_has_the_findings_about_it_and_its_server(tmp_path: Path) -> None:
    """Those about other models are left out; a Triton that is gone is named, and a model that it never had."""
    repository = Repository(tmp_path / "models")
    repository.model("echo", config="dynamic_batching { }")
    repository.model("broken", **{"raise": "weights missing"})
    end = time.time() // 60 * 60
    series = [
        recorded
        for model in ("echo", "broken", "other")
        for recorded in web_fleet.group(end, "latency", model)
    ]
    with (
        history.serve(history.openmetrics(series), tmp_path / "history", flags=web_fleet.LOOKBACK) as url,
        live_triton(
            repository.path, tmp_path, arguments=["--metrics-config=summary_latencies=true"]
        ) as triton,
        serving(
            *(f"--prometheus={url}", f"--triton={triton.http_url}", f"--triton-metrics={triton.metrics_url}"),
            *("--gpu=none", "--dcgm-url="),
        ) as site,
    ):
        echo, broken, other = (findings(site, model) for model in ("echo", "broken", "other"))
        past = findings(site, "echo", str(end))
        triton.kill()
        gone = eventually(
            lambda: text if "could not be asked" in (text := findings(site, "echo")) else "",
            lambda: findings(site, "echo"),
        )

    for finding in ("Summaries are on", "summary_latencies=false", "The whole server is not ready"):
        assert finding in echo
        assert finding in broken
    assert ["Queues without a limit" in text for text in (echo, broken)] == [True, False]
    assert ["Models failed to load" in text for text in (echo, broken)] == [False, True]
    assert "does not list this model" in other
    assert "Summaries" not in other
    assert "are only about the present" in past
    assert "Triton's API refuses connections" in gone
    assert "none about this model" not in gone


def test_a_triton_that_hangs_is_asked_once_for_all_viewers() -> None:
    """The page does not wait for it, shows that nothing is known, and later shows the findings."""
    clock, released, asked = Clock(1000.0), threading.Event(), []

    def gather() -> TritonFacts:
        asked.append(clock())
        released.wait(30)
        return TritonFacts("http://t:8000", "http://t:8002", Snapshot(at=clock(), index=()))

    doctor = DoctorReader("http://t:8000", gather, 15.0, clock, patience_seconds=0.01)
    hanging = [doctor.of_model("m"), doctor.of_model("m")]
    released.set()
    later = eventually(
        lambda: facts if (facts := doctor.of_model("m")).read_at is not None else None, "the facts"
    )
    once = len(asked)
    clock.now += 15.0
    doctor.of_model("m")
    eventually(lambda: len(asked) == 2, "an interval later it is asked again")

    assert ["could not be asked: it has not answered yet; open the page again"] * 2 == [
        reading.problem for reading in hanging
    ]
    assert 1 == once
    assert "does not list this model" == later.problem


def test_a_defect_is_not_shown_as_no_findings(caplog: pytest.LogCaptureFixture) -> None:
    """What was not read is never "nothing to change"; the exception is in the log."""

    def gather() -> TritonFacts:
        raise ZeroDivisionError

    doctor = DoctorReader("http://t:8000", gather, 15.0)

    assert "could not be asked: the log of `tritonwatch web` has the reason" == doctor.of_model("m").problem
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--dcgm-url=http://127.0.0.1:9400/metrics"], "--dcgm-url: needs --triton URL"),
        (["--triton-metrics=http://127.0.0.1:8002/metrics"], "--triton-metrics: needs --triton URL"),
        (["--triton=http://u:p@t:8000"], "a URL takes no user and password"),
        (["--triton=http://t:8000", "--gpu=cuda"], "--gpu"),
    ],
)
def test_half_a_setting_is_named(words: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    """At the start, not on the first page."""
    assert 2 == main(["web", "--prometheus=http://127.0.0.1:9", "--listen=127.0.0.1:0", *words])
    assert line in capsys.readouterr().err

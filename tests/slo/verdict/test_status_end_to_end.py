"""Test a real Triton, exporter, Prometheus and our generated rules with status, gate and backtest."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import requests

from support import history
from support.exporter import exporting
from support.triton import live_triton
from support.waiting import eventually
from triton_exporter.probe.probe_settings import ProbeSettings
from triton_slo import names
from triton_slo.artifact import Options
from triton_slo.generate import artifacts
from triton_slo.objective.model import Objective
from triton_slo.prometheus import Prometheus
from triton_slo.server_access import Access
from triton_slo.status import read_status
from tritonwatch.cli import main
from tritonwatch.local import TritonServer

MODEL = """
import time
import triton_python_backend_utils as utils

class TritonPythonModel:
    def execute(self, requests):
        value = utils.get_input_tensor_by_name(requests[0], "X").as_numpy()[0]
        if value < 0:
            raise RuntimeError("weights are negative")
        if value > 1:
            time.sleep(0.06)
        return [utils.InferenceResponse([utils.Tensor("Y", utils.get_input_tensor_by_name(one, "X").as_numpy())])
                for one in requests]
"""
MUTE = """
import triton_python_backend_utils as utils

class TritonPythonModel:
    worked = False

    def execute(self, requests):
        if not self.worked:
            self.worked = True
            inputs = [utils.get_input_tensor_by_name(one, "X").as_numpy() for one in requests]
            return [utils.InferenceResponse([utils.Tensor("Y", one)]) for one in inputs]
        return [utils.InferenceResponse(error=utils.TritonError("no weights")) for _ in requests]
"""
"""Answers with errors after its first request, which Triton counts as success: only probes see it."""
CONFIG = """
backend: "python"
input [{ name: "X" data_type: TYPE_FP32 dims: [ 1 ] }]
output [{ name: "Y" data_type: TYPE_FP32 dims: [ 1 ] }]
instance_group [{ kind: KIND_CPU count: 1 }]
"""
FAILING = 0.1
"""Share of the requests to model `flaky` that fail; none of `steady` do."""
SLOW = 0.05
"""Share of the requests to model `tailed` that take 60 ms."""
ERRORS = Objective(name="errors", target=0.999, indicator="errors")
LATENCY = Objective(name="latency", target=0.99, indicator={"kind": "latency", "threshold": "50ms"})
PROBE = Objective(name="probe", target=0.99, indicator="probe")
PROBES = ProbeSettings(("mute", "steady"), interval_seconds=0.5, timeout_seconds=2.0)
SAMPLING_SECONDS = 1.0
"""Too long for the exporter to estimate how requests spread: latency is the mean of some 40 of them."""
JUDGED = (
    ("errors", "flaky"),
    ("errors", "steady"),
    ("errors", "mute"),
    ("errors", "tailed"),
    ("latency", "tailed"),
    ("probe", "mute"),
    ("probe", "steady"),
)
OPTIONS = Options(scrape_interval_seconds=1, time_scale=0.1)


@contextmanager
def traffic(triton: TritonServer) -> Iterator[None]:
    """About 40 requests a second to each model until the block ends."""
    stop = threading.Event()

    def send(model: str, share: float, other: float) -> None:
        with requests.Session() as session:
            for turn in range(100_000):
                value = other if share and (turn + 1) % round(1 / share) == 0 else 1.0
                tensor = {"name": "X", "shape": [1], "datatype": "FP32", "data": [value]}
                session.post(
                    f"{triton.http_url}/v2/models/{model}/infer", json={"inputs": [tensor]}, timeout=5
                )
                if stop.wait(0.025):
                    return

    values = (("flaky", FAILING, -1.0), ("steady", 0.0, 0.0), ("tailed", SLOW, 2.0))
    senders = [threading.Thread(target=send, args=value) for value in values]
    for sender in senders:
        sender.start()
    try:
        yield
    finally:
        stop.set()
        for sender in senders:
            sender.join()


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("stack")
    for model, code in (("flaky", MODEL), ("steady", MODEL), ("tailed", MODEL), ("mute", MUTE)):
        version = directory / "models" / model / "1"
        version.mkdir(parents=True)
        (version / "model.py").write_text(code)
        (version.parent / "config.pbtxt").write_text(CONFIG)
    rules = {
        artifact.name: artifact.text
        for artifact in artifacts([ERRORS, LATENCY, PROBE], OPTIONS)
        if artifact.part == "rules"
    }
    with (
        live_triton(directory / "models", directory) as triton,
        exporting(
            triton.http_url, triton.metrics_url, probes=PROBES, sampling_interval=SAMPLING_SECONDS
        ) as exporter,
        history.serve(
            "", directory / "p", rules=rules, scrape=exporter.url.removeprefix("http://")
        ) as prometheus,
    ):
        with traffic(triton):
            wait_for_page(prometheus, "flaky")
            wait_for_page(prometheus, "mute")
            time.sleep(5)  # enough requests for shares to settle
            with Prometheus(Access(prometheus)) as client:
                for slo, model in JUDGED:
                    left = f'{names.PERIOD_BUDGET_REMAINING}{{slo="{slo}", model="{model}"}}'
                    eventually(partial(client.instant, left), f"no budget of {slo} {model}")
        yield prometheus


def wait_for_page(prometheus: str, model: str) -> None:
    """Until a failing model's page fires."""
    firing = f'ALERTS{{alertstate="firing", tier="page_fast", model="{model}"}}'
    with Prometheus(Access(prometheus)) as client:
        eventually(lambda: client.instant(firing), "no page fired")


@pytest.mark.real
def test_standings_are_those_of_the_requests_sent(prometheus: str) -> None:
    """The recorded series of a real Triton give the share of failed requests, the state and the cause."""
    with Prometheus(Access(prometheus)) as client:
        actual = {
            read_statu.model: read_statu for read_statu in read_status(client) if read_statu.slo == "errors"
        }

    for model, share in (("flaky", FAILING), ("steady", 0.0)):
        sli = actual[model].sli
        assert sli is not None
        assert pytest.approx(share, rel=0.15) == 1 - sli
        # Seconds of a month: what burns is known, the budget is not, nor what burned in an hour.
        assert {} == actual[model].burn
        assert ("burning" if share else "ok") == actual[model].state
        assert actual[model].budget_words.startswith("not known yet: ")
    cause, part = actual["flaky"].causes[0]
    assert "failure:BACKEND" == cause
    assert pytest.approx(1.0) == part


@pytest.mark.real
def test_probes_find_failures_that_triton_counts_as_success(
    prometheus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status, gate and backtest judge by failed probes."""
    with Prometheus(Access(prometheus)) as client:
        rows = read_status(client)

    actual = {(row.slo, row.model): row for row in rows}
    assert ("ok", 1.0) == (actual["errors", "mute"].state, actual["errors", "mute"].sli)
    mute, steady = actual["probe", "mute"], actual["probe", "steady"]
    assert ("burning", ("prober",)) == (mute.state, mute.sources)
    assert mute.sli is not None
    assert mute.sli < 0.2
    cause, part = mute.causes[0]
    assert "failure:failed" == cause
    assert pytest.approx(1.0) == part
    assert ("ok", 1.0, ()) == (steady.state, steady.sli, steady.causes)
    assert ("probe", "flaky") not in actual

    (tmp_path / "probe.yaml").write_text("{name: probe, target: 99%, indicator: probe}")
    gate = ["gate", "--prometheus", prometheus, "--max-age", "10s", "--objective", "probe", "--model"]
    assert [4, 0] == [main([*gate, model]) for model in ("mute", "steady")]
    capsys.readouterr()
    assert 0 == main(backtest(prometheus, tmp_path))
    assert {("mute", "page_fast")} == pages(capsys.readouterr().out)


@pytest.mark.real
def test_the_gate_sees_what_pages(prometheus: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The failing model is rolled back because of its page, the other is promoted on fresh data."""
    words = ["gate", "--prometheus", prometheus, "--max-age", "10s", "--model"]

    assert 4 == main([*words, "flaky"])
    assert "a page fires: page_fast" in capsys.readouterr().out
    assert 0 == main([*words, "steady", "--objective", "errors", "--trust", "backend_counters"])
    assert "steady version 1: budget left: not known yet: " in capsys.readouterr().out
    # Its probes work, and there are too few of them to show that no request fails.
    assert 3 == main([*words, "steady", "--objective", "errors"])
    assert re.search(r"wait until objective probe has counted \d+ requests", capsys.readouterr().out)


@pytest.mark.real
def test_failures_that_a_backend_hides_promote_nothing(
    prometheus: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A Python model that answers each request with an error has no failure in Triton's counters."""
    words = ["gate", "--prometheus", prometheus, "--max-age", "10s", "--objective", "errors", "--model"]

    assert 3 == main([*words, "mute"])
    line = capsys.readouterr().out
    assert "failures may be hidden (backend_counters)" in line
    assert "see objective probe, rollback: a page fires: page_fast" in line
    # No probe, and no failure: unknown.
    assert 3 == main([*words, "tailed"])
    assert (
        "Triton counts error responses as successes; a probe or a gateway sees them (more: tritonwatch check"
        in capsys.readouterr().out
    )
    assert 0 == main(["status", "--prometheus", prometheus, "--objective", "errors", "--model", "mute"])
    assert "ok (failures may be hidden)" in capsys.readouterr().out


@pytest.mark.real
def test_a_tail_that_a_sampled_mean_hides_promotes_nothing(
    prometheus: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Five in a hundred are slow where one may be, and the numbers are good: they are called an estimate."""
    words = ["--prometheus", prometheus, "--objective", "latency", "--model", "tailed"]

    assert 0 == main(["status", *words])
    # A busy machine may give a slow request a sample of its own, and then it counts.
    assert re.search(r"(ok|burning|exhausted) \(estimated[,)]", capsys.readouterr().out)
    assert 0 != main(["gate", "--max-age", "10s", *words])
    capsys.readouterr()
    assert 0 == main(["status", *words, "--json"])
    [row] = json.loads(capsys.readouterr().out)["group_statuses"]
    # Where a busy machine sends few requests, the exporter can take their sums apart; that is an estimate, too.
    assert list(row["caveats"]) in (["sampled_mean"], ["decomposed"])


@pytest.mark.real
def test_the_backtest_finds_the_page_that_fired(
    prometheus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Replayed from the real Triton's own history, our alerts page for the failing model only."""
    (tmp_path / "errors.yaml").write_text("{name: errors, target: 99.9%, indicator: errors}")
    assert 0 == main(backtest(prometheus, tmp_path))
    assert {("flaky", "page_fast")} == pages(capsys.readouterr().out)


def backtest(prometheus: str, objectives: Path) -> list[str]:
    """Return the command that replays the last minute for the objectives of a folder."""
    words = ["--last", "1m", "--step", "4s", "--scrape-interval", "1s", "--json"]
    return ["backtest", "--prometheus", prometheus, "--objectives", str(objectives), *words]


def pages(report: str) -> set[tuple[str, str]]:
    """Model and tier of the pages that would have fired."""
    return {
        (episode["key"][1], episode["alert"])
        for episode in json.loads(report)["episodes"]
        if episode["severity"] == "page" and episode["alert"] != "unknown"
    }

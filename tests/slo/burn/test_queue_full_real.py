"""Test a real Triton whose queue is full: objectives count what its clients see, or report a doubt."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import requests

from support import history
from support.exporter import exporting
from support.loopback import free_ports
from support.sleeper import sleep_request, write_sleeper
from support.triton import live_triton
from support.waiting import eventually
from triton_exporter.catalogue import state
from triton_exporter.distribution import distributions
from triton_slo.artifact import Options
from triton_slo.generate import artifacts
from triton_slo.group_status import GroupStatus
from triton_slo.objective.reading import read
from triton_slo.prometheus import Prometheus
from triton_slo.server_access import Access
from triton_slo.status import read_status
from tritonwatch.cli import main
from tritonwatch.local import TritonServer

pytestmark = pytest.mark.real

OBJECTIVES = """objectives:
  - {name: queue, target: 90%, indicator: {kind: queue, threshold: 10s}}
  - {name: all-errors, target: 90%, indicator: {kind: errors, reasons: [REJECTED, BACKEND, OTHER, QUEUE_FULL]}}
  - {name: errors, target: 90%, indicator: errors}
"""
LIMITED = "dynamic_batching { default_queue_policy { max_queue_size: 2 } }\n"
MODELS = ("seen", "unseen")
"""Triton traces the requests to the first one only."""
ROUNDS, AT_ONCE, SLEEP = 15, 6, 0.15


@dataclass(frozen=True, slots=True)
class FullQueues:
    """A Prometheus with the rules loaded, and what the clients of each model saw."""

    url: str
    answers: Mapping[str, Counter[int]]

    def rejected(self, model: str) -> float:
        """Return the share of requests that their clients saw rejected."""
        answers = self.answers[model]
        return answers[503] / answers.total()


def overload(server: TritonServer) -> Mapping[str, Counter[int]]:
    """More requests than the queues take, again and again."""

    def send(model: str) -> int:
        return sleep_request(server.http_url, model, [SLEEP], time.time())

    answers: Mapping[str, Counter[int]] = {model: Counter() for model in MODELS}
    with ThreadPoolExecutor(AT_ONCE * len(MODELS)) as pool:
        for _ in range(ROUNDS):
            sent = [(model, pool.submit(send, model)) for model in MODELS for _ in range(AT_ONCE)]
            for model, answer in sent:
                answers[model][answer.result()] += 1
    return answers


@contextmanager
def first_traces_come_within(seconds: float) -> Iterator[None]:
    """An exporter of this process waits no longer for the first trace of a model."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(distributions, "FIRST_TRACE_SECONDS", seconds)
        yield


@pytest.fixture(scope="module")
def full_queues(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FullQueues]:
    directory = tmp_path_factory.mktemp("full")
    for model in MODELS:
        write_sleeper(directory / "models", model, config=LIMITED)
    (port,) = free_ports(1)
    traces = ["--trace-config=mode=opentelemetry", "--trace-config=level=TIMESTAMPS", "--trace-config=rate=1"]
    traces += ["--trace-config=opentelemetry,bsp_schedule_delay=200"]
    traces += [f"--trace-config=opentelemetry,url=http://127.0.0.1:{port}/v1/traces"]
    objectives = read([("o.yaml", OBJECTIVES)]).objectives
    made = artifacts(objectives, Options(scrape_interval_seconds=1))
    # Budgets are evaluated every four minutes; this test does not wait for them.
    rules = {
        artifact.name: artifact.text.replace("interval: 4m", "interval: 5s")
        for artifact in made
        if artifact.part == "rules"
    }
    with (
        first_traces_come_within(10.0),
        live_triton(directory / "models", directory, arguments=traces) as server,
        exporting(
            server.http_url,
            server.metrics_url,
            otlp_listen=("127.0.0.1", port),
            sampling_interval=1.0,  # too long to estimate how the requests of the untraced model spread
        ) as exporter,
        history.serve("", directory / "p", rules=rules, scrape=exporter.url.removeprefix("http://")) as url,
        Prometheus(Access(url)) as client,
    ):
        off = f"{server.http_url}/v2/models/unseen/trace/setting"
        assert 200 == requests.post(off, json={"trace_level": ["OFF"]}, timeout=5).status_code
        eventually(lambda: client.instant(f"{state.QUEUE_FULL_ESTIMATE} == 0"), "nothing is scraped")
        answers = overload(server)
        full = f'{state.QUEUE_FULL_ESTIMATE}{{model="seen"}} == {answers["seen"][503]}'
        eventually(lambda: client.instant(full), f"not {full}")
        yield FullQueues(url, answers)


def group_statuses(full_queues: FullQueues) -> dict[tuple[str, str], GroupStatus]:
    with Prometheus(Access(full_queues.url)) as client:
        return {(read_statu.slo, read_statu.model): read_statu for read_statu in read_status(client)}


def test_traced_rejections_count_in_queue_and_in_errors_that_ask(full_queues: FullQueues) -> None:
    """Of the traced model both objectives have the clients' share; errors that do not ask have none."""
    assert full_queues.rejected("seen") > 0.3

    def settled() -> dict[tuple[str, str], GroupStatus]:
        groups = group_statuses(full_queues)
        shares = [1 - (groups[slo, "seen"].sli or 1.0) for slo in ("queue", "all-errors")]
        wanted = pytest.approx([full_queues.rejected("seen")] * 2, rel=0.1)
        return groups if wanted == shares else {}

    actual = eventually(settled, lambda: str(group_statuses(full_queues)))
    assert 1.0 == actual["errors", "seen"].sli
    assert "untraced_queue" not in (*actual["queue", "seen"].sources, *actual["all-errors", "seen"].sources)


def test_untraced_rejections_are_in_doubt_everywhere(
    full_queues: FullQueues, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The other model's rejections are not counted: check, status and JSON report it, and the gate gives `hold`."""
    assert full_queues.rejected("unseen") > 0.3
    (tmp_path / "o.yaml").write_text(OBJECTIVES)
    eventually(
        lambda: group_statuses(full_queues)["queue", "unseen"].sli, lambda: str(group_statuses(full_queues))
    )
    words = ["--prometheus", full_queues.url, "--objective", "queue", "--model", "unseen"]

    main(["check", str(tmp_path), "--prometheus", full_queues.url, "--scrape-interval", "1"])
    check = capsys.readouterr().err
    for slo in ("queue", "all-errors"):
        assert f"{slo}: rejections may be hidden of unseen" in check
    assert 1 == check.count("Triton does not count requests that it rejects")
    assert 0 == main(["status", *words])
    assert "rejections may be hidden" in capsys.readouterr().out
    assert 0 == main(["status", *words, "--json"])
    [row] = json.loads(capsys.readouterr().out)["group_statuses"]
    assert 1.0 == row["sli"]
    assert "rejections may be hidden" in row["state"]
    assert "untraced_queue" in row["caveats"]
    # A last interval of one request is certain, and has another source than one of several.
    trusting = ["gate", *words, "--trust", "sampled_mean", "--trust", "decomposed"]
    assert 3 == main(trusting)
    assert "rejections may be hidden (untraced_queue)" in capsys.readouterr().out
    assert 0 == main([*trusting, "--trust", "untraced_queue"])

"""Test what pages while models are rolled out on real Tritons under load, as Prometheus' API shows it.

An hour is a minute here: a model that loads in a second loads in a minute, and a Triton that restarts in four
seconds is away for four minutes.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import requests

from support import history
from support.exporter import exporting
from support.repository import Repository, write
from support.triton import REQUEST, control, live_triton
from support.waiting import eventually
from triton_exporter.catalogue import EXPORTER_JOB, state, triton
from tritonwatch.cli import main
from tritonwatch.local import TritonServer

pytestmark = pytest.mark.real

OBJECTIVES = [
    {"name": "errors", "target": "99.9%", "indicator": "errors"},
    {"name": "latency", "target": "99%", "indicator": {"kind": "latency", "threshold": "5s"}},
    {"name": "queue", "target": "99%", "indicator": {"kind": "queue", "threshold": "2500ms"}},
    {"name": "readiness", "target": "99.9%", "indicator": "readiness"},
]
"""Thresholds that no request reaches on a busy machine."""
GOOD, BAD, DROPPED, LAME = MODELS = ("good", "bad", "dropped", "lame")
"""A healthy upgrade; one whose version 2 fails every second request; a model that is unloaded on purpose; one whose
counters show many failures, all of them before anybody looked, and which breaks on one server later."""
Labels = Mapping[str, str]


@dataclass
class Pager:
    """Everything that fired, and when it was first seen."""

    url: str
    fired: list[tuple[float, Labels]] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def watch(self) -> None:
        """Ask for the alerts until the end."""
        while not self.over.wait(0.5):
            with contextlib.suppress(requests.RequestException):
                answer = requests.get(f"{self.url}/api/v1/alerts", timeout=5).json()["data"]["alerts"]
                known = [labels for _, labels in self.fired]
                firing = [alert["labels"] for alert in answer if alert["state"] == "firing"]
                self.fired += [(time.monotonic(), labels) for labels in firing if labels not in known]

    def pages(self, **wanted: str) -> list[Labels]:
        """Return what called a person, with these labels."""
        return [
            labels for _, labels in self.fired if {"severity": "critical", **wanted}.items() <= labels.items()
        ]

    def has(self, name: str, **wanted: str) -> list[Labels]:
        """Return the alerts of this name and with these labels."""
        return [labels for _, labels in self.fired if {"alertname": name, **wanted}.items() <= labels.items()]


@contextmanager
def clients(servers: list[TritonServer]) -> Iterator[dict[str, list[int]]]:
    """Send each model of each server a request a second; yields the statuses by model.

    A server that is away gets none, and what is unloaded is asked no more, as behind a load balancer.
    """
    statuses: dict[str, list[int]] = {model: [] for model in MODELS}
    over = threading.Event()

    def send(server: TritonServer, model: str) -> None:
        url, session = f"{server.http_url}/v2/models/{model}", requests.Session()
        while not over.wait(0.8):
            with contextlib.suppress(requests.RequestException):
                if session.get(f"{url}/ready", timeout=5).ok:
                    statuses[model].append(session.post(f"{url}/infer", json=REQUEST, timeout=30).status_code)

    threads = [threading.Thread(target=send, args=(server, model)) for server in servers for model in MODELS]
    for thread in threads:
        thread.start()
    try:
        yield statuses
    finally:
        over.set()
        for thread in threads:
            thread.join()


@contextmanager
def watched(scraped: Mapping[str, object], folder: Path) -> Iterator[Pager]:
    """Run a Prometheus with everything that `generate` writes, and watch its alerts; `scraped` is what it scrapes."""
    source = ["--objectives", str(folder / "objectives"), "--only", "rules"]
    scale = ["--time-scale", str(1 / 60), "--scrape-interval", "1"]
    assert 0 == main(["generate", *source, *scale, "--out", str(folder / "rules")])
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(folder / "rules" / "*.yml")],
        "scrape_configs": [{"job_name": EXPORTER_JOB, **scraped}],
    }
    with history.running(folder / "prometheus", config) as url:
        pager = Pager(url)
        thread = threading.Thread(target=pager.watch)
        thread.start()
        try:
            yield pager
        finally:
            pager.over.set()
            thread.join()


@dataclass(frozen=True)
class Rollout:
    """What was watched: all that fired until before a server restarted, and until before the last servers ended."""

    servers: list[str]
    upgraded: list[Labels]
    restarted: list[Labels]
    pages_at_the_end: list[Labels]
    statuses: Mapping[str, list[int]]

    def has(self, name: str, **wanted: str) -> list[Labels]:
        """Return the alerts until before the last servers ended with this name and these labels."""
        return [
            labels for labels in self.restarted if {"alertname": name, **wanted}.items() <= labels.items()
        ]

    def pages(self) -> list[Labels]:
        """Return what called a person until before the last servers ended; a busy machine scrapes too late now and
        then, which is a page about the exporters."""
        critical = [labels for labels in self.restarted if labels["severity"] == "critical"]
        return [labels for labels in critical if labels["alertname"] != "TritonExporterAbsent"]


@pytest.fixture(scope="module")
def rollout(tmp_path_factory: pytest.TempPathFactory) -> Rollout:
    """Three Tritons: version 2 of two models comes server by server, one model goes; then one server restarts with a
    broken model and is scaled away; at last the others die."""
    folder = tmp_path_factory.mktemp("rollout")
    (folder / "objectives").mkdir()
    (folder / "objectives" / "all.yaml").write_text(json.dumps({"objectives": OBJECTIVES}))
    repositories = [Repository(folder / str(number) / "models") for number in range(3)]
    with ExitStack() as stack:
        run = stack.enter_context
        for repository in repositories:
            for model in MODELS:
                repository.model(model)
        servers = [
            run(live_triton(repository.path, repository.path.parent, "explicit", ["--load-model=*"]))
            for repository in repositories
        ]
        exporters = [
            run(
                exporting(
                    server.http_url,
                    server.metrics_url,
                    buckets_from=folder / "objectives",
                    sampling_interval=1.0,
                    state_interval=0.5,
                )
            )
            for server in servers
        ]
        for repository in repositories:
            repository.version(LAME, "1", fail_every=1)
        statuses = run(clients(servers))
        eventually(lambda: len(statuses[LAME]) > 30, "no failures")
        for repository in repositories:
            (repository.path / LAME / "1" / "fail_every").unlink()
        instances = [exporter.url.removeprefix("http://") for exporter in exporters]
        found = folder / "targets.json"
        write(found, json.dumps([{"targets": instances}]))
        pager = run(watched(_listed(found), folder))
        asked = f"count({triton.REQUEST_SUCCESS} > 5) == {len(MODELS) * len(servers)}"
        eventually(lambda: _asked(pager.url, asked), "not all models serve")

        for repository, server in zip(repositories, servers, strict=True):
            repository.version(GOOD, "2")
            repository.version(BAD, "2", fail_every=2)
            assert [200, 200, 200] == [
                control(server, "load", GOOD),
                control(server, "load", BAD),
                control(server, "unload", DROPPED),
            ]
            time.sleep(3)
        eventually(lambda: pager.pages(model=BAD), "the bad version pages nobody")
        asked = f'count({triton.REQUEST_SUCCESS}{{model="{GOOD}", version="2"}} > 5) == {len(servers)}'
        eventually(lambda: _asked(pager.url, asked), "version 2 does not serve")
        upgraded = [labels for _, labels in pager.fired]

        repositories[2].version(LAME, "1", **{"raise": "weights.bin is truncated"})
        servers[2].kill()
        servers[2].start()
        servers[2].wait_live()
        exporters[2].wait(lambda page: page.value(state.MODEL_READY, model=GOOD, version="2"))
        # A ticket about one of three servers comes after 12 to 24 minutes.
        eventually(
            lambda: pager.has("TritonReadinessBudgetBurn", model=LAME), "no ticket about the broken server"
        )
        asked = f'min({triton.REQUEST_SUCCESS}{{model="{GOOD}", version="2"}}) > 5'
        eventually(lambda: _asked(pager.url, asked), "the restarted server does not serve")

        write(found, json.dumps([{"targets": instances[:2]}]))
        asked = f"count({state.SERVER_READY}) == 2"
        eventually(lambda: _asked(pager.url, asked), "not scaled down")
        time.sleep(20)  # twenty minutes: longer than it takes to page about a model that nobody reports
        restarted = [labels for _, labels in pager.fired]
        for server in servers[:2]:
            server.kill()
        eventually(lambda: pager.pages(alertname="TritonReadinessBudgetBurn", model=GOOD), "no page")
        at_the_end = [labels for labels in pager.pages() if labels not in restarted]
    return Rollout(instances, upgraded, restarted, at_the_end, statuses)


def _listed(file: Path) -> dict[str, object]:
    """Return what makes Prometheus scrape the targets of a file."""
    return {"file_sd_configs": [{"files": [str(file)], "refresh_interval": "1s"}]}


def _asked(url: str, query: str) -> list[object]:
    answer = requests.get(f"{url}/api/v1/query", params={"query": query}, timeout=5).json()
    found: list[object] = answer["data"]["result"]
    return found


def test_a_healthy_upgrade_raises_nothing(rollout: Rollout) -> None:
    """Each server goes from version 1 to 2 under load: no page and no ticket of any objective, and no failure."""
    assert {200} == set(rollout.statuses[GOOD])
    assert [] == [labels for labels in rollout.upgraded if labels.get("model") == GOOD]


def test_a_version_that_fails_pages(rollout: Rollout) -> None:
    """Every second request to version 2 fails: its errors page, and nothing else pages: neither the model that was
    unloaded on purpose, nor a killed server whose counters began again, nor one that was scaled away."""
    pages = {(page["alertname"], page.get("model"), page.get("version")) for page in rollout.pages()}
    assert {("TritonErrorsBudgetBurn", BAD, "2")} == pages


def test_a_restart_counts_no_event_twice(rollout: Rollout) -> None:
    """One of three servers was killed under load, and its counters began again."""
    for model in (GOOD, LAME):
        assert [] == rollout.has("TritonErrorsBudgetBurn", model=model)


def test_one_broken_server_of_three_is_a_ticket_that_names_it(rollout: Rollout) -> None:
    """The model fails to load on the server that restarted, and two others serve it."""
    tickets = rollout.has("TritonReadinessBudgetBurn", model=LAME)
    assert {"warning"} == {ticket["severity"] for ticket in tickets}
    named = rollout.has("TritonModelLoadFailed", model=LAME)
    assert {rollout.servers[2]} == {ticket["instance"] for ticket in named}


def test_the_death_of_the_last_servers_pages(rollout: Rollout) -> None:
    """A model that no server is left for."""
    assert {"TritonReadinessBudgetBurn"} <= {
        page["alertname"] for page in rollout.pages_at_the_end if page.get("model") == GOOD
    }

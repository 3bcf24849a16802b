"""Test rollouts on real Tritons, exporters and Prometheus: a healthy one pages nobody, a lost model does."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from support import history
from support.exporter import RunningExporter, exporting
from support.repository import Repository, write
from support.triton import control, live_triton
from support.waiting import eventually
from triton_exporter.catalogue import state, triton
from triton_slo import names
from triton_slo.artifact import Options
from triton_slo.generate import artifacts
from triton_slo.objective.model import Objective, Unknown
from triton_slo.prometheus.client import Prometheus
from triton_slo.prometheus.server_access import Access
from tritonwatch.local.triton import TritonServer

SCRAPE_SECONDS = 0.5
OPTIONS = Options(scrape_interval_seconds=SCRAPE_SECONDS, time_scale=0.01)
AFTER = Unknown(after="40m")
"""24 seconds at this scale: longer than a Triton takes to restart on a busy machine."""
OBJECTIVES = [
    Objective(name="errors", target=0.99, indicator="errors", unknown=AFTER),
    Objective(
        name="errors-by-server",
        target=0.99,
        indicator="errors",
        unknown=AFTER,
        group_by=("model", "version", "instance"),
    ),
    # A server that restarts is really not ready, so only what is unknown about readiness may page here.
    Objective(name="readiness", target=0.99, indicator="readiness", alerting=False, unknown=AFTER),
]
EVERY_VERSION = "version_policy: { all {} }\n"


@dataclass
class Pod:
    """A Triton with an exporter beside it, which Prometheus scrapes while it is listed as a target."""

    server: TritonServer
    repository: Repository
    exporter: RunningExporter
    stack: ExitStack = field(default_factory=ExitStack)

    def move(self, **expected: tuple[str, ...]) -> None:
        """Start the exporter again at another address, where it knows nothing of before."""
        self.stack.close()
        self.exporter = self.stack.enter_context(
            exporting(self.server.http_url, self.server.metrics_url, expected)
        )

    def restart(self) -> None:
        """Start Triton again on what its repository contains now."""
        self.server.stop(timeout_seconds=2)
        self.server.start()
        self.server.wait_live()


@dataclass
class Cluster:
    """Pods, and the Prometheus that finds them in a file."""

    directory: Path
    stack: ExitStack
    pods: list[Pod] = field(default_factory=list)
    prometheus: str = ""

    def pod(
        self, name: str, models: Callable[[Repository], object], mode: str = "none", *arguments: str
    ) -> Pod:
        """Start one with the models that are written into its repository."""
        home = self.directory / name
        repository = Repository(home / "models")
        models(repository)
        server = self.stack.enter_context(
            live_triton(repository.path, home, mode, arguments, auto_complete=True)
        )
        stack = self.stack.enter_context(ExitStack())
        expected: dict[str, tuple[str, ...]] = {"restarted": ()} if name == "a" else {}
        exporter = stack.enter_context(exporting(server.http_url, server.metrics_url, expected))
        pod = Pod(server, repository, exporter, stack)
        self.pods.append(pod)
        return pod

    def list_targets(self) -> None:
        """Let Prometheus scrape the pods there are now."""
        urls = [pod.exporter.url.removeprefix("http://") for pod in self.pods]
        write(self.directory / "targets.json", json.dumps([{"targets": urls}]))

    def ask(self, query: str) -> set[tuple[str, ...]]:
        """Model, version and what else distinguishes the results of a query."""
        with Prometheus(Access(self.prometheus)) as client:
            instant = client.instant(query)
        return {
            tuple(sample.labels.get(label, "") for label in ("alertname", "model", "version"))
            for sample in instant
        }

    def wait(self, query: str, wanted: set[tuple[str, str]], seconds: float = 60) -> None:
        """Until a query has a result for each of these model versions."""
        eventually(
            lambda: wanted <= {labels[1:] for labels in self.ask(query)}, f"{query}: {wanted}", seconds
        )

    def wait_until_empty(self, query: str, seconds: float = 30) -> None:
        """Until a query has no result."""
        eventually(lambda: not self.ask(query), lambda: f"{query}: still {self.ask(query)}", seconds)

    def fired(self) -> set[tuple[str, ...]]:
        """Every alert that has fired since the start."""
        return self.ask('max_over_time(ALERTS{alertstate="firing"}[1h])')


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    rules = {
        artifact.name: artifact.text
        for artifact in artifacts(OBJECTIVES, OPTIONS)
        if artifact.part == "rules"
    }
    with ExitStack() as stack:
        made = Cluster(tmp_path, stack)
        (tmp_path / "targets.json").write_text("[]")
        made.prometheus = stack.enter_context(
            history.serve(
                "",
                tmp_path / "prometheus",
                rules=rules,
                targets=tmp_path / "targets.json",
                every=f"{SCRAPE_SECONDS * 1000:.0f}ms",
            )
        )
        yield made


def unknown(model: str) -> tuple[str, str, str]:
    """Return the page on a model that has vanished."""
    return names.UNKNOWN_ALERT, model, "1"


def paging(slo: str) -> str:
    """Return the pages on what an objective knows nothing of."""
    return f'ALERTS{{alertstate="firing", alertname="{names.UNKNOWN_ALERT}", slo="{slo}"}}'


@pytest.mark.real
def test_only_a_model_that_nobody_serves_any_more_pages(cluster: Cluster) -> None:
    """Restarts with new versions, hot loads, unloads, fewer replicas and moved pods are not a loss."""

    def first(repository: Repository) -> None:
        repository.model("restarted", "1", "2", config=EVERY_VERSION)
        repository.model("replicated")
        repository.model("removed")

    def second(repository: Repository) -> None:
        for model in ("hot", "unloaded", "dropped"):
            repository.model(model)

    def third(repository: Repository) -> None:
        repository.model("replicated")
        repository.model("lost")

    loads = [f"--load-model={model}" for model in ("hot", "unloaded", "dropped")]
    a = cluster.pod("a", first)
    b = cluster.pod("b", second, "explicit", *loads)
    c = cluster.pod("c", third)
    cluster.list_targets()
    serving = {("restarted", "1"), ("restarted", "2"), ("hot", "1"), ("unloaded", "1"), ("lost", "1")}
    for objective in OBJECTIVES:
        cluster.wait(f'{names.LAST_SEEN}{{slo="{objective.name}"}}', serving)

    # A new version while the old one serves, and a model that is unloaded: both by request.
    b.repository.version("hot", "2")
    assert 200 == control(b.server, "load", "hot")
    assert 200 == control(b.server, "unload", "unloaded")
    # A reason is known of the address at which it was scraped, and the pod moves below.
    for slo in ("errors", "errors-by-server"):
        cluster.wait(f'{names.RETIRED}{{slo="{slo}"}}', {("unloaded", "1")})
    # Restarted with the next versions; one model is no longer in the repository.
    shutil.rmtree(a.repository.path / "restarted" / "1")
    a.repository.version("restarted", "3")
    shutil.rmtree(a.repository.path / "removed")
    a.restart()
    cluster.wait(f"{state.MODEL_READY} == 1", {("restarted", "3"), ("hot", "2")})
    # Prometheus finds the second pod at another address, and the third is gone with its exporter.
    b.move()
    cluster.pods.remove(c)
    cluster.list_targets()
    c.stack.close()
    c.server.kill()

    for slo in ("errors", "errors-by-server"):
        cluster.wait(paging(slo), {("lost", "1"), ("removed", "1")})
    cluster.wait(paging("readiness"), {("lost", "1")})
    assert {unknown("lost"), unknown("removed")} == cluster.fired()

    # Everything begins anew: Tritons without what was unloaded, exporters that remember and expect nothing.
    for name in ("unloaded", "dropped", "hot/1"):
        shutil.rmtree(b.repository.path / name)
    b.stack.close()
    b.server.arguments = ["--load-model=hot"]
    b.restart()
    a.move()
    b.move()
    cluster.list_targets()

    for objective in OBJECTIVES:
        cluster.wait(paging(objective.name), {("dropped", "1")})
    assert {unknown("lost"), unknown("removed"), unknown("dropped")} == cluster.fired()
    failing = f'{names.SLI_EVENTS_NOW}{{slo="readiness", {names.EVENT}="{names.ERROR}"}} > 0'
    cluster.wait_until_empty(failing)
    assert set() == cluster.ask(f'{triton.REQUEST_SUCCESS}{{model="restarted", version="1"}}')

"""Test what dashboards show of ensembles against what their clients measured.

Real Triton, exporter and Prometheus. 16 clients call an ensemble whose second step queues, two call its first step
directly, and two call an ensemble of which every request fails at its second step.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import mean

import pytest
import urllib3

from support.exporter import exporting
from support.fast_prometheus import FastPrometheus, fast_prometheus
from support.panels import MODELS, Answer, Grafana, Json, View
from support.repository import Repository
from support.triton import REQUEST, live_triton
from triton_dashboards.boards.model import EXTRAS, template_view
from triton_dashboards.generate import artifacts as board_artifacts
from triton_exporter.catalogue import state
from triton_slo.artifact import Options
from triton_slo.generate import artifacts as objective_artifacts
from triton_slo.objective.reading import read
from triton_slo.prometheus import Prometheus
from triton_slo.server_access import Access
from tritonwatch.local import TritonServer
from tritonwatch.web.pages.model_page import read_phases

pytestmark = pytest.mark.real

OPTIONS = Options(time_scale=1 / 15, scrape_interval_seconds=1.0)
WINDOW_SECONDS = 8
"""The two minutes of the rules at this scale, and the rate interval of the graphs."""
STEP_SECONDS = 0.05
"""Time of the step that has one instance: 16 clients wait for 15 others."""
OBJECTIVES = read(
    [("queue.yaml", "name: queue\ntarget: 99%\nindicator: {kind: queue, threshold: 100ms}\n")]
).objectives


@dataclass(frozen=True)
class Client:
    """One answered request: its model, when it was answered, how long it took, and whether it succeeded."""

    model: str
    at: float
    seconds: float
    succeeded: bool


class Load:
    """Clients that call models one request after the other, and write down what they saw."""

    def __init__(self, server: TritonServer) -> None:
        self._server = server
        self._ended = threading.Event()
        self._threads: list[threading.Thread] = []
        self.seen: list[Client] = []
        # Its connections stay open: a new one for each request would be part of what the client measures.
        self._pool = urllib3.PoolManager(maxsize=32)

    def call(self, model: str, clients: int, pause_seconds: float = 0.0) -> None:
        for _ in range(clients):
            thread = threading.Thread(target=self._call, args=(model, pause_seconds))
            self._threads.append(thread)
            thread.start()

    def _call(self, model: str, pause_seconds: float) -> None:
        while not self._ended.wait(pause_seconds):
            began = time.time()
            url = f"{self._server.http_url}/v2/models/{model}/infer"
            succeeded = self._pool.request("POST", url, json=REQUEST, timeout=30, retries=False).status == 200
            ended = time.time()
            self.seen.append(Client(model, ended, ended - began, succeeded))

    def end(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()


@dataclass(frozen=True)
class Stage:
    """A Prometheus at a moment at which clients had been sending for some time, and what they saw in the window."""

    grafana: Grafana
    watch: FastPrometheus
    seen: tuple[Client, ...]

    def open(self, uid: str, **wanted: str) -> View:
        return self.grafana.open(MODELS[uid], wanted)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    directory = tmp_path_factory.mktemp("ensembles")
    repository = Repository(directory / "models")
    repository.model("quick", delay_seconds=0.001)
    repository.model("busy", delay_seconds=STEP_SECONDS)
    failing = repository.model("failing") / "1" / "model.py"
    failing.write_text(
        failing.read_text().replace(
            "        inputs = [", '        raise RuntimeError("no")\n        inputs = ['
        )
    )
    repository.ensemble("whole", "quick", "busy")
    repository.ensemble("broken", "quick", "failing")
    made = (*board_artifacts((), OPTIONS), *objective_artifacts(OBJECTIVES, OPTIONS))
    with (
        live_triton(repository.path, directory) as server,
        exporting(server.http_url, server.metrics_url) as exporter,
        fast_prometheus(exporter.url, made, directory / "watch") as watch,
    ):
        exporter.wait(lambda page: page.value(state.MODEL_READY, model="whole", version="1"))
        load = Load(server)
        load.call("whole", 16)
        load.call("quick", 2, pause_seconds=0.1)
        load.call("broken", 2, pause_seconds=0.2)
        try:
            time.sleep(2.5 * WINDOW_SECONDS)
            now = time.time()
        finally:
            load.end()
        seen = tuple(each for each in load.seen if now - WINDOW_SECONDS < each.at <= now)
        yield Stage(Grafana(watch.url, int(now), 2, 2, 2), watch, seen)


def only(answers: list[Answer]) -> float:
    [answer] = answers
    [value] = answer.last()
    return value


def column(view: View, title: str, heading: str) -> Answer:
    """Return the answer of the column of a table."""
    panel = next(panel for panel, _ in view.answers if panel["title"] == title)
    renamed: Json = panel["transformations"][1]["options"]["renameByName"]
    ref = next(old for old, new in renamed.items() if new == heading)[-1]
    return next(answer for answer in view.panel(title) if answer.target["refId"] == ref)


def test_all_models_count_a_request_of_a_client_once(stage: Stage) -> None:
    """The fleet shows as many requests and failures as the clients saw: not the steps' again."""
    fleet = stage.open("triton-fleet")
    failed = [each for each in stage.seen if not each.succeeded]

    assert len(stage.seen) / WINDOW_SECONDS == pytest.approx(only(fleet.panel("Requests/s")), rel=0.25)
    assert len(failed) / len(stage.seen) == pytest.approx(only(fleet.panel("Failed")), rel=0.4)


def test_servers_show_the_latency_of_clients(stage: Stage) -> None:
    """The mean over all models of a server is that of the clients' requests: steps' shorter ones are not in it."""
    server = stage.open("triton-server")
    measured = mean(each.seconds for each in stage.seen if each.succeeded)

    assert measured == pytest.approx(only(server.panel("Mean latency")), rel=0.25)
    assert len(stage.seen) / WINDOW_SECONDS == pytest.approx(only(server.panel("Requests")), rel=0.25)


def test_an_ensemble_waits_in_the_queues_of_its_steps(stage: Stage) -> None:
    """Clients wait most of their time for the step with one instance: boards show this as time in queue."""
    took = mean(each.seconds for each in stage.seen if each.model == "whole")
    waited = took - STEP_SECONDS - 0.001
    model = stage.open("triton-model", model="whole")

    assert waited > 0.2
    assert waited / took == pytest.approx(only(model.panel("Time in queue")), abs=0.06)
    assert waited / took == pytest.approx(
        column(stage.open("triton-fleet"), "Models", "Time in queue").value(model="whole"), abs=0.06
    )
    phases = {answer.target["legendFormat"]: answer for answer in model.panel("Request time by phase")}
    assert waited == pytest.approx(phases["queue"].last()[0] / 1e6, rel=0.25)
    assert 0 < sum(only([answer]) for answer in model.panel("Waiting requests by server")) <= 16


def test_the_page_of_an_ensemble_shows_its_time_in_queue(stage: Stage) -> None:
    """The web page shows the same as the dashboard, not the 0.0005 % of the queue that an ensemble does not have."""
    with Prometheus(Access(stage.grafana.url)) as prometheus:
        phases = {phase.name: phase.share for phase in read_phases(prometheus, "whole", stage.grafana.now)}

    assert phases["queue"] > 0.6


def test_the_steps_show_which_of_them_queues(stage: Stage) -> None:
    """Latency and queue of each step, for the requests of this ensemble; the steps add up to the ensemble."""
    took = mean(each.seconds for each in stage.seen if each.model == "whole")
    model = stage.open("triton-model", model="whole")
    [queues], [latencies] = (model.panel(title) for title in ("Queue of the steps", "Latency of the steps"))

    assert took - STEP_SECONDS == pytest.approx(queues.value(step_model="busy"), rel=0.25)
    assert took == pytest.approx(sum(latencies.last()), rel=0.25)


def test_a_failure_of_an_ensemble_counts_once_and_names_its_step(stage: Stage) -> None:
    """Triton counts a failure of an ensemble twice; boards show what the clients saw."""
    sent = sum(each.model == "broken" for each in stage.seen)
    model = stage.open("triton-model", model="broken")
    reasons = {
        reason: rate
        for answer in model.panel("Failures by reason")
        for reason, rate in zip(answer.legends(), answer.last(), strict=True)
    }
    [steps] = model.panel("Failures of the steps")

    assert sent / WINDOW_SECONDS == pytest.approx(only(model.panel("Requests/s")), rel=0.4)
    assert 1 == pytest.approx(only(model.panel("Failed")))
    assert sent / WINDOW_SECONDS == pytest.approx(reasons["OTHER"], rel=0.4)
    assert 1 == pytest.approx(steps.value(step_model="failing"))
    assert 0 == steps.value(step_model="quick")


def test_no_queue_objective_is_recorded_for_an_ensemble(stage: Stage) -> None:
    """An ensemble has no queue: a budget of it would be full for ever while its requests wait."""
    matcher = '{__name__=~"slo:(sli_events|sli_error|period).+", indicator="queue"}'
    recorded = stage.grafana.get("series", **{"match[]": matcher})["data"]

    assert "busy" in {series["model"] for series in recorded}
    assert not {"whole", "broken"} & {series["model"] for series in recorded}


def test_the_row_of_an_ensemble_reads_its_own_steps_only(stage: Stage) -> None:
    """A server may have a thousand models: no query of the row selects series of all of them."""
    _, make = EXTRAS["ensemble"]
    queries = [query.expr for panel in make(template_view(Options())) for query in panel.panel_queries]

    assert queries
    assert all(selector.count('model="$model"') for query in queries for selector in query.split("{")[1:])

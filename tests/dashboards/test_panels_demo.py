"""Test the demo to its end, and every query of every dashboard on what its real servers left behind."""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from dashboards import made_fleet
from support.history import running
from support.panels import Answer, Grafana, Json, View, panels
from support.stack.demo_run import TIME_SCALE, DemoRun, run_demo
from support.tools import newest, prometheuses
from triton_dashboards.generate import dashboards
from triton_dashboards.grafana import dashboard_model
from triton_exporter.catalogue import models
from triton_slo.artifact import Options

pytestmark = pytest.mark.real

MODELS: Mapping[str, Json] = {
    board.uid: dashboard_model(board) for board in dashboards(Options(time_scale=TIME_SCALE))
}
"""The dashboards for the demo's time, which is 60 times faster."""

NAMES = ("broken", "classifier", "embedder", "pipeline", "saturated")
PER_MODEL = "per model"
"""Stands for the dashboards of one model each; what one of them shows counts for all."""

Query = tuple[str, str, str]
"""Dashboard, panel, query."""
EVERY = "*"

EMPTY: Mapping[str, Mapping[str, Sequence[str]]] = {
    "needs a GPU": {
        "triton-gpu": [EVERY],
        "triton-model": ["Utilisation of its GPUs"],
        PER_MODEL: ["Utilisation of its GPUs"],
    },
    "needs tritonwatch advise --watch": {
        "triton-model": ["Traffic over break rate"],
        PER_MODEL: ["Traffic over break rate"],
    },
    "needs a language model": {
        "triton-model": [
            "Time to first token",
            "Inter-token latency",
            "End to end",
            "Tokens",
            "Requests in the engine",
            "KV cache used",
            "First token, p95",
            "Further tokens, p95",
            "Tokens per second",
            "KV cache",
        ]
    },
    "needs traces": {"triton-model": ["Time by model called"], PER_MODEL: ["Time by model called"]},
    "needs Triton 24.11": {"triton-model": ["Load time"], PER_MODEL: ["Load time"]},
    "needs Triton started with histogram_latencies": {"triton-model": ["Time to first response"]},
    "needs a model that is reloaded twice": {"triton-server": ["Memory left by the last reload"]},
    "needs traces or histograms": {"triton-server": ["Exporters/A"]},
    "needs data of a week ago": {
        "triton-model": ["Requests by version/B", "Latency/E"],
        PER_MODEL: ["Requests by version/B", "Latency/E"],
    },
    "needs a response cache": {"triton-model": ["Cache hits"], "triton-server": ["Response cache used"]},
    "needs requests that fail": {
        "triton-fleet": ["Failed by model"],
        "triton-model": ["Failures by reason", "Failures of the steps"],
        PER_MODEL: ["Failures by reason", "Failures of the steps"],
    },
    "needs an exporter that Triton refuses": {"triton-server": ["Failed requests to Triton"]},
    "needs a group whose data vanished": {"triton-slo": ["Objectives/H"]},
    "needs a watchdog's message, which comes later": {"triton-on-call": ["Bridge Watchdog"]},
    "needs a fault of the bridge or of what it talks to": {
        "triton-on-call": [
            "Notifications received/B",
            "Notifications received/C",
            "Failed requests to Slack",
            "Failed notifications of Alertmanager",
        ]
    },
    "needs evidence that did not come in time": {"triton-on-call": ["Missing evidence"]},
}
"""Why a query has no series here -> dashboard -> panels, or one query of a panel as `Panel/A`."""

MATURING = {
    "Least budget left",
    "Budget left",
    "Next budget to be spent",
    "Objectives",
    "Burn rate by window, worst group",
    "Burn rate by group",
}
"""Panels with windows of which a tenth has passed only if the demo took long enough."""

INCOMPARABLE = {
    "ALERTS": "other alerts fire",
    "ALERTS_FOR_STATE": "other alerts fire",
    models.INSTANCES.name: "no instance is on a GPU",
}
"""Series of the made history whose labels differ from the demo's for a reason."""

NO_CHOICE = {("triton-gpu", "gpu_uuid"): "needs a GPU"}
"""Variables (uid, name) that offer nothing here; nothing here sets a cluster, which is asked of all."""


@pytest.fixture(scope="module")
def demo_run(tmp_path_factory: pytest.TempPathFactory) -> DemoRun:
    return run_demo(tmp_path_factory.mktemp("lived") / "demo")


@pytest.fixture(
    scope="module", params=[str(path) for path in newest(prometheuses())], ids=lambda path: path.split("/")[1]
)
def grafana(
    request: pytest.FixtureRequest, demo_run: DemoRun, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Grafana]:
    """Each Prometheus there is, over its own copy of what the demo left."""
    directory = tmp_path_factory.mktemp("prometheus")
    shutil.copytree(demo_run.folder / "prometheus", directory / "data")
    with running(directory, server=Path(request.param)) as url:
        yield Grafana(url, demo_run.ended, demo_run.ended - demo_run.began, step=1, scrape_seconds=1)


@pytest.fixture(scope="module")
def views(grafana: Grafana, demo_run: DemoRun) -> tuple[View, ...]:
    """All dashboards, opened; the model dashboard for each model."""
    general = [grafana.open(model, {}) for uid, model in MODELS.items() if uid != "triton-model"]
    chosen = [grafana.open(MODELS["triton-model"], {"model": name}) for name in NAMES]
    return (*general, *chosen, *(grafana.open(model, {}) for model in demo_run.per_model.values()))


def _queries(views: Sequence[View]) -> Iterator[tuple[Query, Json, Answer]]:
    for view in views:
        uid = view.uid if view.uid in MODELS else PER_MODEL
        for panel, answer in view.answers:
            yield (uid, panel["title"], answer.target["refId"]), panel, answer


def _stated(asked: set[Query]) -> dict[Query, str]:
    """Each query that may be empty, with the reason; fails on a reason without a query."""
    reasons: dict[Query, str] = {}
    for reason, places in EMPTY.items():
        for uid, titles in places.items():
            for title in titles:
                name, _, letter = title.partition("/")
                meant = {
                    query
                    for query in asked
                    if query[0] == uid and name in (EVERY, query[1]) and letter in ("", query[2])
                }
                assert meant, f"{reason!r} is stated for {uid} / {title}, which is not there"
                reasons |= dict.fromkeys(meant, reason)
    return reasons


def test_every_step_of_the_demo_happens(demo_run: DemoRun) -> None:
    """`demo --once` ends with 0 after every step, and leaves no process and only its folder."""
    output = demo_run.output
    assert 0 == demo_run.returncode, output
    assert re.search("web page +http://127", output), output
    assert re.search(r"Triton metrics  http://127.0.0.1:\d+/metrics *\n", output), output
    assert "all steps completed" in output
    assert "what rules and messages call 1h is 1m here, and 30d is 12h" in output
    assert "Query:" not in output
    assert "TritonQueueBudgetBurn" in output
    assert not re.search("also firing.*broken", output.partition("Triton loaded the repaired")[2]), output
    assert "TritonExporterAbsent" not in output, "a Prometheus that has just started has not scraped yet"
    assert [] == demo_run.left_behind
    assert {"demo", "per-model"} == {path.name for path in demo_run.folder.parent.iterdir()}


def test_no_query_is_empty_without_a_reason(grafana: Grafana, views: tuple[View, ...]) -> None:
    """Each query finds something for at least one model at some moment of the demo, or it is stated why not.

    A table asks for one moment only, and on a busy machine no scrape may have succeeded in the seconds before it.
    """
    found = {query for query, _, answer in _queries(views) if answer.series}
    empty = {query for query, _, _ in _queries(views)} - found
    for view in views:
        for query, panel, answer in _queries([view]):
            if query in empty - found and answer.target["instant"]:
                during = grafana.ask(panel, answer.target | {"instant": False}, view.chosen)
                found |= {query} if during.series else set()

    unexplained = empty - found - _stated({query for query, _, _ in _queries(views)}).keys()
    assert [] == sorted(query for query in unexplained if query[1] not in MATURING)


def test_an_empty_panel_gives_the_reason(views: tuple[View, ...]) -> None:
    """The description of a panel without series states what that means."""
    full = {query[:2] for query, _, answer in _queries(views) if answer.series}
    words = {
        query[:2]: panel["fieldConfig"]["defaults"].get("noValue", "")
        for query, panel, _ in _queries(views)
        if query[:2] not in full
    }

    assert {} == {panel: text for panel, text in words.items() if text in ("", "No data")}


def test_every_answer_can_be_read(views: tuple[View, ...]) -> None:
    """Without warning or hint but that Triton's counters lack _total; a name for each series; no share of nothing."""
    printed = {text for _, _, answer in _queries(views) for text in (*answer.warnings, *answer.infos)}
    wrong = {query for query, _, answer in _queries(views) if not all(map(math.isfinite, answer.last()))}

    assert set() == {text for text in printed if "might not be a counter" not in text}
    assert [] == [nameless for view in views for nameless in view.nameless()]
    assert set() == wrong


def test_every_variable_offers_something(grafana: Grafana, demo_run: DemoRun) -> None:
    """Each variable lists values, or it is stated why not."""
    silent = set()
    for model in (*MODELS.values(), *demo_run.per_model.values()):
        chosen = grafana.choose(model, {})
        silent |= {
            (model["uid"], variable["name"])
            for variable in model["templating"]["list"]
            if variable["type"] == "query"
            and variable["name"] != "cluster"
            and not grafana.values(variable, chosen)
        }

    assert set(NO_CHOICE) == silent


def test_annotations_mark_the_demo(grafana: Grafana, demo_run: DemoRun) -> None:
    """Each annotation runs without a warning and fills its title; alerts, failed loads and loads are marked."""
    marked = set()
    for model in (*MODELS.values(), *demo_run.per_model.values()):
        chosen = grafana.choose(model, {"model": "broken"} if model["uid"] == "triton-model" else {})
        for answer in grafana.marks(model, chosen):
            labels = set(re.findall(r"\{\{(\w+)\}\}", answer.target["legendFormat"]))
            assert [] == answer.warnings
            assert all(labels <= set(series["metric"]) for series in answer.series), answer.panel
            marked |= {answer.panel} if answer.series else set()

    # No server restarted and nothing was reloaded before the repair.
    assert {"Firing alerts", "Failed loads"} <= marked


def test_every_model_gets_a_dashboard_of_its_own(demo_run: DemoRun) -> None:
    """One for each model of the demo, the one that never loaded too; only the ensemble's has its steps."""
    assert set(NAMES) == set(demo_run.per_model)
    with_steps = {
        name
        for name, model in demo_run.per_model.items()
        if any(panel["title"] == "Latency of the steps" for panel in panels(model))
    }
    assert {"pipeline"} == with_steps


def test_the_made_history_has_the_labels_of_the_real_one(grafana: Grafana) -> None:
    """What the other tests ask of a made history has the label names that the exporter and the rules write."""
    made: dict[str, set[frozenset[str]]] = {}
    for name, labels, _ in made_fleet.series():
        made.setdefault(name, set()).add(frozenset(labels))
    wrong = {}
    for name, keys in made.items():
        answer = grafana.get("series", **{"match[]": name, "start": grafana.now - 600, "end": grafana.now})
        real = {frozenset(labels) - {"__name__"} for labels in answer["data"]}
        if real and not keys <= real and name not in INCOMPARABLE:
            wrong[name] = (sorted(map(sorted, keys - real)), sorted(map(sorted, real)))

    assert {} == wrong

"""Test every query of every dashboard on a real Prometheus, over a history whose right values are known."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest
import yaml

from dashboards import made_fleet as fleet
from support.history import END, running
from support.panels import MODELS, Answer, Grafana, Json, View, panels
from support.tools import newest, prometheuses
from triton_dashboards.recording import rules_text
from triton_slo.artifact import Options
from triton_slo.names import ESTIMATE_ERROR, SLI_SOURCE

pytestmark = pytest.mark.real

VIEWS: tuple[tuple[str, Mapping[str, str]], ...] = (
    *((uid, {}) for uid in MODELS if uid != "triton-model"),
    *(
        ("triton-model", {"model": name})
        for name in ("embedder", "classifier", "pipeline", "saturated", "broken")
    ),
    *(("triton-model", {"model": name}) for name in ("llama-trt", "mistral-vllm")),
)
"""Dashboards as people open them."""

RULES = Path(__file__).parents[2] / "alerts" / "generated" / "rules"

EMPTY: Mapping[tuple[str, str], str] = {
    ("triton-model", "Failures of the steps"): "no request of the ensemble fails"
}
"""(uid, panel) that has no series in this history -> why that is right."""

A_WEEK_AGO = {("triton-model", "Requests by version", "B"), ("triton-model", "Latency", "E")}
"""Queries of what was a week ago; the history is of three hours."""

UNBOUNDED = {
    "Budget left",
    "Least budget left",
    "Busy",
    "Traffic over break rate",
    "Utilisation by model (estimate)",
}
"""Shares that may leave 0 to 1: an overspent budget is negative, executions overlap, an objective may be broken."""


@pytest.fixture(
    scope="module", params=[str(path) for path in newest(prometheuses())], ids=lambda path: path.split("/")[1]
)
def grafana(
    request: pytest.FixtureRequest, history: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Grafana]:
    """Each Prometheus there is, over its own copy of the history."""
    directory = tmp_path_factory.mktemp("prometheus")
    shutil.copytree(history, directory / "data")
    with running(directory, server=Path(request.param)) as url:
        yield Grafana(url, END)


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the made history with what the dashboards' own rules record of it."""
    directory = tmp_path_factory.mktemp("history")
    return fleet.backfill(directory, rules_text(Options()))


@pytest.fixture(scope="module")
def views(grafana: Grafana) -> tuple[View, ...]:
    """All dashboards, opened."""
    return tuple(grafana.open(MODELS[uid], wanted) for uid, wanted in VIEWS)


def _all(views: tuple[View, ...]) -> Iterator[tuple[str, Json, Answer]]:
    for view in views:
        for panel, answer in view.answers:
            yield view.uid, panel, answer


def _view(views: tuple[View, ...], uid: str, model: str = "") -> View:
    return next(view for view in views if view.uid == uid and view.chosen.get("model", ".*") in (model, ".*"))


@pytest.mark.parametrize("slo", ["errors", "queue", "readiness"])
def test_causes_are_those_of_the_chosen_objective(grafana: Grafana, slo: str) -> None:
    """Causes are recorded by indicator; an objective that is chosen shows its own, and no other's."""
    [answer] = grafana.open(MODELS["triton-slo"], {"slo": slo}).panel("Causes")

    assert {slo} == {series["metric"]["indicator"] for series in answer.series}


@pytest.mark.parametrize(
    ("uid", "title", "variable", "values"),
    [
        (
            "triton-slo",
            "Burn rate by window, worst group",
            "model",
            sorted({model.name for model in fleet.MODELS} | {"broken"}),
        ),
        ("triton-slo", "Events", "model", sorted({model.name for model in fleet.MODELS} | {"broken"})),
        ("triton-slo", "Causes", "version", ["1", "2"]),
        ("triton-gpu", "Utilisation by model (estimate)", "instance", fleet.SERVERS),
    ],
)
def test_what_is_recorded_over_all_equals_what_is_read_of_each(
    grafana: Grafana, uid: str, title: str, variable: str, values: list[str]
) -> None:
    """With All chosen a graph reads what the rules recorded; with each value chosen it shows the same."""
    every = grafana.choose(MODELS[uid], {})
    each = {**every, variable: f"({'|'.join(values)})"}
    panel = next(panel for panel in panels(MODELS[uid]) if panel["title"] == title)

    for target in panel["targets"]:
        recorded, read = (grafana.ask(panel, target, chosen) for chosen in (every, each))
        assert recorded.series
        assert sorted(recorded.legends()) == sorted(read.legends())
        assert sorted(recorded.last()) == pytest.approx(sorted(read.last()), rel=0.1)


def test_no_panel_is_empty_without_a_reason(views: tuple[View, ...]) -> None:
    """Each panel shows something for at least one of the models, or the reason why not is written here."""
    empty = {(uid, panel["title"]) for uid, panel, _ in _all(views)}
    empty -= {(uid, panel["title"]) for uid, panel, answer in _all(views) if answer.series}

    assert set(EMPTY) == empty


def test_every_column_of_every_table_is_filled(views: tuple[View, ...]) -> None:
    """A table joins one query a column; each of them finds something for at least one model."""
    asked = {(uid, panel["title"], answer.target["refId"]) for uid, panel, answer in _all(views)}
    filled = {
        (uid, panel["title"], answer.target["refId"]) for uid, panel, answer in _all(views) if answer.series
    }

    assert {column for column in asked - filled if column[:2] not in EMPTY} == A_WEEK_AGO


def test_prometheus_warns_of_nothing(views: tuple[View, ...]) -> None:
    """No warning, and no hint but the one that Triton's counters lack _total in their names."""
    printed = {text for _, _, answer in _all(views) for text in (*answer.warnings, *answer.infos)}

    assert set() == {text for text in printed if "might not be a counter" not in text}


def test_fleet_shows_no_hint_at_all(views: tuple[View, ...]) -> None:
    """The pages one opens first read recorded series, so no panel carries an icon."""
    printed = {
        (uid, text)
        for uid, _, answer in _all(views)
        for text in answer.infos
        if uid in ("triton-fleet", "triton-on-call", "triton-slo")
    }

    assert set() == printed


def test_every_series_has_its_own_name_in_the_legend(views: tuple[View, ...]) -> None:
    """Within a panel no two series carry the same name, and none has a blank where a label is missing."""
    assert [] == [wrong for view in views for wrong in view.nameless()]


def test_legends_use_only_labels_that_are_there(views: tuple[View, ...]) -> None:
    """A label in a legend survives the aggregation of its query."""
    missing = {
        (uid, panel["title"], label)
        for uid, panel, answer in _all(views)
        for label in re.findall(r"\{\{\s*(\w+)\s*\}\}", answer.target["legendFormat"])
        if answer.series and not any(label in series["metric"] for series in answer.series)
    }

    assert set() == missing


def test_values_are_numbers_within_their_unit(views: tuple[View, ...]) -> None:
    """Nothing is NaN or infinite, and a share is between 0 and 1 unless it may not."""
    wrong = [
        (uid, panel["title"], value)
        for uid, panel, answer in _all(views)
        for value in answer.last()
        if not math.isfinite(value) or (_is_share(panel) and not -1e-9 <= value <= 1 + 1e-9)
    ]

    assert [] == wrong


def _is_share(panel: Json) -> bool:
    return panel["fieldConfig"]["defaults"].get("unit") == "percentunit" and panel["title"] not in UNBOUNDED


def test_eight_percent_of_errors_show_as_eight_percent(views: tuple[View, ...]) -> None:
    """The classifier's second version fails 8 % of its requests, on every panel that shows it."""
    model = _view(views, "triton-model", "classifier")
    by_version = model.panel("Failed by version")[0]
    table = next(a for a in model.panel("Versions") if a.expr.startswith(by_version.expr[:60]))

    # Requests that clients gave up count for neither side.
    assert fleet.FAILED_SHARE == pytest.approx(by_version.value(version="2"), abs=1e-3)
    assert fleet.FAILED_SHARE == pytest.approx(table.value(version="2"), abs=1e-3)
    assert 0 == by_version.value(version="1")


def test_failed_share_of_the_fleet_weighs_by_traffic(views: tuple[View, ...]) -> None:
    """18 of 60 requests go to the failing version, so the fleet's table shows 2.4 % for the classifier."""
    failed = next(a for a in _view(views, "triton-fleet").panel("Models") if "failures" in a.expr)
    share = 18 * fleet.FAILED_SHARE / (18 + 42)

    assert share == pytest.approx(failed.value(model="classifier"), rel=0.15)
    assert 0 == failed.value(model="embedder")


def test_queue_share_is_the_share_that_was_made(views: tuple[View, ...]) -> None:
    """Requests to the saturated model wait nine tenths of their time, in the dashboards of fleet and model."""
    time_in_queue = _view(views, "triton-model", "saturated").panel("Time in queue")[0]
    in_table = next(a for a in _view(views, "triton-fleet").panel("Models") if "queue_seconds" in a.expr)

    assert fleet.QUEUE_SHARE == pytest.approx(time_in_queue.last()[0], abs=2e-3)
    assert fleet.QUEUE_SHARE == pytest.approx(in_table.value(model="saturated"), abs=2e-3)


def test_graphs_carry_the_limits_that_the_objectives_promise(views: tuple[View, ...]) -> None:
    """The template draws the threshold of the chosen model's objectives, and the share that may fail."""
    model = _view(views, "triton-model", "saturated")
    drawn = {
        answer.panel: list(zip(answer.legends(), answer.last(), strict=True))
        for _, answer in model.answers
        if answer.target["legendFormat"].startswith("limit of")
    }

    assert {
        "Latency": [("limit of latency", 1.0)],
        "Wait in the queue": [("limit of queue", fleet.QUEUE_LIMIT)],
        "Failed by version": [("limit of errors", pytest.approx(0.001))],
    } == drawn


def test_requests_per_second_are_summed_over_servers(views: tuple[View, ...]) -> None:
    """Two servers with about 180 requests a second each make about 360."""
    embedder = next(m for m in fleet.MODELS if m.name == "embedder")
    shown = _view(views, "triton-model", "embedder").panel("Requests/s")[0].last()[0]

    assert 2 * embedder.per_second == pytest.approx(shown, rel=0.3)


def test_batch_is_inferences_over_executions(views: tuple[View, ...]) -> None:
    """The embedder's mean batch is the one that was made."""
    shown = _view(views, "triton-model", "embedder").panel("Mean batch size and limit")[0].last()[0]

    assert 5.5 == pytest.approx(shown, abs=1e-2)


def test_not_ready_models_are_counted_on_each_server(views: tuple[View, ...]) -> None:
    """The broken model is not ready on both servers, and the healthy models have 0, not an empty panel."""
    assert [2.0] == _view(views, "triton-fleet").panel("Not ready")[0].last()
    assert [2.0] == _view(views, "triton-model", "broken").panel("Not ready")[0].last()
    assert [0.0] == _view(views, "triton-model", "embedder").panel("Not ready")[0].last()


def test_phases_add_up_to_the_request(views: tuple[View, ...]) -> None:
    """The stack of phases ends at the mean latency that was made."""
    stack = _view(views, "triton-model", "embedder").panel("Request time by phase")
    embedder = next(m for m in fleet.MODELS if m.name == "embedder")

    assert embedder.micros == pytest.approx(sum(answer.last()[0] for answer in stack), rel=0.05)


def test_exhaustion_follows_from_budget_and_burn(views: tuple[View, ...]) -> None:
    """12 % of a 30-day budget at a burn of about 10 over an hour lasts 30 d x 0.12 / burn."""
    objectives = _view(views, "triton-slo")
    left = next(
        a for a in objectives.panel("Objectives") if a.expr.startswith("min") and "86400" not in a.expr
    )
    burn = next(a for a in objectives.panel("Objectives") if "rate1h" in a.expr and "86400" not in a.expr)
    gone = next(a for a in objectives.panel("Objectives") if "86400" in a.expr)
    keys = {"slo": "queue", "model": "saturated", "version": "1"}

    assert 30 * 86_400 * left.value(**keys) / burn.value(**keys) == pytest.approx(
        gone.value(**keys), rel=1e-6
    )
    spent = {"slo": "errors", "model": "classifier", "version": "2"}
    assert not [series for series in gone.series if spent.items() <= series["metric"].items()]
    assert 0 < only(objectives.panel("Next budget to be spent"))


def only(answers: list[Answer]) -> float:
    [value] = answers[0].last()
    return value


def test_a_budget_shows_the_caveat_of_its_source(views: tuple[View, ...]) -> None:
    """Estimates and sources that may hide failures have a caveat beside the budget; readiness has none."""
    (answer,) = [a for a in _view(views, "triton-slo").panel("Objectives") if SLI_SOURCE in a.expr]
    shown = {
        series["metric"]["slo"]: value for series, value in zip(answer.series, answer.last(), strict=True)
    }

    words = {"queue": "Estimated", "errors": "Failures may be hidden"}
    assert {slo: float(list(words).index(slo) + 1) for slo in words} == shown
    text = json.dumps(MODELS["triton-slo"])
    assert all(f'"text": "{word}"' in text for word in words.values())


def test_boards_show_how_far_an_estimate_may_be_off(views: tuple[View, ...]) -> None:
    """Beside the budget of each objective that is estimated."""
    (answer,) = [a for a in _view(views, "triton-slo").panel("Objectives") if ESTIMATE_ERROR in a.expr]
    shown = {
        series["metric"]["slo"]: value for series, value in zip(answer.series, answer.last(), strict=True)
    }

    assert {"queue": fleet.ESTIMATE_ERROR} == shown


def test_firing_alerts_are_listed_with_their_age(views: tuple[View, ...]) -> None:
    """On call lists each alert that pages or tickets once, with the moment it began, and not the watchdog."""
    answer = _view(views, "triton-on-call").panel("Firing")[0]
    shown = {
        series["metric"]["alertname"]: value
        for series, value in zip(answer.series, answer.last(), strict=True)
    }

    assert {name: since * 1000.0 for name, _, since in fleet.FIRING if name != "Watchdog"} == shown


def test_a_language_model_of_either_backend_shows_its_first_token(views: tuple[View, ...]) -> None:
    """The first screen shows what the graph shows."""
    trt, vllm = (_view(views, "triton-model", name) for name in ("llama-trt", "mistral-vllm"))
    for view in (trt, vllm):
        graph = next(a for a in view.panel("Time to first token") if a.legends() == ["p95"])
        assert graph.last()[0] == pytest.approx(only(view.panel("First token, p95")))


def test_the_tiers_of_a_budget_are_one_alert(views: tuple[View, ...]) -> None:
    """A page and a ticket of one budget are one row and one page; the ticket is not counted again."""
    on_call = _view(views, "triton-on-call")
    rows = [series["metric"] for series in on_call.panel("Firing")[0].series]
    burns = [row for row in rows if row["alertname"] == "TritonErrorsBudgetBurn"]

    assert ["critical"] == [row["severity"] for row in burns]
    assert [3.0] == on_call.panel("Pages")[0].last()
    assert [3.0] == on_call.panel("Tickets")[0].last()
    assert [6.0] == _view(views, "triton-fleet").panel("Alerts firing")[0].last()


def test_annotations_mark_what_happened(grafana: Grafana) -> None:
    """Each annotation query runs; those of events find the fault, the restart and the alerts."""
    actual = set()
    for uid, model in MODELS.items():
        chosen = grafana.choose(model, {"model": "classifier"} if uid == "triton-model" else {})
        for annotation in model["annotations"]["list"][1:]:
            target = annotation["target"] | {"instant": False, "legendFormat": ""}
            wide = Grafana(grafana.url, grafana.now, 7200, 60)
            answer = wide.ask({"title": annotation["name"]}, target, chosen)
            assert not answer.warnings
            labels = set(re.findall(r"\{\{(\w+)\}\}", annotation["titleFormat"]))
            assert all(labels <= set(series["metric"]) for series in answer.series), annotation["name"]
            actual |= {annotation["name"]} if answer.series else set()

    assert {"Firing alerts", "Failed loads", "Loads and deploys", "Restarts and reloads"} == actual


def test_one_server_alone_narrows_every_panel(grafana: Grafana) -> None:
    """Choosing a server leaves no series of another one."""
    for uid in ("triton-server", "triton-gpu", "triton-model"):
        wanted = {"instance": fleet.SERVERS[0]} | ({"model": "classifier"} if uid == "triton-model" else {})
        view = grafana.open(MODELS[uid], wanted)
        seen = {series["metric"].get("instance") for _, answer in view.answers for series in answer.series}

        assert {None, fleet.SERVERS[0]} == seen


ENDINGS = {
    "s": "_seconds",
    "µs": "_us",
    "ms": "_ms",
    "bytes": "_bytes",
    "watt": "_watts",
    "celsius": "_celsius",
    "hertz": "_hertz",
}
"""Unit of a panel -> how the metrics end that may be shown in it."""
PLAIN = {"short", "locale", "percentunit", "reqps", "count:tok/s", "dateTimeFromNow"}
"""Units without one ending. No "percent" among them: every share here is between 0 and 1."""


def _units(panel: Json) -> Iterator[tuple[str, str]]:
    """Yield (unit, query) of a panel, or of each column of a table."""
    columns = {"Value": "A"}
    for step in panel.get("transformations", ()):
        for old, new in step["options"].get("renameByName", {}).items():
            columns |= {new: old[-1] if "#" in old else "A"} if old.startswith("Value") else {}
    queries = {target["refId"]: target["expr"] for target in panel["targets"]}
    for override in panel["fieldConfig"]["overrides"]:
        for entry in override["properties"]:
            if entry["id"] == "unit":
                yield entry["value"], queries[columns[override["matcher"]["options"]]]
    if panel["type"] != "table":
        yield from ((panel["fieldConfig"]["defaults"]["unit"], expr) for expr in queries.values())


def test_units_are_those_of_the_metrics() -> None:
    """Seconds are shown as seconds and microseconds as microseconds, according to the metric's name."""
    shown = [
        (uid, panel["title"], unit, expr)
        for uid, model in MODELS.items()
        for panel in panels(model)
        for unit, expr in _units(panel)
    ]
    # Time to exhaustion is made of ratios and of the seconds of a day.
    wrong = {
        (uid, title, unit)
        for uid, title, unit, expr in shown
        if not (unit in PLAIN or re.search(ENDINGS[unit], expr) or "86400" in expr or "time()" in expr)
    }

    assert set() == wrong
    assert set(ENDINGS) | PLAIN == {unit for _, _, unit, _ in shown}


def test_not_ready_models_are_listed_with_the_moment(views: tuple[View, ...]) -> None:
    """Each model that should serve and does not has one line, with its state and since when."""
    answer = _view(views, "triton-server").panel("Not ready now")[0]

    assert {("broken", server, "unavailable") for server in fleet.SERVERS} == {
        (series["metric"]["model"], series["metric"]["instance"], series["metric"]["state"])
        for series in answer.series
    }
    assert {fleet.FAULT * 1000.0} == set(answer.last())


def test_bands_of_pages_and_of_tickets_differ(views: tuple[View, ...]) -> None:
    """What paged is 2, which is drawn red, and what only opened a ticket is 1."""
    asked = {
        name: 2.0 if labels["severity"] == "critical" else 1.0
        for name, labels, _ in fleet.FIRING
        if labels["severity"] != "none"
    }
    [shown] = _view(views, "triton-on-call").panel("Alerts over time")
    names = [series["metric"]["alertname"] for series in shown.series]
    [burned] = _view(views, "triton-slo").panel("Burn alerts")

    assert asked == dict(zip(names, shown.last(), strict=True))
    assert {
        "errors: classifier 2 page_fast": 2.0,
        "errors: classifier 2 ticket_fast": 1.0,
        "queue: saturated 1 page_slow": 2.0,
    } == dict(zip(burned.legends(), burned.last(), strict=True))


def test_the_made_history_fires_alerts_that_there_are() -> None:
    """The alerts of the pictures are in the catalogue, with the severity and tier of their rules."""
    rules = [
        rule["labels"] | {"alertname": rule["alert"]}
        for path in RULES.glob("*.yml")
        for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]
        for rule in group["rules"]
        if "alert" in rule
    ]
    given = {(rule["alertname"], rule["severity"], rule["component"], rule.get("tier")) for rule in rules}
    made = {
        (name, labels["severity"], labels["component"], labels.get("tier"))
        for name, labels, _ in fleet.FIRING
    }

    assert set() == made - given


@cache
def _text(uid: str) -> str:
    return json.dumps(MODELS[uid])


def test_links_lead_to_dashboards_and_variables_that_exist() -> None:
    """Every link into Grafana names a dashboard that we ship and only variables that it has."""
    for uid in MODELS:
        for target, query in re.findall(r'"/d/([\w-]+)\?([^"]*)"', _text(uid)):
            variables = {variable["name"] for variable in MODELS[target]["templating"]["list"]}
            named = set(re.findall(r"var-(\w+)=", query)) | set(re.findall(r"\$\{(\w+):queryparam\}", query))
            mine = {variable["name"] for variable in MODELS[uid]["templating"]["list"]}

            assert named <= variables, (uid, query)
            assert set(re.findall(r"\$\{(\w+):queryparam\}", query)) <= mine, (uid, query)

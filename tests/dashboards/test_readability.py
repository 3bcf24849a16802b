"""Test what a person reads off the dashboards: colours, axes, ended states, and windows that fit the question."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support import history
from support.history import END
from support.panels import MODELS, Grafana, Json, panels
from triton_dashboards.generate import dashboards
from triton_dashboards.grafana import dashboard_model
from triton_dashboards.query import UNCOUNTED
from triton_dashboards.values import Panel, Table
from triton_exporter.catalogue import triton
from triton_slo.artifact import Options
from triton_slo.names import model_traffic, server_traffic

PANELS = [(uid, panel) for uid, model in MODELS.items() for panel in panels(model)]
LUMINANCE = {"light-green": 0.58, "green": 0.43, "orange": 0.45, "red": 0.26, "dark-red": 0.13}
"""Relative luminance of Grafana's colours in its dark theme: what distinguishes them for everybody."""


def panel(uid: str, title: str) -> Json:
    return next(shown for where, shown in PANELS if (where, shown["title"]) == (uid, title))


def defaults(drawn: Json) -> Json:
    return dict(drawn["fieldConfig"]["defaults"])


def test_states_differ_without_red_and_green() -> None:
    """Bands over time show their words, and the good state is far lighter than the bad one."""
    timelines = [drawn for _, drawn in PANELS if drawn["type"] == "state-timeline"]
    for timeline in timelines:
        words = next(
            (each["options"] for each in defaults(timeline)["mappings"] if each["type"] == "value"), {}
        )
        colors = {word["text"]: LUMINANCE[word["color"]] for word in words.values()}
        good = [light for word, light in colors.items() if word in ("Ready", "Yes")]
        bad = [light for word, light in colors.items() if word in ("Down", "No")]

        assert "auto" == timeline["options"]["showValue"]
        assert all((light + 0.05) / (dark + 0.05) > 3 for light in good for dark in bad)


@pytest.mark.real
def test_a_lost_heartbeat_is_red(without_alerts: Grafana) -> None:
    """Where the alert that always fires does not, the panel has a value, whose colour is red."""
    heartbeat = panel("triton-on-call", "Watchdog")
    value = without_alerts.ask(heartbeat, heartbeat["targets"][0], {}).value()
    [words] = [each["options"] for each in defaults(heartbeat)["mappings"] if each["type"] == "value"]

    assert {"text": "Lost", "color": "red", "index": 0} == words[f"{value:g}"]


@pytest.fixture(scope="module")
def without_alerts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Grafana]:
    """Yield a Prometheus that evaluates no rules."""
    with history.serve("# EOF\n", tmp_path_factory.mktemp("prometheus")) as url:
        yield Grafana(url, END)


def test_failures_are_never_green() -> None:
    """Grafana's palette begins with green, so graphs of failures are drawn in shades of red, and bars are stacked."""
    bars = ("Failed loads", "Failed requests to Triton", "XID errors", "Failed requests to Slack", "Sources")
    drawn_red = {
        drawn["title"]: defaults(drawn)
        for _, drawn in PANELS
        if drawn["type"] == "timeseries" and (drawn["title"].startswith("Fail") or drawn["title"] in bars)
    }
    own_colors = {"Failures by reason"}
    palette = {title for title, how in drawn_red.items() if how.get("color", {}).get("fixedColor") != "red"}

    assert set() == palette - own_colors
    assert {"shades"} == {drawn_red[title]["color"]["mode"] for title in bars}
    assert {"normal"} == {drawn_red[title]["custom"]["stacking"]["mode"] for title in bars}


def test_an_axis_without_traffic_ends_at_a_small_number() -> None:
    """Where all is zero Grafana draws shares up to 10,000 %, and counts on an axis of equal labels."""
    zero_based = [
        (uid, drawn["title"])
        for uid, drawn in PANELS
        if drawn["type"] == "timeseries"
        and (defaults(drawn)["unit"] == "percentunit" or defaults(drawn).get("decimals") == 0)
        and "max" not in defaults(drawn)
        and "axisSoftMax" not in defaults(drawn)["custom"]
    ]

    assert [] == zero_based


def test_a_budget_is_drawn_over_its_period_down_to_overspent_once() -> None:
    """A 30-day budget over 24 hours is a flat line, and one group at -100,000 % flattens all others."""
    budget = panel("triton-slo", "Budget left")

    assert ("30d", "3h", -1) == (budget["timeFrom"], budget["interval"], defaults(budget)["min"])


def test_no_latency_is_averaged_over_all_models() -> None:
    """A mean of language models and classifiers describes neither."""
    stats = [drawn for uid, drawn in PANELS if uid == "triton-fleet" and drawn["type"] == "stat"]

    assert not [stat["title"] for stat in stats if "latency" in stat["title"]]


def test_the_legend_of_states_shows_no_last_value() -> None:
    """The last value of a state that has ended is not its value now."""
    assert "lastNotNull" not in panel("triton-server", "Models by state")["options"]["legend"]["calcs"]


def test_every_stat_of_the_fleet_leads_on() -> None:
    """Anyone who sees a number that is wrong clicks it."""
    stats = [drawn for uid, drawn in PANELS if uid == "triton-fleet" and drawn["type"] == "stat"]

    assert [] == [stat["title"] for stat in stats if not defaults(stat)["links"]]


def test_loads_and_deploys_are_marked_on_every_dashboard() -> None:
    """A change of a version is the first suspect of everything else."""
    marks = {
        uid: {annotation["name"] for annotation in model["annotations"]["list"]}
        for uid, model in MODELS.items()
    }

    assert [] == [uid for uid, names in marks.items() if not {"Loads and deploys", "Failed loads"} <= names]


def test_the_first_graphs_of_the_gpu_dashboard_are_open_and_explain_missing_data() -> None:
    """What every source has needs no click; without GPUs each graph states it, and a text has the steps to take."""
    opened = [drawn for drawn in MODELS["triton-gpu"]["panels"] if drawn["type"] not in ("row", "stat")]
    table, *graphs = opened

    assert ["Busy", "Memory used", "Power", "Temperature"] == [graph["title"] for graph in graphs]
    assert {"No GPU"} == {defaults(graph)["noValue"] for graph in graphs}
    assert "docs/gpu.md" in defaults(table)["noValue"]


def test_links_of_the_operator_are_on_every_dashboard() -> None:
    """Logs and traces are in places that only the operator knows."""
    link = ("Logs", "https://logs.example.org/?q=${model}&from=${__from}")
    made = [dashboard_model(dashboard) for dashboard in dashboards(Options(links=(link,)))]

    assert all(link in [(link["title"], link.get("url")) for link in model["links"]] for model in made)


def test_the_title_of_a_figure_fits() -> None:
    """On a laptop (1280 pixels) a title is cut after as many letters as 8 pixels each leave."""
    cut = [
        (uid, drawn["title"])
        for uid, drawn in PANELS
        if drawn["type"] == "stat" and 8 * len(drawn["title"]) > drawn["gridPos"]["w"] / 24 * 1280 - 24
    ]

    assert [] == cut


def test_a_panel_of_failures_names_what_triton_cannot_count() -> None:
    """A reader who sees 0 failed requests beside clients with errors finds the reason in the description."""
    counters = (triton.REQUEST_FAILURE.name, model_traffic("failures"), server_traffic("failures"))
    silent = [
        (board.uid, panel.title)
        for board in dashboards(Options())
        for panel in board.panels
        for shown in (_failures(panel),)
        if any(name in query for query in shown for name in counters) and UNCOUNTED not in panel.description
    ]

    assert [] == silent


def _failures(panel: Panel) -> list[str]:
    """Return queries of a panel, or of a table's column, that is about failures."""
    if isinstance(panel, Table):
        return [column.expr for column in panel.columns if column.name.startswith("Fail")]
    return [query.expr for query in panel.panel_queries] if panel.title.startswith("Fail") else []

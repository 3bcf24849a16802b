"""Test which firing alerts mark the graphs of a dashboard, on a real Prometheus with Grafana's queries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from support import history
from support.history import END
from support.panels import MODELS, Grafana
from triton_slo import names

pytestmark = pytest.mark.real

NAME = "llama-3.1+x"
"""As a regular expression it does not match itself."""


@pytest.fixture(scope="module")
def grafana(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Grafana]:
    """Four alerts that fire: of two models on one server each, of another server, and of the whole stack."""
    points = [(END - 600 + 15 * step, 1.0) for step in range(41)]
    common = {"alertstate": "firing", names.COMPONENT: "x", names.SEVERITY: "critical"}
    alerts: list[Mapping[str, str]] = [
        {"alertname": "Ours", "model": NAME, "instance": "a"},
        {"alertname": "Elsewhere", "model": NAME, "instance": "b"},
        {"alertname": "OtherModel", "model": "other", "instance": "a"},
        {"alertname": "OtherServer", "instance": "b"},
        {"alertname": "Everywhere"},
    ]
    text = history.openmetrics(("ALERTS", {**common, **alert}, points) for alert in alerts)
    with history.serve(text, tmp_path_factory.mktemp("prometheus")) as url:
        yield Grafana(url, END)


@pytest.mark.parametrize(
    ("uid", "chosen", "marked"),
    [
        ("triton-model", {"model": NAME, "instance": "a"}, {"Ours", "Everywhere"}),
        ("triton-server", {"instance": "b"}, {"Elsewhere", "OtherServer", "Everywhere"}),
        ("triton-gpu", {"instance": "b"}, {"Elsewhere", "OtherServer", "Everywhere"}),
        ("triton-fleet", {"model": "other"}, {"OtherModel", "OtherServer", "Everywhere"}),
    ],
)
def test_only_alerts_of_what_is_chosen_mark_the_graphs(
    grafana: Grafana, uid: str, chosen: Mapping[str, str], marked: set[str]
) -> None:
    """Alerts of another model or server are not drawn; those that name neither are."""
    variables = {variable["name"]: ".*" for variable in MODELS[uid]["templating"]["list"]} | chosen
    marks = {answer.panel: answer for answer in grafana.marks(MODELS[uid], variables)}

    assert marked == set(marks["Firing alerts"].legends())

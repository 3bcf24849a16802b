"""Test the facts that the bridge asks Prometheus for: valid queries for any labels, and readable lines."""

from __future__ import annotations

import promql_parser
import pytest

from triton_alerts.bridge.deliver.chart import draw
from triton_alerts.bridge.evidence.facts import burn_query
from triton_alerts.bridge.evidence.facts import objective_budget as from_prometheus
from triton_alerts.bridge.incidents.incident import Incident
from triton_alerts.bridge.incidents.notification import Member
from triton_slo.indicators import Latency
from triton_slo.prometheus import Prometheus, Sample, Series
from triton_slo.server_access import Access

LABELS = {
    "slo": "latency-250ms",
    "indicator": "latency",
    "model": 'ra"nk\\er\n',
    "version": "2",
    "gpu_uuid": "GPU-1",
}


class Recorded(Prometheus):
    """A Prometheus that answers everything with one series and parses what it is asked."""

    now = 86_400.0

    def instant(self, query: str, at: float | None = None) -> tuple[Sample, ...]:
        promql_parser.parse(query)
        return (Sample({"cause": "queue"}, 0.61, self.now),)

    def range(self, query: str, start: float, end: float, step_seconds: float) -> tuple[Series, ...]:
        promql_parser.parse(query)
        return ()


@pytest.mark.parametrize("labels", [LABELS, {"model": "m", "instance": "i"}, {"instance": "i"}])
def test_the_chart_s_query_parses(labels: dict[str, str]) -> None:
    """Quotes, backslashes and line ends in a model's name stay inside their matcher."""
    promql_parser.parse(burn_query(Member(labels=labels, starts_at=1.0)))


def test_an_objective_s_incident_shows_burn_budget_and_cause() -> None:
    """Each fact is a name and a value with its unit."""
    members = {"a": Member(labels=LABELS, starts_at=1.0)}
    incident = Incident(name="n", key="k", receiver="r", opened_at=1.0, members=members)
    known = from_prometheus(Recorded(Access("http://unused")))(incident)
    facts = dict(known.facts)

    assert "0.61x the allowed rate in 5 min" == facts["Burn rate"]
    assert "61.0%" == facts["Budget left"]
    assert "61 % of requests within 610 ms over 0.61d" == facts["Objective"]
    assert ("queue 61%", "queue") == (facts["Causes"], known.largest_cause)
    assert Latency.steps_by_cause["queue"] == known.first_step


def test_the_facts_are_about_the_objective_in_the_title() -> None:
    """Of two objectives that burn alike, the one that began first leads, in whatever order they were reported."""
    queue = LABELS | {"slo": "queue", "indicator": "queue"}
    members = {"a": Member(labels=LABELS, starts_at=2.0), "b": Member(labels=queue, starts_at=1.0)}
    incident = Incident(name="n", key="k", receiver="r", opened_at=1.0, members=members)

    assert incident.burning == incident.lead == members["b"]
    facts = dict(from_prometheus(Recorded(Access("http://unused")))(incident).facts)
    assert "61 % of requests queued at most 610 ms over 0.61d" == facts["Objective"]


def test_a_budget_of_minutes_is_not_taken_for_one_of_a_month() -> None:
    """If the data cover less than the period, the message shows how much they cover."""
    members = {"a": Member(labels=LABELS, starts_at=1.0)}
    incident = Incident(name="n", key="k", receiver="r", opened_at=1.0, members=members)
    prometheus = Recorded(Access("http://unused"))
    prometheus.now = 121.0

    facts = dict(from_prometheus(prometheus)(incident).facts)

    assert "not known yet: 2m of data, of 0.61d" == facts["Budget left"]


def test_a_chart_is_a_picture_for_any_names() -> None:
    """Dollar signs and underscores in names are not mathematics."""
    png = draw("$x_{bad}: y", [("_hidden$", [(1.0, 2.0), (60.0, 3.0)])], 30.0)

    assert png.startswith(b"\x89PNG")

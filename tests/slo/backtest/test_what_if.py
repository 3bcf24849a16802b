"""Test what another objective would have made of a history in a real Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from support import history
from support.history import END
from triton_exporter.catalogue import state, triton
from triton_slo.artifact import Options
from triton_slo.backtest.history import History, HistoryError
from triton_slo.backtest.what_if import (
    Evidence,
    GroupOutcome,
    WhatIf,
    events_key,
    is_part_of,
    read_evidence,
    what_if,
)
from triton_slo.objective.model import Objective
from triton_slo.prometheus import Prometheus
from triton_slo.server_access import Access

DAYS, STEP = 2, 300.0
START = END - DAYS * 86400
LATENCY = {"kind": "latency", "threshold": "500ms"}
SLOW = (END - 7200, END - 3600)
"""An hour in which a fifth of the requests of model m took longer than 0.5 s, and none longer than 1 s."""
GAP = (END - 43200, END - 36000)


def objective(**changes: object) -> Objective:
    return Objective.model_validate(
        {"name": "latency", "target": "99%", "window": "7d", "indicator": LATENCY, **changes}
    )


def points(rate: float, during: float, gap: bool = False) -> list[tuple[float, float]]:
    """Return a counter's samples every minute; in the slow hour it grows by `during` a second, else by `rate`."""
    total, samples = 0.0, []
    for at in range(int(START), int(END) + 1, 60):
        total += 60 * (during if SLOW[0] < at <= SLOW[1] else rate)
        if not (gap and GAP[0] < at <= GAP[1]):
            samples.append((float(at), total))
    return samples


def series() -> Iterator[history_row]:
    """Model m was slow for an hour, the estimate of `unsure` states an error, `gap` has none for two hours, and
    `coarse` has no bucket at 0.5 s."""
    bucket, count = state.REQUEST_DURATION.bucket, state.REQUEST_DURATION.count
    for model, edges in (
        ("m", {"0.5": (10.0, 8.0), "1.0": (10.0, 10.0)}),
        ("unsure", {"0.5": (9.95, 9.95), "1.0": (10.0, 10.0)}),
        ("gap", {"0.5": (10.0, 10.0), "1.0": (10.0, 10.0)}),
        ("coarse", {"1.0": (10.0, 10.0)}),
    ):
        labels = {"model": model, "version": "1"}
        gap = model == "gap"
        for le, (rate, during) in {**edges, "+Inf": (10.0, 10.0)}.items():
            yield bucket, {**labels, "le": le}, points(rate, during, gap)
        yield count, labels, points(10.0, 10.0, gap)
        yield str(triton.REQUEST_SUCCESS), labels, points(10.0, 10.0, gap)
        source = "decomposed" if model == "unsure" else "histogram"
        every = [(float(at), 1.0) for at in range(int(START), int(END) + 1, 60)]
        yield str(state.DISTRIBUTION_SOURCE), {**labels, "signal": "request", "source": source}, every
        if model == "unsure":
            stated = {**labels, "signal": "request", "le": "0.5"}
            yield str(state.DISTRIBUTION_ERROR), stated, [(at, 0.008) for at, _ in every]


history_row = tuple[str, dict[str, str], list[tuple[float, float]]]


@dataclass
class Read:
    """A history of one objective, and what another one makes of it."""

    evidence: Evidence

    def __call__(self, **changes: object) -> WhatIf:
        return what_if(self.evidence, objective(**changes))


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    text = history.openmetrics(series())
    with history.serve(text, tmp_path_factory.mktemp("prometheus")) as url, Prometheus(Access(url)) as client:
        yield client


def evidence(prometheus: Prometheus, wanted: Objective, length: float = DAYS * 86400.0) -> Evidence:
    return read_evidence(prometheus, wanted, Options(), END, length, STEP, recorded=False)


@pytest.fixture(scope="module")
def read(prometheus: Prometheus) -> Read:
    return Read(evidence(prometheus, objective()))


def group(outcome: WhatIf, model: str) -> GroupOutcome:
    (wanted,) = (group for group in outcome.groups if group.model == model)
    return wanted


def raised(outcome: GroupOutcome) -> tuple[int, int]:
    return outcome.pages, outcome.tickets


@pytest.mark.real
def test_another_target_is_judged_on_the_same_events(read: Read) -> None:
    """An hour with a fifth of slow requests in two days: 42 % of a budget of 1 %, 4.2 budgets of 0.1 %."""
    share = 0.2 * 3600 / (DAYS * 86400)

    for target in (0.99, 0.999, 0.9):
        actual = group(read(target=target), "m")
        assert pytest.approx(1 - share / (1 - target), abs=0.02) == actual.budget_left
        assert target == actual.target
    assert pytest.approx(7200, rel=0.02) == group(read(), "m").failed
    assert ["unsure", "m"] == [group.model for group in read(target=0.999).groups][:2]


@pytest.mark.real
def test_pages_and_tickets_follow_the_target(read: Read) -> None:
    """At 99 % the slow hour burns 20 times too fast and pages; at 90 % twice. What is unknown raises nothing."""
    assert [True, False] == [raised(group(read(), model))[0] == 1 for model in ("m", "gap")]
    assert 0 == group(read(target=0.9), "m").pages


@pytest.mark.real
def test_other_tiers_raise_other_alerts(read: Read) -> None:
    """The tiers of the objective are replayed, not those of the workbook."""
    slow = {"name": "only", "severity": "warning", "long": "1d", "short": "2h", "burn": 1.5}

    actual = read(alerting={"tiers": [slow]})
    assert {"only"} >= {episode.alert for episode in actual.report.episodes}
    assert (0, 0) == raised(group(read(alerting={"enabled": False}), "m"))


@pytest.mark.real
def test_a_model_without_the_bucket_and_one_with_gaps_are_named(read: Read) -> None:
    """What is not known is neither good nor bad, and the reader sees whose it is and what to change."""
    limitations = {limitation.what: limitation for limitation in read().limitations}

    (bucket,) = (place for what, place in limitations.items() if "no bucket bound at the threshold" in what)
    assert (("coarse version 1",), True) == (bucket.groups, "--buckets-from" in bucket.fix)
    (gap,) = (place for what, place in limitations.items() if "no data for up to" in what)
    assert "gap version 1" in gap.groups
    assert pytest.approx(7200 / (DAYS * 86400), abs=0.003) == group(read(), "gap").unknown
    assert any("there is data of" in what and "window has 7d" in what for what in limitations)
    assert any("alert of less than 10m may be missed" in what for what in limitations)


@pytest.mark.real
def test_an_estimate_comes_with_the_budgets_that_its_error_allows(read: Read) -> None:
    """Half a percent of 1 % is spent, give or take 0.8 points: between all of it and less than nothing."""
    unsure, sure = group(read(), "unsure"), group(read(), "m")

    assert pytest.approx(0.5, abs=0.03) == unsure.budget_left
    assert pytest.approx(-0.3, abs=0.03) == unsure.lowest
    assert 1.0 == unsure.highest
    assert (None, None) == (sure.lowest, sure.highest)
    assert any(limitation.what.startswith("estimated (decomposed)") for limitation in read().limitations)
    # A stricter target does not carry the error any more.
    strict = [limitation.what for limitation in read(target=0.999).limitations]
    assert any("too uncertain for the target" in what for what in strict)


@pytest.mark.real
def test_thresholds_are_the_bounds_that_exist(read: Read) -> None:
    """Each with the number of models that have it."""
    assert ((0.5, 3), (1.0, 4)) == read.evidence.bounds


@pytest.mark.real
def test_a_longer_threshold_reads_its_own_bucket(prometheus: Prometheus) -> None:
    """The bucket of a second contains every request."""
    looser = objective(indicator={"kind": "latency", "threshold": "1s"})

    assert events_key(looser) != events_key(objective())
    actual = what_if(evidence(prometheus, looser), looser)
    assert dict.fromkeys(("coarse", "gap", "m", "unsure"), 1.0) == {
        group.model: round(group.budget_left or 0.0, 6) for group in actual.groups
    }


@pytest.mark.real
def test_models_that_are_not_there_are_an_error(prometheus: Prometheus) -> None:
    """An empty result is not shown as a whole budget."""
    with pytest.raises(HistoryError, match="no series to replay"):
        evidence(prometheus, objective(models=["nobody"]))


def test_groups_are_those_that_prometheus_chose() -> None:
    """A pattern is not matched again here, where one of a form could take for ever: `(a+)+b` on a long name."""
    times = 1_760_000_000 + STEP * np.arange(12)
    total = np.full((1, 12), 300.0)
    read = Evidence(History((("latency", "a" * 20, "1"),), times, total * 0.05, total), (), (), (), ())
    wanted = objective(models={"regex": "(a+)+b"}, overrides=[{"models": ["a" * 20], "target": "90%"}])

    assert [0.9] == [group.target for group in what_if(read, wanted).groups]


def test_time_that_runs_faster_is_a_doubt() -> None:
    """The windows of the other generators are as they are: in a demo they are longer than its history."""
    times = 1_760_000_000 + 15.0 * np.arange(12)
    total = np.full((1, 12), 300.0)
    read = Evidence(History((("latency", "a", "1"),), times, total * 0.05, total), (), (), (), ())

    actual = what_if(read, objective(), Options(time_scale=0.01))
    assert any("100 times faster" in limitation.what for limitation in actual.limitations)


def test_only_what_changes_the_events_is_read_again() -> None:
    """Target, window, tiers and words are judged on the same history; threshold and models are not."""
    same: list[dict[str, object]] = [
        {"target": "99.9%"},
        {"window": "month"},
        {"alerting": {"min_failures": 50}},
        {"owner": "search", "description": "other words", "name": "other"},
        {"overrides": [{"models": ["a"], "target": "90%"}]},
    ]
    other: list[dict[str, object]] = [
        {"indicator": {"kind": "latency", "threshold": "1s"}},
        {"models": ["a"]},
        {"overrides": [{"models": ["a"], "threshold": "2s"}]},
        {"indicator": "errors"},
    ]

    assert {events_key(objective())} == {events_key(objective(**changes)) for changes in same}
    assert events_key(objective()) not in {events_key(objective(**changes)) for changes in other}


def test_what_is_recorded_serves_fewer_models_and_no_other_threshold() -> None:
    """An objective of the same name that measures something else would get the wrong events."""
    listed = objective(models=["a", "b"])

    assert is_part_of(objective(target="90%"), objective())
    assert is_part_of(objective(models=["a"]), objective())
    assert is_part_of(objective(models=["a"]), listed)
    assert not is_part_of(objective(models=["c"]), listed)
    assert not is_part_of(objective(), listed)
    assert not is_part_of(objective(indicator={"kind": "latency", "threshold": "1s"}), objective())
    assert not is_part_of(objective(name="other"), objective())

"""Standings without any recording rule: worked out from the exporter's series of a real Prometheus."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from support import history
from support.history import END
from support.tools import prometheuses
from triton_exporter.catalogue import model as models
from triton_exporter.catalogue import own, state, triton
from triton_slo.artifact import Options
from triton_slo.objective.model import CalendarWindow, Objective
from triton_slo.prometheus import Access, Prometheus
from triton_slo.rules.periods import period_at
from triton_slo.rules.plan import Plan
from triton_slo.verdict.gate import Limits, burning_tiers, judge
from triton_slo.verdict.live import Standing
from triton_slo.verdict.status import look
from tritonwatch.cli import main

START = END - 2 * 86400
FAILING = (END - 6 * 3600, END - 6 * 3600 + 1800)
"""Half an hour in which a tenth of model m's requests failed and a fifth of them were slow."""

LOST = (END - 20 * 3600, END - 18 * 3600)
"""Two hours in which nothing was heard of model lost, and requests waited in model stuck."""
AWAY = (END - 30 * 3600, END - 28 * 3600)
"""Two hours in which Prometheus itself was away, as far as models unseen and stuck know."""

YOUNG = START + 30
BEGINNING = [YOUNG + 15.0 * n for n in range(16)]
"""The first looks at model young, when there was no history yet: a minute of four it was not ready."""

ERRORS = Objective(name="errors", target=0.999, indicator="errors")
LATENCY = Objective(name="latency", target=0.99, indicator={"kind": "latency", "threshold": "1s"})
READINESS = Objective(name="readiness", target=0.999, indicator="readiness")


def counter(normal: float, failing: float, until: float = END) -> list[tuple[float, float]]:
    times = np.arange(START, until + 1, 30.0)
    growth = np.where((times > FAILING[0]) & (times <= FAILING[1]), failing, normal) * 30
    return list(zip(times.tolist(), np.cumsum(growth).tolist(), strict=True))


def gauge(normal: float, failing: float, until: float = END) -> list[tuple[float, float]]:
    times = np.arange(START, until + 1, 30.0)
    values = np.where((times > FAILING[0]) & (times <= FAILING[1]), failing, normal)
    return list(zip(times.tolist(), values.tolist(), strict=True))


@pytest.fixture(scope="module", params=prometheuses(), ids=str)
def prometheus(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Model m failed for a while, idle is never asked, gone vanished an hour ago, off was unloaded then."""

    def of(model: str, **more: str) -> dict[str, str]:
        return {"job": "x", "instance": "a:9401", "model": model, "version": "1", **more}

    success, failure = str(triton.REQUEST_SUCCESS), str(triton.REQUEST_FAILURE)
    hour_ago = END - 3600
    slow = state.REQUEST_DURATION
    lost, unseen = (
        [(at, value) for at, value in gauge(1, 1) if not low < at < high] for low, high in (LOST, AWAY)
    )
    # As often as the options say: less would be too little to call requests stuck.
    pending = [(at, 5.0 if LOST[0] <= at <= LOST[1] else 0.0) for at in np.arange(AWAY[1], END, 15).tolist()]
    both = ("unseen", "stuck")
    looks = [(at, at - 1) for at, _ in gauge(1, 1)]
    rows = [
        (str(state.UP), {"instance": "a:9401"}, gauge(1, 1)),
        (str(models.INFO), of("m", backend="onnxruntime"), gauge(1, 1)),
        (success, of("m"), counter(10, 9)),
        (failure, of("m", reason="BACKEND"), counter(0, 1)),
        (str(own.LAST_SUCCESS), {"job": "x", "instance": "a:9401"}, looks),
        (str(state.MODEL_READY), of("m", version="2"), gauge(1, 1)),
        (success, of("m", version="2"), counter(10, 10)),
        (success, of("idle"), counter(0, 0)),
        (success, of("gone"), counter(1, 1, hour_ago)),
        (success, of("off"), counter(1, 1, hour_ago)),
        (success, of("rolled"), counter(1, 1, hour_ago)),
        (success, of("rolled", version="2"), counter(1, 1)),
        (str(state.MODEL_STATE), of("off", state="unloaded"), gauge(1, 1)),
        *[
            (str(metric), of("young", **more), [(at, float((at < YOUNG + 60) == lost)) for at in BEGINNING])
            for metric, more, lost in (
                (state.MODEL_STATE, {"state": "ready"}, False),
                (state.MODEL_STATE, {"state": "unavailable"}, True),
                (state.MODEL_READY, {}, False),
            )
        ],
        (str(state.MODEL_EXPECTED), {"instance": "a:9401", "model": "young"}, [(at, 1.0) for at in BEGINNING]),
        (str(state.MODEL_STATE), of("lost", state="ready"), lost),
        (str(state.MODEL_READY), of("lost"), lost),
        (str(state.MODEL_EXPECTED), {"instance": "a:9401", "model": "lost"}, gauge(1, 1)),
        ("up", {"instance": "a:9401"}, unseen),
        *[
            (str(metric), of(model, **more), unseen)
            for model in both
            for metric, more in ((state.MODEL_STATE, {"state": "ready"}), (state.MODEL_READY, {}))
        ],
        *[(str(state.MODEL_EXPECTED), {"instance": "a:9401", "model": model}, unseen) for model in both],
        (str(triton.PENDING_REQUESTS), of("stuck"), pending),
        (str(state.MODEL_EXPECTED), {"instance": "a:9401", "model": "m"}, gauge(1, 1)),
        (str(state.MODEL_EXPECTED), {"instance": "a:9401", "model": "gone"}, gauge(1, 1)),
        (slow.bucket, of("m", le="1.0"), counter(10, 7)),
        (slow.bucket, of("m", le="+Inf"), counter(10, 9)),
        (slow.count, of("m"), counter(10, 9)),
        (str(triton.REQUEST_DURATION_US), of("m"), counter(1e6, 1e6)),
        (str(triton.QUEUE_DURATION_US), of("m"), counter(8e5, 8e5)),
        (str(state.MODEL_STATE), of("m", state="ready"), gauge(1, 0)),
        (str(state.MODEL_STATE), of("m", state="unavailable"), gauge(0, 1)),
        (str(state.MODEL_READY), of("m"), gauge(1, 0)),
    ]  # fmt: skip
    with history.serve(
        history.openmetrics(rows), tmp_path_factory.mktemp("prometheus"), server=request.param
    ) as url:
        yield url


def standings(prometheus: str, *objectives: Objective, at: float = END) -> dict[tuple[str, str], Standing]:
    plans = [Plan(objective, Options()) for objective in objectives]
    with Prometheus(Access(prometheus)) as client:
        rows = look(client, at, plans)
    return {(row.slo, row.model): row for row in rows if row.version != "2"}


@pytest.mark.real
def test_budget_and_burn_rates_are_those_of_the_counters(prometheus: str) -> None:
    """1,800 of 1.7 million failed: the budget of a thousandth is overspent, and nothing burns now."""
    row = standings(prometheus, ERRORS)["errors", "m"]

    lost = 1800 / (10 * (END - START))
    assert pytest.approx(1 - lost, rel=1e-4) == row.sli
    assert pytest.approx(1 - lost / 0.001, abs=0.01) == row.budget_left
    assert ("exhausted", 0.0, 0.0) == (row.state, row.burn_now, row.exhausted_in_seconds)
    assert (0.0, pytest.approx(1800 / 216_000 / 0.001, rel=0.02)) == (row.burn["1h"], row.burn["6h"])
    assert ("counters",) == row.sources
    # Half an hour later than the failures began, the last five minutes burn a hundred times too fast.
    during = standings(prometheus, ERRORS, at=FAILING[1])["errors", "m"]
    assert pytest.approx(100, rel=0.02) == during.burn_now


@pytest.mark.real
def test_idle_vanished_and_unloaded_models_are_told_apart(prometheus: str) -> None:
    """Never asked is idle, gone is unknown by name, unloaded on purpose or replaced by a version is neither."""
    rows = standings(prometheus, ERRORS)

    assert ("idle", None) == (rows["errors", "idle"].state, rows["errors", "idle"].budget_left)
    assert ("unknown", "vanished") == (rows["errors", "gone"].state, rows["errors", "gone"].unknown)
    assert "" == rows["errors", "off"].unknown
    assert "" == rows["errors", "rolled"].unknown


@pytest.mark.real
def test_histograms_and_states_are_read_too(prometheus: str) -> None:
    """Slow requests come from buckets, time not ready from states, each with its cause split."""
    rows = standings(prometheus, LATENCY, READINESS)

    slow, ready = rows["latency", "m"], rows["readiness", "m"]
    assert pytest.approx(3600 / (10 * (END - START) - 1800), rel=0.01) == 1 - slow.sli
    assert ("queue", pytest.approx(0.8)) == slow.causes[0]
    assert pytest.approx(1800 / (END - START), rel=0.15) == 1 - ready.sli
    assert pytest.approx(1800 / 21_600 / 0.001, rel=0.05) == ready.burn["6h"]


@pytest.mark.real
def test_states_of_a_short_history_are_read_as_often_as_they_were_looked_at(prometheus: str) -> None:
    """In a history of minutes, a look every five says all, nothing or neither: it was not ready for one of four."""
    row = standings(prometheus, READINESS, at=BEGINNING[-1] + 15)["readiness", "young"]

    assert pytest.approx(0.25, abs=0.06) == 1 - row.sli
    assert pytest.approx(250, abs=60) == row.burn["6h"]


@pytest.mark.real
def test_an_objective_without_any_series_is_unknown(prometheus: str) -> None:
    """Nothing to measure is said, never 100 %."""
    queue = Objective(name="queue", target=0.99, indicator={"kind": "first_response", "threshold": "1s"})

    row = standings(prometheus, queue)["queue", ""]
    assert ("unknown", "no data", None) == (row.state, row.unknown, row.sli)


@pytest.mark.real
def test_the_command_line_takes_objectives(
    prometheus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """--objectives works without rules; mistakes in them are listed and nothing is shown."""
    words = ["status", "--prometheus", prometheus, "--at", str(END), "--objectives", str(tmp_path)]
    (tmp_path / "e.yaml").write_text("{name: errors, target: 99.9%, indicator: errors}")

    assert 0 == main(words)
    assert "unknown: vanished" in capsys.readouterr().out
    (tmp_path / "e.yaml").write_text("{name: errors, target: 200%, indicator: errors}")
    assert 1 == main(words)
    assert "e.yaml:1" in capsys.readouterr().err


@pytest.mark.real
def test_a_gate_works_without_rules(
    prometheus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tiers and slices are worked out from the counters; a budget that is spent or burns does not promote."""
    (tmp_path / "e.yaml").write_text("{name: errors, target: 99.9%, indicator: errors}")
    words = ["gate", "--prometheus", prometheus, "--objectives", str(tmp_path), "--model"]

    assert 3 == main([*words, "m", "--at", str(END)])
    assert "burns budget: ticket_slow" in capsys.readouterr().out
    assert 4 == main([*words, "m", "--at", str(FAILING[1])])
    assert "pages now: page_fast, page_slow" in capsys.readouterr().out
    assert 0 == main([*words, "m", "--at", str(FAILING[0])])


@pytest.mark.real
def test_canaries_are_compared_without_rules(
    prometheus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A tenth failed in one version and nothing in the other: slices come from the counters themselves."""
    (tmp_path / "e.yaml").write_text(
        "{name: errors, target: 99.9%, indicator: errors, "
        "alerting: {tiers: [{name: t, severity: warning, long: 1h, short: 5m, burn: 900}]}}"
    )
    words = ["gate", "--prometheus", prometheus, "--objectives", str(tmp_path), "--model", "m"]
    words += ["--window", "30m", "--at", str(FAILING[1]), "--json"]

    assert 4 == main([*words, "--canary", "1", "--baseline", "2"])
    numbers = json.loads(capsys.readouterr().out)["judgements"][0]["comparison"]
    assert pytest.approx(0.1, rel=0.01) == numbers["canary"]["bad"] / numbers["canary"]["total"]
    assert 0.0 == numbers["baseline"]["bad"]
    assert 0 == main([*words, "--canary", "2", "--baseline", "1"])


@pytest.mark.real
@pytest.mark.parametrize("kind", ["week", "month", "quarter"])
def test_a_calendar_budget_counts_from_its_first_midnight(prometheus: str, kind: str) -> None:
    """Requests count since the period began in its zone; seconds are a share of the whole period's seconds."""
    window = {"calendar": kind, "timezone": "America/New_York"}
    errors, ready = (
        Objective.model_validate({**one.model_dump(exclude={"window"}), "window": window})
        for one in (ERRORS, READINESS)
    )
    period = period_at(CalendarWindow.model_validate(window), END)
    rows = standings(prometheus, errors, ready)

    since = max(START, period.start)
    lost = 1800 / (10 * (END - since))
    row = rows["errors", "m"]
    assert period.start < FAILING[0]
    assert pytest.approx(1 - lost, rel=1e-3) == row.sli
    assert pytest.approx(1 - lost / 0.001, abs=0.1) == row.budget_left
    row = rows["readiness", "m"]
    assert pytest.approx(1 - 1800 / (END - since), rel=1e-3) == row.sli
    # What is not known of the period (there is no history of it) failed as often as the rest.
    spent = 1800 / (END - since) * (END - period.start) / (period.end - period.start)
    assert pytest.approx(1 - spent / 0.001, abs=0.01) == row.budget_left
    assert period.end - END == row.period_ends_in_seconds


def leaving_out(one: Objective, exclusion: dict[str, object]) -> Objective:
    """The same objective with an exclusion."""
    return Objective.model_validate({**one.model_dump(), "exclusions": [{"reason": "move", **exclusion}]})


def utc(at: float) -> str:
    """A moment as an exclusion writes it."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.mark.real
@pytest.mark.parametrize(
    "exclusion",
    [
        {"start": utc(FAILING[0]), "end": utc(FAILING[1])},
        {"promql": f"vector(time()) >= {FAILING[0]} < {FAILING[1]}"},
        {
            "days": "all",
            "start": utc(FAILING[0])[11:16],
            "end": utc(FAILING[1])[11:16],
        },
    ],
    ids=["once", "promql", "weekly"],
)
def test_what_failed_in_an_exclusion_costs_nothing(prometheus: str, exclusion: dict[str, object]) -> None:
    """Nor do the good events of that time count; without the exclusion the budget was overspent."""
    left_out = [leaving_out(one, exclusion) for one in (ERRORS, LATENCY, READINESS)]
    rows = standings(prometheus, *left_out)

    assert [1.0] * 3 == [rows[name, "m"].budget_left for name in ("errors", "latency", "readiness")]
    assert 0.0 == rows["errors", "m"].burn["6h"]
    assert 0 > standings(prometheus, ERRORS)["errors", "m"].budget_left
    assert ("ok", "") == (rows["errors", "m"].state, rows["errors", "m"].excluded)


@pytest.mark.real
def test_half_of_an_outage_excluded_leaves_the_other_half(prometheus: str) -> None:
    """900 of the rest's requests failed, of 9,000 fewer."""
    half = {"start": utc(FAILING[0]), "end": utc(FAILING[0] + 900)}
    row = standings(prometheus, leaving_out(ERRORS, half))["errors", "m"]

    lost = 900 / (10 * (END - START - 900))
    assert pytest.approx(1 - lost, rel=1e-4) == row.sli


@pytest.mark.real
def test_while_time_does_not_count_it_is_said_and_nothing_is_unknown(prometheus: str) -> None:
    """A vanished model is nobody's trouble then, and a gate holds."""
    now = {"start": utc(END - 600), "end": utc(END + 600)}
    rows = standings(prometheus, leaving_out(ERRORS, now))

    gone = rows["errors", "gone"]
    assert ("excluded", "move", "") == (gone.state, gone.excluded, gone.unknown)
    assert None is rows["errors", "m"].burn_now
    assert () == burning_tiers(rows["errors", "m"], ERRORS)
    (judged,) = judge([rows["errors", "m"]], lambda *_: 1.0, (), Limits())
    assert ("hold", "time does not count now: move") == (judged.verdict, judged.reason)


@pytest.mark.real
def test_unknown_time_counts_as_failed_where_that_is_the_policy(prometheus: str) -> None:
    """Model lost had no data for two hours; all but the ten minutes until it is called unknown are bad."""
    bad, plain = (
        Objective.model_validate({**READINESS.model_dump(), "name": policy, "unknown": {"policy": policy}})
        for policy in ("bad", "alert")
    )
    rows = standings(prometheus, bad, plain)

    known, lost = END - START - LOST[1] + LOST[0], LOST[1] - LOST[0] - 600
    assert pytest.approx(1 - lost / (known + lost), abs=0.0022) == rows["bad", "lost"].sli
    assert 1.0 == rows["alert", "lost"].sli
    assert rows["alert", "m"].sli == pytest.approx(rows["bad", "m"].sli, rel=1e-6)
    assert 1.0 == rows["bad", "unseen"].sli
    assert pytest.approx(1 - lost / known, rel=0.003) == rows["bad", "stuck"].sli
    # Half of what was unknown does not count.
    halved = leaving_out(bad, {"start": utc(LOST[0] + 600), "end": utc(LOST[0] + 600 + lost / 2)})
    row = standings(prometheus, halved)["bad", "lost"]
    assert pytest.approx(1 - lost / 2 / (known + lost / 2), rel=0.003) == row.sli

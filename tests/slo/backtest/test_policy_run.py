"""Test a policy's run against brute force and promtool, and its scores against hand-made cases."""

from __future__ import annotations

import math
import operator
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triton_slo.backtest import incident
from triton_slo.backtest.history import COLUMNS, History, HistoryError, from_csv, from_npz, to_csv, to_npz
from triton_slo.backtest.incident import IncidentError, LabelledIncident
from triton_slo.backtest.policy import Missing, Policy, PolicyAlert
from triton_slo.backtest.policy_run import Episode, run_policy
from triton_slo.backtest.score import score
from triton_slo.burn.condition_tree import (
    All,
    Burn,
    BurnWindow,
    Compare,
    Condition,
    Either,
    Expected,
    Failures,
    Named,
    Quantity,
    Recent,
    Recurs,
    Relative,
    Significance,
    Unless,
)
from triton_slo.rules.periods import Basis

OPERATORS = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
KEY = ("errors", "m", "1")
MINUTE = 60.0


def steady(bad: list[float], before: int, after: int, rate: float = 600.0) -> History:
    """Even traffic each minute, of which shares `bad` fail in the middle; minute 0 begins the incident."""
    shares = np.array([0.0] * before + bad + [0.0] * after)
    times = (np.arange(len(shares)) - before + 1) * MINUTE
    return History((KEY,), times, shares[None] * rate, np.full((1, len(shares)), rate))


SHORT, LONG = (
    st.integers(low, high).map(lambda n: BurnWindow(f"{n}s", float(n))) for low, high in ((1, 4), (2, 9))
)
WINDOW = SHORT | LONG
COMPARISON = st.one_of(
    st.builds(
        Compare, st.builds(Burn, WINDOW), st.sampled_from([">", "<="]), st.sampled_from([0.5, 1.0, 1.5, 4.0])
    ),
    st.builds(
        Compare, st.builds(Failures, WINDOW), st.sampled_from([">", "<"]), st.sampled_from([0.5, 1.5, 3.5])
    ),
    st.builds(Compare, st.builds(Significance, WINDOW), st.just(">"), st.sampled_from([0.93, 1.64])),
    st.builds(Compare, st.builds(Expected, SHORT, LONG), st.just(">="), st.sampled_from([1.0, 6.0])),
    st.builds(Compare, st.builds(Relative, SHORT, LONG), st.just("<="), st.just(0.25)),
    st.builds(Recurs, SHORT, LONG, st.integers(1, 2)),
)
CONDITION = st.recursive(
    COMPARISON,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(tuple).map(All),
        st.lists(inner, min_size=1, max_size=3).map(tuple).map(Either),
        st.builds(Unless, inner, inner),
        st.builds(Recent, st.builds(Named, st.just("part"), inner, st.just("")), WINDOW),
    ),
    max_leaves=6,
)
ALERT = st.builds(
    PolicyAlert,
    st.sampled_from(["a", "b"]),
    st.sampled_from(["page", "ticket"]),
    CONDITION,
    pending=st.integers(0, 3).map(float),
    keep_firing=st.integers(0, 3).map(float),
)
EVENTS = st.lists(
    st.one_of(
        st.just((float("nan"), float("nan"))),
        st.tuples(st.integers(0, 6), st.integers(0, 6)).map(lambda x: (float(min(x)), float(max(x)))),
    ),
    min_size=2,
    max_size=30,
)


class BruteForce:
    """Conditions evaluated one step and one window at a time, in exact fractions."""

    def __init__(self, events: list[tuple[float, float]], budget: float) -> None:
        self.known = [(0, 0) if total != total else (int(bad), int(total)) for bad, total in events]
        self.budget = Fraction(budget)

    def sums(self, at: int, window: BurnWindow) -> tuple[int, int]:
        part = self.known[max(0, at + 1 - int(window.seconds)) : at + 1]
        return sum(bad for bad, _ in part), sum(total for _, total in part)

    def ratio(self, at: int, window: BurnWindow) -> Fraction | None:
        bad, total = self.sums(at, window)
        return Fraction(bad, total) if total else None

    def true(self, condition: Condition, at: int) -> bool:
        match condition:
            case All(parts):
                return all(self.true(part, at) for part in parts)
            case Either(parts):
                return any(self.true(part, at) for part in parts)
            case Unless(inner, but):
                return self.true(inner, at) and not self.true(but, at)
            case Named(_, inner):
                return self.true(inner, at)
            case Recent(part, window):
                return any(self.true(part, n) for n in range(max(0, at + 1 - int(window.seconds)), at + 1))
            case Recurs(window, within, times):
                return self.falls(window, within, at) >= times
            case Compare(quantity, operator, limit):
                value = self.quantity(quantity, at)
                return value is not None and OPERATORS[operator](value, limit)
        raise AssertionError(condition)

    def quantity(self, quantity: Quantity, at: int) -> Fraction | float | None:
        """Return the number, None where a window that it needs had no events."""
        bad, total = self.sums(at, quantity.window)
        ratio = self.ratio(at, quantity.window)
        match quantity:
            case Failures():
                return Fraction(bad)
            case Burn():
                return None if ratio is None else ratio / self.budget
            case Significance():
                scale = math.sqrt(total * self.budget / (1 - self.budget))
                return None if ratio is None else float(ratio / self.budget - 1) * scale
            case Expected(_, like):
                before = self.ratio(at, like)
                return None if ratio is None or before is None else before * total
            case Relative(_, like):
                before = self.ratio(at, like)
                return ratio / before if ratio is not None and before else None
        raise AssertionError(quantity)

    def falls(self, window: BurnWindow, within: BurnWindow, at: int) -> int:
        falls, before = 0, False
        for step in range(at + 1):
            ratio = self.ratio(step, window)
            if ratio is not None:
                falls += before and ratio <= self.budget and step > at - within.seconds
                before = ratio > self.budget
        return falls


def brute_force(events: list[tuple[float, float]], alert: PolicyAlert, budget: float) -> list[bool]:
    """Whether the alert fires at each step."""
    assert not isinstance(alert.condition, Missing)
    brute_force = BruteForce(events, budget)
    firing: list[bool] = []
    true: list[bool] = []
    held: list[bool] = []
    for at in range(len(events)):
        true.append(brute_force.true(alert.condition, at))
        pending, keep = int(alert.pending), int(alert.keep_firing)
        held.append(at >= pending and all(true[at - pending : at + 1]))
        firing.append(any(held[max(0, at - keep) : at + 1]))
    return firing


def budget_left(history: History, episode: Episode, period: int, budget: float) -> float:
    """Budget left when an alert began, summed step by step."""
    row, at = history.keys.index(episode.key), int(episode.started) - 1
    steps = [(history.bad[row, i], history.total[row, i]) for i in range(max(0, at + 1 - period), at + 1)]
    known = [(bad, total) for bad, total in steps if total == total]
    events = sum(total for _, total in known)
    return 1 - sum(bad for bad, _ in known) / events / budget if events else 1.0


@settings(max_examples=300, deadline=None)
@given(st.lists(EVENTS, min_size=1, max_size=3), ALERT, st.sampled_from([0.5, 0.75, 0.9375]))
def test_a_replay_fires_exactly_when_brute_force_does(
    series: list[list[tuple[float, float]]], alert: PolicyAlert, target: float
) -> None:
    """Running sums, `for`, keep_firing_for, guards and unknown steps give what step by step gives."""
    length = min(len(values) for values in series)
    matrix = np.array([values[:length] for values in series])
    keys = tuple(("e", f"m{i}", "1") for i in range(len(series)))
    history = History(keys, np.arange(length) + 1.0, matrix[:, :, 0], matrix[:, :, 1])

    fired = {key: [False] * length for key in keys}
    for episode in run_policy(history, Policy((alert,)), [target] * len(keys), lambda at: Basis(7, 7)):
        assert pytest.approx(budget_left(history, episode, 7, 1 - target)) == episode.budget_left
        stop = length if episode.ended is None else int(episode.ended) - 1
        for at in range(int(episode.started) - 1, stop):
            assert not fired[episode.key][at]
            fired[episode.key][at] = True
    expected = [brute_force(values[:length], alert, 1 - target) for values in series]
    assert expected == list(fired.values())


def both_burn(long: float, short: float, factor: float) -> Condition:
    """Require that both windows (in seconds) burn the error budget more than `factor` times too fast."""
    windows = (BurnWindow(f"{seconds:g}s", seconds) for seconds in (long, short))
    return All(tuple(Compare(Burn(window), ">", factor) for window in windows))


def test_a_louder_alert_silences_the_later_ones() -> None:
    """With inhibition one incident is one page; what still burns after it is then reported."""
    fast, slow = both_burn(5 * MINUTE, MINUTE, 1), both_burn(30 * MINUTE, 20 * MINUTE, 1)
    alerts = (PolicyAlert("fast", "page", fast), PolicyAlert("slow", "ticket", slow))
    history = steady([1.0] * 3, 60, 60)

    alone = {e.alert: e for e in run_policy(history, Policy(alerts), [0.999])}
    quiet = {e.alert: e for e in run_policy(history, Policy(alerts, inhibits=True), [0.999])}
    assert alone["fast"] == quiet["fast"]
    assert alone["slow"].started == alone["fast"].started
    assert quiet["slow"].started == quiet["fast"].ended


def test_bursts_continue_an_alert_through_idle_minutes() -> None:
    """A burst that ends in silence has ended once requests succeed again: idle steps do not hide that."""
    burst = [(10.0, 10.0), (0.0, 0.0), (0.0, 10.0), (0.0, 0.0)]
    bad, total = (np.array([[part[i] for part in burst * 15]]) for i in range(2))
    history = History((KEY,), MINUTE * np.arange(1, 61), bad, total)
    apart_only = both_burn(30 * MINUTE, MINUTE, 1)
    bursts = Recurs(BurnWindow("1m", MINUTE), BurnWindow("20m", 20 * MINUTE), 2)
    recurring = Either((apart_only, All((both_burn(30 * MINUTE, 10 * MINUTE, 1), bursts))))

    apart = run_policy(history, Policy((PolicyAlert("a", "page", apart_only),)), [0.9])
    held = run_policy(history, Policy((PolicyAlert("a", "page", recurring),)), [0.9])
    assert 15 == len(apart)
    assert [None] == [episode.ended for episode in held[2:]]


def test_a_vanished_series_differs_from_one_that_never_was() -> None:
    """Missing data alerts by name for the group that vanished."""
    total = np.full((3, 60), 10.0)
    total[0, 30:40] = np.nan  # vanishes for ten minutes
    total[1, :20] = np.nan  # appears late
    total[:, 50:] = np.nan  # all are gone
    keys = (KEY, ("errors", "late", "1"), ("errors", "whole", "1"))
    history = History(keys, np.arange(60) * MINUTE, np.minimum(total, 0.0), total)
    group = PolicyAlert("unknown", "page", Missing(), pending=5 * MINUTE)

    ours = {(e.key[1], e.started / MINUTE): e for e in run_policy(history, Policy((group,)), [0.99] * 3)}
    assert {("m", 35.0), ("m", 55.0), ("late", 55.0), ("whole", 55.0)} == set(ours)
    assert (40 * MINUTE, None) == (ours["m", 35.0].ended, ours["m", 35.0].budget_left)


@pytest.mark.parametrize(("missing", "starts"), [(slice(0, 20), []), (slice(20, 40), [23.0])])
def test_time_before_the_first_data_raises_nothing(missing: slice, starts: list[float]) -> None:
    """A replay of a month that Prometheus does not have yet claims no page; a later gap is one."""
    total = np.full((1, 60), 10.0)
    total[:, missing] = np.nan
    history = History((KEY,), np.arange(60) * MINUTE, np.minimum(total, 0.0), total)
    gone = PolicyAlert("unknown", "page", Missing(), pending=3 * MINUTE)

    actual = run_policy(history, Policy((gone,)), [0.99])

    assert starts == [episode.started / MINUTE for episode in actual]


def test_each_alert_has_the_budget_at_its_start() -> None:
    """Budget left is exact at the step the alert began."""
    history = steady([1.0] * 10, 990, 0, rate=100.0)

    [episode] = run_policy(history, Policy((PolicyAlert("a", "page", both_burn(600, 60, 1)),)), [0.99])
    # One bad minute of 991 against a budget of 1 %.
    assert pytest.approx(1 - 1 / 991 / 0.01) == episode.budget_left
    assert episode.ended is None


def test_scores_count_true_late_missed_and_false_alerts() -> None:
    """An alert that begins after the incident has ended is noise, and a ticket does not count for a page."""
    other = ("errors", "other", "1")
    episodes = [
        Episode(KEY, "page", "page", 160.0, 260.0, 0.9),
        Episode(KEY, "late", "page", 250.0, 300.0, 0.9),
        Episode(other, "false", "page", 150.0, 160.0, 0.9),
        Episode(KEY, "ticket", "ticket", 1100.0, None, 0.5),
    ]
    incidents = [
        LabelledIncident(100.0, 200.0, model="m"),
        LabelledIncident(1000.0, 1200.0, model="m"),
        LabelledIncident(1000.0, 1200.0, model="m", severity="ticket"),
    ]

    result = score(episodes, incidents, 1500.0)
    assert (4, 3, 2) == (result.alerts, result.pages, result.false_pages)
    assert 0.5 == result.precision
    assert pytest.approx(2 / 3) == result.recall
    assert (80.0, 100.0) == (result.detection_median, result.detection_worst)
    # The ticket still fires where history ends: 300 s after both incidents that it began in.
    assert (300.0, 300.0) == (result.reset_median, result.reset_worst)
    assert pytest.approx(1 / 3) == result.pages_per_incident


def test_nothing_to_score_is_unknown_not_perfect() -> None:
    """Without alerts there is no precision, without incidents no recall."""
    empty = score([], [], 0.0)

    assert (None, None, None, None) == (
        empty.precision,
        empty.recall,
        empty.detection_median,
        empty.reset_worst,
    )


@given(st.lists(st.lists(st.integers(0, 9), min_size=3, max_size=3), min_size=1, max_size=3))
def test_a_history_survives_its_file(series: list[list[int]]) -> None:
    """Out and in again gives the same events, unknown steps included, in both formats."""
    total = np.array(series, dtype=float)
    total[total == 9] = np.nan
    if np.isnan(total).all(axis=0).any() or np.isnan(total).all(axis=1).any():
        total[:, :] = 1.0  # a step or a series of which nothing is known leaves no line
    keys = tuple(("s", f'm,"{i}', "1") for i in range(len(series)))
    history = History(keys, np.array([60.0, 120.0, 180.0]), np.minimum(total, 3), total)

    for again in (from_csv(to_csv(history)), from_npz(to_npz(history))):
        assert history.keys == again.keys
        assert history.step == again.step
        np.testing.assert_array_equal(history.total, again.total)
        np.testing.assert_array_equal(history.bad, again.bad)


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", b"\x93NUMPY", b"time,slo"])
def test_a_broken_archive_is_refused(data: bytes) -> None:
    """For any file that is not a saved history, the error is one line."""
    with pytest.raises(HistoryError, match="not a history as"):
        from_npz(data)


HEAD = ",".join(COLUMNS)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("", "line 1: the header must be time,slo,"),
        (f"{HEAD}\n60,s,m,1,1\n", "line 2: 6 values"),
        (f"{HEAD}\n60,s,m,1,x,1\n", "line 2: 6 values"),
        (f"{HEAD}\n60,s,m,1,2,1\n", "line 2: bad must be from 0 to total"),
        (f"{HEAD}\n60,s,m,1,nan,1\n", "line 2: bad must be from 0 to total"),
        (f"{HEAD}\n60,s,m,1,0,inf\n", "line 2: bad must be from 0 to total"),
        (f"{HEAD}\n60,s,m,1,0,1\n", "at least two steps"),
        (f"{HEAD}\n60,s,m,1,0,1\n61,s,m,1,0,1\n99,s,m,1,0,1\n", "even steps"),
    ],
)
def test_a_broken_history_is_refused_with_its_line(text: str, printed: str) -> None:
    """A file that is not a history is refused as a whole."""
    with pytest.raises(HistoryError) as caught:
        from_csv(text)
    assert printed in str(caught.value)


INCIDENT_HEAD = ",".join(incident.COLUMNS)


@pytest.mark.parametrize(
    ("line", "printed"),
    [
        ("0,60,,m,1,loud", "line 2: severity is page or ticket, not 'loud'"),
        ("60,0,,m,1,page", "line 2: the incident ends before it starts"),
        ("yesterday,0,,m,1,page", "line 2: 'yesterday' is not a time"),
        ("0,60,m", "line 2: 6 values are needed, there are 3"),
    ],
)
def test_a_broken_incident_is_refused_with_its_line(line: str, printed: str) -> None:
    """A label that cannot be read is never dropped in silence."""
    with pytest.raises(IncidentError) as caught:
        incident.from_csv(f"{INCIDENT_HEAD}\n{line}\n")
    assert printed in str(caught.value)


def test_incidents_are_read_in_both_notations() -> None:
    """Unix seconds and ISO 8601 mean the same, and an empty severity is a page."""
    text = f"{INCIDENT_HEAD}\n1777627800,1777628400,,m,,\n2026-05-01T09:30Z,2026-05-01T11:40+02:00,,m,,page\n"

    first, second = incident.from_csv(text)
    assert first == second
    assert first.covers(KEY)
    assert not first.covers(("errors", "other", "1"))

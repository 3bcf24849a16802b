"""The replay against brute force, against what promtool measured, and the scores against hand-made cases."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triton_slo.backtest import incident
from triton_slo.backtest.history import COLUMNS, History, HistoryError, from_csv, from_npz, to_csv, to_npz
from triton_slo.backtest.incident import Incident, IncidentError
from triton_slo.backtest.policy import SLOTH, Alert, Pair, Policy, Recovery, Recurrence, pyrra
from triton_slo.backtest.replay import Episode, replay
from triton_slo.backtest.score import score
from triton_slo.periods import Basis

KEY = ("errors", "m", "1")
MINUTE = 60.0


def steady(bad: list[float], before: int, after: int, rate: float = 600.0) -> History:
    """Even traffic each minute, of which shares `bad` fail in the middle; minute 0 begins the incident."""
    shares = np.array([0.0] * before + bad + [0.0] * after)
    times = (np.arange(len(shares)) - before + 1) * MINUTE
    return History((KEY,), times, shares[None] * rate, np.full((1, len(shares)), rate))


# Minutes at which rules of these shapes fired in promtool 2.42 (99.9 %, 1 min steps): first and last.
MEASURED = {
    "3 min total outage": (
        [1.0] * 3,
        {("sloth", "page"): (1, 32)},
        {
            ("pyrra", "critical-1"): (3, 7),
            ("pyrra", "critical-2"): (18, 32),
            ("pyrra", "warning-1"): (63, 122),
        },
    ),
    "30 min at 10%": (
        [0.1] * 30,
        {("sloth", "page"): (9, 58)},
        {
            ("pyrra", "critical-1"): (11, 34),
            ("pyrra", "critical-2"): (41, 57),
            ("pyrra", "warning-1"): (89, 147),
        },
    ),
    "60 min at 2%": ([0.02] * 60, {("sloth", "page"): (44, 61)}, {("pyrra", "critical-1"): (45, 61)}),
    "10 h at 0.8%": (
        [0.008] * 600,
        {("sloth", "page"): (271, 607), ("sloth", "ticket"): (541, 914)},
        {("pyrra", "critical-2"): (331, 603), ("pyrra", "warning-1"): (421, 689)},
    ),
}


@pytest.mark.parametrize("scenario", MEASURED)
def test_the_shapes_of_sloth_and_pyrra_fire_when_promtool_fires(scenario: str) -> None:
    """Each alert begins and ends within a minute of what the same rules did in a real rule engine."""
    bad, *expected = MEASURED[scenario]
    history = steady(bad, 4 * 1440, 1440)
    found = {
        (policy.name, episode.alert): (episode.started / MINUTE, (episode.ended or 0) / MINUTE - 1)
        for policy in (SLOTH, pyrra(0.999))
        for episode in replay(history, policy, [0.999])
    }

    measured = {key: span for one in expected for key, span in one.items()}
    assert set(measured) == set(found)
    for key, span in measured.items():
        assert pytest.approx(span, abs=1.01) == found[key]


ALERT = st.builds(
    Alert,
    st.sampled_from(["a", "b"]),
    st.sampled_from(["page", "ticket"]),
    st.lists(
        st.builds(
            Pair,
            st.integers(2, 9).map(float),
            st.integers(1, 4).map(float),
            st.sampled_from([0.5, 1.0, 1.5, 4.0]),
        ),
        min_size=1,
        max_size=2,
    ).map(tuple),
    pending=st.integers(0, 3).map(float),
    keep_firing=st.integers(0, 3).map(float),
    failures=st.sampled_from([0.0, 0.5, 2.5]),
    z=st.sampled_from([0.0, 0.93, 1.64]),
    recovery=st.none()
    | st.builds(
        Recovery,
        window=st.integers(1, 4).map(float),
        share=st.just(0.25),
        failures=st.sampled_from([0.0, 1.0, 6.0]),
        calm=st.sampled_from([0.0, 2.0]),
        few=st.sampled_from([0.0, 1.5]),
        drop=st.sampled_from([0.0, 0.25]),
        late_window=st.sampled_from([0.0, 5.0]),
        late_share=st.just(0.5),
        relapse=st.sampled_from([0.0, 0.5, 3.5]),
    ),
    recurrence=st.none()
    | st.builds(
        Recurrence,
        st.integers(2, 6).map(float),
        st.integers(1, 3).map(float),
        st.integers(4, 9).map(float),
        st.integers(1, 2),
    ),
)
EVENTS = st.lists(
    st.one_of(
        st.just((float("nan"), float("nan"))),
        st.tuples(st.integers(0, 6), st.integers(0, 6)).map(lambda x: (float(min(x)), float(max(x)))),
    ),
    min_size=2,
    max_size=30,
)


def brute_force(events: list[tuple[float, float]], alert: Alert, budget: float) -> list[bool]:
    """The same alert, one step and one window at a time, as a rule engine would."""
    known = [(0.0, 0.0) if total != total else (bad, total) for bad, total in events]

    def sums(at: int, window: float) -> tuple[float, float]:
        part = known[max(0, at + 1 - int(window)) : at + 1]
        return sum(bad for bad, _ in part), sum(total for _, total in part)

    def ratio(at: int, window: float) -> float | None:
        bad, total = sums(at, window)
        return bad / total if total > 0 else None

    def burns(at: int, window: float, threshold: float) -> bool:
        found = ratio(at, window)
        return found is not None and found > threshold

    def enough(at: int, window: float) -> bool:
        bad, total = sums(at, window)
        burn = bad / total / budget
        return bad > alert.failures and (
            alert.z == 0 or (burn - 1) * math.sqrt(total * budget / (1 - budget)) > alert.z
        )

    def recovered(at: int, pair: Pair) -> bool:
        if alert.recovery is None:
            return False
        guard = ratio(at, alert.recovery.window)
        late = ratio(at, alert.recovery.late_window) if alert.recovery.late_window else None
        if late is not None and late <= alert.recovery.late_share * pair.factor * budget:
            return True
        calm = max(alert.recovery.share * pair.factor, alert.recovery.calm) * budget
        before = ratio(at, pair.short) or 0
        few = sums(at, alert.recovery.window)[0] < alert.recovery.few
        if (
            guard is None
            or (guard > calm and not few)
            or (alert.recovery.drop and guard > alert.recovery.drop * before)
        ):
            return False
        return before * sums(at, alert.recovery.window)[1] >= alert.recovery.failures

    def over(at: int, pair: Pair) -> bool:
        if alert.recovery is None or recovered(at, pair) or not alert.recovery.relapse:
            return recovered(at, pair)
        lately = any(recovered(step, pair) for step in range(max(0, at + 1 - int(pair.short)), at))
        window = alert.recovery.late_window or alert.recovery.window
        again = sums(at, window)[0] > alert.recovery.relapse and burns(at, window, pair.factor * budget)
        return lately and not again

    def recurs(at: int, pair: Pair) -> bool:
        if alert.recurrence is None or not burns(at, alert.recurrence.hold, pair.factor * budget):
            return False
        falls, before = 0, None
        for step in range(at + 1):
            now = ratio(step, alert.recurrence.window)
            if now is None:
                continue
            burning = now > budget
            falls += bool(before and not burning and step > at - alert.recurrence.span)
            before = burning
        return falls >= alert.recurrence.bursts

    def true_at(at: int, pair: Pair) -> bool:
        threshold = pair.factor * budget
        if not burns(at, pair.long, threshold) or not enough(at, pair.long):
            return False
        return (burns(at, pair.short, threshold) and not over(at, pair)) or recurs(at, pair)

    firing: list[bool] = []
    true: list[bool] = []
    held: list[bool] = []
    for at in range(len(known)):
        true.append(any(true_at(at, pair) for pair in alert.pairs))
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
    series: list[list[tuple[float, float]]], alert: Alert, target: float
) -> None:
    """Running sums, `for`, keep_firing_for, guards and unknown steps give what step by step gives."""
    length = min(len(one) for one in series)
    matrix = np.array([one[:length] for one in series])
    keys = tuple(("e", f"m{i}", "1") for i in range(len(series)))
    history = History(keys, np.arange(length) + 1.0, matrix[:, :, 0], matrix[:, :, 1])

    fired = {key: [False] * length for key in keys}
    for episode in replay(history, Policy("p", (alert,)), [target] * len(keys), lambda at: Basis(7, 7)):
        assert pytest.approx(budget_left(history, episode, 7, 1 - target)) == episode.budget_left
        stop = length if episode.ended is None else int(episode.ended) - 1
        for at in range(int(episode.started) - 1, stop):
            assert not fired[episode.key][at]
            fired[episode.key][at] = True
    expected = [brute_force(one[:length], alert, 1 - target) for one in series]
    assert expected == list(fired.values())


def test_a_louder_alert_silences_the_later_ones() -> None:
    """With inhibition one incident is one page; what still burns after it is then told."""
    pair = Pair(5 * MINUTE, MINUTE, 1)
    slow = Pair(30 * MINUTE, 20 * MINUTE, 1)
    alerts = (Alert("fast", "page", (pair,)), Alert("slow", "ticket", (slow,)))
    history = steady([1.0] * 3, 60, 60)

    alone = {e.alert: e for e in replay(history, Policy("p", alerts), [0.999])}
    quiet = {e.alert: e for e in replay(history, Policy("p", alerts, inhibits=True), [0.999])}
    assert alone["fast"] == quiet["fast"]
    assert alone["slow"].started == alone["fast"].started
    assert quiet["slow"].started == quiet["fast"].ended


def test_bursts_hold_an_alert_through_idle_minutes() -> None:
    """A burst that ends in silence has ended once requests succeed again: idle steps do not hide that."""
    burst = [(10.0, 10.0), (0.0, 0.0), (0.0, 10.0), (0.0, 0.0)]
    bad, total = (np.array([[part[i] for part in burst * 15]]) for i in range(2))
    history = History((KEY,), MINUTE * np.arange(1, 61), bad, total)
    pair = Pair(30 * MINUTE, MINUTE, 1)
    recurring = Recurrence(hold=10 * MINUTE, window=MINUTE, span=20 * MINUTE, bursts=2)

    apart = replay(history, Policy("p", (Alert("a", "page", (pair,)),)), [0.9])
    held = replay(history, Policy("p", (Alert("a", "page", (pair,), recurrence=recurring),)), [0.9])
    assert 15 == len(apart)
    assert [None] == [episode.ended for episode in held[2:]]


def test_a_vanished_series_is_told_from_one_that_never_was() -> None:
    """Missing data alerts by name for the group that vanished; absent() only when all are gone."""
    total = np.full((3, 60), 10.0)
    total[0, 30:40] = np.nan  # vanishes for ten minutes
    total[1, :20] = np.nan  # appears late
    total[:, 50:] = np.nan  # all are gone
    keys = (KEY, ("errors", "late", "1"), ("errors", "whole", "1"))
    history = History(keys, np.arange(60) * MINUTE, np.minimum(total, 0.0), total)
    group = Alert("unknown", "page", pending=5 * MINUTE, missing="group")
    absent = Alert("absent", "page", pending=3 * MINUTE, missing="all")

    ours = {(e.key[1], e.started / MINUTE): e for e in replay(history, Policy("p", (group,)), [0.99] * 3)}
    assert {("m", 35.0), ("m", 55.0), ("late", 55.0), ("whole", 55.0)} == set(ours)
    assert (40 * MINUTE, None) == (ours["m", 35.0].ended, ours["m", 35.0].budget_left)
    [other] = replay(history, Policy("p", (absent,)), [0.99] * 3)
    assert (("errors", "", ""), 53 * MINUTE) == (other.key, other.started)
    assert Incident(0, 9999, model="m").covers(other.key)


def test_each_alert_tells_the_budget_it_saw() -> None:
    """Budget left is exact at the step the alert began."""
    history = steady([1.0] * 10, 990, 0, rate=100.0)

    [episode] = replay(history, Policy("p", (Alert("a", "page", (Pair(600, 60, 1),)),)), [0.99])
    # One bad minute of 991 against a budget of 1 %.
    assert pytest.approx(1 - 1 / 991 / 0.01) == episode.budget_left
    assert episode.ended is None


def test_scores_tell_true_late_missed_and_false_alerts_apart() -> None:
    """An alert that begins after the incident is over is noise, and a ticket does not answer for a page."""
    other = ("errors", "other", "1")
    episodes = [
        Episode(KEY, "page", "page", 160.0, 260.0, 0.9),
        Episode(KEY, "late", "page", 250.0, 300.0, 0.9),
        Episode(other, "false", "page", 150.0, 160.0, 0.9),
        Episode(KEY, "ticket", "ticket", 1100.0, None, 0.5),
    ]
    incidents = [
        Incident(100.0, 200.0, model="m"),
        Incident(1000.0, 1200.0, model="m"),
        Incident(1000.0, 1200.0, model="m", severity="ticket"),
    ]

    result = score("p", episodes, incidents, 1500.0)
    assert (4, 3, 2) == (result.alerts, result.pages, result.false_pages)
    assert (0.5, pytest.approx(2 / 3)) == (result.precision, result.recall)
    assert (80.0, 100.0) == (result.detection_median, result.detection_worst)
    # The ticket still fires where history ends: 300 s after both incidents that it began in.
    assert (300.0, 300.0) == (result.reset_median, result.reset_worst)
    assert pytest.approx(1 / 3) == result.pages_per_incident


def test_nothing_to_score_is_unknown_not_perfect() -> None:
    """Without alerts there is no precision, without incidents no recall."""
    empty = score("p", [], [], 0.0)

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
    """A file that is no saved history is one line, whatever it is."""
    with pytest.raises(HistoryError, match="no history as"):
        from_npz(data)


HEAD = ",".join(COLUMNS)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "line 1: the header must be time,slo,"),
        (f"{HEAD}\n60,s,m,1,1\n", "line 2: six values"),
        (f"{HEAD}\n60,s,m,1,x,1\n", "line 2: six values"),
        (f"{HEAD}\n60,s,m,1,2,1\n", "line 2: bad must be from 0 to total"),
        (f"{HEAD}\n60,s,m,1,nan,1\n", "line 2: bad must be from 0 to total"),
        (f"{HEAD}\n60,s,m,1,0,inf\n", "line 2: bad must be from 0 to total"),
        (f"{HEAD}\n60,s,m,1,0,1\n", "at least two steps"),
        (f"{HEAD}\n60,s,m,1,0,1\n61,s,m,1,0,1\n99,s,m,1,0,1\n", "even steps"),
    ],
)
def test_a_broken_history_is_refused_with_its_line(text: str, said: str) -> None:
    """Nothing is guessed from a file that is not a history."""
    with pytest.raises(HistoryError) as caught:
        from_csv(text)
    assert said in str(caught.value)


INCIDENT_HEAD = ",".join(incident.COLUMNS)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("0,60,,m,1,loud", "line 2: severity is page or ticket, not 'loud'"),
        ("60,0,,m,1,page", "line 2: the incident ends before it starts"),
        ("yesterday,0,,m,1,page", "line 2: 'yesterday' is no time"),
        ("0,60,m", "line 2: 6 values are needed, there are 3"),
    ],
)
def test_a_broken_incident_is_refused_with_its_line(line: str, said: str) -> None:
    """A label that cannot be read is never dropped in silence."""
    with pytest.raises(IncidentError) as caught:
        incident.from_csv(f"{INCIDENT_HEAD}\n{line}\n")
    assert said in str(caught.value)


def test_incidents_are_read_in_both_notations() -> None:
    """Unix seconds and ISO 8601 mean the same, and an empty severity is a page."""
    text = f"{INCIDENT_HEAD}\n1777627800,1777628400,,m,,\n2026-05-01T09:30Z,2026-05-01T11:40+02:00,,m,,page\n"

    first, second = incident.from_csv(text)
    assert first == second
    assert first.covers(KEY)
    assert not first.covers(("errors", "other", "1"))

"""Test calendar periods: recorded starts and ends against zoneinfo, recorded events against a simulated fleet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from slo import simulator
from slo.calendars import objective, rules, unix
from slo.simulator import LENGTH, TICK, Life, Model, Pause, Replica
from support.promtool import PAUSED, evaluated, pausable, rule_file
from support.thorough import THOROUGH, examples
from support.tools import promtools, shared_out
from triton_slo import names
from triton_slo.objective.period_window import CalendarWindow
from triton_slo.rules.periods import FIRST, LAST, period_at

KINDS = ("week", "month", "quarter")
ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/Havana",
    "America/Santiago",
    "America/Sao_Paulo",
    "Australia/Lord_Howe",
    "Africa/Casablanca",
    "Africa/Cairo",
    "Asia/Beirut",
    "Asia/Kolkata",
    "Pacific/Kiritimati",
)


def in_zone(at: float, kind: str, zone: str) -> object:
    """Return what distinguishes a period from the others."""
    local = datetime.fromtimestamp(at, ZoneInfo(zone))
    if kind == "week":
        return local.isocalendar()[:2]
    return local.year, local.month if kind == "month" else (local.month - 1) // 3


QUARTER = 93 * 86_400
instants = st.integers(int(FIRST.timestamp()) + QUARTER, int(LAST.timestamp()) - QUARTER)


def assert_period(start: float, end: float, at: float, kind: str, zone: str) -> None:
    assert in_zone(at, kind, zone) == in_zone(start, kind, zone) == in_zone(end - 1, kind, zone)
    assert in_zone(start - 1, kind, zone) != in_zone(at, kind, zone) != in_zone(end, kind, zone)
    assert start <= at < end <= start + 92 * 86_400 + 7200


@example(unix("2026-11-01T00:30:00-05:00"), "America/Havana", "month")
@given(instants, st.sampled_from(ZONES), st.sampled_from(KINDS))
def test_a_period_is_every_second_of_its_local_time(at: int, zone: str, kind: str) -> None:
    """A period has its local week, month or quarter from the first second to the last, and no other's."""
    period = period_at(CalendarWindow(calendar=kind, timezone=zone), at)

    assert_period(period.start, period.end, at, kind, zone)


AROUND = [
    (unix("2026-03-29T00:59:59+00:00") + beside, zone, kind)
    for zone in ("Europe/Berlin", "America/Havana")
    for kind in KINDS
    for beside in (0, 1)
] + [
    (unix(at) + beside, zone, kind)
    for at, zone, kind in (
        ("2026-11-01T04:30:00+00:00", "America/Havana", "month"),
        ("2026-11-01T05:30:00+00:00", "America/Havana", "month"),
        ("2026-04-05T04:00:00+00:00", "America/Santiago", "week"),
        ("2029-03-31T22:00:00+00:00", "Asia/Beirut", "quarter"),
        ("2027-12-31T23:00:00+00:00", "Europe/Berlin", "quarter"),
        ("2028-02-29T00:00:00+00:00", "Pacific/Kiritimati", "month"),
        ("2039-09-30T18:30:00+00:00", "Asia/Kolkata", "quarter"),
    )
    for beside in (-1, 0, 1)
]


@pytest.mark.real
@pytest.mark.parametrize("tool", promtools(), ids=str)
@examples(2, thorough=20)
@example(AROUND)
@given(
    st.lists(st.tuples(instants, st.sampled_from(ZONES), st.sampled_from(KINDS)), min_size=40, max_size=40)
)
def test_recorded_periods_are_those_of_zoneinfo(
    tool: Path, tmp_path: Path, moments: list[tuple[int, str, str]]
) -> None:
    """The rules know start and end of every week, month and quarter in every zone, to the second."""
    groups = {}
    for number, (at, zone, kind) in enumerate(moments):
        made = objective(f"o{number}", kind, zone)
        groups[made.name] = [
            *rules(made, at, names.PERIOD_START),
            *[r for r in rules(made, at, names.PERIOD_END) if r["record"] == names.PERIOD_END],
        ]
    edges = [(names.PERIOD_START, 0), (names.PERIOD_END, 0)]

    starts, ends = (
        {labels["slo"]: value for labels, value in answer}
        for answer in evaluated(tool, tmp_path, rule_file(groups), {}, edges, interval=60, evaluation=60)
    )

    assert len(moments) == len(starts) == len(ends)
    for number, (at, zone, kind) in enumerate(moments):
        assert_period(starts[f"o{number}"], ends[f"o{number}"], at, kind, zone)


HOUR = 3600 // TICK
HALF, SHORT = HOUR // 2, HOUR // 12
EVALUATION = 60 // TICK
WHOLE = (Life(0, LENGTH),)
BEGINS = HOUR + 7 * EVALUATION
"""Tick at which the period begins, after traffic that belongs to the one before."""
TICKS = [BEGINS + EVALUATION * minutes for minutes in (2, 4, 7, 26, 31, 59, 61, 125, 245)]
UNEVEN = ((0.05, 0.5), (50.0, 0.001), (0.0, 0.0), (20.0, 0.02), (1.0, 0.3))
EVEN = Model("even", ((5.0, 0.02),), (Replica("a", WHOLE),), 1)
FLEET = (
    EVEN,
    Model("uneven", UNEVEN * 6, (Replica("a", WHOLE), Replica("b", WHOLE, phase=0)), 2),
    Model("loud before", ((90.0, 0.9), *((3.0, 0.01),) * 14), (Replica("a", WHOLE),), 3),
    Model(
        "restarts",
        ((5.0, 0.02),),
        (Replica("a", (Life(0, BEGINS + 40, 70_000), Life(BEGINS + 47, 3000), Life(3100, LENGTH))),),
        4,
    ),
    Model("gap", ((5.0, 0.02),), (Replica("a", WHOLE, ((BEGINS - 30, BEGINS + 90), (3500, 3700))),), 5),
    Model("new", ((5.0, 0.02),), (Replica("a", (Life(BEGINS + 500, LENGTH),)),), 6),
)


def tiles(end: int, since: int) -> list[tuple[int, int]]:
    """Return the windows that a sum at a tick is made of, back to the period's (or the model's) first minutes."""
    periods = []
    while end - since >= SHORT:
        length = next(length_of for length_of in (HOUR, HALF, SHORT) if end - since >= length_of)
        periods.append((end - length, end))
        end -= length
    return [*periods, (end - SHORT, end)]


def known(model: Model, end: int) -> dict[str, tuple[float, float]]:
    """Event -> how many there were since the period began, and by how many a reading may miss them."""
    born = min(life.start for replica in model.replicas for life in replica.lives)
    windows = tiles(end, max(born, BEGINS))
    truth: dict[str, float] = {}
    hidden: dict[str, float] = {}
    for kind in ("BACKEND", "success"):
        counts = [(replica, model.events[replica.instance][kind]) for replica in model.replicas]
        truth[kind] = sum(int(events[BEGINS:end].sum()) for _, events in counts)
        # Whose the first minutes are is known only to the minute: all of them may be the period's before.
        hidden[kind] = sum(int(events[BEGINS - SHORT : BEGINS + SHORT].sum()) for _, events in counts)
        for replica, events in counts:
            hidden[kind] += simulator.allowed_since(replica, events, windows)
            # 20 scrapes span 19 intervals: rate() makes up for the twentieth, and only longer windows reach for it.
            short = sum(
                int(events[low - simulator.EVERY : high].sum())
                for low, high in windows
                if high - low == SHORT
            )
            hidden[kind] += short * simulator.EVERY / (SHORT - simulator.EVERY)
    return {
        names.ERROR: (truth["BACKEND"], hidden["BACKEND"]),
        names.TOTAL: (sum(truth.values()), sum(hidden.values())),
    }


MONDAY = "an ordinary Monday"
BOUNDARIES = {
    "the hour of the first midnight comes twice": ("America/Havana", "month", "2026-11-01T04:00:00+00:00"),
    "the clock is set back two hours later": ("America/New_York", "month", "2026-11-01T04:00:00+00:00"),
    "the clock is set back half an hour": ("Australia/Lord_Howe", "quarter", "2029-03-31T13:00:00+00:00"),
    MONDAY: ("Europe/Berlin", "week", "2026-06-28T22:00:00+00:00"),
}


def recorded(
    tool: Path,
    folder: Path,
    boundary: str,
    models: Mapping[Model, Sequence[Pause]],
    ticks: Sequence[int] = TICKS,
    exclusions: Sequence[Mapping[str, str]] = (),
) -> list[dict[tuple[str, str], float]]:
    """(model, event) -> sum, at each of `ticks`."""
    zone, kind, begins = BOUNDARIES[boundary]
    promise = objective("errors", kind, zone, exclusions=exclusions)
    chosen = rules(promise, unix(begins) - BEGINS * TICK, names.PERIOD_EVENTS)
    series = {
        name: " ".join(values.split()[: ticks[-1] + 1])
        for model, pauses in models.items()
        for name, values in model.series(pauses)
    }
    if paused := [values for name, values in series.items() if name.startswith(PAUSED)]:
        chosen = pausable(chosen, by="model")
        # Rules about the period itself have no model: they pause while all models do, from the same moment on.
        series[PAUSED] = min(paused)
    asked = [(names.PERIOD_EVENTS, tick * TICK) for tick in ticks]
    answers = evaluated(
        tool, folder, rule_file({"slo-errors": chosen}), series, asked, interval=TICK, evaluation=60
    )
    return [{(labels["model"], labels["event"]): value for labels, value in answer} for answer in answers]


def check(tool: Path, folder: Path, boundary: str, models: Sequence[Model]) -> None:
    answers = recorded(tool, folder, boundary, dict.fromkeys(models, ()))
    for tick, sums in zip(TICKS, answers, strict=True):
        for model in models:
            for event, (truth, hidden) in known(model, tick).items():
                assert pytest.approx(truth, abs=hidden + 0.01) == sums.get((model.name, event), 0.0), (
                    f"{boundary}: {model.name}, {event}, {(tick - BEGINS) * TICK / 60} minutes into the period"
                )


@pytest.mark.real
@pytest.mark.parametrize(
    ("tool", "fleet"), shared_out(FLEET).items(), ids=["one", "other"][: len(promtools())]
)
def test_a_period_counts_its_own_events(tool: Path, fleet: Sequence[Model], tmp_path: Path) -> None:
    """From its second minute on a period has its own events, for any history of its fleet."""
    for model in fleet:
        truth, hidden = known(model, TICKS[-1])[names.TOTAL]
        assert hidden < 0.2 * truth, (
            f"{model.name}: {hidden} of four hours' {truth} may hide, this shows little"
        )

    check(tool, tmp_path, MONDAY, fleet)


@st.composite
def replicas(draw: st.DrawFn, instance: str) -> Replica:
    """One that serves throughout or joins, restarts up to twice, and whose scrapes fail for a while."""
    ticks = st.integers(HOUR // 2, TICKS[-1])
    start = draw(st.sampled_from((0, 0, draw(ticks))))
    lives, past = [], draw(st.integers(0, 10**6))
    for cut in (*sorted(draw(st.lists(ticks, max_size=2, unique=True))), LENGTH):
        lives.append(Life(start, max(start, cut), past))
        start, past = max(start, cut) + draw(st.integers(0, 100)), 0
    gap = draw(ticks)
    gaps = draw(st.sampled_from(((), ((gap, gap + draw(st.integers(1, HOUR))),))))
    alive = tuple(life for life in lives if life.start < life.end)
    return Replica(instance, alive, gaps, draw(simulator.phases()))


@st.composite
def fleets(draw: st.DrawFn) -> tuple[Model, ...]:
    return tuple(
        Model(
            f"m{number}",
            draw(simulator.stretches),
            (draw(replicas("a")), draw(replicas("b"))),
            draw(st.integers(0, 2**32 - 1)),
        )
        for number in range(5)
    )


@pytest.mark.real
@examples(0, thorough=10)
@example(fleet=FLEET)
@given(fleet=fleets())
def test_a_period_of_any_fleet(fleet: tuple[Model, ...], tmp_path: Path) -> None:
    """For any history around a boundary, a period misses its events by no more than scrapes hide.

    A clock that is set back near the boundary neither begins a period twice nor drops events of one.
    """
    chosen = [boundary for boundary in BOUNDARIES if THOROUGH or boundary != MONDAY]
    for number, boundary in enumerate(chosen):
        check(promtools()[-1], tmp_path, boundary, (EVEN, *fleet[number :: len(chosen)]))


@pytest.mark.real
def test_a_period_survives_an_outage(tmp_path: Path) -> None:
    """After an outage of Prometheus a period lacks its events and, after a long one, the minutes before."""
    began = BEGINS + 2 * HOUR
    lost = {20: 0, 50: 0, 100: 20}
    ends = {minutes: began + minutes * EVALUATION for minutes in lost}
    later = (EVALUATION, HALF + EVALUATION, HOUR + EVALUATION, HOUR + HALF)
    ticks = sorted({end + after for end in ends.values() for after in later})
    away = {
        replace(EVEN, name=f"{minutes} minutes"): [Pause(began, end, down=True)]
        for minutes, end in ends.items()
    }

    answers = dict(zip(ticks, recorded(promtools()[-1], tmp_path, MONDAY, away, ticks), strict=True))

    for minutes, end in ends.items():
        gap = slice(began - lost[minutes] * EVALUATION, end)
        missed = sum(int(EVEN.events["a"][kind][gap].sum()) for kind in ("BACKEND", "success"))
        for after in later:
            truth, hidden = known(EVEN, end + after)[names.TOTAL]
            actual = answers[end + after][f"{minutes} minutes", names.TOTAL]
            assert truth - missed - hidden < actual < truth + hidden, (minutes, after * TICK / 60)


@pytest.mark.real
def test_excluded_time_is_not_part_of_a_period(tmp_path: Path) -> None:
    """Nothing is added during an exclusion and until no window reaches into it; then the period goes on."""
    start, end = BEGINS + HOUR, BEGINS + 2 * HOUR
    moments = (unix(BOUNDARIES[MONDAY][2]) + (tick - BEGINS) * TICK for tick in (start, end))
    written = (datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") for at in moments)
    exclusion = {"reason": "maintenance", **dict(zip(("start", "end"), written, strict=True))}
    ticks = [start, end, end + SHORT, end + HOUR, end + 2 * HOUR]

    answers = recorded(promtools()[-1], tmp_path, MONDAY, {EVEN: ()}, ticks, [exclusion])

    for tick, sums in zip(ticks, answers, strict=True):
        truth, hidden = known(EVEN, tick)[names.TOTAL]
        missed = sum(
            int(EVEN.events["a"][kind][start : min(tick, end + SHORT)].sum())
            for kind in ("BACKEND", "success")
        )
        around = sum(
            int(EVEN.events["a"][kind][start - SHORT : start].sum()) for kind in ("BACKEND", "success")
        )
        assert pytest.approx(truth - missed, abs=hidden + around) == sums[EVEN.name, names.TOTAL], (
            tick - start
        )

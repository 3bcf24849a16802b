"""Test random schedules of faults in simulated time: every opening and every resolve is posted once, in order.

The usual run draws 100 without fresh randomness: the same ones for the same code and the same modules loaded.
TRITONWATCH_THOROUGH=1 draws 2000 new ones.
"""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from alerts.bridge_simulation import (
    FAULTS,
    HOUR,
    KILLS,
    OUTAGES,
    Episode,
    Kill,
    Outage,
    Schedule,
    SimulatedBridge,
    Step,
)
from support.bridge import CHANNEL
from support.files import IN_MEMORY
from support.slack.workspace import Posted
from support.thorough import THOROUGH
from triton_alerts.bridge.deliver import messages, next_task, worker

RAN: Counter[str] = Counter()
LATE_SECONDS = 40.0


def seconds(least: float, most: float) -> st.SearchStrategy[float]:
    """Milliseconds are fine enough, and short to draw."""
    return st.integers(int(least * 1000), int(most * 1000)).map(lambda drawn: drawn / 1000)


def noise(most: int) -> st.SearchStrategy[tuple[tuple[int, str], ...]]:
    """Up to `most` requests succeed between two faults."""
    return st.lists(st.tuples(st.integers(0, most), st.sampled_from(FAULTS)), max_size=20).map(tuple)


steps = st.builds(Step, after=seconds(1, 200), fewer=st.booleans())


def episodes(longest_pause: float) -> st.SearchStrategy[tuple[Episode, ...]]:
    """Up to five episodes of one group."""
    return st.lists(
        st.builds(
            Episode,
            pause=seconds(5, longest_pause),
            steps=st.lists(steps, max_size=3).map(tuple),
            last=seconds(1, 400),
            # The other Alertmanager sends it at once or late, or learns by gossip that it need not.
            peer=st.none() | st.just(0.0) | seconds(0, 40),
            page=st.booleans(),
        ),
        min_size=1,
        max_size=5,
    ).map(tuple)


@st.composite
def schedules(draw: st.DrawFn) -> Schedule:
    """Draw an hour of five groups, or twenty minutes of so many that an outage ends in a digest."""
    many = draw(st.integers(0, 4)) == 4
    length = HOUR / 3 if many else HOUR
    groups = st.lists(
        episodes(300 if many else 900), min_size=12 if many else 1, max_size=16 if many else 5
    ).map(tuple)
    outage = st.builds(
        Outage, start=seconds(0, length), seconds=seconds(30, 1200), fault=st.sampled_from(OUTAGES)
    )
    kill = st.builds(Kill, start=seconds(0, length), point=st.sampled_from(KILLS), down=seconds(0.5, 30))
    may_search = draw(st.integers(0, 2)) > 0
    noises = draw(st.just(()) | noise(40) | noise(8) | noise(2))
    if not may_search:
        # A message that Slack posts after it was sent again stays there, where the bridge may not search for it.
        noises = tuple((well, fault) for well, fault in noises if not fault.startswith("late"))
    return Schedule(
        seconds=length,
        groups=draw(groups),
        outages=draw(st.lists(outage, max_size=2).map(tuple)),
        kills=draw(st.lists(kill, max_size=6).map(tuple)),
        noise=noises,
        may_search=may_search,
        history_lag=draw(st.sampled_from((0.0, 20.0))),
        early_digests=draw(st.booleans()),
    )


@pytest.fixture(scope="module", autouse=True)
def _print_what_ran() -> Iterator[None]:
    yield
    print("\n" + ", ".join(f"{count} {what}" for what, count in RAN.items()))


@settings(
    max_examples=2000 if THOROUGH else 8,
    deadline=None,
    derandomize=not THOROUGH,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)
@given(schedule=schedules())
@pytest.mark.timeout(1800)
def test_every_opening_and_every_resolve_is_delivered_in_order(schedule: Schedule) -> None:
    """An hour of alerts, Slack's every failure, HA twins and kills: nothing is lost, little is doubled."""
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(messages, "DIGEST_LINES", 200)  # each is named: those beyond are only counted
        if schedule.early_digests:
            patch.setattr(worker, "DIGEST_FROM", 3)
            patch.setattr(next_task, "MAX_OWN_MESSAGES", 2)
        simulated = SimulatedBridge(schedule, Path(folder))
        try:
            simulated.run()
            check(simulated)
            incidents = len(simulated.incidents())
        finally:
            simulated.store.close()
    RAN.update(
        {
            "schedules": 1,
            "incidents": incidents,
            "kills": simulated.kills,
            "messages": len(simulated.workspace.messages),
            "tickets that became pages": sum(
                "*The incident is now a page*" in message.text for message in simulated.workspace.messages
            ),
            "digests": sum("📋" in root.text for root in simulated.workspace.roots()),
            "duplicates": simulated.duplicates(),
            "answers lost after they took effect": simulated.slack.doubtful,
        }
    )


def test_what_a_later_edit_leaves_out_is_not_shown_any_more(tmp_path: Path) -> None:
    """A digest that Slack edits late names an ended incident as firing, until the next edit leaves it out."""
    simulated = SimulatedBridge(Schedule(seconds=60, groups=()), tmp_path)
    digest, ended = "📋 1 incidents", "🟢 Resolved: Model a (`abc`)"
    root = Posted(CHANNEL, "1.0", 100.0, digest, [], edited_at=[120.0, 150.0])
    root.history = [(f"{digest}\n🔴 Model a (`abc`)", []), (f"{digest}\n🔴 Model a (`abc`)", [])]
    part = Posted(CHANNEL, "2.0", 110.0, f"{digest}\n{ended}", [], thread_ts="1.0")
    simulated.workspace.messages += [root, part]
    repaired = simulated.shown("abc")
    root.text += "\n🔴 Model a (`abc`)"
    stale = simulated.shown("abc")
    simulated.store.close()

    assert ("resolved", "opened") == (repaired, stale)


def check(simulated: SimulatedBridge) -> None:
    incidents = simulated.incidents()
    expected = [(key, len(group.episodes)) for key, group in simulated.truth.items()]
    actual = [(key, sum(1 for _, group_key, _ in incidents if group_key == key)) for key, _ in expected]
    assert expected == actual

    for name, key, closed_at in incidents:
        delivered = simulated.delivered(name)
        assert delivered, f"incident {name} of {key} was never delivered"
        assert closed_at is None or "resolved" in [what for _, what, _ in delivered], (
            f"end of {name} not delivered"
        )
        # The last state that the channel shows is the true one.
        assert ("opened" if closed_at is None else "resolved") == simulated.shown(name)
        first_resolve = next((at for at, what, _ in delivered if what == "resolved"), None)
        # What Slack does late shows an older state, until the bridge searches again.
        late = 0.0 if not simulated.slack.acted_late else LATE_SECONDS
        assert first_resolve is None or all(
            what != "opened" or at <= first_resolve + late for at, what, _ in delivered
        )

    for root in simulated.workspace.roots():
        seen: set[str] = set()
        times = []
        for reply in simulated.workspace.thread(root):
            if reply.name not in seen:
                times += [int(at) for at in re.findall(r"<!date\^(\d+)", reply.text)]
            seen.add(reply.name)
        assert sorted(times) == times, "a thread shows changes out of order"

        for name in {
            incident for incident in re.findall(r"incident `(\w+)`", root.shown) if "📋" not in root.text
        }:
            shown = "".join(
                reply.text for roots in simulated.posted(name) for reply in simulated.workspace.thread(roots)
            )
            for event in simulated.events(name):
                delivered = event.at <= root.at or f"<!date^{int(event.at)}^" in shown
                assert delivered, f"{event.kind} of {name} at {event.at} is in no thread"

    searched = "channels:history" in simulated.workspace.scopes
    assert simulated.duplicates() <= simulated.kills + (0 if searched else simulated.slack.doubtful)

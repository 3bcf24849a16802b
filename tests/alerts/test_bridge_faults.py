"""Random fault schedules in simulated time: every opening and every resolve arrives, in order, once.

TRITONWATCH_FAULT_SCHEDULES sets how many are run (200 by default).
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

import pytest

from support.bridge_world import World

SCHEDULES = int(os.environ.get("TRITONWATCH_FAULT_SCHEDULES", "200"))
BATCH = 20
# A schedule commits thousands of times; memory-backed where there is such a place.
FAST = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else Path(tempfile.gettempdir())


@pytest.mark.parametrize("first", range(0, SCHEDULES, BATCH))
def test_every_opening_and_every_resolve_is_delivered_in_order(first: int) -> None:
    """An hour of alerts, Slack's every failure, HA twins and kills: nothing is lost, little is doubled."""
    for seed in range(first, min(first + BATCH, SCHEDULES)):
        with tempfile.TemporaryDirectory(dir=FAST) as folder:
            # Every fifth has so many groups that an outage ends in a digest.
            many = seed % 5 == 4
            world = World(
                seed, Path(folder) / "bridge.sqlite", groups=16 if many else 5, seconds=1200 if many else 3600
            )
            world.run()
            check(world)
            world.store.close()


def check(world: World) -> None:
    seed = f"seed {world.seed}"
    incidents = world.incidents()
    expected = [(key, len(group.episodes)) for key, group in world.truth.items()]
    actual = [(key, sum(1 for _, found, _ in incidents if found == f"page|{key}")) for key, _ in expected]
    assert expected == actual, seed

    for name, key, closed_at in incidents:
        told = world.telling(name)
        assert told, f"{seed}: incident {name} of {key} was never told"
        assert closed_at is None or "resolved" in [what for _, what, _ in told], (
            f"{seed}: end of {name} not told"
        )
        # The last state that the channel shows is the true one.
        assert ("opened" if closed_at is None else "resolved") == told[-1][1], seed
        first_resolve = next((at for at, what, _ in told if what == "resolved"), None)
        assert all(
            what != "opened" or first_resolve is None or at <= first_resolve for at, what, _ in told
        ), seed

    for root in world.workspace.roots():
        seen: set[str] = set()
        times = []
        for reply in world.workspace.thread(root):
            if reply.name not in seen:
                times += [int(at) for at in re.findall(r"<!date\^(\d+)", reply.text)]
            seen.add(reply.name)
        assert sorted(times) == times, f"{seed}: a thread tells changes out of order"

        for name in {found for found in re.findall(r"incident `(\w+)`", root.shown) if "📋" not in root.text}:
            shown = "".join(
                reply.text for roots in world.posted(name) for reply in world.workspace.thread(roots)
            )
            for event in world.events(name):
                told = event.at <= root.at or f"<!date^{int(event.at)}^" in shown
                assert told, f"{seed}: {event.kind} of {name} at {event.at} is in no thread"

    looked = "channels:history" in world.workspace.scopes
    assert world.duplicates() <= world.kills + (0 if looked else world.slack.doubtful), seed

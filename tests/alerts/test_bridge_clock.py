"""A clock that is put forward or back costs seconds, not the difference."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from support.bridge_simulation import CHANNEL, Clock, SimulatedSlack, body_of
from support.slack import Posted, Workspace
from triton_alerts.bridge.deliver.transport import Attempts
from triton_alerts.bridge.deliver.worker import DeliveryOptions, DeliveryWorker
from triton_alerts.bridge.incidents.notification import parse
from triton_alerts.bridge.incidents.store import Store

HOUR = 3600.0
PATIENCE = 60.0


class Bridge:
    """A store and a worker on a clock that a test may turn."""

    def __init__(self, path: Path, options: DeliveryOptions) -> None:
        self.clock = Clock()
        self.workspace = Workspace(channels={CHANNEL: "#pages"})
        slack = SimulatedSlack(self.workspace, self.clock, lambda _method: "")
        self.store = Store(path, lambda _severity: CHANNEL)
        self.started: dict[str, float] = {}
        self.worker = DeliveryWorker(
            CHANNEL, self.store, slack, options, Attempts(self.clock, random.Random(1))
        )

    def take_in(self, name: str, *, ended: bool = False) -> None:
        now = self.clock.now
        start = self.started.setdefault(name, now)
        body = body_of(name, {} if ended else {"a": start}, {"a": (start, now)} if ended else {})
        self.store.receive(parse(body, "one"), now)

    def reported(self, name: str, word: str = "") -> list[Posted]:
        """Work until Slack shows it, or time is up."""
        end = self.clock.now + PATIENCE
        while self.clock.now < end:
            found = [one for one in self.workspace.roots() if name in one.shown and word in one.shown]
            if found:
                return found
            self.clock.now += max(0.1, min(self.worker.step(), PATIENCE))
            self.store.settle(self.clock.now)
        return []


@pytest.mark.parametrize("jump", [HOUR, -HOUR, 30 * 24 * HOUR])
@pytest.mark.parametrize("evidence", [0.0, 5.0])
def test_a_jump_of_the_clock_and_back_holds_up_no_message(
    jump: float, evidence: float, tmp_path: Path
) -> None:
    """What opens, changes or ends before, between and after the jumps is reported within a minute."""
    bridge = Bridge(tmp_path / "bridge.db", DeliveryOptions(evidence_seconds=evidence))
    bridge.take_in("before")
    assert bridge.reported("before")

    bridge.clock.now += jump
    bridge.take_in("between")
    assert bridge.reported("between")
    bridge.take_in("untold")  # not a step is made before the clock is put right

    bridge.clock.now -= jump
    assert bridge.reported("untold")
    bridge.take_in("after")
    assert bridge.reported("after")
    for name in ("before", "between", "after"):
        bridge.take_in(name, ended=True)
        assert bridge.reported(name, "Resolved"), name
    bridge.store.close()

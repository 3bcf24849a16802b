"""Test that a clock that is set forward or back delays messages by seconds, not by the difference."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.bridge import BridgeUnderTest
from support.slack.workspace import Posted
from triton_alerts.bridge.deliver.worker import DeliveryOptions

HOUR = 3600.0
PATIENCE = 60.0


def reported(bridge: BridgeUnderTest, name: str, word: str = "") -> list[Posted]:
    """Run until Slack shows the message, or the time has passed."""
    end = bridge.clock.now + PATIENCE
    while bridge.clock.now < end:
        shown = [root for root in bridge.workspace.roots() if name in root.shown and word in root.shown]
        if shown:
            return shown
        bridge.clock.now += max(0.1, min(bridge.workers[0].step(), PATIENCE))
        bridge.store.merge_held(bridge.clock.now)
    return []


@pytest.mark.parametrize("jump", [HOUR, -HOUR, 30 * 24 * HOUR])
@pytest.mark.parametrize("evidence", [0.0, 5.0])
def test_a_jump_of_the_clock_and_back_delays_no_message(jump: float, evidence: float, tmp_path: Path) -> None:
    """What opens, changes or ends before, between and after the jumps is reported within a minute."""
    bridge = BridgeUnderTest(tmp_path, options=DeliveryOptions(evidence_seconds=evidence))
    started: dict[str, float] = {}

    def fire(name: str) -> None:
        started[name] = bridge.clock.now
        bridge.notify({"a": started[name]}, name=name)

    fire("before")
    assert reported(bridge, "before")

    bridge.clock.now += jump
    fire("between")
    assert reported(bridge, "between")
    fire("untold")  # not a step is made before the clock is put right

    bridge.clock.now -= jump
    assert reported(bridge, "untold")
    fire("after")
    assert reported(bridge, "after")
    for name in ("before", "between", "after"):
        bridge.notify({}, {"a": (started[name], bridge.clock.now)}, name=name)
        assert reported(bridge, name, "Resolved"), name
    bridge.close()

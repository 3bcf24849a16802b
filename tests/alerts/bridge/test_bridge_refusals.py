"""Test what Slack refuses: one message delays no other, and a channel that is no more keeps nothing back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.bridge import CHANNEL, BridgeUnderTest
from support.slack.workspace import Workspace

OLD, NEW = "C0OLDROOM", "C0NEWROOM"
MINUTE = 60.0


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[BridgeUnderTest]:
    made = BridgeUnderTest(tmp_path)
    yield made
    made.close()


def refuse(bridge: BridgeUnderTest, wanted: str, code: str, *parts: str) -> None:
    """Let Slack refuse the requests of a method whose arguments have one of these parts."""

    def refuses(method: str, arguments: dict[str, Any]) -> str:
        said = json.dumps(arguments)
        return code if method == wanted and any(part in said for part in parts) else ""

    bridge.slack.refuses = refuses


@pytest.mark.parametrize("code", ["a_code_of_tomorrow", "is_archived", "channel_not_found", "internal_error"])
def test_an_edit_that_slack_refuses_delays_no_page(bridge: BridgeUnderTest, code: str) -> None:
    """An unlisted code, a channel that is gone for edits alone, and an error of Slack's own."""
    bridge.notify({"old": bridge.clock()}, name="old")
    bridge.send()
    refuse(bridge, "chat.update", code, "old")
    bridge.press("acknowledge")
    bridge.run_for(3)
    begun = bridge.clock()
    for number in range(5):
        bridge.notify({f"new{number}": begun}, name=f"new{number}")
    bridge.run_for(10)

    assert 6 == len(bridge.workspace.roots())
    assert bridge.workspace.roots()[-1].at - begun < 10
    assert [m for m in bridge.workspace.messages if m.thread_ts], "the thread tells who has it"


def test_a_message_that_slack_refuses_delays_no_other(bridge: BridgeUnderTest) -> None:
    """A first message with an unlisted code is posted without its text; the others wait for nothing."""
    refuse(bridge, "chat.postMessage", "a_code_of_tomorrow", "poison")
    begun = bridge.clock()
    for name in ("poison", "a", "b", "c"):
        bridge.notify({f"{name}-v": begun}, name=name)
    bridge.run_for(15)
    shown = [root.shown for root in bridge.workspace.roots()]

    assert 4 == len(shown)
    assert [True] * 3 == [any(f"`{name}`" in text for text in shown) for name in "abc"]
    [instead] = [text for text in shown if "Slack refuses" in text]
    assert f"🔴 page: Slack refuses the message about incident {bridge.incident(1).name}" in instead


def test_a_message_that_slack_refuses_in_every_form_is_tried_after_all_others(
    bridge: BridgeUnderTest,
) -> None:
    """It stays undelivered, which the metrics show, and arrives once Slack takes it."""
    bridge.notify({"poison-v": bridge.clock()}, name="poison")
    poison = bridge.incident(1).name
    refuse(bridge, "chat.postMessage", "a_code_of_tomorrow", poison, "poison")
    bridge.run_for(30)
    begun = bridge.clock()
    for number in range(5):
        bridge.notify({f"new{number}": begun}, name=f"new{number}")
    bridge.run_for(10)
    others = len(bridge.workspace.roots())
    waiting, _ = bridge.store.outbox.backlog()
    refuse(bridge, "chat.postMessage", "")
    bridge.run_for(2 * MINUTE)

    assert (5, 1) == (others, waiting)
    assert any("`poison`" in root.shown for root in bridge.workspace.roots())
    assert (0, None) == bridge.store.outbox.backlog()


def test_a_reply_that_slack_refuses_in_every_form_is_given_up(bridge: BridgeUnderTest) -> None:
    """The message shows the same; nothing stays undelivered for ever."""
    start = bridge.clock()
    bridge.notify({"a": start})
    bridge.send()
    refuse(bridge, "chat.postMessage", "a_code_of_tomorrow", '"thread_ts"')
    bridge.notify({}, {"a": (start, start + 60)})
    bridge.run_for(MINUTE)

    assert "Resolved:" in bridge.workspace.roots()[0].shown
    assert (0, None) == bridge.store.outbox.backlog()


def test_a_channel_that_cannot_be_written_to_is_tried_once_a_minute(bridge: BridgeUnderTest) -> None:
    """What a person must fix concerns all first messages; then all arrive."""
    bridge.workspace.archived.add(CHANNEL)
    for number in range(5):
        bridge.notify({f"m{number}": bridge.clock()}, name=f"g{number}")
    bridge.run_for(5 * MINUTE)
    asked = len(bridge.workspace.calls)
    bridge.workspace.archived.clear()
    bridge.run_for(2 * MINUTE)

    assert 5 <= asked <= 7
    assert 5 == len(bridge.workspace.roots())


class Moved:
    """A bridge that was started again with another --channel."""

    def __init__(self, folder: Path, prepare: Callable[[BridgeUnderTest], None]) -> None:
        workspace = Workspace(channels={OLD: "#old", NEW: "#new"})
        channels = {"critical": OLD, "warning": OLD}
        self.bridge = BridgeUnderTest(folder, channels=channels, workspace=workspace)
        self.start = self.bridge.clock()
        prepare(self.bridge)
        self.bridge.run_for(MINUTE)
        self.bridge.store.close()
        self.bridge.channels = {"critical": NEW, "warning": NEW}
        self.bridge.restart()

    def shown(self, channel: str) -> list[str]:
        return [root.shown for root in self.bridge.workspace.roots(channel)]


def test_pages_that_wait_for_an_archived_channel_go_to_the_next_one(tmp_path: Path) -> None:
    """They are not kept for a channel that the bridge writes to no more."""

    def prepare(bridge: BridgeUnderTest) -> None:
        bridge.workspace.archived.add(OLD)
        bridge.notify({"a": bridge.clock()})

    moved = Moved(tmp_path, prepare)
    moved.bridge.run_for(MINUTE)

    assert ([], 1) == (moved.shown(OLD), len(moved.shown(NEW)))
    assert (0, None) == moved.bridge.store.outbox.backlog()


def test_an_incident_in_the_former_channel_is_resolved_there(tmp_path: Path) -> None:
    """Its message is edited and its thread goes on; the new channel gets no message about it."""
    moved = Moved(tmp_path, lambda bridge: [bridge.notify({"a": bridge.clock()}), bridge.send()][1])
    moved.bridge.notify({}, {"a": (moved.start, moved.start + 60)})
    moved.bridge.run_for(MINUTE)

    assert "Resolved:" in moved.shown(OLD)[0]
    assert "*Recovered*" in moved.bridge.workspace.thread(moved.bridge.workspace.roots(OLD)[0])[-1].text
    assert [] == moved.shown(NEW)


def test_an_incident_whose_former_channel_is_archived_goes_on_in_the_next_one(tmp_path: Path) -> None:
    """What happens to it is not kept for a thread that nobody can write to."""

    def prepare(bridge: BridgeUnderTest) -> None:
        bridge.notify({"a": bridge.clock()})
        bridge.send()
        bridge.workspace.archived.add(OLD)

    moved = Moved(tmp_path, prepare)
    moved.bridge.notify({"a": moved.start, "b": moved.bridge.clock()})
    moved.bridge.run_for(MINUTE)
    [message] = moved.shown(NEW)
    end = moved.bridge.clock()
    moved.bridge.notify({}, {"a": (moved.start, end), "b": (moved.start, end)})
    moved.bridge.run_for(MINUTE)

    assert "`b`" in message
    assert "Resolved:" in moved.shown(NEW)[0]
    assert (0, None) == moved.bridge.store.outbox.backlog()


def test_a_page_in_the_tickets_channel_moves_with_the_pages(tmp_path: Path) -> None:
    """A ticket that became a page, where both had one channel, is a page where they have two."""
    workspace = Workspace(channels={OLD: "#old", NEW: "#new", "C0TICKETS": "#tickets"})
    workspace.archived.add(OLD)
    bridge = BridgeUnderTest(tmp_path, channels={"critical": OLD, "warning": OLD}, workspace=workspace)
    bridge.notify({"a": bridge.clock()}, severity="warning")
    bridge.notify({"a2": bridge.clock()}, severity="critical")
    bridge.run_for(MINUTE)
    bridge.store.close()
    bridge.channels = {"critical": NEW, "warning": "C0TICKETS"}
    bridge.restart()
    bridge.run_for(MINUTE)
    bridge.close()

    assert ([], [True]) == (
        workspace.roots("C0TICKETS"),
        ["· page ·" in m.shown for m in workspace.roots(NEW)],
    )

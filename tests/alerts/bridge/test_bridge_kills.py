"""Test a bridge that is killed right after any of its commits: after the restart Slack and the store agree."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.bridge import BridgeUnderTest, Killed
from support.slack.workspace import ALL_SCOPES, Workspace
from triton_alerts.bridge.deliver.next_task import DIGEST_FROM
from triton_alerts.bridge.receiver import HEARTBEAT_VALUE
from triton_alerts.bridge.service import HeartbeatWatch

MAX_COMMITS = 60
"""More than any scenario here makes."""


class _KilledAfter(sqlite3.Connection):
    """A connection whose process dies right after its n-th commit; 0 means never."""

    left = 0

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        before, changes = self.in_transaction, self.total_changes
        cursor = super().execute(*arguments)
        committed = not self.in_transaction and (before or self.total_changes > changes)
        if committed and _KilledAfter.left:
            _KilledAfter.left -= 1
            if not _KilledAfter.left:
                raise Killed(1.0)
        return cursor


def bridge_in(folder: Path) -> BridgeUnderTest:
    """Return a bridge that may not read the channel's history: only the store knows what was sent."""
    return BridgeUnderTest(folder, workspace=Workspace(scopes=ALL_SCOPES - {"channels:history"}))


@pytest.fixture(autouse=True)
def _connections_that_kill(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    connect = sqlite3.connect

    def with_kills(*arguments: Any, **options: Any) -> sqlite3.Connection:
        return connect(*arguments, factory=_KilledAfter, **options)

    monkeypatch.setattr(sqlite3, "connect", with_kills)
    yield
    _KilledAfter.left = 0


@contextmanager
def killed_after(commits: int) -> Iterator[None]:
    _KilledAfter.left = commits
    try:
        yield
    finally:
        _KilledAfter.left = 0


def after_every_kill(
    folder: Path, prepare: Callable[[BridgeUnderTest], None], act: Callable[[BridgeUnderTest], None]
) -> Iterator[BridgeUnderTest]:
    """Do the same again and again, killed after the first commit, the second one and so on; repeated after it."""
    for commits in range(1, MAX_COMMITS):
        place = folder / str(commits)
        place.mkdir()
        bridge = bridge_in(place)
        prepare(bridge)
        finished = False
        with killed_after(commits):
            try:
                act(bridge)
                finished = True
            except Killed:
                bridge.store.close()
        if not finished:
            bridge.restart()
            act(bridge)
        yield bridge
        bridge.store.close()
        if finished:
            return
    raise AssertionError(f"more than {MAX_COMMITS} commits")


def resolved_incidents(bridge: BridgeUnderTest) -> None:
    """So many incidents that ended before they could be posted that one digest sums them up."""
    for number in range(DIGEST_FROM + 2):
        bridge.notify({"m": bridge.clock()}, name=f"g{number}")
        bridge.notify({}, {"m": (bridge.clock(), bridge.clock() + 9)}, name=f"g{number}")


def test_a_kill_between_commits_repeats_no_digest(tmp_path: Path) -> None:
    """All incidents of a digest are recorded as posted in one transaction."""
    for bridge in after_every_kill(tmp_path, resolved_incidents, BridgeUnderTest.send):
        assert 1 == len(bridge.workspace.roots())


def without_parent(bridge: BridgeUnderTest) -> None:
    """Open an incident, delete its message as a person does, and add a second alert."""
    bridge.notify({"a": bridge.clock()}, name="g")
    bridge.send()
    bridge.workspace.messages.clear()
    bridge.clock.now += 1
    bridge.notify({"a": bridge.clock() - 1, "b": bridge.clock()}, name="g")


def test_a_kill_between_commits_leaves_no_incident_without_a_message(tmp_path: Path) -> None:
    """A reply that Slack posts at top level and the loss of its thread are recorded in one transaction."""
    for bridge in after_every_kill(tmp_path, without_parent, BridgeUnderTest.send):
        start = bridge.clock() - 1
        bridge.notify({"a": start, "b": start, "c": start}, name="g")
        bridge.send()

        assert 1 == sum("version `c`" in root.shown for root in bridge.workspace.roots())


def test_a_kill_between_commits_loses_no_page_about_a_silent_pipeline(tmp_path: Path) -> None:
    """That the watchdog is missing and the page about it are stored in one transaction."""

    def receive_the_watchdog(bridge: BridgeUnderTest) -> None:
        bridge.store.values.set(HEARTBEAT_VALUE, repr(bridge.clock()))

    def watch(bridge: BridgeUnderTest) -> None:
        chore = HeartbeatWatch(bridge.store, 600, lambda: None)
        chore(bridge.clock())
        bridge.clock.now += 700
        chore(bridge.clock())

    for bridge in after_every_kill(tmp_path, receive_the_watchdog, watch):
        assert 1 == len(bridge.store.incidents.open())


def test_a_kill_between_commits_loses_no_button_press(tmp_path: Path) -> None:
    """Slack delivers a press again that was not answered; it is done once, not zero times."""

    def open_incident(bridge: BridgeUnderTest) -> None:
        bridge.notify({"a": bridge.clock()}, name="g")

    def press(bridge: BridgeUnderTest) -> None:
        bridge.press("acknowledge", key="p1")

    for bridge in after_every_kill(tmp_path, open_incident, press):
        events = bridge.store.incidents.events(1, 0, 100)
        assert ["fired", "acknowledged"] == [event.kind for event in events]

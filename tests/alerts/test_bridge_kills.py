"""A bridge that is killed right after any of its commits: Slack and the store still agree after the restart."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from support.bridge_simulation import ALL_SCOPES, CHANNEL, Clock, Killed, SimulatedSlack, body_of
from support.slack import Workspace
from triton_alerts.bridge.deliver.plan import DIGEST_FROM
from triton_alerts.bridge.deliver.transport import Attempts
from triton_alerts.bridge.deliver.worker import DeliveryOptions, DeliveryWorker
from triton_alerts.bridge.incidents.alertmanagers import Alertmanagers
from triton_alerts.bridge.incidents.audit import Audit
from triton_alerts.bridge.incidents.instruments import HEARTBEAT_FACT
from triton_alerts.bridge.incidents.notification import parse
from triton_alerts.bridge.incidents.store import Store
from triton_alerts.bridge.operations.actions import Actions, Press
from triton_alerts.bridge.operations.chores import HeartbeatWatch

MOST_COMMITS = 60
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


@dataclass
class Bridge:
    """One channel's bridge over a folder; `restart` after a kill."""

    folder: Path
    workspace: Workspace = field(default_factory=Workspace)
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        # Without a look at the channel's history nothing but the store knows what was sent.
        self.workspace.scopes = ALL_SCOPES - {"channels:history"}
        self.slack = SimulatedSlack(self.workspace, self.clock, lambda _method: "")
        self.restart()

    def restart(self) -> None:
        self.store = Store(self.folder / "bridge.sqlite", lambda _severity: CHANNEL)
        self.worker = DeliveryWorker(
            CHANNEL, self.store, self.slack, DeliveryOptions(), Attempts(self.clock, random.Random(1))
        )

    def receive(self, body: bytes) -> None:
        self.store.receive(parse(body, "am"), self.clock())

    def send(self) -> None:
        while (wait := self.worker.step()) < 30 or self.store.outbox.pending(CHANNEL):
            self.clock.now += max(wait, 0.01)

    def shown(self) -> list[str]:
        return [message.text for message in self.workspace.roots()]


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
    folder: Path, prepare: Callable[[Bridge], None], act: Callable[[Bridge], None]
) -> Iterator[Bridge]:
    """Do the same again and again, killed after the first commit, the second one and so on; repeated after it."""
    for commits in range(1, MOST_COMMITS):
        place = folder / str(commits)
        place.mkdir()
        bridge = Bridge(place)
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
    raise AssertionError(f"more than {MOST_COMMITS} commits")


def resolved_incidents(bridge: Bridge) -> None:
    """So many incidents that ended before they could be posted that one digest sums them up."""
    for number in range(DIGEST_FROM + 2):
        bridge.receive(body_of(f"g{number}", {"m": bridge.clock()}, {}))
        bridge.receive(body_of(f"g{number}", {}, {"m": (bridge.clock(), bridge.clock() + 9)}))


def test_a_kill_between_commits_repeats_no_digest(tmp_path: Path) -> None:
    """All incidents of a digest are recorded as posted in one transaction."""
    for bridge in after_every_kill(tmp_path, resolved_incidents, Bridge.send):
        assert 1 == len(bridge.shown())


def without_parent(bridge: Bridge) -> None:
    """An incident whose message a person deleted, and a second alert of it."""
    bridge.receive(body_of("g", {"a": bridge.clock()}, {}))
    bridge.send()
    bridge.workspace.messages.clear()
    bridge.clock.now += 1
    bridge.receive(body_of("g", {"a": bridge.clock() - 1, "b": bridge.clock()}, {}))


def test_a_kill_between_commits_leaves_no_incident_without_a_message(tmp_path: Path) -> None:
    """A reply that Slack posts at top level and the loss of its thread are recorded in one transaction."""
    for bridge in after_every_kill(tmp_path, without_parent, Bridge.send):
        start = bridge.clock() - 1
        bridge.receive(body_of("g", {"a": start, "b": start, "c": start}, {}))
        bridge.send()

        assert 1 == sum("version `c`" in one.shown for one in bridge.workspace.roots())


def test_a_kill_between_commits_loses_no_page_about_a_silent_pipeline(tmp_path: Path) -> None:
    """That the watchdog is missing and the page about it are stored in one transaction."""

    def hear_the_watchdog(bridge: Bridge) -> None:
        bridge.store.values.set(HEARTBEAT_FACT, repr(bridge.clock()))

    def watch(bridge: Bridge) -> None:
        chore = HeartbeatWatch(bridge.store, 600, lambda: None)
        chore(bridge.clock())
        bridge.clock.now += 700
        chore(bridge.clock())

    for bridge in after_every_kill(tmp_path, hear_the_watchdog, watch):
        assert 1 == len(bridge.store.incidents.open())


def test_a_kill_between_commits_loses_no_button_press(tmp_path: Path) -> None:
    """Slack delivers a press again that was not answered; it is done once, not zero times."""

    def open_incident(bridge: Bridge) -> None:
        bridge.receive(body_of("g", {"a": bridge.clock()}, {}))

    def press(bridge: Bridge) -> None:
        store = bridge.store
        actions = Actions(store, Audit(bridge.folder / "audit"), Alertmanagers((), store), bridge.clock)
        (_, incident), *_ = store.incidents.open()
        actions.do(Press("p1", "acknowledge", "", incident.name, "U0ANA"))

    for bridge in after_every_kill(tmp_path, open_incident, press):
        events = bridge.store.incidents.events(1, 0, 100)
        assert ["fired", "acknowledged"] == [event.kind for event in events]

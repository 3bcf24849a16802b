"""Simulate Alertmanagers that send and retry, a bridge, a failing Slack, and kills at any point.

Only clock and network are simulated: the store is SQLite on disk, the answers are the Slack stand-in's.
"""

from __future__ import annotations

import heapq
import re
import sqlite3
from collections import Counter
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

from support.bridge import CHANNEL, START, BridgeUnderTest, Killed, body_of
from support.slack.workspace import ALL_SCOPES, Posted, Workspace
from triton_alerts.bridge.incidents.database import DATABASE_FILE
from triton_alerts.bridge.incidents.incident import Event

HOUR = 3600.0
IDLE_SECONDS = 30.0
"""A worker that waits for so long has nothing to send."""


@dataclass
class Group:
    """What is true of one group of alerts: its episodes as Alertmanager was answered 200 for them."""

    key: str
    episodes: list[list[float | None]] = field(default_factory=list)

    @property
    def open(self) -> bool:
        return bool(self.episodes) and self.episodes[-1][1] is None

    def received(self, firing: bool, now: float) -> None:
        if firing and not self.open:
            self.episodes.append([now, None])
        elif not firing and self.open:
            self.episodes[-1][1] = now


FAULTS = (
    *("429", "500", "502", "502_done", "internal_error", "fatal_error", "hang", "hang_done"),
    *("reset", "reset_done", "refused", "late11", "late25", "late40"),
)
OUTAGES = ("refused", "500", "hang", "429", "502")
KILLS = ("between", "unanswered", "kill", "kill_done")
"""Where a kill meets the bridge: at rest, before it answers Alertmanager, before or after Slack did as asked."""


@dataclass(frozen=True)
class Step:
    """A change within an episode, so many seconds after the one before: an alert more, or one of several less."""

    after: float
    fewer: bool


@dataclass(frozen=True)
class Episode:
    """Fire after a pause, grow and shrink, resolve; `peer`: seconds until a second Alertmanager sends it.

    `page`: the alerts are tickets, and a page about their model, of another group, fires for a part of the time.
    """

    pause: float
    steps: tuple[Step, ...]
    last: float
    peer: float | None
    page: bool = False


@dataclass(frozen=True)
class Outage:
    start: float
    seconds: float
    fault: str


@dataclass(frozen=True)
class Kill:
    """Due at `start`, done at the next point of its kind; the bridge is down for some seconds."""

    start: float
    point: str
    down: float


@dataclass(frozen=True)
class Schedule:
    """Everything that happens, in seconds from the start.

    `noise` is (requests that go well, then this fault), again and again; `may_search` is whether the bridge may
    search the channel for what it may have sent.
    """

    seconds: float
    groups: tuple[tuple[Episode, ...], ...]
    outages: tuple[Outage, ...] = ()
    kills: tuple[Kill, ...] = ()
    noise: tuple[tuple[int, str], ...] = ()
    may_search: bool = True
    history_lag: float = 0.0
    early_digests: bool = False
    """Whether three incidents are so many that a digest names them."""


class SimulatedBridge(BridgeUnderTest):
    """One schedule: run it, then ask what was delivered."""

    def __init__(self, schedule: Schedule, folder: Path) -> None:
        self.schedule = schedule
        self.kills = 0
        self.calm = False
        self.due = sorted(schedule.kills, key=lambda kill: kill.start)
        self.noise = cycle([f for well, fault in schedule.noise for f in ("",) * well + (fault,)] or [""])
        self.truth = {f"g{n}": Group(f"g{n}") for n in range(len(schedule.groups))}
        scopes = ALL_SCOPES if schedule.may_search else ALL_SCOPES - {"channels:history"}
        workspace = Workspace(scopes=scopes, history_lag=schedule.history_lag)
        super().__init__(folder, workspace=workspace, fault=self._fault)
        self.queue = self._script()

    def kill_bridge(self, down: float) -> None:
        """Kill the bridge: uncommitted changes are lost, and the bridge starts again after a while."""
        self.kills += 1
        self.store.close()
        self.clock.now += down
        self.restart()

    def run(self) -> None:
        while self.queue:
            self._until(self.queue[0][0])
            self._receive(heapq.heappop(self.queue))
        self.calm = True
        self._until(self.clock.now + HOUR, stop_when_delivered=True)

    # The script: what happens to the alerts, as one or two Alertmanagers send it

    def _script(self) -> list[tuple[float, int, str, str, bytes]]:
        script: list[tuple[float, int, str, str, bytes]] = []
        for name, episodes in zip(self.truth, self.schedule.groups, strict=True):
            at = START
            for episode in episodes:
                at += episode.pause
                if at < START + self.schedule.seconds:
                    at = self._episode(script, name, at, episode) + 60.0
        heapq.heapify(script)
        return script

    def _episode(self, script: list[Any], name: str, at: float, episode: Episode) -> float:
        """Return when it ended."""
        began, severity = at, "warning" if episode.page else "critical"
        firing = {f"{name}-m0": at}
        self._send(script, name, at, firing, {}, episode.peer, severity)
        for number, step in enumerate(episode.steps):
            at += step.after
            ended = {}
            if step.fewer and len(firing) > 1:
                gone = max(firing)
                ended = {gone: (firing.pop(gone), at)}
            else:
                firing[f"{name}-m{number + 1}-{at:.0f}"] = at
            self._send(script, name, at, firing, ended, episode.peer, severity)
        at += episode.last
        self._send(
            script,
            name,
            at,
            {},
            {version: (start, at) for version, start in firing.items()},
            episode.peer,
            severity,
        )
        if episode.page:
            start, end = began + 0.3 * (at - began), began + 0.8 * (at - began)
            page, group = f"{name}-page-{start:.0f}", f"{name}/page"
            for when, body in (
                (start, body_of(name, {page: start}, {}, "critical", group)),
                (end, body_of(name, {}, {page: (start, end)}, "critical", group)),
            ):
                script.append((when, len(script), "", "am-0", body))
                if episode.peer is not None:
                    script.append((when + episode.peer, len(script), "", "am-1", body))
        return at

    def _send(
        self,
        script: list[Any],
        name: str,
        at: float,
        firing: dict[str, float],
        ended: dict[str, tuple[float, float]],
        peer: float | None,
        severity: str,
    ) -> None:
        body = body_of(name, firing, ended, severity)
        script.append((at, len(script), name, "am-0", body))
        if peer is not None:
            script.append((at + peer, len(script), name, "am-1", body))

    def _receive(self, sent: tuple[float, int, str, str, bytes]) -> None:
        """Alertmanager posts; it posts again when the bridge dies before it answers."""
        _, _, name, source, body = sent
        self.receive(body, source)
        if kill := self._kill("unanswered"):
            self.kill_bridge(kill.down)
            self.receive(body, source)
        if source == "am-0" and name:
            self.truth[name].received(b'"status": "firing"' in body.split(b'"alerts"')[0], self.clock.now)

    # Time, and what goes wrong in it

    def _until(self, end: float, *, stop_when_delivered: bool = False) -> None:
        while True:
            self.store.merge_held(self.clock.now)
            self.slack.act_late()
            try:
                wait = self.workers[0].step()
            except Killed as killed:
                self.kill_bridge(killed.down)
                continue
            if wait > 0:
                if stop_when_delivered and wait >= IDLE_SECONDS and self._has_delivered_all():
                    return
                if self.clock.now >= end:
                    assert not stop_when_delivered, (
                        "an hour without faults was not enough to deliver everything"
                    )
                    return
                if kill := self._kill("between"):
                    self.kill_bridge(kill.down)
                    continue
                self.clock.now = min(end, self.clock.now + min(wait, 30.0))
            elif self.clock.now >= end and not stop_when_delivered:
                return

    def _has_delivered_all(self) -> bool:
        outbox = self.store.outbox
        checked = [digest for digest in outbox.digests(CHANNEL) if digest.delivery.check_at]
        return not (outbox.pending(CHANNEL) or checked or self.slack.late or self._has_planned())

    def _has_planned(self) -> bool:
        with sqlite3.connect(self.folder / DATABASE_FILE) as connection:
            planned = bool(connection.execute("SELECT count(*) FROM held").fetchone()[0])
        connection.close()
        return planned

    def _kill(self, *points: str) -> Kill | None:
        """Return the kill of one of these kinds that is due, and remove it."""
        passed = self.clock.now - START
        for kill in () if self.calm else self.due:
            if kill.start <= passed and kill.point in points:
                self.due.remove(kill)
                return kill
        return None

    def _fault(self, method: str) -> str:
        if self.calm:
            return ""
        if kill := self._kill("kill", "kill_done"):
            self.slack.down = kill.down
            return kill.point
        passed = self.clock.now - START
        for outage in self.schedule.outages:
            if outage.start <= passed < outage.start + outage.seconds:
                return outage.fault
        return next(self.noise)

    # What was delivered

    def incidents(self) -> list[tuple[str, str, float | None]]:
        """Name, model and end of every incident, in order of opening."""
        with sqlite3.connect(self.folder / DATABASE_FILE) as connection:
            rows = connection.execute(
                "SELECT name, json_extract(key, '$.model'), closed_at FROM incidents ORDER BY id"
            ).fetchall()
        connection.close()
        return rows

    def events(self, name: str) -> list[Event]:
        """Return what happened to an incident."""
        number = self.store.incidents.find(name)
        assert number is not None
        return self.store.incidents.events(number, 0, 1_000_000)

    def posted(self, name: str) -> list[Posted]:
        """Return the incident's own messages in the channel; more than one after a kill."""
        return [m for m in self.workspace.roots() if f"incident `{name}`" in m.shown and "📋" not in m.text]

    def duplicates(self) -> int:
        """Messages posted more than once, and incidents with more than one first message."""
        names = Counter(message.name for message in self.workspace.messages)
        again = sum(count - 1 for count in names.values())
        distinct = {message.name: message for message in self.workspace.roots()}.values()
        firsts = Counter(
            match[1]
            for m in distinct
            if "📋" not in m.text
            for match in [re.search(r"incident `(\w+)`", m.shown)]
            if match
        )
        return again + sum(count - 1 for count in firsts.values())

    def delivered(self, name: str) -> list[tuple[float, str, Posted]]:
        """Return what the channel was sent about an incident, in order: (time, "opened" or "resolved", message)."""
        delivered: list[tuple[float, str, Posted]] = []
        for message in self.workspace.messages:
            if "📋" in message.text:
                times = [message.at, *message.edited_at]
                for at, shown in zip(times, message.shown_over_time, strict=True):
                    for line in re.split(r'\n|\\n|"', shown):
                        if f"`{name}`" in line:
                            delivered.append((at, "resolved" if "Resolved:" in line else "opened", message))
            elif not message.thread_ts and f"incident `{name}`" in message.shown:
                delivered += self._delivered_by(message)
                replies = self.workspace.thread(message)
                delivered += [(reply.at, "resolved", reply) for reply in replies if "Recovered" in reply.text]
        return sorted(delivered, key=lambda entry: entry[0])

    def shown(self, name: str) -> str:
        """Return the newest state of an incident that a reader of the channel sees now."""
        delivered = self.delivered(name)
        # The first message of a digest names only some of its incidents after an edit.
        return [what for _, what, message in delivered if message.thread_ts or f"`{name}`" in message.shown][
            -1
        ]

    def _delivered_by(self, message: Posted) -> list[tuple[float, str, Posted]]:
        times = [message.at, *message.edited_at]
        states = message.shown_over_time
        return [
            (at, "resolved" if "Resolved:" in shown else "opened", message)
            for at, shown in zip(times, states, strict=True)
        ]

"""Test random notifications of two Alertmanagers, late, repeated and silenced, against the alerts that fire."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from support.bridge import Clock, rfc3339
from support.thorough import examples
from triton_alerts.alertmanager_client import Alertmanager, ListedAlert
from triton_alerts.bridge.alertmanagers import COMPARE_SECONDS, Alertmanagers, Reconciler
from triton_alerts.bridge.incidents.notification import parse
from triton_alerts.bridge.incidents.store import MAX_COMPARED_INCIDENTS, Store
from triton_slo.server_access import Access

TICK_SECONDS = 10.0
QUIET_SECONDS = 480.0
"""Longer than a delayed notification waits, and then an alert that Alertmanager does not list."""
GROUPS = {"page": ("page-1", "page-2"), "ticket": ("ticket-1",)}
ALERTS = [name for names in GROUPS.values() for name in names]

Times = tuple[float, float | None]


class SimulatedAlertmanager(Alertmanager):
    """Groups, silences and notifications as Alertmanager makes them: a silenced alert is in none, but listed."""

    def __init__(self, name: str) -> None:
        super().__init__(Access(f"http://{name}.example"))
        self.name = name
        self.states: dict[str, Times] = {}
        self.waiting: set[str] = set()
        """Alerts that changed since the last notification."""
        self.notified: dict[str, set[str]] = {}
        """What the last notification of a group reported as firing."""
        self.silenced: set[str] = set()

    def alerts(self) -> list[ListedAlert]:
        return [ListedAlert(name, {}, {}, start) for name, (start, end) in self.states.items() if end is None]

    def silences(self, comment: str = "") -> dict[str, float]:
        return {}

    def up_since(self) -> float:
        return 0.0

    def update(self, name: str, times: Times) -> None:
        self.states[name] = times
        self.waiting.add(name)

    def flush(self, group: str, *, repeat: bool) -> bytes | None:
        """Return the notification that is due, if any."""
        visible = {
            name: self.states[name]
            for name in GROUPS[group]
            if name in self.states and name not in self.silenced
        }
        firing = {name for name, (_, end) in visible.items() if end is None}
        ended = {name for name, (_, end) in visible.items() if end is not None and name in self.waiting}
        before = self.notified.get(group, set())
        due = (
            bool(firing - before or ended & before or (repeat and firing))
            if firing
            else bool(before and ended)
        )
        self.waiting -= set(GROUPS[group])
        if not due:
            return None
        self.notified[group] = firing
        alerts = [_wire(name, *self.states[name]) for name in sorted(firing | ended)]
        return json.dumps(
            {
                "version": "4",
                "receiver": "bridge",
                "status": "firing" if firing else "resolved",
                "groupKey": group,
                "alerts": alerts,
            }
        ).encode()


def _wire(name: str, start: float, end: float | None) -> dict[str, object]:
    return {
        "status": "firing" if end is None else "resolved",
        "labels": {
            "alertname": name,
            "model": "m",
            "severity": name.startswith("page") * "critical" or "warning",
        },
        "startsAt": rfc3339(start),
        "endsAt": "0001-01-01T00:00:00Z" if end is None else rfc3339(end),
        "fingerprint": name,
    }


@dataclass
class BridgeOfTwoPeers:
    """A bridge, two Alertmanagers that do not know each other, and what is on its way."""

    store: Store
    clock: Clock = field(default_factory=Clock)
    late: list[tuple[bytes, str]] = field(default_factory=list)
    reported: dict[str, float] = field(default_factory=dict)
    """The start with which each alert was reported as firing last."""
    is_back: dict[str, bool] = field(default_factory=dict)
    """Whether an alert fires or fired again with the start that it had: what is reported of it waits a minute."""
    ended: dict[str, tuple[float, int]] = field(default_factory=dict)
    """The last start of each alert of which the end was reported, and the newest incident then."""

    def __post_init__(self) -> None:
        self.peers = [SimulatedAlertmanager(name) for name in ("am-0", "am-1")]
        self.clients = Alertmanagers(tuple(self.peers), self.store)
        self.restart()
        # The bridge learns which Alertmanager a sender is while one of the sender's alerts is listed.
        for name, peer in zip(GROUPS["page"], self.peers, strict=True):
            for _ in range(2):
                self.step("change", name, ("", ""))
                self.send(peer, "page", "send")
                self.wait(COMPARE_SECONDS)

    def restart(self) -> None:
        self.reconcile = Reconciler(self.store, self.clients, lambda: None)

    def step(self, what: str, name: str, sent: tuple[str, str]) -> None:
        """Change one alert, then let each Alertmanager notify about its group, in one way or another."""
        self.clock.now += 1.0
        start, end = self.peers[0].states.get(name, (0.0, 0.0))
        if what in ("change", "back"):
            # An alert that is back after Prometheus was cut off from Alertmanager has its old start: a notification
            # of its end that arrives only then cannot be distinguished from a new end.
            again = start if what == "back" and start and not self.late else self.clock()
            if end is not None:
                self.reported.pop(name, None)
                self.is_back[name] = again == start
            for peer in self.peers:
                peer.update(name, (start, self.clock()) if end is None else (again, None))
        elif what == "silence":
            self.peers[0].silenced ^= {name}
        elif what == "restart":
            self.restart()
        elif what == "arrive" and self.late:
            self.receive(*self.late.pop())
        for peer, how in zip(self.peers, sent, strict=True):
            if how:
                self.send(peer, name.partition("-")[0], how)

    def send(self, peer: SimulatedAlertmanager, group: str, how: str) -> None:
        body = peer.flush(group, repeat=how == "repeat")
        if body is None:
            return
        if how in ("delay", "twice"):
            self.late.append((body, peer.name))
        if how != "delay":
            self.receive(body, peer.name)

    def receive(self, body: bytes, source: str) -> None:
        notification = parse(body, source)
        for fingerprint, alert in notification.alerts.items():
            if alert.firing:
                self.reported[fingerprint] = max(alert.starts_at, self.reported.get(fingerprint, 0.0))
            elif alert.starts_at >= self.ended.get(fingerprint, (0.0, 0))[0]:
                self.ended[fingerprint] = (alert.starts_at, self.store.incidents.newest())
        self.store.receive(notification, self.clock(), self.clients.may_still_fire)

    def wait(self, seconds: float) -> None:
        end = self.clock() + seconds
        while self.clock() < end:
            self.clock.now += TICK_SECONDS
            self.store.merge_held(self.clock(), self.clients.listed)
            self.reconcile(self.clock())

    def firing(self) -> set[str]:
        """Return what fires. A start that was not reported may be unknown, unless the end before it is, too."""
        shown = dict(self.shown())
        return {
            name
            for name, (start, end) in self.peers[0].states.items()
            if end is None and (self.reported.get(name) == start or name in shown)
        }

    def shown(self) -> list[tuple[str, float]]:
        """Return the alerts that open incidents show as firing, and since when."""
        return sorted(
            (fingerprint, member.starts_at)
            for _, incident in self.store.incidents.open()
            for fingerprint, member in incident.members.items()
            if member.firing
        )

    def wrong(self) -> list[str]:
        """Return alerts shown wrongly now: firing after their end was reported, or missing while they fire."""
        shown = dict(self.shown())
        wrong = []
        newest = self.store.incidents.newest()
        for name, (start, end) in self.peers[0].states.items():
            ended, number = self.ended.get(name, (0.0, 0))
            # Ends before the last few incidents are forgotten: later notifications are compared with Alertmanager.
            is_known_end = end is not None and ended == start and newest - number < MAX_COMPARED_INCIDENTS
            is_known_start = end is None and self.reported.get(name) == start != ended
            if (is_known_end and shown.get(name) == start) or (is_known_start and name not in shown):
                wrong.append(name)
        return [name for name in wrong if not self.is_back[name]]


STEP = st.sampled_from(("send", "send", "delay", "twice", "repeat", ""))
TWIN = st.sampled_from(("", "", "", "send", "delay"))
STEPS = st.tuples(
    st.sampled_from(("change", "change", "change", "back", "arrive", "silence", "restart")),
    st.sampled_from(ALERTS),
    st.tuples(STEP, TWIN),
    st.sampled_from((0.0, 10.0, 10.0, 70.0, 300.0)),
)


@examples(60, thorough=1500)
@given(st.lists(STEPS, min_size=8, max_size=24))
def test_in_the_end_exactly_what_fires_is_shown(steps: list[tuple[str, str, tuple[str, str], float]]) -> None:
    """After late, repeated and silenced notifications, exactly the firing alerts are in open incidents."""
    with closing(Store(Path(":memory:"), lambda severity: severity)) as store:
        bridge = BridgeOfTwoPeers(store)
        for *step, pause in steps:
            bridge.step(*step)
            bridge.wait(pause)
            assert [] == bridge.wrong()
        while bridge.late:
            bridge.receive(*bridge.late.pop())
        bridge.wait(QUIET_SECONDS)

        assert sorted(bridge.firing()) == [name for name, _ in bridge.shown()]
        assert all(incident.firing for _, incident in store.incidents.open())

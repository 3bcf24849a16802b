"""Run a bridge in simulated time: the real store, workers and buttons, on the Slack stand-in."""

from __future__ import annotations

import json
import random
import urllib.error
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from support.slack.workspace import Workspace
from triton_alerts.alertmanager_client import Alertmanager
from triton_alerts.bridge.alertmanagers import Alertmanagers
from triton_alerts.bridge.assembly import AUDIT_FILE
from triton_alerts.bridge.buttons import Actions, ButtonPress
from triton_alerts.bridge.deliver.slack import SlackApi, broken, refusal
from triton_alerts.bridge.deliver.transport import Attempts
from triton_alerts.bridge.deliver.worker import DeliveryOptions, DeliveryWorker
from triton_alerts.bridge.incidents.audit import Audit
from triton_alerts.bridge.incidents.database import DATABASE_FILE
from triton_alerts.bridge.incidents.incident import Incident
from triton_alerts.bridge.incidents.notification import parse
from triton_alerts.bridge.incidents.store import Store

START = 1_700_000_000.0
CHANNEL = "C0PAGES"


class Killed(BaseException):
    """kill -9, at this very point; the bridge is down for some seconds."""

    def __init__(self, down: float) -> None:
        self.down = down


@dataclass
class Clock:
    now: float = START

    def __call__(self) -> float:
        return self.now


class SimulatedSlack(SlackApi):
    """SlackApi whose requests go to a Workspace in simulated time. `fault(method)` names what goes wrong."""

    def __init__(self, workspace: Workspace, clock: Clock, fault: Callable[[str], str]) -> None:
        super().__init__(lambda: "xoxb-stand-in")
        self.workspace = workspace
        self.clock = clock
        self.fault = fault
        self.refuses: Callable[[str, dict[str, Any]], str] = lambda _method, _arguments: ""
        """Return the code with which Slack refuses a request; nothing for none."""
        self.doubtful = 0
        self.down = 0.0
        self.acted_late = False
        self.late: list[tuple[float, str, dict[str, Any]]] = []
        """Requests that Slack acts on after nobody waits for the answer any more."""

    def act_late(self) -> None:
        """Act on the requests that are due by now."""
        for due, method, arguments in [call for call in self.late if call[0] <= self.clock.now]:
            self.late.remove((due, method, arguments))
            self.acted_late = True
            self.workspace.call(method, arguments, due)

    def _request(self, method: str, **how: Any) -> dict[str, Any]:
        arguments = how.get("json") or how.get("params") or {}
        self.clock.now += 0.08
        self.act_late()
        fault = self.fault(method)
        if fault.startswith("late"):
            self.doubtful += 1
            self.late.append((self.clock.now + float(fault[4:]), method, arguments))
            self._fail("hang")
        if fault == "kill":
            raise Killed(self.down)
        if fault == "429":
            raise refusal(429, {"Retry-After": "7"}, "ratelimited")
        if fault == "refused":
            raise broken(urllib.error.URLError(ConnectionRefusedError()))
        if fault in ("500", "502", "internal_error", "hang", "reset"):
            self._fail(fault)
        if code := self.refuses(method, arguments):
            raise refusal(200, {}, code)
        answer = self.workspace.call(method, arguments, self.clock.now)
        if fault == "kill_done":
            raise Killed(self.down)
        if fault.endswith("_done") or fault == "fatal_error":
            self.doubtful += 1
            self._fail(fault.removesuffix("_done"))
        if not answer.body["ok"]:
            raise refusal(answer.status, answer.headers, answer.body["error"])
        copied: dict[str, Any] = json.loads(json.dumps(answer.body))
        return copied

    def _fail(self, fault: str) -> None:
        if fault == "hang":
            self.clock.now += 10.0
            raise broken(TimeoutError())
        if fault == "reset":
            raise broken(ConnectionResetError())
        if fault in ("500", "502"):
            raise refusal(int(fault), {}, "")
        raise refusal(200, {}, fault)


class BridgeUnderTest:
    """A bridge's store, buttons and a worker for each channel, in simulated time, on the Slack stand-in.

    `channels` is the channel of each severity. `fault` names what goes wrong with a
    request to Slack, by its method.
    """

    def __init__(
        self,
        folder: Path,
        *,
        channels: Mapping[str, str] | None = None,
        options: DeliveryOptions | None = None,
        alertmanagers: tuple[Alertmanager, ...] = (),
        clock: Clock | None = None,
        workspace: Workspace | None = None,
        fault: Callable[[str], str] = lambda _method: "",
    ) -> None:
        self.folder = folder
        self.channels = channels or {}
        self.options = options or DeliveryOptions()
        self.alertmanagers = alertmanagers
        self.clock = clock or Clock()
        self.workspace = workspace or Workspace()
        self.slack = SimulatedSlack(self.workspace, self.clock, fault)
        self.unreported: list[tuple[str, str]] = []
        """Name of each alert that no message will report, and why."""
        self.restart()

    def restart(self) -> None:
        """Start as after a kill: the folder, the clock and Slack are as they were."""
        self.store = Store(
            self.folder / DATABASE_FILE,
            self.channel_of,
            lambda _at, _incident, member, reason: self.unreported.append((member.name, reason)),
        )
        self.store.outbox.move(self.channel_of("critical"))
        self.workers = [self._worker(channel) for channel in sorted({CHANNEL, *self.channels.values()})]
        self.clients = Alertmanagers(self.alertmanagers, self.store)
        self.audit = Audit(self.folder / AUDIT_FILE)
        self.actions = Actions(self.store, self.audit, self.clients, self.clock)

    def _worker(self, channel: str) -> DeliveryWorker:
        attempts = Attempts(self.clock, random.Random(1))
        return DeliveryWorker(channel, self.store, self.slack, self.options, attempts)

    def channel_of(self, severity: str) -> str:
        return self.channels.get(severity, CHANNEL)

    def receive(self, body: bytes, source: str = "am") -> str:
        """Store a webhook body; returns what it did."""
        return self.store.receive(parse(body, source), self.clock())

    def notify(
        self,
        firing: dict[str, float],
        ended: dict[str, tuple[float, float]] | None = None,
        *,
        name: str = "g0",
        severity: str = "critical",
    ) -> str:
        """Receive a notification about one group: the start of each alert, or its start and end."""
        return self.receive(body_of(name, firing, ended or {}, severity))

    def send(self) -> None:
        """Let the workers run until nothing waits for Slack."""
        for worker in self.workers:
            while (wait := worker.step()) < 30 or self.store.outbox.pending(worker.channel):
                self.clock.now += max(wait, 0.01)

    def run_for(self, seconds: float) -> None:
        """Let the workers run for so long."""
        end = self.clock() + seconds
        while self.clock() < end:
            waits = [worker.step() for worker in self.workers]
            self.clock.now += max(0.01, min(*waits, 5.0))

    def press(
        self, action: str, value: str = "", *, incident: int = 1, user: str = "U0ANA", key: str = ""
    ) -> str:
        """Press a button; returns the answer. Slack delivers a press again under the same `key`."""
        key = key or f"{self.clock()}-{action}"
        return self.actions.do(ButtonPress(key, action, value, self.incident(incident).name, user))

    def incident(self, number: int = 1) -> Incident:
        incident = self.store.incidents.get(number)
        assert incident is not None
        return incident

    def close(self) -> None:
        self.store.close()


def body_of(
    name: str,
    firing: dict[str, float],
    ended: dict[str, tuple[float, float]],
    severity: str = "critical",
    group: str = "",
) -> bytes:
    """Return a webhook body for a group of alerts about one model."""
    alerts = [_alert(name, version, start, None, severity) for version, start in firing.items()]
    alerts += [_alert(name, version, start, end, severity) for version, (start, end) in ended.items()]
    return json.dumps(
        {
            "status": "firing" if firing else "resolved",
            "version": "4",
            "receiver": "page",
            "groupKey": group or name,
            "groupLabels": {"alertname": name},
            "externalURL": "http://alertmanager.example:9093",
            "alerts": alerts,
        }
    ).encode()


def _alert(name: str, version: str, start: float, end: float | None, severity: str) -> dict[str, Any]:
    return {
        "status": "firing" if end is None else "resolved",
        "labels": {"alertname": name, "model": name, "version": version, "severity": severity},
        "annotations": {"summary": f"Model {version} failed to load"},
        "startsAt": rfc3339(start),
        "endsAt": "0001-01-01T00:00:00Z" if end is None else rfc3339(end),
        "fingerprint": version,
    }


def rfc3339(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")


def trail(audit: Audit) -> list[dict[str, Any]]:
    """Return every whole line of an audit log, oldest first."""
    entries = []
    for line in audit.path.read_bytes().splitlines():
        with suppress(ValueError):
            entries.append(json.loads(line))
    return entries

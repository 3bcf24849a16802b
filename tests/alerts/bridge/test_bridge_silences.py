"""Test silences and reconciliation with real Alertmanagers, with the bridge's clock set forward."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import requests

from support.bridge import CHANNEL, BridgeUnderTest, Clock
from support.loopback import free_ports, until_answers
from support.tools import alertmanagers, newest
from support.waiting import eventually
from triton_alerts.alertmanager_client import Alertmanager
from triton_alerts.bridge.alertmanagers import COMPARE_SECONDS, RESEND_SECONDS, Reconciler
from triton_alerts.bridge.buttons import Actions, ButtonPress
from triton_alerts.bridge.deliver.worker import Escalation
from triton_alerts.bridge.incidents.notification import parse
from triton_alerts.bridge.incidents.store import GRACE_SECONDS, Listed, StoredValues
from triton_alerts.bridge.service import Escalator
from triton_slo.server_access import Access

CONFIG = "route: {receiver: none}\nreceivers:\n- name: none\n"


@dataclass
class RealAlertmanager:
    """A process that can be killed, lose its data and come back; notifications are written by the test."""

    binary: Path
    folder: Path
    port: int = field(default_factory=lambda: free_ports(1)[0])
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self.folder.mkdir(exist_ok=True)
        (self.folder / "alertmanager.yml").write_text(CONFIG)
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *(self.binary, f"--config.file={self.folder / 'alertmanager.yml'}"),
                    *(
                        f"--storage.path={self.folder / 'data'}",
                        f"--web.listen-address=127.0.0.1:{self.port}",
                    ),
                    "--cluster.listen-address=",
                ],
                stdout=log,
                stderr=log,
            )
        until_answers(f"{self.url}/-/ready")

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(15)

    def lose_everything(self) -> None:
        """Start again on an empty disk, as without a volume."""
        self.kill()
        shutil.rmtree(self.folder / "data")
        self.start()

    def fire(
        self, labels: Mapping[str, str], *, ended: bool = False, year: int = 2025, **annotations: str
    ) -> None:
        """Send an alert as Prometheus does."""
        now = datetime.now(UTC)
        alert = {
            "labels": labels,
            "annotations": annotations,
            "startsAt": f"{year}-01-01T00:00:00.123456789Z",
            "endsAt": (now if ended else now + timedelta(hours=9)).isoformat(),
        }
        requests.post(f"{self.url}/api/v2/alerts", json=[alert], timeout=5).raise_for_status()

    def alerts(self) -> dict[str, Any]:
        """Return what fires, by name of the alert."""
        answer = requests.get(f"{self.url}/api/v2/alerts", timeout=5).json()
        return {alert["labels"]["alertname"] + alert["labels"].get("model", ""): alert for alert in answer}

    def states(self) -> dict[str, str]:
        return {name: alert["status"]["state"] for name, alert in self.alerts().items()}

    def end_silences(self) -> None:
        """Somebody ends every silence in Alertmanager's own page."""
        for silence in requests.get(f"{self.url}/api/v2/silences", timeout=5).json():
            requests.delete(f"{self.url}/api/v2/silence/{silence['id']}", timeout=5).raise_for_status()

    def silences(self) -> list[str]:
        """Return the state of every silence that was ever made here."""
        answer = requests.get(f"{self.url}/api/v2/silences", timeout=5).json()
        return [silence["status"]["state"] for silence in answer]

    def notification(self, group: Mapping[str, str], *names: str) -> bytes:
        """Return the webhook body about some of the alerts that fire."""
        listed = self.alerts()
        alerts = [{**listed[name], "status": "firing", "endsAt": "0001-01-01T00:00:00Z"} for name in names]
        return json.dumps(
            {
                "version": "4",
                "status": "firing",
                "receiver": "bridge",
                "groupKey": f"{self.port} {group}",
                "groupLabels": group,
                "externalURL": self.url,
                "alerts": alerts,
            }
        ).encode()


class AheadClock(Clock):
    """The real time, `ahead` seconds later: real Alertmanagers know no other."""

    ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


class Bridge(BridgeUnderTest):
    """A bridge beside real Alertmanagers, minutes after they started."""

    def __init__(self, folder: Path, *asked: RealAlertmanager) -> None:
        clients = tuple(Alertmanager(Access(alertmanager.url)) for alertmanager in asked)
        self.time = AheadClock()
        super().__init__(folder, clock=self.time, alertmanagers=clients)
        # A silence begins and ends by the Alertmanager's clock.
        self.actions = Actions(self.store, self.audit, self.clients, time.time)
        self.failures: list[int] = []
        self.reconciler = Reconciler(self.store, self.clients, lambda: None, lambda: self.failures.append(1))

    def reconcile(self, times: int = 1) -> None:
        for _ in range(times):
            self.time.ahead += COMPARE_SECONDS + 1
            self.reconciler(self.clock())

    def is_escalated(self, incident: int = 1) -> bool:
        """Whether an unacknowledged page is escalated a quarter of an hour later."""
        how = Escalation(900)
        Escalator(self.store, how, lambda _: CHANNEL, lambda: None)(self.clock() + 901)
        return self.incident(incident).escalated_at is not None

    def thread(self, incident: int = 1) -> list[tuple[str, str]]:
        """Kind and words of everything that happened to an incident."""
        return [(event.kind, event.words) for event in self.store.incidents.events(incident, 0, 1000)]


@pytest.fixture(params=newest(alertmanagers()), ids=lambda path: str(path.parent.parent.name))
def alertmanager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RealAlertmanager]:
    started = RealAlertmanager(request.param, tmp_path / "am")
    started.start()
    yield started
    started.kill()


@pytest.fixture
def other(alertmanager: RealAlertmanager, tmp_path: Path) -> Iterator[RealAlertmanager]:
    """Yield a second Alertmanager that knows nothing of the first."""
    started = RealAlertmanager(alertmanager.binary, tmp_path / "other")
    started.start()
    yield started
    started.kill()


@pytest.fixture
def bridge(tmp_path: Path, alertmanager: RealAlertmanager) -> Iterator[Bridge]:
    made = Bridge(tmp_path, alertmanager)
    yield made
    made.close()


@pytest.mark.real
def test_a_silence_of_a_ticket_leaves_the_pages_of_its_server_alone(
    bridge: Bridge, alertmanager: RealAlertmanager
) -> None:
    """The silence matches the ticket's alert names, severity and subject, not everything in its group."""
    here = {"instance": "gpu-1:9401"}
    for name, severity, model in (
        ("TritonQueueBacklog", "warning", "a.b|c"),
        ("TritonQueueBacklog", "warning", "d"),
        ("TritonQueueBacklog", "critical", "e"),
        ("TritonQueueBacklog", "warning", "aXb"),
        ("TritonModelLoadFailed", "critical", "a.b|c"),
        ("TritonServerDown", "critical", ""),
    ):
        labels = {"alertname": name, "severity": severity, "model": model, **here}
        alertmanager.fire({label: value for label, value in labels.items() if value})
    bridge.receive(alertmanager.notification(here, "TritonQueueBackloga.b|c"))
    line = bridge.press("silence", "1h")

    time.sleep(0.2)
    suppressed = sorted(name for name, state in alertmanager.states().items() if state == "suppressed")
    assert ["TritonQueueBackloga.b|c"] == suppressed
    assert line.endswith(
        '`instance="gpu-1:9401", alertname="TritonQueueBacklog", severity="warning", model="a.b|c"`.'
    )
    assert "silenced" == bridge.thread()[-1][0]


@pytest.mark.real
def test_a_silence_covers_the_cause_and_the_page_of_an_incident(
    bridge: Bridge, alertmanager: RealAlertmanager
) -> None:
    """Their labels differ, so that one set of matchers would mute more than both: each gets a silence."""
    cause = {"alertname": "A", "severity": "warning", "instance": "gpu-1:9401", "model": "m"}
    page = {"alertname": "B", "severity": "critical", "slo": "readiness", "model": "m", "version": "1"}
    for labels in (cause, page, cause | {"severity": "critical"}):
        alertmanager.fire(labels)
    listed = requests.get(f"{alertmanager.url}/api/v2/alerts", timeout=5).json()
    alerts = [
        {**alert, "status": "firing", "endsAt": "0001-01-01T00:00:00Z"}
        for alert in listed
        if alert["labels"] in (cause, page)
    ]
    body = json.loads(alertmanager.notification({"model": "m"})) | {"alerts": alerts}
    bridge.receive(json.dumps(body).encode())
    bridge.press("silence", "1h")
    time.sleep(0.2)
    answer = requests.get(f"{alertmanager.url}/api/v2/alerts", timeout=5).json()
    muted = [alert["labels"] for alert in answer if alert["status"]["state"] == "suppressed"]
    silenced = bridge.incident().silenced
    bridge.press("unsilence")

    assert silenced
    assert sorted(map(str, (cause, page))) == sorted(
        str(labels) for labels in map(dict, map(_ordered, muted))
    )
    assert ["expired", "expired"] == alertmanager.silences()


def _ordered(labels: Mapping[str, str]) -> list[tuple[str, str]]:
    names = ("alertname", "severity", "instance", "slo", "model", "version")
    return [(name, labels[name]) for name in names if name in labels]


@pytest.mark.real
def test_an_alert_that_the_silence_does_not_match_is_not_shown_as_silenced(
    bridge: Bridge, alertmanager: RealAlertmanager
) -> None:
    """Another alert of the group is escalated: Alertmanager notifies about it, too."""
    here = {"instance": "gpu-1:9401"}
    alertmanager.fire({"alertname": "A", "severity": "critical", **here})
    bridge.receive(alertmanager.notification(here, "A"))
    bridge.press("silence", "1h")
    before = bridge.incident().silenced
    alertmanager.fire({"alertname": "B", "severity": "critical", **here})
    bridge.receive(alertmanager.notification(here, "A", "B"))

    assert [True, False] == [before, bridge.incident().silenced]


@pytest.mark.real
def test_a_silence_of_a_model_leaves_other_servers_alone(
    bridge: Bridge, alertmanager: RealAlertmanager
) -> None:
    """Nobody has seen the model's alert on a server that joins later."""
    labels = {"alertname": "A", "severity": "critical", "model": "m", "version": "1"}
    alertmanager.fire({**labels, "instance": "gpu-1:9401"})
    bridge.receive(alertmanager.notification({"model": "m"}, "Am"))
    bridge.press("silence", "1h")
    alertmanager.fire({**labels, "instance": "gpu-2:9401"})

    time.sleep(0.2)
    answer = requests.get(f"{alertmanager.url}/api/v2/alerts", timeout=5).json()
    assert {"gpu-1:9401": "suppressed", "gpu-2:9401": "active"} == {
        alert["labels"]["instance"]: alert["status"]["state"] for alert in answer
    }


@pytest.mark.real
def test_undo_ends_every_silence_of_the_incident(bridge: Bridge, alertmanager: RealAlertmanager) -> None:
    """Two people press on the message as both saw it; the second is informed that it is silenced."""
    alertmanager.fire({"alertname": "A", "severity": "critical"})
    bridge.receive(alertmanager.notification({}, "A"))
    lines = [bridge.press("silence", "4h"), bridge.press("silence", "1h")]
    bridge.press("unsilence")

    assert "<@U0ANA> has already silenced this incident." == lines[1]
    assert ["expired"] == alertmanager.silences()


@pytest.mark.real
def test_a_silenced_alert_that_ends_before_it_was_ever_listed_is_closed(
    bridge: Bridge, alertmanager: RealAlertmanager
) -> None:
    """At the press this Alertmanager had the alert, so its later answer without it ends the alert."""
    labels = {"alertname": "A", "severity": "critical"}
    alertmanager.fire(labels)
    bridge.receive(alertmanager.notification({}, "A"))
    bridge.press("silence", "1h")
    alertmanager.fire(labels, ended=True)
    eventually(lambda: not alertmanager.alerts(), "the alert is still listed")
    bridge.time.ahead = RESEND_SECONDS
    bridge.reconcile(5)

    assert bridge.incident().closed_at is not None


@pytest.mark.real
def test_a_full_disk_hides_no_answer_of_alertmanager(
    bridge: Bridge, alertmanager: RealAlertmanager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bridge cannot store which Alertmanager is responsible, but shows its answer."""
    alertmanager.fire({"alertname": "A", "severity": "critical"})
    bridge.receive(alertmanager.notification({}, "A"))

    def full(_values: StoredValues, _name: str, _value: str) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(StoredValues, "set", full)

    assert alertmanager.url == bridge.actions.alertmanagers.of(bridge.incident()).url


@pytest.mark.real
def test_a_silence_that_cannot_be_stored_is_taken_back(
    bridge: Bridge, alertmanager: RealAlertmanager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a full disk the message would show none, and pages would be muted for a day."""
    alertmanager.fire({"alertname": "A", "severity": "critical"})
    bridge.receive(alertmanager.notification({}, "A"))

    def full(_values: StoredValues, _number: str, _now: float) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(StoredValues, "record_press", full)
    line = bridge.press("silence", "resolved")

    assert line.startswith("Not done: the bridge cannot write to its disk.")
    assert ["expired"] == alertmanager.silences()


def test_a_press_is_refused_in_words_while_nothing_can_be_read(
    bridge: Bridge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bridge that started on a full disk has no database yet."""

    def full(_values: StoredValues, _name: str) -> bool:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(StoredValues, "pressed", full)
    line = bridge.actions.do(ButtonPress("1", "acknowledge", "", "x", "U1"))

    assert line.startswith("Not done: the bridge cannot write to its disk.")


@pytest.mark.real
def test_a_late_twin_is_not_believed_against_alertmanager(
    bridge: Bridge, alertmanager: RealAlertmanager
) -> None:
    """The twin still reports as firing what has ended, and Alertmanager does not list.

    A long annotation that it lists is cut as that of a notification.
    """
    alertmanager.fire({"alertname": "A", "severity": "critical"}, description=20_000 * "x")
    firing = alertmanager.notification({}, "A")
    ended = json.loads(firing) | {"status": "resolved"}
    ended["alerts"] = [
        alert | {"status": "resolved", "endsAt": "2025-01-02T00:00:00Z"} for alert in ended["alerts"]
    ]
    clients = bridge.actions.alertmanagers
    for body, source in ((firing, "am"), (json.dumps(ended).encode(), "am"), (firing, "twin")):
        bridge.receive(body, source)
    listed = clients.listed(time.time() + RESEND_SECONDS)
    alertmanager.fire({"alertname": "A", "severity": "critical"}, ended=True)
    eventually(lambda: not alertmanager.alerts(), "the alert is listed")
    merged, opened = [], []
    # Before and after every alert must have been sent again.
    for ahead in (GRACE_SECONDS + 1, RESEND_SECONDS):
        bridge.time.ahead = ahead
        merged.append(bridge.store.merge_held(bridge.clock(), clients.listed))
        opened += bridge.store.incidents.open()

    known = parse(firing, "am").alerts
    assert Listed({name: member.annotations for name, member in known.items()}) == listed
    assert [0, 1] == merged
    assert [] == opened


PAGE = {"alertname": "A", "severity": "critical", "instance": "gpu-1:9401"}
SECOND = {"alertname": "B", "severity": "critical", "instance": "gpu-2:9401"}


@pytest.mark.real
def test_a_silence_that_alertmanager_lost_delays_nothing(
    bridge: Bridge, alertmanager: RealAlertmanager
) -> None:
    """Deleting an unknown silence is refused, 500 or 404; other incidents are compared all the same."""
    for labels in (PAGE, SECOND):
        alertmanager.fire(labels)
        bridge.receive(alertmanager.notification({"alertname": labels["alertname"]}, labels["alertname"]))
    bridge.press("silence", "resolved")
    bridge.reconcile()
    ended = alertmanager.notification({"alertname": "A"}, "A").replace(b'"firing"', b'"resolved"')
    alertmanager.lose_everything()
    bridge.receive(ended)
    bridge.time.ahead += RESEND_SECONDS
    bridge.reconcile(5)

    assert bridge.incident(1).silence is None
    assert not bridge.incident(2).open
    assert [] == bridge.failures


@pytest.mark.real
@pytest.mark.parametrize("length", ["1h", "resolved"])
@pytest.mark.parametrize("how", ["by hand", "lost"])
def test_a_silence_that_is_not_in_force_any_more_stops_no_escalation(
    bridge: Bridge, alertmanager: RealAlertmanager, length: str, how: str
) -> None:
    """The silence is shown as ended within minutes, the page is escalated, and no new silence is made."""
    alertmanager.fire(PAGE)
    bridge.receive(alertmanager.notification({"alertname": "A"}, "A"))
    bridge.press("silence", length)
    bridge.reconcile(3)
    before = bridge.incident().silenced, bridge.is_escalated()
    if how == "by hand":
        alertmanager.end_silences()
    else:
        alertmanager.lose_everything()
        alertmanager.fire(PAGE)
    bridge.reconcile(2)

    assert (True, False) == before
    assert bridge.thread()[-1] == (
        "unsilenced",
        "the silence no longer exists in Alertmanager, and the alert is not known to have resolved",
    )
    assert bridge.is_escalated()
    bridge.time.ahead += 13 * 3600
    alertmanager.fire(PAGE)
    bridge.reconcile(2)
    assert "active" not in alertmanager.silences()


@pytest.mark.real
def test_incidents_of_an_alertmanager_that_is_not_asked_stay_open(
    bridge: Bridge, alertmanager: RealAlertmanager, other: RealAlertmanager
) -> None:
    """The Alertmanager that is asked never had these alerts, so its answer does not end them."""
    for sender, labels in ((alertmanager, PAGE), (other, SECOND)):
        sender.fire(labels)
        bridge.receive(sender.notification({"alertname": labels["alertname"]}, labels["alertname"]))
    bridge.time.ahead += RESEND_SECONDS
    bridge.reconcile(2)
    alertmanager.fire(PAGE, ended=True)
    bridge.reconcile(5)
    line = bridge.press("silence", "1h", incident=2)

    assert [False, True] == [bridge.incident(number).open for number in (1, 2)]
    assert "Not done: no Alertmanager given with --alertmanager lists its alerts" == line


@pytest.mark.real
def test_an_alert_of_the_same_labels_elsewhere_makes_nobody_responsible(
    bridge: Bridge, alertmanager: RealAlertmanager, other: RealAlertmanager
) -> None:
    """Two clusters without a label of their own have alerts that differ in their start alone."""
    alertmanager.fire(PAGE, year=2024)
    for labels in (PAGE, SECOND):
        other.fire(labels)
        bridge.receive(other.notification({"alertname": labels["alertname"]}, labels["alertname"]))
    bridge.time.ahead += RESEND_SECONDS
    bridge.reconcile(5)

    assert [True, True] == [bridge.incident(number).open for number in (1, 2)]


@pytest.mark.real
def test_each_of_two_separate_alertmanagers_ends_and_silences_its_own(
    tmp_path: Path, alertmanager: RealAlertmanager, other: RealAlertmanager
) -> None:
    """A silence goes to the Alertmanager that has the alert; one that does not answer delays only its alerts."""
    bridge = Bridge(tmp_path, alertmanager, other)
    for sender, labels in ((alertmanager, PAGE), (other, SECOND)):
        sender.fire(labels)
        bridge.receive(sender.notification({"alertname": labels["alertname"]}, labels["alertname"]))
    bridge.press("silence", "resolved", incident=2)
    made = [asked.silences() for asked in (alertmanager, other)]
    bridge.time.ahead += RESEND_SECONDS
    bridge.reconcile(2)
    other.fire(SECOND, ended=True)
    alertmanager.kill()
    bridge.reconcile(6)
    bridge.close()
    alertmanager.start()

    assert [[], ["active"]] == made
    assert 6 == len(bridge.failures)
    again = Bridge(tmp_path, alertmanager, other)
    assert [True, False] == [again.incident(number).open for number in (1, 2)]
    assert ["expired"] == other.silences()
    again.store.close()

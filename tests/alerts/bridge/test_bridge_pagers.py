"""Test the incidents that the bridge sends to services other than Slack: content and delivery."""

from __future__ import annotations

import random
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import requests

from alerts.pagers import KEY, LATE, TOKEN, PagerServer
from support.bridge import BridgeUnderTest, Clock, body_of
from support.loopback import free_ports, served
from support.tools import ROOT
from support.waiting import eventually
from triton_alerts.bridge.deliver import pagers
from triton_alerts.bridge.deliver.attempts import Attempts
from triton_alerts.bridge.deliver.messages.incident_links import Style
from triton_alerts.bridge.deliver.pagers import IncidentWebhook, PagerDuty, PagerWorker
from triton_alerts.bridge.deliver.transport import DeliveryError
from triton_alerts.bridge.incidents.incident import Event, Evidence, Incident, Mark
from triton_alerts.bridge.incidents.outbox.unconfirmed import UnconfirmedMessages
from triton_alerts.bridge.incidents.store import Change

PAGE = ROOT / "docs" / "on-call.md"


class Bridge(BridgeUnderTest):
    """Sends to PagerDuty and to a webhook."""

    def __init__(self, folder: Path, server: PagerServer, clock: Clock, key: str = KEY) -> None:
        style = Style(grafana="http://grafana:3000")
        pagerduty = PagerDuty(lambda: key, style, server.pagerduty)
        webhook = IncidentWebhook(lambda: server.hook, style, lambda: TOKEN)
        super().__init__(folder, pagers=(pagerduty, webhook), clock=clock)

    def fire(self, name: str, severity: str = "critical", *, start: float) -> None:
        self.notify({name: start}, name=name, severity=severity)

    def resolve(self, name: str, severity: str = "critical", *, start: float) -> None:
        self.notify({}, {name: (start, self.clock())}, name=name, severity=severity)


@pytest.fixture
def server() -> Iterator[PagerServer]:
    with served(PagerServer()) as made:
        yield made


@pytest.fixture
def bridge(tmp_path: Path, server: PagerServer) -> Iterator[Bridge]:
    made = Bridge(tmp_path, server, Clock())
    yield made
    made.close()


def test_a_page_is_triggered_acknowledged_and_resolved_under_one_key(
    bridge: Bridge, server: PagerServer
) -> None:
    """Its summary, cause and links reach PagerDuty; a ticket does not."""
    start = bridge.clock()
    bridge.fire("broken", start=start)
    bridge.fire("slow", "warning", start=start)
    evidence = Evidence(at=start, reasons={"broken v1": "weights.txt is missing"})
    bridge.store.change(1, lambda before: (before.model_copy(update={"evidence": evidence}), ()))
    bridge.run_for(10)
    ((key, first),) = server.open.items()
    bridge.store.change(1, _acknowledged(bridge.clock()))
    bridge.run_for(10)
    second = server.open[key]
    bridge.resolve("broken", start=start)
    bridge.run_for(10)

    assert ["trigger", "acknowledge"] == [first, second]
    assert {} == server.open
    assert [] == server.refused
    payload = server.events[0]["payload"]
    assert "Model broken failed to load" == payload["summary"]
    assert "weights.txt is missing" == payload["custom_details"]["reason for broken v1"]
    assert {"Alertmanager"} <= {link["text"].title() for link in server.events[0]["links"]}


def test_a_ticket_that_becomes_a_page_pages(bridge: Bridge, server: PagerServer) -> None:
    """The page is sent under the key of its incident when the incident is raised."""
    start = bridge.clock()
    bridge.fire("m", "warning", start=start)
    bridge.run_for(10)
    before = dict(server.open)
    bridge.fire("m", "critical", start=start)
    bridge.run_for(10)

    assert {} == before
    assert ["trigger"] == list(server.open.values())


def test_a_page_is_resolved_when_its_incident_continues_as_a_ticket(
    bridge: Bridge, server: PagerServer
) -> None:
    """Nobody is called for a ticket; when the page fires again, it pages again."""
    start = bridge.clock()
    ticket = {"m": start}
    states = []
    for firing, ended, severity in (
        (ticket, {}, "warning"),
        ({"p": start}, {}, "critical"),
        ({}, {"p": (start, start + 30)}, "critical"),
        ({"p": start + 60}, {}, "critical"),
    ):
        body = body_of("m", firing, ended, severity, group=severity)
        bridge.receive(body)
        bridge.run_for(10)
        states.append(list(server.open.values()))

    assert [[], ["trigger"], [], ["trigger"]] == states


@pytest.mark.parametrize("status", [500, 429, 503])
def test_an_outage_loses_no_page_and_no_end(
    tmp_path: Path, bridge: Bridge, server: PagerServer, status: int
) -> None:
    """What waits is on disk: a new process sends it, the newest state alone."""
    start = bridge.clock()
    bridge.fire("ended", start=start)
    bridge.run_for(10)
    server.status = status
    bridge.resolve("ended", start=start)
    bridge.fire("new", start=bridge.clock())
    bridge.run_for(300)
    waiting, oldest = bridge.store.outbox.backlog()
    server.status = 0
    again = Bridge(tmp_path, server, bridge.clock)
    again.run_for(100)
    names = [incident.name for _, incident in again.store.incidents.open()]
    left = [d for w in again.pager_workers for d in again.store.outbox.pending_for_pager(w.channel)]
    again.close()

    assert waiting >= 3
    assert oldest is not None
    assert [f"tritonwatch/{name}" for name in names] == list(server.open)
    assert [] == left


def test_a_service_that_acts_late_gets_the_newest_state_again(bridge: Bridge, server: PagerServer) -> None:
    """It executes the unanswered request after it has accepted the end: without a repetition it pages for ever."""
    start = bridge.clock()
    server.status = LATE
    bridge.fire("m", start=start)
    bridge.run_for(8)
    server.status = 0
    bridge.resolve("m", start=start)
    bridge.run_for(30)
    server.act_late()
    before = dict(server.open), server.documents[-1]["status"]
    bridge.run_for(70)
    after = len(server.events), len(server.documents)
    bridge.run_for(600)

    assert (["trigger"], "firing") == (list(before[0].values()), before[1])
    assert ({}, "resolved") == (server.open, server.documents[-1]["status"])
    assert after == (len(server.events), len(server.documents))


@pytest.mark.parametrize("full", [False, True])
def test_a_request_that_a_kill_or_a_full_disk_cut_short_is_repeated(
    bridge: Bridge, server: PagerServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: bool
) -> None:
    """The service executes it after it has accepted the end; only the disk, or the memory, has a record of it."""
    start = bridge.clock()
    server.status = LATE
    bridge.fire("m", start=start)
    bridge.pager_workers.pop()
    if full:
        with monkeypatch.context() as disk:
            disk.setattr(UnconfirmedMessages, "add", _full)
            bridge.run_for(8)
    else:
        with monkeypatch.context() as killed:
            killed.setattr(pagers, "_post_json", _then_killed(pagers._post_json))
            with pytest.raises(KeyboardInterrupt):
                bridge.run_for(8)
        bridge.close()
        bridge = Bridge(tmp_path, server, bridge.clock)
        bridge.pager_workers.pop()
    server.status = 0
    bridge.resolve("m", start=start)
    bridge.run_for(30)
    server.act_late()
    before = dict(server.open)
    bridge.run_for(70)
    after = len(server.events)
    bridge.run_for(600)
    bridge.close()

    assert ["trigger"] == list(before.values())
    assert {} == server.open
    assert after == len(server.events)


def _full(*_: object) -> None:
    raise sqlite3.OperationalError("database or disk is full")


def _then_killed(post: Callable[..., None]) -> Callable[..., None]:
    def send(*request: object) -> None:
        with suppress(DeliveryError):
            post(*request)
        raise KeyboardInterrupt

    return send


def test_a_wrong_key_is_tried_again_each_minute_and_delays_nothing(
    tmp_path: Path, server: PagerServer
) -> None:
    """The webhook gets its incidents meanwhile."""
    bridge = Bridge(tmp_path, server, Clock(), key="wrong")
    bridge.fire("m", start=bridge.clock())
    bridge.run_for(200)
    bridge.close()

    assert 3 <= len(server.refused) <= 5
    assert ["firing"] == [document["status"] for document in server.documents]


def test_the_address_of_a_webhook_is_never_logged(
    tmp_path: Path, server: PagerServer, caplog: pytest.LogCaptureFixture
) -> None:
    """The address may contain a secret: neither a refused connection nor an invalid address shows it."""
    bridge = Bridge(tmp_path, server, Clock())
    for address in ("http://127.0.0.1:9/s3cret", "s3cret", "http://s3cret.invalid:b/"):
        pager = IncidentWebhook(lambda address=address: address, Style())
        worker = PagerWorker(pager, bridge.store, Attempts(bridge.clock, random.Random(1)))
        bridge.fire(address, start=bridge.clock())
        worker.step()
        bridge.clock.now += 100
    bridge.close()

    assert 3 == len([record for record in caplog.records if "pager webhook refused" in record.message])
    assert "s3cret" not in caplog.text


def test_the_webhook_s_document_has_the_fields_of_the_page(bridge: Bridge, server: PagerServer) -> None:
    """Pages and tickets, each with lead, cause, evidence and links."""
    start = bridge.clock()
    bridge.fire("m", "warning", start=start)
    bridge.run_for(10)
    bridge.resolve("m", "warning", start=start)
    bridge.run_for(10)

    section = PAGE.read_text(encoding="utf-8").split("## The JSON of an incident")[1].split("\n## ")[0]
    documented = re.findall(r"^\| `(\w+)`", section, re.MULTILINE)
    assert documented == list(server.documents[0])
    assert ["firing", "resolved"] == [document["status"] for document in server.documents]
    assert {"model": "m"}.items() <= server.documents[0]["lead"]["labels"].items()


def test_the_bridge_pages_without_slack(tmp_path: Path, server: PagerServer) -> None:
    """The real process: a notification arrives, PagerDuty and the webhook have it."""
    for name, content in (("key", KEY), ("hook", server.hook), ("token", TOKEN)):
        (tmp_path / name).write_text(content)
    (port,) = free_ports(1)
    order = [sys.executable, "-m", "tritonwatch", "bridge", "--data", str(tmp_path / "data")]
    order += ["--pagerduty-key-file", str(tmp_path / "key"), "--pagerduty-url", server.pagerduty]
    order += ["--incident-webhook-file", str(tmp_path / "hook")]
    order += ["--incident-webhook-token-file", str(tmp_path / "token"), "--listen", f"127.0.0.1:{port}"]
    with subprocess.Popen(order, stdout=subprocess.PIPE, text=True) as process:
        try:
            body = body_of("g", {"m": 1_700_000_000.0}, {})
            url = f"http://127.0.0.1:{port}/alertmanager"
            eventually(
                lambda: requests.post(url, data=body, timeout=10).ok, "the bridge takes no notification"
            )
            eventually(lambda: server.events and server.documents, "nothing was sent")
        finally:
            process.terminate()
            process.communicate()

    assert "Model m failed to load" == server.events[0]["payload"]["summary"]
    assert [] == server.refused


def _acknowledged(at: float) -> Change:
    """Acknowledge an incident, as the button does."""

    def change(before: Incident) -> tuple[Incident, tuple[Event, ...]]:
        mark = Mark(by="U0ANA", at=at)
        return before.model_copy(update={"acknowledged": mark}), (
            Event(at=at, kind="acknowledged", by="U0ANA"),
        )

    return change

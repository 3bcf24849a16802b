"""Test the generated configuration in real Alertmanagers: one incident makes one notification."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from support.files import write
from support.loopback import Handler, answering, free_ports, started
from support.tools import alertmanagers, newest
from support.waiting import eventually
from triton_alerts import alertmanager
from triton_alerts import rules as rules
from triton_alerts.alertmanager_client import Alertmanager
from triton_alerts.catalogue import ALERTS
from triton_slo.artifact import Options
from triton_slo.generate import artifacts as slo_artifacts
from triton_slo.objective.model import WORKBOOK_TIERS
from triton_slo.objective.reading import read
from triton_slo.server_access import Access

pytestmark = pytest.mark.real
BRIDGE = alertmanager.BRIDGE
BY_NAME = {alert.name: alert for alert in ALERTS}
SERVER = {"instance": "gpu-1:9095"}
TIERS = [tier.name for tier in WORKBOOK_TIERS]
BURN = {
    "alertname": "TritonReadinessBudgetBurn",
    "component": "slo",
    "stack": "tritonwatch",
    "indicator": "readiness",
    "slo": "readiness",
    "model": "ranker",
    "version": "1",
}


@dataclass
class Inbox:
    """What the webhook received."""

    notifications: list[dict[str, object]] = field(default_factory=list)

    def notified(self, receiver: str, status: str = "firing") -> list[set[str]]:
        """Return the alerts of each notification to a receiver that fired (or resolved) in it."""
        return [
            names
            for notification in self.notifications
            if notification["receiver"] == receiver
            and (names := {a["labels"]["alertname"] for a in notification["alerts"] if a["status"] == status})  # type: ignore[attr-defined]
        ]

    def wait(self, promise: Callable[[], object]) -> None:
        """Wait until the condition is true; fail with all notifications that arrived."""
        eventually(promise, lambda: json.dumps(self.notifications, indent=1))


@contextmanager
def webhook() -> Iterator[tuple[Inbox, str]]:
    """Yield a real HTTP server that keeps every notification and answers 200."""
    inbox = Inbox()

    def store(request: Handler) -> None:
        inbox.notifications.append(json.loads(request.body()))
        request.reply()

    with answering(store) as url:
        yield inbox, f"{url}/alertmanager"


@dataclass(frozen=True)
class Running:
    """A real Alertmanager with the demo's configuration."""

    url: str
    inbox: Inbox
    started: list[str] = field(default_factory=list)

    def send(self, alerts: Sequence[dict[str, str]], *, ended: bool = False) -> None:
        """Send alerts that fire or have ended, as Prometheus does."""
        now = datetime.now(UTC)
        # The moment of the first alert: Alertmanager does not wait for the others of an older one.
        self.started.append(now.isoformat())
        end = now if ended else now + timedelta(minutes=5)
        body = [
            {"labels": labels, "startsAt": self.started[0], "endsAt": end.isoformat()} for labels in alerts
        ]
        requests.post(f"{self.url}/api/v2/alerts", json=body, timeout=5).raise_for_status()

    def silenced_by_another(self) -> set[str]:
        """Return the alerts that an inhibition silences now."""
        answer = requests.get(f"{self.url}/api/v2/alerts", timeout=5).json()
        return {listed["labels"]["alertname"] for listed in answer if listed["status"]["inhibitedBy"]}


@pytest.fixture
def everyone(tmp_path: Path) -> Iterator[list[Running]]:
    """Every Alertmanager that is here, side by side, their times 360 times shorter."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(running(binary, tmp_path / str(number)))
            for number, binary in enumerate(alertmanagers())
        ]


@contextmanager
def running(binary: Path, directory: Path, theirs: str = "") -> Iterator[Running]:
    """One Alertmanager with the demo's configuration, or with a configuration of others to which ours is added."""
    (port,) = free_ports(1)
    with webhook() as (inbox, url):
        options = Options(time_scale=1 / 360, scrape_interval_seconds=1.0, webhook_url=url)
        write(alertmanager.artifacts(options), directory)
        if theirs:
            fragment = yaml.safe_load((directory / "alertmanager" / alertmanager.FRAGMENT).read_text())
            whole = appended(yaml.safe_load(theirs.replace("URL", url)), fragment)
            (directory / "alertmanager" / alertmanager.FILE).write_text(yaml.safe_dump(whole))
        command = [
            binary,
            f"--config.file={directory / 'alertmanager' / alertmanager.FILE}",
            f"--storage.path={directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--cluster.listen-address=",
        ]
        address = f"http://127.0.0.1:{port}"
        with started(command, f"{address}/-/ready", directory / "log"):
            yield Running(address, inbox)


def appended(theirs: dict[str, Any], fragment: dict[str, Any]) -> dict[str, Any]:
    """Do what the head of the fragment says: its lists to theirs, its route before theirs."""
    theirs["route"]["routes"] = fragment.pop("route")["routes"] + theirs["route"]["routes"]
    return theirs | {name: theirs.get(name, []) + ours for name, ours in fragment.items()}


def alert(name: str, **labels: str) -> dict[str, str]:
    """Return the labels with which an alert of the catalogue fires."""
    return {"alertname": name, **rules.labels(BY_NAME[name]), **labels}


def burn(tier: str) -> dict[str, str]:
    """Return the labels with which the readiness budget's burn alert fires."""
    severity = "critical" if tier.startswith("page") else "warning"
    return {**BURN, "tier": tier, "urgency": str(1 + TIERS.index(tier)), "severity": severity}


def test_a_server_that_is_down_silences_its_consequences(everyone: list[Running]) -> None:
    """Six alerts about one dead server make one ticket; when it is back, one notification reports it."""
    consequences = [
        alert("TritonModelNotReadyProlonged", **SERVER, model="ranker", version="1"),
        alert("TritonModelNotReadyProlonged", **SERVER, model="embedder", version="1"),
        alert("TritonModelLoadFailed", **SERVER, model="ranker"),
        alert("TritonQueueBacklog", **SERVER, model="ranker", version="1"),
        alert("TritonServerNotReady", **SERVER),
    ]
    elsewhere = alert("TritonModelNotReadyProlonged", instance="gpu-2:9095", model="ranker", version="1")
    down = alert("TritonServerDown", **SERVER)

    for member in everyone:
        member.send([down, *consequences, elsewhere])
    for member in everyone:
        member.inbox.wait(lambda member=member: len(member.inbox.notified(BRIDGE)) == 2)
    # Three more group intervals: nothing else comes.
    time.sleep(3.0)

    for member in everyone:
        notified = sorted(member.inbox.notified(BRIDGE), key=str)
        assert [{"TritonModelNotReadyProlonged"}, {"TritonServerDown"}] == notified
        assert {alert["alertname"] for alert in consequences} == member.silenced_by_another()
        member.send([down, *consequences], ended=True)
    for member in everyone:
        member.inbox.wait(
            lambda member=member: any(
                "TritonServerDown" in notified for notified in member.inbox.notified(BRIDGE, "resolved")
            )
        )


def test_a_ticket_about_a_server_does_not_silence_a_page(everyone: list[Running]) -> None:
    """A model that hangs on a server whose exporter is down pages all the same."""
    tickets = [alert("TritonExporterDown", **SERVER), alert("TritonServerDown", **SERVER)]
    pages = [
        alert("TritonMostServersDown", **SERVER),
        alert("TritonModelStalled", **SERVER, model="ranker", version="1"),
    ]

    for member in everyone:
        member.send([*tickets, *pages])
    for member in everyone:
        member.inbox.wait(lambda member=member: len(member.inbox.notified(BRIDGE)) == 2)

        notified = sorted(map(sorted, member.inbox.notified(BRIDGE)))
        assert [["TritonExporterDown", "TritonMostServersDown"], ["TritonModelStalled"]] == notified
        assert {"TritonServerDown"} == member.silenced_by_another()


def test_one_incident_of_a_model_makes_one_notification(everyone: list[Running]) -> None:
    """Ready on no server and a burning budget are one page, of the fastest tier."""
    incident = [
        alert("TritonModelDownEverywhere", model="ranker"),
        alert("TritonModelNotReadyProlonged", **SERVER, model="ranker", version="1"),
        alert("TritonModelNotReadyProlonged", instance="gpu-2:9095", model="ranker", version="1"),
        alert("TritonExpectedModelMissing", **SERVER, model="ranker", version="1"),
        *map(burn, TIERS),
    ]

    for member in everyone:
        member.send(incident)
    for member in everyone:
        member.inbox.wait(lambda member=member: member.inbox.notified(BRIDGE))
    time.sleep(3.0)

    for member in everyone:
        assert [{"TritonModelDownEverywhere", "TritonReadinessBudgetBurn"}] == member.inbox.notified(BRIDGE)
        assert 2 == len(member.inbox.notifications[0]["alerts"])  # type: ignore[arg-type]


CUSTOM_TIERS = """\
name: errors
target: 99%
window: 30d
indicator: errors
alerting:
  tiers:
    - {name: later, severity: warning, long: 1d, short: 2h, budget: 10%}
    - {name: soon, severity: critical, long: 6h, short: 30m, budget: 5%}
    - {name: now, severity: critical, long: 1h, short: 5m, budget: 2%}
    - {name: page_early, severity: critical, long: 1d, short: 1h, burn: 2}
  severities: {page_early: warning}
"""


def test_of_custom_tiers_the_most_urgent_one_alerts(everyone: list[Running]) -> None:
    """For any names of the tiers, one incident of an objective is one alert, and a ticket silences no page."""
    reading = read([("errors.yaml", CUSTOM_TIERS)])
    (rule_file,) = (
        artifact
        for artifact in slo_artifacts(reading.objectives, Options())
        if artifact.name == "slo-errors.yml"
    )
    burning = [
        {"alertname": rule["alert"], **rule["labels"], "model": "ranker", "version": "1"}
        for group in yaml.safe_load(rule_file.text)["groups"]
        for rule in group["rules"]
        if rule.get("alert") == "TritonErrorsBudgetBurn"
    ]
    assert {"later", "soon", "now", "page_early"} == {labels["tier"] for labels in burning}

    for member in everyone:
        member.send(burning)
    for member in everyone:
        member.inbox.wait(lambda member=member: member.inbox.notified(BRIDGE))
    time.sleep(3.0)

    for member in everyone:
        sent = [alert for notified in member.inbox.notifications for alert in notified["alerts"]]  # type: ignore[attr-defined]
        assert {"now"} == {alert["labels"]["tier"] for alert in sent}


def test_a_load_failure_that_becomes_a_page_stays_in_its_group(everyone: list[Running]) -> None:
    """One route for both severities: the page joins the ticket, and both end together."""
    failed = alert("TritonModelLoadFailed", **SERVER, model="ranker")
    down = alert("TritonModelDownEverywhere", model="ranker")

    for member in everyone:
        member.send([failed])
    for member in everyone:
        member.inbox.wait(lambda member=member: member.inbox.notified(BRIDGE))
        member.send([failed, down])
    for member in everyone:
        member.inbox.wait(lambda member=member: len(member.inbox.notified(BRIDGE)) == 2)
        member.send([failed, down], ended=True)
    for member in everyone:
        member.inbox.wait(lambda member=member: member.inbox.notified(BRIDGE, "resolved"))

        assert {"TritonModelLoadFailed", "TritonModelDownEverywhere"} == member.inbox.notified(BRIDGE)[1]
        assert 1 == len({notified["groupKey"] for notified in member.inbox.notifications})


def test_a_model_that_does_not_load_silences_its_server(everyone: list[Running]) -> None:
    """With strict readiness one failed model makes the whole server not ready: that is not a second cause."""
    for member in everyone:
        member.send(
            [
                alert("TritonModelLoadFailed", **SERVER, model="ranker"),
                alert("TritonServerNotReady", **SERVER),
            ]
        )
    for member in everyone:
        member.inbox.wait(lambda member=member: member.inbox.notified(BRIDGE))
    time.sleep(1.0)

    for member in everyone:
        assert [{"TritonModelLoadFailed"}] == member.inbox.notified(BRIDGE)
        assert {"TritonServerNotReady"} == member.silenced_by_another()


def test_the_watchdog_keeps_pinging_and_info_stays_silent(everyone: list[Running]) -> None:
    """One heartbeat in every interval, and no notification of alerts that are for dashboards only."""
    for member in everyone:
        member.send([alert("Watchdog"), alert("GpuPowerThrottling", **SERVER, gpu_uuid="GPU-5a1e")])
    for member in everyone:
        member.inbox.wait(lambda member=member: len(member.inbox.notified("tritonwatch-watchdog")) >= 3)

        assert {"tritonwatch-watchdog"} == {notified["receiver"] for notified in member.inbox.notifications}


THEIRS = """
route:
  receiver: theirs
  group_by: [alertname]
  group_wait: 1s
  group_interval: 1s
  routes:
  - receiver: theirs-pages
    matchers: [severity="critical"]
receivers:
- {name: theirs, webhook_configs: [{url: URL}]}
- {name: theirs-pages, webhook_configs: [{url: URL}]}
- {name: watchdog}
inhibit_rules:
- source_matchers: [severity="critical"]
  target_matchers: [severity=~"warning|info", stack!="tritonwatch"]
  equal: [alertname, namespace]
"""
"""The configuration of an Alertmanager that routed the alerts of others before ours came."""


@pytest.mark.parametrize("binary", newest(alertmanagers()), ids=str)
def test_alerts_of_others_keep_their_receivers_beside_ours(binary: Path, tmp_path: Path) -> None:
    """With the fragment added, theirs go where they went, whatever labels they share with ours, and ours to us."""
    others = [
        {"alertname": "NodeDown", "severity": "critical", "instance": "gpu-1:9095"},
        {"alertname": "Watchdog", "severity": "none"},
        {"alertname": "TritonServerNotReady", "severity": "warning", **SERVER},
        {
            "alertname": "CheckoutBurns",
            **{name: BURN[name] for name in ("component", "slo", "indicator", "model", "version")},
            "severity": "warning",
            "tier": "x",
            "urgency": "5",
        },
    ]
    ours = [
        alert("TritonAllServersDown"),
        alert("TritonServerDown", **SERVER),
        alert("TritonServerNotReady", **SERVER),
        alert("Watchdog"),
        burn("page_fast"),
    ]
    with running(binary, tmp_path, THEIRS) as beside:
        beside.send([*others, *ours])
        beside.inbox.wait(lambda: len(beside.inbox.notified("theirs")) == 3)
        beside.inbox.wait(lambda: beside.inbox.notified("theirs-pages"))
        beside.inbox.wait(lambda: beside.inbox.notified("tritonwatch-watchdog"))
        beside.inbox.wait(lambda: {"TritonAllServersDown"} in beside.inbox.notified(BRIDGE))
        time.sleep(3.0)  # three more group intervals: nothing else comes

        received = {
            (notification["receiver"], sent["labels"]["alertname"], sent["labels"].get("stack"))
            for notification in beside.inbox.notifications
            for sent in notification["alerts"]  # type: ignore[attr-defined]
        }
    assert {
        ("theirs-pages", "NodeDown", None),
        ("theirs", "Watchdog", None),
        ("theirs", "TritonServerNotReady", None),
        ("theirs", "CheckoutBurns", None),
        (BRIDGE, "TritonAllServersDown", "tritonwatch"),
        ("tritonwatch-watchdog", "Watchdog", "tritonwatch"),
    } == {entry for entry in received if entry[1] != "TritonServerDown"}


@pytest.mark.parametrize("binary", newest(alertmanagers()), ids=str)
def test_the_fragment_inhibits_what_the_whole_configuration_inhibits(binary: Path, tmp_path: Path) -> None:
    """Every alert of ours at once, on one server, model and GPU: the same ones stay silent in both."""
    labels = {**SERVER, "model": "ranker", "version": "1", "gpu_uuid": "GPU-5a1e"}
    every = [
        alert(one.name, **{label: labels[label] for label in one.labels if label in labels}) for one in ALERTS
    ]
    with running(binary, tmp_path / "whole") as whole, running(binary, tmp_path / "beside", THEIRS) as beside:
        for member in (whole, beside):
            member.send([*every, *map(burn, TIERS)])
            member.inbox.wait(lambda member=member: member.inbox.notified(BRIDGE))

        assert whole.silenced_by_another() == beside.silenced_by_another()
        assert 10 < len(whole.silenced_by_another()) < len(every)


@pytest.mark.parametrize("binary", newest(alertmanagers()), ids=str)
@pytest.mark.parametrize("theirs", ["", THEIRS], ids=["whole", "fragment"])
def test_what_is_loaded_of_the_generated_configuration_is_seen(
    binary: Path, theirs: str, tmp_path: Path
) -> None:
    """Alertmanager shows it in its own form; one list that was not copied again makes a difference."""
    with running(binary, tmp_path, theirs) as server:
        loaded = Alertmanager(Access(server.url)).configuration()
    options = Options(time_scale=1 / 360, scrape_interval_seconds=1.0)
    same = alertmanager.artifacts(options)[0].text

    assert alertmanager.contains(loaded, same)
    for other in (
        replace(options, time_scale=1 / 60),
        replace(options, watchdog_url="https://example.org/watchdog", page_to=("https://example.org/page",)),
    ):
        assert not alertmanager.contains(loaded, alertmanager.artifacts(other)[0].text)
    fewer = yaml.safe_load(loaded)
    fewer["inhibit_rules"] = [
        rule for rule in fewer["inhibit_rules"] if "TritonAllServersDown" not in str(rule)
    ]
    assert not alertmanager.contains(yaml.safe_dump(fewer), same)

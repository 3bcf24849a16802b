"""Test Prometheus, Alertmanager and the bridge as real processes that are killed, with a stand-in for Slack."""

from __future__ import annotations

import functools
import json
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import requests

from support.bridge import body_of
from support.loopback import Handler, answering, free_ports
from support.slack.server import SlackServer
from support.slack.workspace import APP_TOKEN, TOKEN, Posted, Workspace
from support.thorough import THOROUGH
from support.tools import alertmanagers, newest, prometheuses
from support.waiting import eventually

_MOVED = """\
import sys, time
real, ahead = time.time, float(sys.argv.pop(1))
time.time = lambda: real() + ahead
from tritonwatch.cli import main
sys.exit(main(sys.argv[1:]))
"""
"""The command line with another clock."""
KILLS = 20 if THOROUGH else 2


@dataclass
class Process:
    """A program that this test started; killed by its number at the end."""

    command: list[str]
    log: Path
    running: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def start(self) -> Process:
        with self.log.open("ab") as log:
            self.running = subprocess.Popen(self.command, stdout=log, stderr=subprocess.STDOUT)
        return self

    def end(self, number: int = signal.SIGKILL) -> int:
        assert self.running is not None
        self.running.send_signal(number)
        return self.running.wait(180)


@dataclass
class Stack:
    """Where everything is, and what was started."""

    folder: Path
    slack: SlackServer
    port: int
    arguments: list[str] = field(default_factory=list)
    started: list[Process] = field(default_factory=list)

    def run(self, name: str, *command: object) -> Process:
        process = Process([str(word) for word in command], self.folder / f"{name}.log").start()
        self.started.append(process)
        return process

    def named(self, name: str) -> Process:
        """Return the process that writes this log."""
        return next(process for process in self.started if process.log.stem == name)

    def bridge(self, at: str = "") -> Process:
        """Start one, with its clock at a time in UTC if one is given."""
        program = ["-m", "tritonwatch"]
        if at:
            ahead = datetime.fromisoformat(at).replace(tzinfo=UTC).timestamp() - time.time()
            program = ["-c", _MOVED, str(ahead)]
        (self.folder / "bot").write_text(TOKEN)
        (self.folder / "app").write_text(APP_TOKEN)
        process = self.run(
            "bridge",
            *(sys.executable, *program, "bridge", f"--listen=127.0.0.1:{self.port}"),
            *(f"--data={self.folder / 'data'}", f"--slack-token-file={self.folder / 'bot'}"),
            *(f"--slack-url={self.slack.api_url}", "--channel=C0PAGES", *self.arguments),
        )
        eventually(lambda: requests.get(f"{self.url}/-/ready", timeout=2).ok, "the bridge is ready")
        return process

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def notify(self, body: bytes) -> None:
        """Send a notification as Alertmanager does: again until the response is 200."""
        eventually(
            lambda: requests.post(f"{self.url}/alertmanager", data=body, timeout=2).status_code == 200,
            "the bridge took the notification",
        )

    def thread(self, root: Posted) -> list[str]:
        return [message.text for message in self.slack.workspace.thread(root)]

    def root(self, mark: str) -> Posted:
        roots = eventually(
            lambda: [m for m in self.slack.workspace.roots() if mark in m.shown], f"a message with {mark!r}"
        )
        assert len(roots) == 1
        return roots[0]


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    with SlackServer(Workspace()) as slack:
        made = Stack(tmp_path, slack, free_ports(1)[0])
        yield made
        for process in made.started:
            if process.running is not None and process.running.poll() is None:
                process.end()


@pytest.mark.real
@pytest.mark.parametrize("binary", newest(alertmanagers()), ids=lambda path: str(path.parent.parent.name))
def test_an_incident_from_a_real_alert_to_its_end(stack: Stack, binary: Path) -> None:
    """Fires, is acknowledged, silenced and unsilenced from Slack, survives kill -9, and its end arrives."""
    am, prom, target = free_ports(3)
    stack.arguments = [
        f"--alertmanager=http://127.0.0.1:{am}",
        f"--prometheus=http://127.0.0.1:{prom}",
        f"--slack-app-token-file={stack.folder / 'app'}",
    ]
    bridge = stack.bridge()
    start_alertmanager(stack, binary, am)
    start_prometheus(stack, prom, am, target)

    root = stack.root("Target 127.0.0.1")
    assert "🔴" in root.text
    eventually(lambda: stack.slack.connected, "Socket Mode is connected")
    stack.slack.press("e1", root, "acknowledge")
    stack.slack.press("e1", root, "acknowledge")
    eventually(lambda: "👀" in root.shown and "<@U0ANA>" in root.shown, "the message shows who has it")
    stack.slack.press("e2", root, "silence", "1h")
    silence = eventually(lambda: silences(am, "active"), "Alertmanager has the silence")[0]
    assert "U0ANA" == silence["createdBy"]
    eventually(lambda: "Undo silence" in root.shown, "the message offers to undo it")
    stack.slack.press("e3", root, "unsilence")
    eventually(lambda: silences(am, "expired"), "the silence is over")
    eventually(lambda: stack.slack.workspace.files, "a chart is in the thread")
    assert root.ts == stack.slack.workspace.files[0]["thread_ts"]
    assert stack.slack.workspace.files[0]["content"].startswith(b"\x89PNG")

    bridge.end(signal.SIGKILL)
    with answering("x 1\n", target):
        time.sleep(1.5)  # the resolve meets a closed port first
        again = stack.bridge()
        eventually(lambda: "Resolved:" in root.shown, "the message says that it is over")
        eventually(lambda: "Recovered" in stack.thread(root)[-1], "the thread says so, too")
        thread = stack.thread(root)

    assert 0 == again.end(signal.SIGTERM), again.log.read_text()
    assert 1 == len(stack.slack.workspace.roots())
    assert 1 == sum("acknowledged the incident" in line for line in thread)
    audit = (stack.folder / "data" / "audit.jsonl").read_text().splitlines()
    assert ["acknowledge", "silence", "unsilence"] == [json.loads(line)["action"] for line in audit]
    assert TOKEN not in (stack.folder / "bridge.log").read_text()


@pytest.mark.real
def test_it_ends_though_a_prometheus_never_completes_its_answer(stack: Stack) -> None:
    """Each byte came in time, so the thread that read them kept the process, also after SIGTERM."""
    asked = threading.Event()

    def trickle(request: Handler) -> None:
        asked.set()
        request.send_response(200)
        request.end_headers()
        while True:
            request.wfile.write(b" ")
            time.sleep(0.5)

    with answering(trickle) as prometheus:
        stack.arguments = [f"--prometheus={prometheus}"]
        bridge = stack.bridge()
        stack.notify(body_of("a", {"a-v": 1000.0}, {}))
        assert asked.wait(60)
        assert 0 == bridge.end(signal.SIGTERM)

    assert "triton_slo/prometheus.py" in bridge.log.read_text(), "the log says where it was"


@pytest.mark.real
@pytest.mark.parametrize("binary", newest(alertmanagers()), ids=lambda path: str(path.parent.parent.name))
def test_an_incident_stays_one_message_though_another_process_is_killed(stack: Stack, binary: Path) -> None:
    """Alertmanager forgets what it sent, Prometheus since when it fires, Slack goes away: one message, one end."""
    am, prom, target = free_ports(3)
    stack.bridge()
    start_alertmanager(stack, binary, am)
    start_prometheus(stack, prom, am, target, "--rules.alert.resend-delay=5s")
    root = stack.root("Target 127.0.0.1")
    for name in (f"alertmanager-{am}", "prometheus"):
        process = stack.named(name)
        process.end(signal.SIGKILL)
        process.start()
        eventually(lambda: fires(prom) and firing(am), f"{name} is back, and the alert fires again")
    eventually(lambda: sent(am) >= 1, "the new Alertmanager has notified again")

    stack.slack.fault = lambda _method: "reset"
    with answering("x 1\n", target):
        eventually(lambda: not firing(am), "the alert is over")
        time.sleep(2.5)  # the bridge receives the end, and cannot post it to Slack
        assert "Resolved:" not in root.shown
        stack.slack.fault = lambda _method: ""
        eventually(lambda: "Resolved:" in root.shown, "the message says that it is over")

    assert 1 == len(stack.slack.workspace.roots())
    thread = [message.text for message in stack.slack.workspace.thread(root)]
    assert 1 == sum("Recovered" in line for line in thread)
    assert 0 == sum("also firing" in line for line in thread)


@pytest.mark.real
@pytest.mark.parametrize("binary", newest(alertmanagers()), ids=lambda path: str(path.parent.parent.name))
def test_the_end_of_an_alert_whose_prometheus_is_dead_is_not_called_resolved(
    stack: Stack, binary: Path
) -> None:
    """Alertmanager ends the alerts that nobody sends any more; the target is still down."""
    am, prom, target = free_ports(3)
    stack.arguments = [f"--prometheus=http://127.0.0.1:{prom}"]
    stack.bridge()
    start_alertmanager(stack, binary, am)
    start_prometheus(stack, prom, am, target, "--rules.alert.resend-delay=1s")
    root = stack.root("Target 127.0.0.1")
    prometheus = stack.named("prometheus")
    prometheus.end(signal.SIGKILL)
    eventually(lambda: "🔴" not in root.shown and len(stack.thread(root)) > 0, lambda: root.shown)
    ended, thread = root.shown, stack.thread(root)
    prometheus.start()
    eventually(
        lambda: any("🔴" in each.text for each in stack.slack.workspace.roots()),
        lambda: str([each.shown for each in stack.slack.workspace.roots()]),
    )

    silent = r"Prometheus does not answer since \d\d:\d\d UTC"
    assert "⚪ Ended, not confirmed: Target 127.0.0.1" in ended
    assert re.search(silent, ended)
    assert re.search(f"Ended, not confirmed: {silent}", thread[-1])
    assert [] == [word for word in ("🟢", "Resolved", "Recovered") if word in ended + "".join(thread)]


def fires(port: int) -> bool:
    """Whether this Prometheus has an alert that fires."""
    answer = requests.get(f"http://127.0.0.1:{port}/api/v1/alerts", timeout=2).json()["data"]["alerts"]
    return any(alert["state"] == "firing" for alert in answer)


def firing(port: int) -> list[Any]:
    """Return the alerts that this Alertmanager knows of."""
    return list(requests.get(f"http://127.0.0.1:{port}/api/v2/alerts", timeout=2).json())


@pytest.mark.real
@pytest.mark.parametrize("binary", newest(alertmanagers()), ids=lambda path: str(path.parent.parent.name))
@pytest.mark.parametrize("together", [True, False], ids=["a-cluster", "a-cluster-torn-apart"])
def test_two_alertmanagers_are_one_message(stack: Stack, binary: Path, together: bool) -> None:
    """A pair notifies on-call once, also when neither half can see the other and both notify."""
    ports = free_ports(4)
    stack.bridge()
    for port, mesh, other in ((ports[0], ports[2], ports[3]), (ports[1], ports[3], ports[2])):
        peer = [f"--cluster.peer=127.0.0.1:{other}"] if together else []
        peer += [f"--cluster.listen-address=127.0.0.1:{mesh}", "--cluster.peer-timeout=2s"]
        start_alertmanager(stack, binary, port, *peer, "--cluster.gossip-interval=50ms")
    for port in ports[:2]:
        eventually(lambda port=port: requests.get(f"http://127.0.0.1:{port}/-/ready", timeout=2).ok, "ready")
    if together:
        eventually(lambda: peers(ports[0]) == peers(ports[1]) == 2, "the two know each other")

    begun = datetime.now(UTC)
    alert = {
        "labels": {"alertname": "TargetDown", "severity": "critical", "instance": "a:1"},
        "annotations": {"summary": "Target a:1 is down"},
        "startsAt": begun.isoformat(),
        "endsAt": (begun + timedelta(hours=1)).isoformat(),
    }
    for port in ports[:2]:
        send_alert(port, alert)
    root = stack.root("Target a:1")
    if not together:
        eventually(lambda: min(sent(port) for port in ports[:2]) >= 1, "each half has notified")
    for port in ports[:2]:
        send_alert(port, {**alert, "endsAt": datetime.now(UTC).isoformat()})
    eventually(lambda: "Resolved:" in root.shown, "the message says that it is over")
    reported = 1 if together else 2
    eventually(lambda: sum(sent(port) for port in ports[:2]) >= 2 * reported, "both notified of the end")
    time.sleep(1)  # a notification that is sent twice would arrive now

    assert 1 == len(stack.slack.workspace.roots())
    thread = [message.text for message in stack.slack.workspace.thread(root)]
    assert 1 == sum("Recovered" in line for line in thread)
    assert 0 == sum("also firing" in line for line in thread)


@pytest.mark.real
@pytest.mark.parametrize("binary", newest(alertmanagers()), ids=lambda path: str(path.parent.parent.name))
def test_the_end_of_a_group_at_one_alertmanager_leaves_what_only_its_twin_has(
    stack: Stack, binary: Path
) -> None:
    """A twin that missed an alert ends its own part of the group; the alert that it never had goes on firing."""
    first, second = free_ports(2)
    stack.bridge()
    for port in (first, second):
        start_alertmanager(stack, binary, port)
        eventually(lambda port=port: requests.get(f"http://127.0.0.1:{port}/-/ready", timeout=2).ok, "ready")
    begun = datetime.now(UTC)
    first_alert, other = (
        {
            "labels": {
                "alertname": "A",
                "instance": "a:1",
                "model": "m",
                "version": version,
                "severity": "critical",
            },
            "startsAt": begun.isoformat(),
            "endsAt": (begun + timedelta(hours=1)).isoformat(),
        }
        for version in ("one", "other")
    )
    for port, alert in ((first, first_alert), (second, first_alert), (first, other)):
        send_alert(port, alert)
        eventually(lambda port=port: sent(port) >= 1, "the notification was sent")
    root = stack.root("other")
    send_alert(second, {**first_alert, "endsAt": datetime.now(UTC).isoformat()})
    eventually(lambda: "1 firing, 1 resolved" in root.shown, "one of the two has ended")
    still = root.shown
    for alert in (first_alert, other):
        send_alert(first, {**alert, "endsAt": datetime.now(UTC).isoformat()})
    eventually(lambda: "Resolved:" in root.shown, "the other one has ended too")

    assert "Resolved:" not in still
    assert 1 == len(stack.slack.workspace.roots())


@pytest.mark.real
@pytest.mark.parametrize("binary", newest(alertmanagers()), ids=lambda path: str(path.parent.parent.name))
def test_a_ticket_that_becomes_a_page_in_its_group_pages(stack: Stack, binary: Path) -> None:
    """One route for both severities: the page gets its own message, and is escalated though the ticket was not."""
    port = free_ports(1)[0]
    stack.arguments = [
        "--channel-for=warning=C0TICKETS",
        "--escalate-after=3s",
        f"--slack-app-token-file={stack.folder / 'app'}",
    ]
    stack.bridge()
    start_alertmanager(stack, binary, port)
    eventually(lambda: requests.get(f"http://127.0.0.1:{port}/-/ready", timeout=2).ok, "ready")
    begun = datetime.now(UTC)
    ticket, page = (
        {
            "labels": {"alertname": "A", "instance": "a:1", "model": "m", "severity": severity},
            "startsAt": begun.isoformat(),
            "endsAt": (begun + timedelta(hours=1)).isoformat(),
        }
        for severity in ("warning", "critical")
    )
    send_alert(port, ticket)
    root = stack.root("· ticket ·")
    eventually(lambda: stack.slack.connected, "Socket Mode is connected")
    stack.slack.press("e1", root, "acknowledge")
    eventually(lambda: "<@U0ANA>" in root.shown, "the message shows who has it")
    send_alert(port, page)

    pages = eventually(lambda: stack.slack.workspace.roots("C0PAGES"), "a message in the channel of pages")
    eventually(lambda: len(stack.slack.workspace.roots("C0PAGES")) == 2, "the escalation")
    assert "C0TICKETS" == root.channel
    assert "· page ·" in pages[0].shown
    assert "*not acknowledged*" in pages[0].shown_over_time[0]
    assert "|earlier ticket>" in pages[0].shown
    assert [] == [message for message in stack.slack.workspace.messages if message.broadcast]
    assert "Nobody has acknowledged this" in stack.slack.workspace.roots("C0PAGES")[1].text


@pytest.mark.real
@pytest.mark.parametrize("binary", newest(alertmanagers()), ids=lambda path: str(path.parent.parent.name))
def test_one_cause_is_one_thread_for_any_routes(stack: Stack, binary: Path) -> None:
    """Tickets and pages have routes, groups and intervals of their own; the model has one message and one end."""
    port = free_ports(1)[0]
    stack.arguments = ["--mention=S0ONCALL"]
    stack.bridge()
    start_alertmanager(stack, binary, port, routes=TWO_ROUTES)
    eventually(lambda: requests.get(f"http://127.0.0.1:{port}/-/ready", timeout=2).ok, "ready")
    begun = datetime.now(UTC)
    failed, down, burning = (
        {
            "labels": {"alertname": name, "model": "broken", "severity": severity, **labels},
            "annotations": {"summary": summary},
            "startsAt": begun.isoformat(),
            "endsAt": (begun + timedelta(hours=1)).isoformat(),
        }
        for name, severity, summary, labels in (
            ("TritonModelLoadFailed", "warning", "Model broken failed to load", {"instance": "t:1"}),
            ("TritonModelDownEverywhere", "critical", "No server serves model broken", {}),
            ("TritonReadinessBudgetBurn", "critical", "broken burns its budget", {"slo": "readiness"}),
        )
    )
    send_alert(port, failed)
    root = stack.root("Model broken failed to load")
    ticket = root.shown
    send_alert(port, down)
    send_alert(port, burning)
    eventually(lambda: "broken burns its budget" in root.shown, "the message shows the page")
    page = root.shown
    for alert in (down, burning, failed):
        send_alert(port, {**alert, "endsAt": datetime.now(UTC).isoformat()})
        time.sleep(1.2)  # an interval of each group
    eventually(lambda: any("Recovered" in line for line in stack.thread(root)), "the end")
    time.sleep(1)  # a notification that is sent twice would arrive now

    assert [root] == stack.slack.workspace.roots()
    assert ["· ticket ·" in ticket, "· page ·" in page] == [True, True]
    raised = [message.text for message in stack.slack.workspace.messages if message.broadcast]
    assert ["🔴 *The incident is now a page* <!subteam^S0ONCALL>" in text for text in raised] == [True]
    assert "Model broken failed to load" in json.loads(page)[0]["text"]["text"]
    assert 1 == sum("Recovered" in line for line in stack.thread(root))


def send_alert(port: int, alert: dict[str, Any]) -> None:
    """Send an alert to Alertmanager as Prometheus does."""
    requests.post(f"http://127.0.0.1:{port}/api/v2/alerts", json=[alert], timeout=5).raise_for_status()


def peers(port: int) -> int:
    return len(requests.get(f"http://127.0.0.1:{port}/api/v2/status", timeout=2).json()["cluster"]["peers"])


def sent(port: int) -> int:
    """Notifications that this Alertmanager has sent to the bridge."""
    page = requests.get(f"http://127.0.0.1:{port}/metrics", timeout=2).text
    counts = re.findall(
        r'^alertmanager_notifications_total\{[^}]*integration="webhook"[^}]*\} (\S+)$', page, re.M
    )
    return int(sum(float(count) for count in counts))


def silences(port: int, state: str) -> list[dict[str, Any]]:
    answer = requests.get(f"http://127.0.0.1:{port}/api/v2/silences", timeout=2)
    return [silence for silence in answer.json() if silence["status"]["state"] == state]


ONE_ROUTE = "  {receiver: bridge, group_by: [alertname, instance], group_wait: 0s, group_interval: 1s}"
TWO_ROUTES = """\
  receiver: bridge
  group_by: [model]
  group_wait: 0s
  group_interval: 1s
  routes:
  - {receiver: page, matchers: ['severity="critical"']}
  - {receiver: bridge, matchers: ['severity="warning"']}"""


def start_alertmanager(stack: Stack, binary: Path, port: int, *more: str, routes: str = ONE_ROUTE) -> None:
    """Start one Alertmanager; if `more` names a peer, it waits for that peer before it notifies."""
    config = stack.folder / "alertmanager.yml"
    config.write_text(
        f"route:\n{routes}\nreceivers:\n"
        + "".join(
            f"- name: {name}\n  webhook_configs:\n  - url: {stack.url}/alertmanager\n"
            for name in ("bridge", "page")
        )
    )
    stack.run(
        f"alertmanager-{port}",
        *(binary, f"--config.file={config}", f"--storage.path={stack.folder / f'am-{port}'}"),
        *(f"--web.listen-address=127.0.0.1:{port}", *(more or ["--cluster.listen-address="])),
    )


def start_prometheus(stack: Stack, port: int, alertmanager: int, target: int, *more: str) -> None:
    (stack.folder / "rules.yml").write_text(
        "groups:\n- name: g\n  rules:\n  - alert: TargetDown\n    expr: up{job='t'} == 0\n"
        "    labels: {severity: critical}\n"
        "    annotations: {summary: 'Target {{ $labels.instance }} is down'}\n"
        # What the chart draws; outside this test it comes from the exporter.
        "  - record: triton_server_ready\n    expr: up{job='t'}\n"
    )
    config = stack.folder / "prometheus.yml"
    config.write_text(
        "global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [rules.yml]\n"
        f"alerting: {{alertmanagers: [{{static_configs: [{{targets: ['127.0.0.1:{alertmanager}']}}]}}]}}\n"
        "scrape_configs:\n- job_name: t\n"
        f"  static_configs: [{{targets: ['127.0.0.1:{target}']}}]\n"
    )
    stack.run(
        "prometheus",
        *(prometheuses()[0], f"--config.file={config}", f"--storage.tsdb.path={stack.folder / 'tsdb'}"),
        *(f"--web.listen-address=127.0.0.1:{port}", *more),
    )


@pytest.mark.real
def test_another_channel_gets_the_pages_that_wait(stack: Stack) -> None:
    """The channel is archived; the bridge is started again with another one."""
    stack.slack.workspace.archived.add("C0PAGES")
    first = stack.bridge()
    stack.notify(body_of("a", {"a-v": 1000.0}, {}))
    eventually(lambda: "root refused: setup: is_archived" in first.log.read_text(), first.log.read_text)
    assert 0 == first.end(signal.SIGTERM)
    stack.arguments = ["--channel=C0TICKETS"]
    stack.bridge()

    assert "C0TICKETS" == stack.root("a-v").channel
    assert (
        "triton_alert_bridge_undelivered_incidents 0.0"
        in requests.get(f"{stack.url}/metrics", timeout=5).text
    )


@pytest.mark.real
def test_kill_nine_at_random_points_loses_nothing(stack: Stack) -> None:
    """A real process is killed at random moments while Slack fails: all arrives, at most one double a kill."""
    rng = random.Random(7)
    faults = ("", "", "", "500", "reset_done", "429", "fatal_error")
    stack.slack.fault = lambda _method: rng.choice(faults)
    bridge = stack.bridge()
    names = [f"g{number}" for number in range(KILLS + 2)]
    for number, name in enumerate(names):
        stack.notify(body_of(name, {f"{name}-m": 1000.0}, {}))
        if number < KILLS:
            time.sleep(rng.uniform(0, 1.2))
            bridge.end(signal.SIGKILL)
            bridge = stack.bridge()
        stack.notify(body_of(name, {}, {f"{name}-m": (1000.0, 1100.0)}))
    stack.slack.fault = lambda _method: ""

    reported = functools.partial(all_posted, stack.slack.workspace, names)
    eventually(reported, "every opening and every end")
    assert 0 == bridge.end(signal.SIGTERM)
    posted = Counter(message.name for message in stack.slack.workspace.messages)
    assert sum(count - 1 for count in posted.values()) <= KILLS


def all_posted(workspace: Workspace, names: list[str]) -> bool:
    roots = workspace.roots()
    return all(
        any(f"{name}-m" in root.shown and "Resolved:" in root.shown for root in roots) for name in names
    )

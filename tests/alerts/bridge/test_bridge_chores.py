"""Test the bridge's buttons, escalation, silences and watchdog in simulated time, with a small Alertmanager."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.bridge import CHANNEL, BridgeUnderTest, body_of, trail
from support.loopback import Handler, HttpServer, served
from support.slack.server import SlackServer
from support.slack.workspace import APP_TOKEN, Posted, Workspace
from support.waiting import eventually
from triton_alerts.alertmanager_client import Alertmanager
from triton_alerts.bridge.alertmanagers import Alertmanagers, Reconciler
from triton_alerts.bridge.buttons import RECONNECT_SECONDS, Actions, ButtonPress, Socket, button_presses
from triton_alerts.bridge.deliver.chart import Charts
from triton_alerts.bridge.deliver.worker import DeliveryOptions, Escalation
from triton_alerts.bridge.incidents.audit import Audit
from triton_alerts.bridge.incidents.store import Store
from triton_alerts.bridge.receiver import HEARTBEAT_VALUE
from triton_alerts.bridge.service import Escalator, HeartbeatWatch
from triton_alerts.bridge.settings import SLACK_API
from triton_slo.prometheus import Prometheus, PrometheusError, Series
from triton_slo.server_access import Access


class _Api(Handler):
    """The Alertmanager API that the chores call; test_bridge_real calls a real one."""

    server: FakeAlertmanager

    def do_GET(self) -> None:
        if self.path.endswith("/status"):
            self._answer({"uptime": "2023-01-01T00:00:00Z"})
        elif self.path.endswith("/silences"):
            self._answer(list(self.server.in_force.values()))
        else:
            self._answer(
                [
                    {
                        "fingerprint": name,
                        "startsAt": datetime.fromtimestamp(start, UTC).isoformat(),
                        "labels": {},
                        "annotations": {},
                    }
                    for name, start in self.server.firing.items()
                ]
            )

    def do_POST(self) -> None:
        body = json.loads(self.body())
        self.server.silences.append(body)
        number = body.get("id") or f"s{len(self.server.silences)}"
        self.server.in_force[number] = {**body, "id": number, "status": {"state": "active"}}
        self._answer({"silenceID": number})

    def do_DELETE(self) -> None:
        number = self.path.rpartition("/")[2]
        self.server.ended.append(number)
        del self.server.in_force[number]
        self._answer({})

    def _answer(self, body: Any) -> None:
        self.reply(body if self.server.answer is None else self.server.answer)


class FakeAlertmanager(HttpServer):
    def __init__(self) -> None:
        self.firing: dict[str, float] = {}
        self.silences: list[dict[str, Any]] = []
        self.in_force: dict[str, dict[str, Any]] = {}
        self.ended: list[str] = []
        self.answer: Any = None  # instead of every other one
        super().__init__(_Api)


class Bridge(BridgeUnderTest):
    """A bridge whose Alertmanager is a small server that lists the firing alerts."""

    def __init__(self, folder: Path, alertmanager: FakeAlertmanager) -> None:
        self.alertmanager = alertmanager
        options = DeliveryOptions(escalation=Escalation(900, mention="<!subteam^S0ONCALL>"))
        super().__init__(folder, options=options, alertmanagers=(Alertmanager(Access(alertmanager.url)),))

    def fire(self, firing: dict[str, float], ended: dict[str, tuple[float, float]] | None = None) -> None:
        """Alerts fire and end, and the bridge is notified."""
        self.alertmanager.firing = dict(firing)
        self.notify(firing, ended)


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[Bridge]:
    with served(FakeAlertmanager()) as alertmanager:
        made = Bridge(tmp_path, alertmanager)
        yield made
        made.close()


def away(store: Store) -> Alertmanagers:
    """Return an Alertmanager at an address where nothing listens."""
    return Alertmanagers((Alertmanager(Access("http://127.0.0.1:9")),), store)


def test_a_page_nobody_takes_is_escalated_once(bridge: Bridge) -> None:
    """After the set time one more message goes out, with a mention and the way to the thread."""
    bridge.fire({"a": bridge.clock()})
    bridge.send()
    escalate = Escalator(bridge.store, bridge.options.escalation, lambda _: CHANNEL, lambda: None)
    for _ in range(40):
        bridge.clock.now += 60
        escalate(bridge.clock())
        bridge.send()

    called = [m for m in bridge.workspace.roots() if "<!subteam^S0ONCALL>" in m.shown]
    assert 1 == len(called)
    assert "archives/C0PAGES" in called[0].shown
    assert 1 == sum(
        "escalated: nobody has acknowledged the page for 15m" in m.text for m in bridge.workspace.messages
    )


class SlowPrometheus(Prometheus):
    """Gives no answer in time to its first questions, then nothing, then a series to each."""

    def __init__(self, timeouts: int) -> None:
        super().__init__(Access("http://unused"))
        self.timeouts = timeouts

    def range(self, query: str, start: float, end: float, step_seconds: float) -> tuple[Series, ...]:
        self.timeouts -= 1
        if self.timeouts >= 0:
            raise PrometheusError("no answer in time")
        if self.timeouts == -1:
            return ()
        return (Series({}, (start, end), (0.0, 1.0)),)


@pytest.mark.parametrize(("timeouts", "charts"), [(0, 1), (3, 1), (1000, 0)])
def test_a_slow_prometheus_delays_the_one_chart_of_an_incident(
    bridge: Bridge, timeouts: int, charts: int
) -> None:
    """Prometheus is queried again for a minute; a chart that was sent is not sent again."""
    bridge.fire({"a": bridge.clock()})
    bridge.send()
    sent: list[str] = []
    failed: list[bool] = []
    draw = Charts(
        bridge.store,
        SlowPrometheus(timeouts),
        lambda _channel, _thread, name, _png, _title: sent.append(name),
        lambda _event, _kind: None,
        lambda: failed.append(True),
    )
    for _ in range(200):
        bridge.clock.now += 1
        draw(bridge.clock())

    assert (charts, 1 - charts) == (len(sent), len(failed))
    assert [] == bridge.store.outbox.without_chart(3)


def test_the_message_of_an_escalation_shows_the_end(bridge: Bridge) -> None:
    """Its readers may see no other message of the incident; an incident that has ended is not escalated."""
    start = bridge.clock()
    escalate = Escalator(bridge.store, bridge.options.escalation, lambda _: CHANNEL, lambda: None)
    bridge.fire({"a": start})
    bridge.send()
    bridge.clock.now += 901
    escalate(bridge.clock())
    bridge.send()
    before = bridge.workspace.roots()[-1].shown
    bridge.fire({}, {"a": (start, bridge.clock())})
    bridge.send()
    after = bridge.workspace.roots()[-1].shown

    assert [True, False] == ["firing since" in shown for shown in (before, after)]
    assert [True, False] == ["<!subteam^S0ONCALL>" in shown for shown in (before, after)]
    assert "Resolved" in after


@pytest.mark.parametrize("action", ["acknowledge", "silence"])
def test_a_page_that_somebody_has_is_not_escalated(bridge: Bridge, action: str) -> None:
    """Acknowledging or silencing is an answer."""
    bridge.fire({"a": bridge.clock()})
    bridge.press(action, "1h")
    bridge.clock.now += 3000
    Escalator(bridge.store, bridge.options.escalation, lambda _: CHANNEL, lambda: None)(bridge.clock())

    assert bridge.incident().escalated_at is None


def test_a_press_delivered_twice_counts_once(bridge: Bridge) -> None:
    """Slack sends an event again when its answer was late."""
    bridge.fire({"a": bridge.clock()})
    bridge.press("silence", "4h", key="twice")
    bridge.press("silence", "4h", key="twice")

    assert 1 == len(bridge.alertmanager.silences)
    assert [("U0ANA", "silence")] == [(e["who"], e["action"]) for e in trail(bridge.audit)]


def test_a_silence_matches_the_incident_and_names_its_maker(bridge: Bridge) -> None:
    """The silence matches only the incident's alerts, for the chosen time only."""
    bridge.fire({"a": bridge.clock()})
    bridge.press("silence", "4h")
    made = bridge.alertmanager.silences[0]

    assert [("alertname", "g0"), ("severity", "critical"), ("model", "g0"), ("version", "a")] == [
        (matcher["name"], matcher["value"]) for matcher in made["matchers"]
    ]
    assert "U0ANA" == made["createdBy"]
    silence = bridge.incident().silence
    assert silence is not None
    assert bridge.clock() + 4 * 3600 == silence.until


def test_a_hostile_model_name_stays_text_in_the_answer_to_a_silence(bridge: Bridge) -> None:
    """The answer quotes what the silence matches, and Slack reads mentions and links in it."""
    bridge.fire({"<!channel> <http://evil.example|x>": bridge.clock()})
    line = bridge.press("silence", "1h")

    assert line.startswith("Silenced until")
    assert "<" not in line


def test_until_resolved_is_renewed_and_ended(bridge: Bridge) -> None:
    """The silence lasts as long as the incident, and expires even if the bridge is gone."""
    bridge.fire({"a": bridge.clock()})
    bridge.press("silence", "resolved")
    reconcile = Reconciler(bridge.store, bridge.clients, lambda: None)
    bridge.clock.now += 50_000
    reconcile(bridge.clock())
    renewed = len(bridge.alertmanager.silences)
    bridge.alertmanager.firing = {}
    for _ in range(5):
        bridge.clock.now += 61
        reconcile(bridge.clock())

    assert 2 == renewed
    assert not bridge.incident().open
    assert ["s1"] == bridge.alertmanager.ended


def test_an_alert_that_ends_while_silenced_ends_its_incident(bridge: Bridge) -> None:
    """Alertmanager sends nothing about it; the thread shows how the bridge learned of the end."""
    bridge.fire({"a": bridge.clock()})
    bridge.send()
    bridge.press("silence", "1h")
    reconcile = Reconciler(bridge.store, bridge.clients, lambda: None)
    bridge.clock.now += 61
    reconcile(bridge.clock())
    still_open = bridge.incident().open
    bridge.alertmanager.firing = {}
    for _ in range(4):
        bridge.clock.now += 61
        reconcile(bridge.clock())
    bridge.send()

    assert still_open
    assert not bridge.incident().open
    assert (
        "(Alertmanager no longer lists it)" in bridge.workspace.thread(bridge.workspace.roots()[0])[-1].shown
    )


def test_a_page_after_one_that_ended_while_silenced_pages_again(bridge: Bridge) -> None:
    """The ticket keeps the incident open; nobody acknowledged the first page, and the second is a new one."""
    began = bridge.clock()
    ticket = body_of("g0", {"t": began}, {}, "warning", group="tickets")
    bridge.receive(ticket)
    bridge.fire({"a": began})
    bridge.press("silence", "1h")
    reconcile = Reconciler(bridge.store, bridge.clients, lambda: None)
    for listed in ({"a": began, "t": began}, *5 * [{"t": began}]):
        bridge.alertmanager.firing = listed
        bridge.clock.now += 61
        reconcile(bridge.clock())
    severities = [bridge.incident().severity]
    bridge.fire({"b": bridge.clock()})
    severities.append(bridge.incident().severity)

    ended = [event for event in bridge.store.incidents.events(1, 0, 100) if event.kind == "resolved"]

    assert [("Model a failed to load",)] == [event.summaries for event in ended]
    assert ["warning", "critical"] == severities
    assert bridge.clock() == bridge.incident().released_at


def test_an_alertmanager_that_cannot_be_asked_ends_nothing(bridge: Bridge) -> None:
    """Without an answer the bridge must not conclude that nothing fires."""
    bridge.fire({"a": bridge.clock()})
    failures: list[int] = []
    reconcile = Reconciler(bridge.store, away(bridge.store), lambda: None, lambda: failures.append(1))
    for _ in range(10):
        bridge.clock.now += 61
        reconcile(bridge.clock())

    assert bridge.incident().open
    assert 10 == len(failures)


def test_a_button_that_fails_answers_the_person_who_pressed(bridge: Bridge) -> None:
    """The line names what refused; the incident stays as it was."""
    bridge.fire({"a": bridge.clock()})
    broken = Actions(bridge.store, bridge.audit, away(bridge.store), bridge.clock)
    line = broken.do(ButtonPress("x", "silence", "1h", bridge.incident().name, "U0ANA"))

    assert line.startswith(
        "Not done: Alertmanager at http://127.0.0.1:9 is not reachable: Connection refused"
    )
    assert bridge.incident().silence is None


def test_a_silence_that_a_killed_bridge_made_is_taken_over(bridge: Bridge) -> None:
    """The bridge may be killed after Alertmanager made the silence and before the incident has it."""
    bridge.fire({"a": bridge.clock()})
    bridge.press("silence", "1h")
    bridge.store.change(1, lambda before: (before.model_copy(update={"silence": None}), ()))
    bridge.press("silence", "1h", key="again")

    silence = bridge.incident().silence
    assert silence is not None
    assert [silence.id] == list(bridge.alertmanager.in_force)


def test_handing_back_starts_the_escalation_again(bridge: Bridge) -> None:
    """A page that its owner hands back has nobody: the escalation time starts again from then."""
    bridge.fire({"a": bridge.clock()})
    bridge.send()
    how = bridge.options.escalation
    escalate = Escalator(bridge.store, how, lambda _: CHANNEL, lambda: None, bridge.audit.record_escalation)
    calls = []
    for after, press in ((901, "acknowledge"), (60, "release"), (800, ""), (101, ""), (3000, "")):
        bridge.clock.now += after
        escalate(bridge.clock())
        bridge.send()
        calls.append(sum("<!subteam^S0ONCALL>" in m.shown_over_time[0] for m in bridge.workspace.roots()))
        if press:
            bridge.press(press, key=str(after))

    assert [1, 1, 1, 2, 2] == calls
    assert ["escalate", "acknowledge", "release", "escalate"] == [e["action"] for e in trail(bridge.audit)]
    assert "bridge" == trail(bridge.audit)[0]["who"]


def test_an_answer_that_is_not_alertmanagers_is_not_an_accident(bridge: Bridge) -> None:
    """Another service behind the address: the person who pressed is answered, and the trail records it."""
    bridge.fire({"a": bridge.clock()})
    bridge.alertmanager.answer = {"status": "welcome"}
    lines = [bridge.press("silence", "1h"), bridge.press("recheck")]

    assert (
        2 * [f"Not done: {bridge.clients.each[0]} does not answer /api/v2/alerts as Alertmanager does"]
        == lines
    )
    assert lines == [entry["outcome"] for entry in trail(bridge.audit)]


def test_a_trail_that_cannot_be_written_stops_no_button(bridge: Bridge) -> None:
    """A full disk: the silence is made, and the person who pressed reads that it was not recorded."""
    bridge.fire({"a": bridge.clock()})
    bridge.audit.path.mkdir()
    line = bridge.press("silence", "1h")
    bridge.audit.record_escalation(bridge.clock(), bridge.incident(), CHANNEL)

    assert line.startswith("Silenced until")
    assert line.endswith("(The audit log could not be written.)")
    assert bridge.incident().silence is not None


def test_a_watchdog_that_stops_pages_and_its_return_resolves(bridge: Bridge) -> None:
    """The bridge reports that Alertmanager's heartbeat is missing, and later that it is back."""
    watch = HeartbeatWatch(bridge.store, 600, lambda: None)
    watch(bridge.clock())
    bridge.store.values.set(HEARTBEAT_VALUE, repr(bridge.clock()))
    bridge.clock.now += 700
    watch(bridge.clock())
    bridge.send()
    opened = [root.text for root in bridge.workspace.roots()]
    reconcile = Reconciler(bridge.store, bridge.clients, lambda: None)
    for _ in range(5):
        bridge.clock.now += 61
        reconcile(bridge.clock())
    still_open = bridge.incident().open
    bridge.store.values.set(HEARTBEAT_VALUE, repr(bridge.clock()))
    watch(bridge.clock())
    bridge.send()

    assert still_open
    (text,) = opened
    assert text.startswith(
        "🔴 The Watchdog alert no longer arrives at the bridge: other alerts may not reach Slack either · "
    )
    assert bridge.workspace.roots()[0].text.startswith("🟢 Resolved")


def test_an_alert_that_is_listed_for_seconds_names_the_alertmanager_of_its_sender(bridge: Bridge) -> None:
    """What the same sender reports late, after everything has ended, ends within five minutes."""
    reconcile = Reconciler(bridge.store, bridge.clients, lambda: None)
    bridge.fire({"before": 0.0}, {"before": (0.0, 1.0)})
    began = bridge.clock()
    for second in range(330):
        bridge.clock.now = began + second
        if second == 1:
            bridge.fire({"a": began})
        if second == 20:
            bridge.fire({}, {"a": (began, began + 20)})
        if second == 30:
            bridge.fire({"late": began})
            bridge.alertmanager.firing = {}
        reconcile(bridge.clock())

    assert [] == bridge.store.incidents.open()


@pytest.mark.parametrize(
    "payload", [{}, {"actions": None}, {"actions": [{}]}, {"actions": [{"block_id": "x"}]}]
)
def test_payloads_of_others_are_not_presses(payload: dict[str, Any]) -> None:
    """Link buttons and blocks of other apps are ignored."""
    assert [] == button_presses("e", payload)


def test_a_trail_cut_short_by_a_crash_is_read_and_continued(tmp_path: Path) -> None:
    """Only the incomplete line is lost."""
    audit = Audit(tmp_path / "audit.jsonl")
    audit.write(1.0, "U1", "acknowledge", "i", "done")
    with audit.path.open("ab") as file:
        file.write(b'{"at": 2, "who"')
    audit.write(3.0, "U2", "silence", "i", "done")

    assert ["U1", "U2"] == [entry["who"] for entry in trail(audit)]


@pytest.mark.parametrize(
    ("user", "channel"), [("U0EVE", "C0ALERTS"), ("", "C0ALERTS"), ("U0ANA", "C0OTHER"), ("U0ANA", "")]
)
@pytest.mark.parametrize("action", ["acknowledge", "release", "silence", "unsilence", "recheck"])
def test_a_press_by_a_user_without_permission_changes_nothing_and_is_recorded(
    bridge: Bridge, action: str, user: str, channel: str
) -> None:
    """A user who is not allowed, or a press in another channel, is refused; the audit trail names the user."""
    bridge.fire({"a": 0})
    before = bridge.incident()
    outcomes: list[tuple[str, str]] = []
    guarded = dataclasses.replace(
        bridge.actions,
        users=frozenset({"U0ANA"}),
        channels=frozenset({"C0ALERTS"}),
        count=lambda *both: outcomes.append(both),
    )

    line = guarded.do(ButtonPress("x", action, "1h", before.name, user, channel=channel))

    assert line.startswith("Not done")
    assert before == bridge.incident()
    assert [] == bridge.alertmanager.silences + bridge.alertmanager.ended
    assert [(action, "refused")] == outcomes
    (entry,) = [json.loads(text) for text in (bridge.audit.path).read_text().splitlines()]
    assert user == entry["who"]
    assert "Acknowledged." == guarded.do(
        ButtonPress("y", "acknowledge", "", before.name, "U0ANA", channel="C0ALERTS")
    )


@pytest.mark.parametrize(
    ("action", "value", "block"),
    [
        ("silence", "99999h", ""),
        ("silence", "", ""),
        ("silence", "resolved\n", ""),
        ("escalate", "1h", ""),
        ("__class__", "1h", ""),
        ("acknowledge", "", "incident:' OR 1=1 --"),
        ("acknowledge", "", "incident:"),
        ("acknowledge", "", "incident:../../etc"),
    ],
)
def test_forged_values_of_a_button_do_nothing(bridge: Bridge, action: str, value: str, block: str) -> None:
    """Only values of the bridge's own buttons are executed; other values get an answer and have no effect."""
    bridge.fire({"a": 0})
    before = bridge.incident()
    payload = {
        "user": {"id": "U0EVE"},
        "actions": [{"block_id": block or f"incident:{before.name}", "action_id": action, "value": value}],
    }

    lines = [bridge.actions.do(press) for press in button_presses("e", payload)]

    assert 1 == len(lines)
    assert before == bridge.incident()
    assert [] == bridge.alertmanager.silences + bridge.alertmanager.ended


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=12),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["actions", "block_id", "action_id", "value", "user", "id", "channel"]), inner
            )
        ),
        max_leaves=12,
    ).filter(lambda drawn: isinstance(drawn, dict))
)
def test_any_payload_of_a_button_is_read_or_left_out(payload: dict[str, Any]) -> None:
    """A payload of any form is read as presses or as none, without an error."""
    for press in button_presses("e", payload):
        assert all(isinstance(value, str) for value in dataclasses.astuple(press))


@pytest.mark.parametrize(
    ("url", "sent"),
    [
        ("https://hooks.slack.com/actions/T0/1/2", True),
        ("https://hooks.slack-gov.com/actions/T0/1/2", True),
        ("http://127.0.0.1:1@evil.example/", False),
        ("https://hooks.slack.com@evil.example/", False),
        ("https://hooks.slack.com.evil.example/", False),
        ("https://hooks.slack.com:8443/", False),
        ("http://hooks.slack.com/", False),
        ("https://evil.example/", False),
        ("http://127.0.0.1:9096/", False),
        ("https://[", False),
        ("", False),
    ],
)
def test_a_press_is_answered_at_slack_only(url: str, sent: bool) -> None:
    """A forged event must not make the bridge send requests into the network it runs in."""
    answered: list[str] = []
    press = ButtonPress("p", "acknowledge", "", "ab12cd34", "U0ANA", response_url=url)
    buttons = Socket(lambda: "", SLACK_API, lambda _: "Acknowledged.", lambda to, _: answered.append(to))
    buttons._perform(press)
    buttons.close()

    assert ([url] if sent else []) == answered


def test_a_rotated_app_token_is_used_without_a_restart() -> None:
    """The connection is opened again with the new token; a press is carried out once."""
    workspace, token = Workspace(), [APP_TOKEN]
    pressed: list[ButtonPress] = []
    root = Posted(
        CHANNEL, "1.0", 1.0, "", [{"type": "actions", "block_id": "incident:a", "elements": [ACKNOWLEDGE]}]
    )

    def do(press: ButtonPress) -> str:
        pressed.append(press)
        return ""

    with SlackServer(workspace) as slack:
        buttons = Socket(lambda: token[0], slack.api_url, do, lambda _url, _text: None)
        buttons(100.0)
        eventually(buttons.connected, "Socket Mode is connected")
        workspace.tokens = {"xapp-next"}
        token[0] = "xapp-next"
        buttons(101.0)
        early = len(workspace.calls)
        buttons(100.0 + RECONNECT_SECONDS)
        eventually(lambda: len(slack._sockets) == 1, "the earlier connection is closed")
        buttons(200.0)
        slack.press("e1", root, "acknowledge")
        eventually(lambda: pressed, "the press arrived")
        buttons.close()

    assert [1, 2] == [early, len(workspace.calls)]
    assert ["ok", "ok"] == [error or "ok" for *_, error in workspace.calls]
    assert ["acknowledge"] == [press.action for press in pressed]


ACKNOWLEDGE = {"type": "button", "action_id": "acknowledge", "text": {"type": "plain_text", "text": "x"}}

"""Test which alerts share an incident: those with one cause, however Alertmanager grouped them."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.bridge import CHANNEL, BridgeUnderTest, rfc3339
from triton_alerts.bridge import summaries
from triton_alerts.bridge.deliver import messages
from triton_alerts.bridge.deliver.messages import Style
from triton_alerts.bridge.deliver.worker import DeliveryOptions, Escalation
from triton_alerts.bridge.evidence.facts import Enricher
from triton_alerts.bridge.incidents.history import list_incidents
from triton_alerts.bridge.incidents.incident import (
    EXPLAINED_BY_LOAD_FAILURE,
    LOAD_FAILED,
    NOT_SERVED,
    Event,
    Evidence,
    Fault,
    Incident,
    Mark,
    Silence,
    SourceFacts,
    key_of,
)
from triton_alerts.bridge.incidents.merging import judge
from triton_alerts.bridge.incidents.notification import Member
from triton_alerts.bridge.service import Escalator
from triton_alerts.catalogue import ALERTS
from triton_slo.indicators import Readiness

LOAD = {
    "alertname": "TritonModelLoadFailed",
    "severity": "warning",
    "component": "lifecycle",
    "instance": "triton-0:9401",
    "model": "broken",
}
DOWN = {
    "alertname": "TritonModelDownEverywhere",
    "severity": "critical",
    "component": "lifecycle",
    "model": "broken",
}
BURN = {
    "alertname": "TritonReadinessBudgetBurn",
    "severity": "critical",
    "component": "slo",
    "slo": "readiness",
    "indicator": "readiness",
    "tier": "page_fast",
    "urgency": "1",
    "model": "broken",
    "version": "1",
}
SLOW = BURN | {"severity": "warning", "tier": "ticket_slow", "urgency": "4"}
SERVER = {"alertname": "TritonServerNotReady", "severity": "warning", "instance": "triton-0:9401"}
SERVER_DOWN = SERVER | {"alertname": "TritonServerDown"}
QUEUE = BURN | {"alertname": "TritonQueueBudgetBurn", "slo": "queue", "indicator": "queue"}
ERRORS = BURN | {"alertname": "TritonErrorsBudgetBurn", "slo": "errors", "indicator": "errors"}
ERRORS_SLOWER = ERRORS | {"tier": "page_slow", "urgency": "2"}
ELSEWHERE = {"alertname": "PrometheusDown", "severity": "critical", "job": "prometheus"}


def over(*alerts: dict[str, str], words: str = "now within the target") -> dict[str, Fault]:
    """Return that the faults of these alerts are over."""
    return {key_of(labels): Fault(over=words) for labels in alerts}


def fails(*alerts: dict[str, str], since: float | None = None) -> dict[str, Fault]:
    return {key_of(labels): Fault(since=since) for labels in alerts}


class Bridge(BridgeUnderTest):
    """Every notification has a group of its own, as child routes make them."""

    def fire(
        self,
        *firing: dict[str, str],
        ended: tuple[dict[str, str], ...] = (),
        start: float = 0.0,
        group: str = "",
        source: str = "am-0",
    ) -> str:
        """Receive one notification; `start` is seconds from now, and alerts of a group start together."""
        began = self.clock() + start
        alerts = [_alert(labels, began, None) for labels in firing]
        alerts += [_alert(labels, began, self.clock()) for labels in ended]
        group = group or "|".join(
            (*firing, *ended)[0].get(name, "") for name in ("severity", "model", "instance")
        )
        body = {
            "status": "firing" if firing else "resolved",
            "version": "4",
            "receiver": "bridge",
            "groupKey": group,
            "alerts": alerts,
        }
        return self.receive(json.dumps(body).encode(), source)

    def incidents(self) -> list[Incident]:
        rows = self.store.database.rows("SELECT id FROM incidents ORDER BY id")
        incidents = [self.store.incidents.get(number) for (number,) in rows]
        return [incident for incident in incidents if incident is not None]

    def kinds(self, number: int) -> list[str]:
        return [event.kind for event in self.store.incidents.events(number, 0, 1000)]


def _alert(labels: dict[str, str], start: float, end: float | None) -> dict[str, Any]:
    return {
        "status": "firing" if end is None else "resolved",
        "labels": labels,
        "annotations": {"summary": f"about {labels['alertname']}"},
        "startsAt": rfc3339(start),
        "endsAt": "0001-01-01T00:00:00Z" if end is None else rfc3339(end),
    }


@pytest.fixture
def bridge(tmp_path: Path) -> Iterator[Bridge]:
    made = Bridge(tmp_path, channels={"warning": "C0TICKETS"})
    yield made
    made.close()


def test_an_alert_belongs_to_its_model_else_its_server_else_its_group(bridge: Bridge) -> None:
    """One notification may be about several incidents, where a route groups by less than the subject."""
    other = LOAD | {"model": "other"}
    clustered = LOAD | {"cluster": "east"}
    outcome = bridge.fire(LOAD, other, clustered, SERVER, ELSEWHERE, group="everything")

    assert "opened" == outcome
    assert [
        '{"model": "broken"}',
        '{"model": "other"}',
        '{"cluster": "east", "model": "broken"}',
        '{"instance": "triton-0:9401"}',
        "bridge|everything",
    ] == [incident.key for incident in bridge.incidents()]


def test_no_model_name_joins_the_incident_of_another(bridge: Bridge) -> None:
    """A model name that equals the end of another incident's key does not match that key."""
    bridge.fire(LOAD | {"cluster": "east"})
    for number, name in enumerate(('broken", "cluster": "east', 'broken"}', "east broken")):
        bridge.fire(LOAD | {"model": name}, group=str(number))

    assert 4 == len({incident.key for incident in bridge.incidents()})


def test_the_end_of_one_group_leaves_the_alerts_of_the_other(bridge: Bridge) -> None:
    """The ticket's group reports all alerts resolved; the page's group still fires."""
    bridge.fire(LOAD)
    bridge.fire(DOWN)
    bridge.clock.now += 60
    bridge.fire(ended=(LOAD,), start=-60)
    (incident,) = bridge.incidents()
    bridge.fire(ended=(DOWN,), start=-60)
    (closed,) = bridge.incidents()

    assert ["TritonModelDownEverywhere"] == [member.name for member in incident.firing]
    assert not closed.open
    assert ["fired", "raised", "resolved", "closed"] == bridge.kinds(1)


def test_all_resolved_ends_what_its_group_no_longer_lists_in_every_incident(bridge: Bridge) -> None:
    """A group of several models: its last notification lists only what ended since the one before."""
    other = LOAD | {"model": "other"}
    bridge.fire(LOAD, other, group="loads")
    bridge.fire(DOWN)
    bridge.clock.now += 60
    bridge.fire(ended=(other,), start=-60, group="loads")

    assert [["TritonModelDownEverywhere"], []] == [
        [member.name for member in incident.firing] for incident in bridge.incidents()
    ]


def test_a_late_all_resolved_ends_no_alert_that_started_since(bridge: Bridge) -> None:
    """The notification was delayed for minutes: it does not cover alerts that began after all that it lists."""
    bridge.fire(LOAD, group="loads")
    bridge.clock.now += 60
    retry = LOAD | {"instance": "triton-1:9401"}
    bridge.fire(LOAD, group="loads", start=-60)
    bridge.fire(retry, group="loads")
    bridge.clock.now -= 30
    bridge.fire(ended=(LOAD,), start=-30, group="loads")
    (incident,) = bridge.incidents()

    assert ["triton-1:9401"] == [member.labels["instance"] for member in incident.firing]


def test_an_end_of_the_incident_before_is_not_part_of_this_one(bridge: Bridge) -> None:
    """Alertmanager repeats it after a timeout, a twin sends it late: no line, no member, no earlier start."""
    bridge.fire(LOAD, group="loads")
    bridge.clock.now += 60
    bridge.fire(ended=(LOAD,), start=-60, group="loads")
    bridge.clock.now += 60
    bridge.fire(DOWN)
    began = bridge.clock()
    bridge.fire(ended=(LOAD,), start=-120, group="loads", source="am-1")
    late = bridge.fire(LOAD, start=-120, group="loads", source="am-1")
    first, second = bridge.incidents()

    assert "held" == late
    assert not first.open
    assert ["TritonModelDownEverywhere"] == [member.name for member in second.members.values()]
    assert began == second.since
    assert ["fired"] == bridge.kinds(2)


def test_tiers_of_one_objective_are_one_line(bridge: Bridge) -> None:
    """The slow ticket that the fast page followed ends some time; the audit trail knows, the thread does not."""
    bridge.fire(SLOW)
    bridge.fire(BURN)
    bridge.clock.now += 60
    bridge.fire(ended=(SLOW,), start=-60)
    bridge.fire(SLOW, start=-10)

    assert ["fired", "raised"] == bridge.kinds(1)
    assert ["TritonReadinessBudgetBurn", "TritonReadinessBudgetBurn"] == [
        name for name, _ in bridge.unreported
    ]


def test_a_slower_tier_that_outlives_the_faster_is_no_new_page(bridge: Bridge) -> None:
    """They began together; Alertmanager reports the slower one when the faster ends, minutes after the fault."""
    page_slow = BURN | {"tier": "page_slow", "urgency": "2"}
    bridge.fire(BURN)
    bridge.clock.now += 600
    bridge.fire(page_slow, ended=(BURN,), start=-600)
    bridge.clock.now += 60
    bridge.fire(SLOW, ended=(page_slow,), start=-660)
    bridge.clock.now += 600
    bridge.fire(BURN)

    assert ["fired", "resolved", "raised"] == bridge.kinds(1)


def test_an_end_that_nobody_saw_begin_goes_to_the_audit_trail(bridge: Bridge) -> None:
    """The alert was inhibited while it fired; a message that it fired and ended would help nobody at night."""
    bridge.fire(DOWN)
    bridge.fire(ended=(SERVER | {"model": "broken"},), start=-5)
    (incident,) = bridge.incidents()

    assert ["fired"] == bridge.kinds(1)
    assert 1 == len(incident.members)
    assert ["TritonServerNotReady"] == [name for name, _ in bridge.unreported]


def test_a_page_hours_after_the_last_one_pages_again(bridge: Bridge) -> None:
    """A ticket keeps the incident open for days: Monday's acknowledgement does not count for Tuesday's page."""
    bridge.fire(LOAD, start=-5)
    bridge.fire(DOWN)
    number = bridge.store.incidents.open()[0][0]
    taken = {"acknowledged": Mark(by="U0ANA", at=bridge.clock())}
    bridge.store.change(number, lambda before: (before.model_copy(update=taken), ()))
    for calm in (600, 7200):
        bridge.clock.now += 60
        bridge.fire(ended=(DOWN,), start=-60)
        bridge.clock.now += calm
        bridge.fire(DOWN)

    assert ["fired", "raised", "resolved", "fired", "resolved", "raised"] == bridge.kinds(1)
    assert bridge.incidents()[0].acknowledged is None


@pytest.mark.parametrize(
    ("alerts", "lead"),
    [
        ((BURN, LOAD), "TritonModelLoadFailed"),
        ((DOWN, LOAD), "TritonModelLoadFailed"),
        ((BURN, DOWN), "TritonModelDownEverywhere"),
        ((SLOW, BURN), "page_fast"),
        ((LOAD, DOWN | {"alertname": "TritonModelStalled"}), "TritonModelStalled"),
        # A queue that was there before the only server died.
        ((QUEUE, BURN), "TritonReadinessBudgetBurn"),
        ((LOAD | {"alertname": "TritonInstancesSaturated"}, BURN), "TritonReadinessBudgetBurn"),
        ((QUEUE, SLOW), "TritonQueueBudgetBurn"),
        ((SERVER | {"alertname": "TritonShmNearFull"}, SERVER_DOWN), "TritonServerDown"),
    ],
)
def test_the_cause_leads_and_the_objective_follows(alerts: tuple[dict[str, str], ...], lead: str) -> None:
    """The title is about what to repair; a failed load explains why a model is not ready, not why it hangs."""
    members = {str(number): Member(labels=labels, starts_at=1.0) for number, labels in enumerate(alerts)}
    incident = Incident(name="n", key="k", receiver="r", opened_at=1.0, members=members)

    assert lead in (incident.lead.name, incident.lead.labels.get("tier"))


def test_a_worse_alert_that_joins_takes_over_the_message(bridge: Bridge) -> None:
    """A queue burned, and the only server died: for minutes the page named the queue and asked for replicas."""
    queue, dead = "slowq: 81 % of requests wait over 100 ms", "broken is not ready on 1 of 1 server"

    def prometheus(incident: Incident) -> SourceFacts:
        title, step = (queue, "Add.") if incident.lead.name == "TritonQueueBudgetBurn" else (dead, "")
        return SourceFacts(title=title, first_step=step, facts=(("Objective", title),))

    enrich = Enricher(bridge.store, {"prometheus": prometheus})
    bridge.fire(QUEUE)
    enrich(bridge.clock())
    bridge.send()
    (root,) = bridge.workspace.roots()
    before = root.shown
    bridge.clock.now += 20
    bridge.fire(QUEUE, BURN, start=-20)
    bridge.send()
    joined = root.shown
    enrich(bridge.clock())
    bridge.store.escalate(1, CHANNEL, bridge.clock(), lambda incident: (incident, ()))
    bridge.send()
    escalated = bridge.workspace.roots()[-1].text
    enrich.close()

    assert queue in before
    assert queue not in joined
    assert "🔴 about TritonReadinessBudgetBurn" in joined
    assert all(f"🔴 {dead}" in text and queue not in text for text in (root.shown, escalated))
    assert "Add." not in root.shown


@pytest.mark.parametrize(
    ("alerts", "known", "escalated"),
    [
        ((QUEUE,), {}, True),
        ((QUEUE,), {"faults": fails(QUEUE)}, True),
        ((QUEUE,), {"faults": over(QUEUE)}, False),
        ((QUEUE,), {"faults": over(QUEUE), "prometheus_silent_since": 1.0}, False),
        ((QUEUE, ERRORS), {"faults": over(QUEUE)}, True),
        ((QUEUE, ERRORS), {"faults": over(QUEUE, ERRORS)}, False),
        ((LOAD, BURN), {"faults": over(LOAD, BURN)}, False),
        ((LOAD, BURN), {"faults": over(BURN)}, False),
    ],
)
def test_a_page_is_escalated_unless_it_is_known_to_be_over(
    bridge: Bridge, alerts: tuple[dict[str, str], ...], known: dict[str, Any], escalated: bool
) -> None:
    """Its alert fires on for minutes after the fault: nobody is called for that."""
    bridge.fire(*alerts)
    bridge.clock.now += 900
    evidence = Evidence(at=bridge.clock(), **known)
    bridge.store.change(1, lambda before: (before.model_copy(update={"evidence": evidence}), ()))
    Escalator(bridge.store, Escalation(900), lambda _: CHANNEL, lambda: None)(bridge.clock())

    assert escalated == (bridge.incident().escalated_at is not None)


def test_an_objective_beside_the_title_has_no_numbers_of_when_it_was_reported() -> None:
    """The same 37 % stood for 13 minutes beside a title that went from 53 to 93 %. And each tier of it was listed."""
    ticket = {"severity": "warning", "tier": "ticket_slow", "urgency": "4"}
    shown = str(
        messages.root(
            _incident(QUEUE | ticket, QUEUE, ERRORS, LOAD | {"model": "broken"}), Style(), 200.0
        ).blocks
    )

    assert r"*Also firing*\nbroken: objective queue (page)\nbroken: objective errors (page)'" in shown


def test_what_is_over_is_said_so_and_edited_only_where_it_changes(bridge: Bridge) -> None:
    """A page that was over stayed red for 11 minutes, and was edited every minute for an hour; nor is it escalated."""

    def known(_: Incident) -> SourceFacts:
        left = ("Budget left", f"not known yet: {bridge.clock():.0f}s of data")
        return SourceFacts(facts=(left,), faults=over(QUEUE))

    enrich = Enricher(bridge.store, {"prometheus": known})
    escalate = Escalator(bridge.store, Escalation(300), lambda _: CHANNEL, lambda: None)
    bridge.fire(QUEUE, QUEUE | {"tier": "page_slow", "urgency": "2"})
    for _ in range(10):
        enrich(bridge.clock())
        escalate(bridge.clock())
        bridge.send()
        bridge.clock.now += 61
    enrich.close()
    (root,) = bridge.workspace.roots()
    evidence = bridge.incident().evidence
    assert evidence is not None
    silent = evidence.model_copy(update={"prometheus_silent_since": bridge.clock()})

    # A Prometheus that does not answer makes nothing red again.
    assert bridge.incident().model_copy(update={"evidence": silent}).is_watched
    assert bridge.incident().escalated_at is None
    assert root.text.startswith("🟡 about TritonQueueBudgetBurn; now within the target · open since ")
    assert "> · page, over · " in root.text
    assert len(root.edited_at) <= 1


@pytest.mark.parametrize(
    ("minutes", "state", "called", "lines"),
    [
        ("xx....xx..", "", [6], ["Over", "fails again", "Over"]),
        ("xx....xx..", "acknowledged", [], ["Over", "It fails again", "Over"]),
        ("xx" + 61 * "." + "xx", "acknowledged", [63], ["Over", "fails again"]),
        ("xx....xx..", "silenced", [], ["Over", "It fails again", "Over"]),
        ("xx..x..x..x..", "", [4], ["Over", "fails again", *2 * ("Over", "It fails again"), "Over"]),
        ("xx..x.." + 20 * "x", "", [4, 19], ["Over", "fails again", "Over", "It fails again", "fails again"]),
        (
            *("xx..x.." + 20 * "x", "a slower tier fires on"),
            *([4, 19], ["Over", "fails again", "Over", "It fails again", "fails again"]),
        ),
    ],
)
def test_a_fault_that_comes_back_while_its_alert_fires_on_calls(
    bridge: Bridge, minutes: str, state: str, called: list[int], lines: list[str]
) -> None:
    """On-call had gone to bed: the message was edited only. A fault that flaps calls once in a quarter of an hour."""
    known = [SourceFacts(title="ranker: 5 % of requests fail", faults=fails(ERRORS))]
    enrich = Enricher(bridge.store, {"prometheus": lambda _: known[-1]})
    bridge.fire(ERRORS, start=-60)
    began = bridge.clock()
    marks = {
        "acknowledged": {"acknowledged": Mark(by="U0ANA", at=began)},
        "silenced": {"silence": Silence(id="s", by="U0ANA", until=began + 86400, matchers=())},
    }
    for minute, now in enumerate(minutes):
        bridge.clock.now = began + 61 * minute
        faults = fails(ERRORS, since=bridge.clock()) if now == "x" else over(ERRORS)
        known.append(known[-1].model_copy(update={"faults": faults}))
        enrich(bridge.clock())
        bridge.send()
        if minute == 1:
            bridge.store.change(1, lambda before: (before.model_copy(update=marks.get(state, {})), ()))
        if state == "a slower tier fires on" and minute > 9:
            bridge.fire(ERRORS_SLOWER, start=began + 540 - bridge.clock(), group="slower")
            bridge.fire(ended=(ERRORS,), start=began - 60 - bridge.clock())
        else:
            bridge.fire(ERRORS, start=began - 60 - bridge.clock())  # Alertmanager repeats itself
        bridge.send()
        bridge.restart()
        enrich.store = bridge.store
    enrich.close()
    (root,) = bridge.workspace.roots()
    thread = bridge.workspace.thread(root)

    calls = [message for message in thread if message.broadcast]
    assert called == [round((message.at - began) // 61) for message in calls]
    assert all("<!here>: ranker: 5 % of requests fail · since " in message.text for message in calls)
    assert len(lines) == len(thread), [message.text for message in thread]
    assert all(line in message.text for line, message in zip(lines, thread, strict=True))
    assert began - 60 == bridge.incident().since


def test_what_was_never_over_does_not_fail_again() -> None:
    """Where two tiers were first asked about together, one call more said so."""
    tiers = {str(at): Member(labels=ERRORS, starts_at=at) for at in (60.0, 600.0)}
    incident = _incident(ERRORS).model_copy(update={"members": tiers})
    _, events = judge([key_of(ERRORS)], Evidence(at=700.0, faults=fails(ERRORS, since=300.0)), incident)

    assert not events


def test_what_is_over_stays_so_in_the_words_of_then() -> None:
    """The server froze minutes later, and \"ready again at 12:41\" became 12:50."""
    was = {key_of(DOWN): Fault(over="ready again at 12:41 UTC", since=100.0)}
    later = {key_of(DOWN): Fault(over="ready again at 12:50 UTC", since=640.0)}
    incident, events = judge(
        was, Evidence(at=700.0, faults=later), _incident(DOWN, evidence=Evidence(at=600.0, faults=was))
    )

    assert ([], was) == (list(events), incident.evidence and dict(incident.evidence.faults))


def test_what_is_over_together_is_told_once(bridge: Bridge) -> None:
    """The first of two alerts that were over ended, and the thread told of the other one as if it were news."""
    known = SourceFacts(faults=over(QUEUE, ERRORS))
    enrich = Enricher(bridge.store, {"prometheus": lambda _: known})
    bridge.fire(ERRORS, QUEUE, start=-60)
    enrich(bridge.clock())
    bridge.clock.now += 61
    bridge.fire(QUEUE, ended=(ERRORS,), start=-121)
    enrich(bridge.clock())
    enrich.close()

    assert ["fired", "over", "resolved"] == bridge.kinds(1)


def test_it_is_over_once_the_last_page_is(bridge: Bridge) -> None:
    """The thread said that it was over while the message stayed red, because of another page of the incident."""
    known = [SourceFacts(faults=over(QUEUE) | fails(ERRORS))]
    enrich = Enricher(bridge.store, {"prometheus": lambda _: known[-1]})
    bridge.fire(QUEUE, ERRORS, start=-60)
    shown = []
    for faults in (fails(QUEUE, ERRORS), over(QUEUE), over(QUEUE, ERRORS)):
        known.append(SourceFacts(faults=faults))
        enrich(bridge.clock())
        bridge.send()
        (root,) = bridge.workspace.roots()
        shown.append((root.text[0], len(bridge.workspace.thread(root))))
        bridge.clock.now += 61
    enrich.close()
    (line,) = bridge.workspace.thread(bridge.workspace.roots()[0])

    assert [("🔴", 0), ("🔴", 0), ("🟡", 1)] == shown
    assert "🟡 Over: about TritonErrorsBudgetBurn; now within the target" in line.text


def test_the_next_lead_has_its_title_when_the_first_is_over(bridge: Bridge) -> None:
    """For a second the message had the summary of an alert of minutes before."""
    faults = fails(QUEUE, ERRORS)
    enrich = Enricher(
        bridge.store,
        {"prometheus": lambda asked: SourceFacts(title=f"measured of {asked.lead.name}", faults=faults)},
    )
    bridge.fire(QUEUE, start=-60)
    bridge.fire(ERRORS)
    for _ in range(2):
        enrich(bridge.clock())
        bridge.send()
        faults = over(QUEUE) | fails(ERRORS)
        bridge.clock.now += 61
    enrich.close()
    (root,) = bridge.workspace.roots()

    assert "🔴 measured of TritonErrorsBudgetBurn · " in root.text
    assert not any("about TritonErrorsBudgetBurn" in text for text in root.shown_over_time)


@pytest.mark.parametrize("fires_anew", [False, True])
def test_the_next_fault_of_an_alert_has_no_cause_of_the_one_before(bridge: Bridge, fires_anew: bool) -> None:
    """A model that was unloaded was said to lack a file, and on-call to put it in place."""
    reasons = {"broken v1": "No such file or directory: '/models/vocab.json'"}
    failed = SourceFacts(reasons=reasons, cause="missing_file", faults=fails(DOWN), facts=(("Causes", "x"),))
    known = [SourceFacts(faults=fails(DOWN)), SourceFacts(faults=over(DOWN)), failed]
    enrich = Enricher(bridge.store, {"servers": lambda _: known.pop()})
    bridge.fire(DOWN)
    shown: list[str] = []
    while known:
        enrich(bridge.clock())
        bridge.send()
        bridge.clock.now += 61
        shown.append(str(bridge.workspace.roots()[0].blocks))
        if fires_anew and len(shown) == 2:
            bridge.fire(ERRORS, group="errors")
            bridge.fire(ended=(DOWN,))
            bridge.clock.now += 61
            bridge.fire(DOWN)
    enrich.close()

    assert [True, True, False] == ["vocab.json" in text for text in shown]
    assert "*Causes*" not in shown[-1]


def test_the_begin_beside_a_title_is_of_its_fault() -> None:
    """Requests had failed for five minutes, and nothing served the model for a few seconds: since five minutes.

    It was said for as long as the outage lasted where Prometheus did not answer the first question about it.
    """
    known = Evidence(at=400.0, began=100.0, faults=fails(ERRORS, since=100.0))
    incident = _incident(ERRORS, evidence=known)
    members = {**incident.members, "down": Member(labels=DOWN, starts_at=405.0)}
    incident = incident.model_copy(update={"members": members})
    raised = Event(at=410.0, kind="raised", severity="critical", alerts=("TritonModelDownEverywhere",))
    for faults, began in (({}, 405), (fails(DOWN, since=400.0), 400)):
        incident, _ = judge(
            [key_of(DOWN)], known.model_copy(update={"at": 410.0, "faults": faults}), incident
        )
        shown = messages.root(incident, Style(), 410.0).text

        assert f" · since <!date^{began}^" in shown
        assert f"({410 - began}s)" in shown
        assert messages.reply(incident, (raised,)).text.endswith(" · since 00:06 UTC")


def test_an_outage_keeps_its_cause_once_it_is_over(bridge: Bridge) -> None:
    """That the model was unloaded was lost from its title: an objective that was over came to stand beside it."""
    cause = SourceFacts(cause="unloaded at 11:11 UTC", faults=over(ERRORS) | fails(DOWN))
    known = [SourceFacts(faults=over(ERRORS, DOWN)), cause]
    enrich = Enricher(bridge.store, {"changes": lambda _: known[-1]})
    bridge.fire(ERRORS)
    bridge.fire(DOWN, group="loads")
    for _ in range(2):
        enrich(bridge.clock())
        bridge.send()
        bridge.clock.now += 61
        del known[1:]
    enrich.close()

    assert "🟡 about TritonModelDownEverywhere: unloaded at 11:11 UTC; " in bridge.workspace.roots()[0].text


def test_beside_an_outage_nothing_is_said_of_an_objective_that_is_over() -> None:
    """Nothing served a model: the message had the exception, the causes and the budget of requests before."""
    facts = tuple((name, "of then") for name in ("Objective", "Burn rate", "Budget left", "Causes"))
    reasons = {"broken v1": "ValueError: no connection At: model.py(19): execute"}
    evidence = Evidence(at=200.0, facts=facts, reasons=reasons, faults=over(ERRORS) | fails(DOWN))
    lone = _incident(ERRORS, evidence=evidence)
    incident = _incident(ERRORS, DOWN, evidence=evidence.model_copy(update={"about": lone.led_by}))
    shown = str(messages.root(incident, Style(), 200.0).blocks)

    assert incident.burning is None
    assert "of then" not in shown
    assert "ValueError" not in shown
    assert "ValueError" in str(messages.root(lone, Style(), 200.0).blocks)


def test_what_was_just_over_leads_before_what_was_over_long_ago() -> None:
    """A model was not ready for a minute, and ten minutes later 61 requests failed: the title lost the failures."""
    for before, last in ((BURN, ERRORS), (LOAD, DOWN)):
        for minutes, lead in ((10, last), (1, before)):
            ends = ((before, 1000.0 - 60 * minutes), (last, 1000.0))
            faults = {key_of(labels): Fault(over="over", since=at) for labels, at in ends}
            incident = _incident(last, before, evidence=Evidence(at=1000.0, faults=faults))

            assert lead == incident.lead.labels


def _joins(bridge: Bridge, enrich: Enricher, alert: dict[str, str], start: float = 0.0) -> None:
    """Fire an alert in an open incident; what is known of it comes a second later."""
    bridge.fire(alert, start=start)
    bridge.workers[0].step()
    bridge.clock.now += 1
    enrich(bridge.clock())
    bridge.send()


@pytest.mark.parametrize("was_over", [False, True])
def test_a_page_that_fires_after_its_fault_is_already_over(bridge: Bridge, was_over: bool) -> None:
    """ "No server serves it" came one second after it served again, as if it were bad news."""
    seen = over(ERRORS) if was_over else fails(ERRORS)
    served = {key_of(DOWN): Fault(over="served again", since=bridge.clock() + 59)}
    enrich = Enricher(bridge.store, {"prometheus": lambda _: SourceFacts(faults=seen | served)})
    bridge.workers[0].options = DeliveryOptions(evidence_seconds=2.5)
    bridge.fire(ERRORS)
    enrich(bridge.clock())
    bridge.send()
    bridge.clock.now += 60
    _joins(bridge, enrich, DOWN, start=-61)
    enrich.close()
    (root,) = bridge.workspace.roots()
    line = bridge.workspace.thread(root)[-1]
    (record,) = list_incidents(bridge.folder)

    assert "before" not in summaries.title(record)
    assert line.text.endswith(
        "also firing (page) (already over): about TritonModelDownEverywhere (TritonModelDownEverywhere)"
    )
    assert not line.broadcast
    assert ("🟡" if was_over else "🔴") == root.text[0]
    assert all(("🟡" in text) == was_over for text in root.shown_over_time), root.shown_over_time


def test_a_second_outage_calls_though_the_first_was_said(bridge: Bridge) -> None:
    """Nothing served the model, and three silent lines said so: an earlier outage had been in the same thread."""
    enrich = Enricher(bridge.store, {"prometheus": lambda _: SourceFacts(faults=fails(ERRORS))})
    bridge.fire(ERRORS)
    bridge.fire(DOWN, group="loads")
    bridge.fire(ended=(DOWN,), group="loads")
    bridge.clock.now += 60
    enrich(bridge.clock())
    bridge.fire(DOWN, group="loads")
    enrich.close()

    assert ["fired", "raised", "resolved", "raised"] == bridge.kinds(1)


def test_another_page_long_after_all_was_over_calls_and_is_listed_beside_the_first(bridge: Bridge) -> None:
    """A model was unloaded a quarter of an hour after its overload: the old message was edited, its title lost."""
    known = [SourceFacts(faults=over(QUEUE))]
    enrich = Enricher(bridge.store, {"prometheus": lambda _: known[-1]})
    bridge.fire(QUEUE)
    bridge.send()
    bridge.press("acknowledge")
    enrich(bridge.clock())
    began = bridge.clock.now = bridge.clock.now + 900
    enrich(bridge.clock())
    bridge.fire(BURN)
    known.append(SourceFacts(faults=over(QUEUE) | fails(BURN)))
    enrich(bridge.clock())
    bridge.send()
    enrich.close()
    (root,) = bridge.workspace.roots()
    line = bridge.workspace.thread(root)[-1]
    (record,) = list_incidents(bridge.folder)

    assert line.broadcast
    assert "*Another page* <!here>: about TritonReadinessBudgetBurn" in line.text
    assert re.match(f"🔴 about TritonReadinessBudgetBurn · again since <!date\\^{began:.0f}\\^", root.text)
    assert "about TritonReadinessBudgetBurn; before: about TritonQueueBudgetBurn" == summaries.title(record)


def test_what_an_older_bridge_stored_is_read(bridge: Bridge) -> None:
    """It had the fault of the lead alone: the others are asked for at once."""
    bridge.fire(QUEUE)
    old = json.loads(bridge.incident().model_dump_json())
    old |= {"eased_at": 1.0, "raised_at": 1.0, "told_over": ["a"]}
    old["evidence"] = {"at": bridge.clock(), "over": "now within the target", "again": 1.0, "calm": ["queue"]}
    bridge.store.database.run("UPDATE incidents SET document = ?", json.dumps(old))

    assert bridge.incident().evidence_is_due
    assert not bridge.incident().is_over


def test_a_faster_tier_of_a_page_is_no_other_alert(bridge: Bridge) -> None:
    bridge.fire(ERRORS_SLOWER)
    bridge.fire(ERRORS)

    assert ["fired"] == bridge.kinds(1)


def test_a_page_that_fires_again_says_already_that_it_came_back(bridge: Bridge) -> None:
    known = [SourceFacts(faults=over(ERRORS))]
    enrich = Enricher(bridge.store, {"prometheus": lambda _: known[-1]})
    bridge.fire(SLOW | {name: ERRORS[name] for name in ("alertname", "slo", "indicator")})
    bridge.fire(ERRORS)
    bridge.fire(ended=(ERRORS,))
    enrich(bridge.clock())
    bridge.clock.now += 61
    bridge.fire(ERRORS)
    known.append(SourceFacts(faults=fails(ERRORS, since=bridge.clock() - 10)))
    enrich(bridge.clock())
    enrich.close()

    assert ["fired", "raised", "resolved", "over", "raised"] == bridge.kinds(1)


def test_a_dead_exporter_is_one_incident(bridge: Bridge) -> None:
    """It was a ticket about the server, and fifteen seconds later a page about its model.

    It is no part of an outage of its Triton, whose alert looks back: that would be as long as both together.
    """
    bridge.fire({"alertname": "TritonMostServersDown", "severity": "critical", "instance": "triton-0:9401"})
    ticket = {"alertname": "TritonExporterDown", "severity": "warning", "instance": "triton-0:9401"}
    page = ticket | {"alertname": "TritonModelExporterDown", "severity": "critical"}
    bridge.fire(ticket)
    bridge.fire(page | {"model": "ranker"}, page | {"model": "broken"})

    assert ["fired"] == bridge.kinds(1)
    assert ["fired", "raised"] == bridge.kinds(2)
    assert 2 == len(bridge.incidents())
    # What it is about besides is named.
    assert messages.headline(bridge.incidents()[1]).endswith(
        "about TritonModelExporterDown (and triton-0:9401, broken)"
    )


def test_what_is_over_beside_the_title_is_said_so(bridge: Bridge) -> None:
    """A page was listed as firing after the repair, and its objective was kept."""
    enrich = Enricher(bridge.store, {"prometheus": lambda _: SourceFacts(faults=over(QUEUE))})
    bridge.workers[0].options = DeliveryOptions(evidence_seconds=2.5)
    bridge.fire(ERRORS, start=-60)
    enrich(bridge.clock())
    bridge.send()
    _joins(bridge, enrich, QUEUE, start=-30)
    enrich.close()
    (root,) = bridge.workspace.roots()

    assert "broken: objective queue (page), over" in root.shown
    # Nor has the thread numbers of another window than the title's.
    line = "also firing (page) (already over): broken: objective queue (TritonQueueBudgetBurn)"
    assert bridge.workspace.thread(root)[-1].text.endswith(line)


def test_a_model_that_is_loading_is_not_said_to_be_unloaded(bridge: Bridge) -> None:
    """ "Load it again" stood on while it loaded, and once that had failed. Of what is over, it stays the cause."""
    known = SourceFacts(cause="unloaded at 18:50 UTC", faults=fails(DOWN))
    enrich = Enricher(bridge.store, {"changes": lambda _: known})
    bridge.fire(DOWN)
    shown = []
    for later in (known, SourceFacts(faults=over(DOWN)), known, SourceFacts(faults=fails(DOWN))):
        known = later
        enrich(bridge.clock())
        bridge.send()
        shown.append(bridge.workspace.roots()[0].text)
        bridge.clock.now += 61
    enrich.close()

    assert [True, True, True, False] == ["unloaded at" in text for text in shown]


def test_each_message_is_of_one_moment(bridge: Bridge) -> None:
    """A load fails and is repaired; then the server dies, and then its exporter: nothing is left of the moment before."""
    dead = "triton-0:9401 does not answer since 18:59 UTC: nothing serves broken now"
    reasons = {"broken v1": "No such file or directory: '/models/vocab.json'"}

    def servers(text: str) -> tuple[tuple[str, str], ...]:
        return (("Servers", text),)

    known = [SourceFacts()]
    enrich = Enricher(bridge.store, {"servers": lambda _: known[-1]})
    bridge.fire(LOAD)
    shown = []
    for moment in (
        SourceFacts(reasons=reasons, facts=servers("ready on 0 of 1"), dead_server=""),
        SourceFacts(
            facts=servers("ready on its only server"), faults=over(LOAD, words="ready again since 18:55 UTC")
        ),
        SourceFacts(facts=servers("ready on 0 of 1"), faults=fails(LOAD), dead_server=dead),
        SourceFacts(faults=fails(LOAD), dead_server=""),
    ):
        known.append(moment)
        bridge.clock.now += 61
        enrich(bridge.clock())
        bridge.send()
        (root,) = bridge.workspace.roots()
        shown.append(f"{root.text} {root.shown}")
    enrich.close()
    failed = "🟠 about TritonModelLoadFailed: vocab.json is missing"
    titles = (
        f"{failed} · ",
        f"{failed.replace('🟠', '🟡')}; ready again since 18:55 UTC",
        f"🟠 {dead}",
        "🟠 about TritonModelLoadFailed · ",
    )
    steps = ("Put the missing file", "", "Check whether the Triton process runs", "")

    for text, title, step in zip(shown, titles, steps, strict=True):
        assert title in text
        assert bool(step) == ("*First step*" in text), text
        assert step in text
    assert [2, 2, 0, 0] == [min(2, text.count("vocab.json")) for text in shown]
    assert [True, True, True, False] == ["*Servers*" in text for text in shown]


@pytest.mark.parametrize("acknowledged", [False, True])
def test_a_page_that_nothing_serves_calls_again_unless_somebody_works_on_it(
    bridge: Bridge, acknowledged: bool
) -> None:
    """A line in the thread of a page about a queue is read by nobody."""
    bridge.fire(QUEUE)
    if acknowledged:
        taken = {"acknowledged": Mark(by="U0ANA", at=bridge.clock())}
        bridge.store.change(1, lambda before: (before.model_copy(update=taken), ()))
    bridge.send()
    bridge.clock.now += 60
    for joining in (BURN, DOWN):
        bridge.fire(joining)
        bridge.send()
    (root,) = bridge.workspace.roots()

    expected = ["fired", "fired", "fired"] if acknowledged else ["fired", "raised", "fired"]
    assert expected == bridge.kinds(1)
    assert [not acknowledged, False] == [reply.broadcast for reply in bridge.workspace.thread(root)]


@pytest.mark.parametrize(
    ("not_served", "resolved", "title", "closed"),
    [
        ("no server has broken ready", *3 * ("⚪ Ended, not confirmed",)),
        ("", "🟢 resolved", "🟢 Resolved", "🟢 *Recovered*"),
        (None, "🟢 resolved", "🟢 Resolved", "🟢 *Recovered*"),
    ],
)
def test_the_end_of_an_alert_is_not_green_while_nothing_serves_its_model(
    bridge: Bridge, not_served: str | None, resolved: str, title: str, closed: str
) -> None:
    """The queue's alert ends because its server is dead: nobody asks it any more."""
    enrich = Enricher(bridge.store, {"prometheus": lambda _: SourceFacts(not_served=not_served)})
    bridge.fire(QUEUE, DOWN)
    enrich(bridge.clock())
    bridge.send()
    bridge.clock.now += 60
    bridge.fire(DOWN, ended=(QUEUE,), start=-60)
    bridge.send()
    between = bridge.workspace.roots()[0].shown
    bridge.clock.now += 60
    bridge.fire(ended=(DOWN, QUEUE), start=-120)
    enrich(bridge.clock())
    bridge.send()
    enrich.close()
    (root,) = bridge.workspace.roots()
    first, last = bridge.workspace.thread(root)

    assert all(
        words in text for words, text in ((resolved, first.text), (title, root.text), (closed, last.text))
    )
    assert bool(not_served) == ("*Resolved*" not in between)
    if not_served:
        assert all(not_served in text and "🟢" not in text for text in (first.text, root.text, last.text))


def test_an_end_that_was_confirmed_stays_so_when_nothing_serves_later(bridge: Bridge) -> None:
    """Its line in the thread said "resolved"; the message of the next outage said that it was not confirmed."""
    known = [SourceFacts(faults=over(QUEUE) | fails(ERRORS))]
    enrich = Enricher(bridge.store, {"prometheus": lambda _: known[-1]})
    bridge.fire(QUEUE, ERRORS)
    enrich(bridge.clock())
    bridge.fire(ERRORS, ended=(QUEUE,))
    enrich(bridge.clock())
    bridge.send()
    known.append(SourceFacts(faults=fails(ERRORS), not_served="no server has broken ready"))
    bridge.clock.now += 61
    enrich(bridge.clock())
    bridge.send()
    (record,) = list_incidents(bridge.folder)
    shown = str(bridge.workspace.roots()[0].blocks)
    # The other fault was over, too, before its server died.
    known.append(SourceFacts(faults=over(ERRORS), not_served="no server has broken ready"))
    bridge.clock.now += 61
    enrich(bridge.clock())
    bridge.fire(ended=(QUEUE, ERRORS))
    enrich(bridge.clock())
    bridge.send()
    enrich.close()
    (root,) = bridge.workspace.roots()

    assert "*Resolved*\\nbroken: objective queue (page), " in shown
    assert root.text.startswith("🟢 Resolved: ")
    assert "no server has" not in str(root.blocks)
    assert "🟢 *Recovered*" in bridge.workspace.thread(root)[-1].text
    assert "🟢 resolved (page): broken: objective queue" in summaries.incident_text(record, bridge.clock())


@pytest.mark.parametrize("ends", ["one alert", "the incident"])
def test_the_end_of_an_alert_waits_for_what_is_known_after_it(bridge: Bridge, ends: str) -> None:
    """Nothing served the model; it is ready again when its alert ends, and the source that knows is late once."""
    late, not_served = False, "no server has broken ready"

    def servers(_incident: Incident) -> SourceFacts:
        if late:
            raise TimeoutError
        return SourceFacts(not_served=not_served)

    enrich = Enricher(bridge.store, {"servers": servers})
    bridge.workers[0].options = DeliveryOptions(evidence_seconds=2.5)
    low = DOWN | {"alertname": "TritonModelReplicasLow", "severity": "warning"}
    bridge.fire(low, DOWN)
    enrich(bridge.clock())
    bridge.send()
    not_served, late = "", True
    bridge.clock.now += 10
    firing, ended = ((DOWN,), (low,)) if ends == "one alert" else ((), (low, DOWN))
    bridge.fire(*firing, ended=ended, start=-10)
    for _ in range(2):
        bridge.workers[0].step()
        bridge.clock.now += 2
        enrich(bridge.clock())
        late = False
    enrich.close()
    bridge.run_for(10)
    (root,) = bridge.workspace.roots()

    assert ["🟢" in reply.text for reply in bridge.workspace.thread(root)] == [True]
    assert "⚪" not in "".join(root.shown_over_time)


def test_a_page_waits_for_evidence_only_so_long(bridge: Bridge) -> None:
    """Prometheus does not answer; where another alert had ended meanwhile, the page waited for ten seconds."""
    bridge.workers[0].options = DeliveryOptions(evidence_seconds=2.5)
    start, low = bridge.clock.now, DOWN | {"alertname": "TritonModelReplicasLow", "severity": "warning"}
    bridge.fire(low, DOWN)
    bridge.clock.now += 1
    bridge.fire(DOWN, ended=(low,), start=-1)
    bridge.run_for(20)

    assert [True] == [3.5 <= root.at - start < 5.0 for root in bridge.workspace.roots()]


@pytest.mark.parametrize(
    ("ended", "leads"), [(False, Readiness.burn_alert), (True, "TritonErrorsBudgetBurn")]
)
def test_a_page_that_nothing_serves_leads_no_more_once_all_servers_do(ended: bool, leads: str) -> None:
    """It fires on until its window is empty, while requests fail for another reason."""
    readiness = BURN | {"alertname": Readiness.burn_alert, "slo": "readiness", "indicator": "readiness"}

    faults = over(readiness) if ended else fails(readiness)
    incident = _incident(ERRORS, readiness, evidence=Evidence(at=100.0, faults=faults))

    assert leads == incident.lead.name


def test_the_alerts_that_lead_exist() -> None:
    """A renamed alert would no longer lead, nor be explained by the load that failed."""
    alerts = {alert.name for alert in ALERTS} | {Readiness.burn_alert}

    assert set() == {LOAD_FAILED, *EXPLAINED_BY_LOAD_FAILURE, *NOT_SERVED} - alerts


def _incident(*labels: dict[str, str], **changes: Any) -> Incident:
    members = {
        str(number): Member(
            labels=alert,
            annotations={"summary": f"about {alert['alertname']}"},
            starts_at=100.0,
            ends_at=ended,
        )
        for number, alert in enumerate(labels)
        for ended in (changes.get("closed_at"),)
    }
    return Incident(name="n", key="k", receiver="r", opened_at=100.0, members=members, **changes)


def test_a_ticket_that_becomes_a_page_names_the_alert_and_the_cost() -> None:
    """The cause does not change; the budget shows how much time is left."""
    facts = (("Objective", "99.9 % of the time ready over 30d: 43m may fail"), ("Budget left", "40 %"))
    reasons = {"broken v1": "No such file or directory: '/models/broken/1/weights.txt'"}
    evidence = Evidence(at=200.0, facts=facts, reasons=reasons)
    raised = Event(
        at=200.0,
        kind="raised",
        severity="critical",
        by="U0ANA",
        count=1,
        alerts=("TritonReadinessBudgetBurn",),
        summaries=("broken burns",),
    )
    shown = messages.reply(_incident(LOAD, BURN, evidence=evidence), (raised,), mention="<!here>").text

    assert [
        "🔴 *The incident is now a page* <!here>: about TritonModelLoadFailed: weights.txt is missing · since 00:01 UTC",
        "broken burns (TritonReadinessBudgetBurn)",
        "Objective: 99.9 % of the time ready over 30d: 43m may fail",
        "Budget left: 40 %",
        "<@U0ANA> acknowledged the earlier alert; nobody has acknowledged this page yet",
    ] == shown.partition("  ")[2].splitlines()


@pytest.mark.parametrize(
    ("seen_at", "not_ready", "others", "line"),
    [
        (301.0, 0, 0, "`broken` is ready on all its servers. No other incident is open."),
        (301.0, 1, 1, " have resolved. One other incident is open."),
        (299.0, 0, 2, " have resolved. 2 other incidents are open."),
    ],
)
def test_a_recovery_states_no_more_than_is_known(
    seen_at: float, not_ready: int, others: int, line: str
) -> None:
    """The alerts have ended; a message states that the model serves again only if that was observed afterwards."""
    evidence = Evidence(at=seen_at, servers_not_ready=not_ready)
    incident = _incident(LOAD, DOWN, evidence=evidence, closed_at=300.0)
    shown = messages.reply(incident, (Event(at=300.0, kind="closed"),), others=others).text

    assert "*Recovered* after 3m 20s: " in shown
    assert shown.endswith(line)


def test_a_message_about_a_page_waits_for_what_the_page_costs(bridge: Bridge) -> None:
    """Evidence from the time of the ticket contains nothing about the objective that burns now."""
    bridge.fire(LOAD)
    (before,) = bridge.incidents()
    bridge.store.change(
        1,
        lambda incident: (
            incident.model_copy(update={"evidence": Evidence(at=bridge.clock(), faults=fails(LOAD))}),
            (),
        ),
    )
    (known,) = bridge.incidents()
    bridge.clock.now += 60
    bridge.fire(BURN)
    (raised,) = bridge.incidents()
    (page,) = bridge.store.outbox.pending(CHANNEL)

    assert [True, False, True] == [incident.evidence_is_due for incident in (before, known, raised)]
    assert bridge.clock() == page.raised_at


def test_a_group_of_thousands_of_models_is_received_in_seconds(bridge: Bridge) -> None:
    """Alertmanager gives up after its group interval; each model is an incident of its own."""
    before = time.process_time()
    bridge.fire(*(LOAD | {"model": f"m{number}"} for number in range(4000)), group="loads")

    assert 4000 == sum(bridge.store.incidents.count_open().values())
    assert time.process_time() - before < 10

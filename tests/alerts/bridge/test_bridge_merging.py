"""Test how notifications are merged into incidents, as pure functions without clock or disk."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triton_alerts.bridge.incidents.incident import Incident
from triton_alerts.bridge.incidents.merging import merge_notification
from triton_alerts.bridge.incidents.notification import MalformedError, Member, Notification, parse


def alert(name: str, start: float = 100.0, end: float | None = None, **annotations: str) -> Member:
    labels = {"alertname": "TritonModelLoadFailed", "model": name, "severity": "critical"}
    return Member(labels=labels, annotations=annotations, starts_at=start, ends_at=end)


def notified(*alerts: Member, source: str = "am-0", truncated: int = 0) -> Notification:
    notification = Notification(
        key="page|{}",
        receiver="page",
        all_resolved=not any(member.firing for member in alerts),
        alerts={member.labels["model"]: member.model_copy(update={"source": source}) for member in alerts},
        truncated=truncated,
        source=source,
    )
    return notification.dated()


def merged_all(*notifications: Notification) -> tuple[Incident | None, list[str]]:
    """Return the last incident and the outcomes, after one notification after the other was merged."""
    current, outcomes = None, []
    for second, notification in enumerate(notifications):
        result = merge_notification(current, notification, 1000.0 + second)
        outcomes.append(result.outcome)
        current = result.incident or current
    return current, outcomes


def test_one_incident_opens_grows_shrinks_and_closes() -> None:
    """The alerts of one subject are one incident from the first that fires to the end of the last."""
    incident, outcomes = merged_all(
        notified(alert("a")),
        notified(alert("a"), alert("b", 110.0)),
        notified(alert("a", end=130.0), alert("b", 110.0)),
        notified(alert("b", 110.0, end=140.0)),
    )

    assert ["opened", "changed", "changed", "changed"] == outcomes
    assert incident is not None
    assert 1003.0 == incident.closed_at


def test_an_incident_keeps_the_start_of_an_alert_that_fires_again() -> None:
    """Its first alert ends and starts again while another one fires: the incident began with the first start."""
    incident, _ = merged_all(
        notified(alert("a")),
        notified(alert("a"), alert("b", 220.0)),
        notified(alert("a", end=280.0), alert("b", 220.0)),
        notified(alert("a", 400.0), alert("b", 220.0)),
        notified(alert("a", 400.0, end=500.0), alert("b", 220.0, end=520.0)),
    )

    assert incident is not None
    assert (100.0, 520.0) == (incident.since, incident.ended_at)


def test_the_end_of_an_alert_that_was_not_reported_adds_no_line_to_the_thread() -> None:
    """Alertmanager reports the end of what was inhibited while it fired, or of an earlier incident."""
    opened = merge_notification(None, notified(alert("a")), 1000.0).incident
    grown = merge_notification(opened, notified(alert("a"), alert("b", 110.0, end=120.0)), 1001.0)
    closed = merge_notification(
        grown.incident, notified(alert("a", end=130.0), alert("c", 110.0, end=125.0)), 1002.0
    )

    assert () == grown.events
    assert [("closed", ("a",))] == [(event.kind, event.subjects) for event in closed.events]
    assert ["b", "c"] == [
        member.labels["model"] for result in (grown, closed) for member, _ in result.unreported
    ]
    assert closed.incident is not None
    assert {"a"} == closed.incident.members.keys()


def test_an_incident_after_the_end_is_a_new_one() -> None:
    """Alertmanager's group key is the same again tomorrow; the incident is not."""
    first, _ = merged_all(notified(alert("a")))
    last, outcomes = merged_all(
        notified(alert("a")), notified(alert("a", end=130.0)), notified(alert("a", 200.0))
    )

    assert ["opened", "changed", "opened"] == outcomes
    assert first is not None
    assert last is not None
    assert last.open
    assert first.name != last.name


def test_a_repeat_and_a_twin_change_nothing() -> None:
    """`repeat_interval` and a second Alertmanager send the same notification again."""
    _, outcomes = merged_all(notified(alert("a")), notified(alert("a")), notified(alert("a"), source="am-1"))

    assert ["opened", "repeated", "repeated"] == outcomes


def test_a_notification_of_a_late_peer_waits_and_is_not_believed_at_once() -> None:
    """`firing` from a peer after `resolved`, with the same start, may be out of date."""
    end = notified(alert("a", end=130.0))
    _, outcomes = merged_all(notified(alert("a")), end, notified(alert("a"), source="am-1"))

    assert ["opened", "changed", "held"] == outcomes


@pytest.mark.parametrize("others", [(), (alert("b"),)], ids=["new incident", "same incident"])
def test_a_firing_of_the_same_alertmanager_after_the_end_waits(others: tuple[Member, ...]) -> None:
    """A proxy delivered it late, or Prometheus was cut off from Alertmanager and the same alert is back."""
    late = notified(alert("a"), *others)
    incident, outcomes = merged_all(late, notified(alert("a", end=130.0), *others), late)
    merged = merge_notification(incident, late, 2000.0, trust=True).incident

    assert ["opened", "changed", "held"] == outcomes
    assert incident is not None
    assert merged is not None
    assert [False, True] == [state.members["a"].firing for state in (incident, merged)]


def test_a_firing_whose_end_arrived_first_waits() -> None:
    """The end is not a member of the incident; the firing that a proxy delivered after it is none either."""
    incident, outcomes = merged_all(
        notified(alert("a")),
        notified(alert("a"), alert("b", 110.0, end=120.0)),
        notified(alert("a"), alert("b", 110.0)),
    )

    assert ["opened", "changed", "held"] == outcomes
    assert incident is not None
    assert {"a"} == incident.members.keys()


def test_a_firing_that_waited_moves_no_newer_start() -> None:
    """With the old start, the end that the old firing had would end the new one."""
    first, _ = merged_all(notified(alert("b")), notified(alert("b", end=130.0)))
    second = merge_notification(None, notified(alert("a", 190.0)), 1002.0).incident
    again = merge_notification(
        second, notified(alert("b", 200.0)), 1003.0, earlier=[first] if first else []
    ).incident
    merged = merge_notification(again, notified(alert("b")), 1063.0, trust=True).incident

    assert merged is not None
    assert 200.0 == merged.members["b"].starts_at


def test_the_end_of_an_earlier_firing_does_not_end_this_one() -> None:
    """A resolve that was on its way for long names an older start."""
    incident, outcomes = merged_all(
        notified(alert("a", 200.0)), notified(alert("a", 100.0, end=130.0)), notified(alert("b", 210.0))
    )

    assert ["opened", "repeated", "changed"] == outcomes
    assert incident is not None
    assert {"a", "b"} == {member.labels["model"] for member in incident.firing}


def test_an_end_with_an_earlier_start_of_the_same_alertmanager_counts() -> None:
    """Alertmanager gives an alert the earlier start when a second Prometheus sends it late."""
    merged, _ = merged_all(notified(alert("a", 200.0)), notified(alert("a", 100.0, end=230.0)))
    twin, _ = merged_all(notified(alert("a", 200.0)), notified(alert("a", 100.0, end=230.0), source="am-1"))

    assert merged is not None
    assert twin is not None
    assert [False, True] == [merged.open, twin.open]


@pytest.mark.parametrize("others", [(), (alert("b"),)], ids=["new incident", "same incident"])
def test_a_late_peer_does_not_end_an_alert_that_fires_again(others: tuple[Member, ...]) -> None:
    """The peer repeats the firing that ended, then its end, while the alert has a newer start elsewhere."""
    incident, _ = merged_all(
        notified(alert("a"), *others),
        notified(alert("a", end=130.0), *others),
        notified(alert("a", 200.0), *others),
        notified(alert("a"), *others, source="am-1"),
        notified(alert("a", end=130.0), *others, source="am-1"),
    )

    assert incident is not None
    assert (True, 200.0) == (incident.members["a"].firing, incident.members["a"].starts_at)


def test_all_resolved_ends_what_is_no_longer_listed() -> None:
    """The last body of a group lists only what ended since the flush before."""
    incident, _ = merged_all(notified(alert("a"), alert("b")), notified(alert("b", end=130.0)))

    assert incident is not None
    assert not incident.open


def test_all_resolved_ends_no_alert_that_can_be_queried() -> None:
    """Alertmanager omits silenced and inhibited alerts: the end of another alert does not end them."""
    opened, _ = merged_all(notified(alert("a"), alert("b", 110.0)))
    last = notified(alert("b", 110.0, end=130.0))
    shrunk = merge_notification(
        opened, last, 1002.0, may_still_fire=lambda _fingerprint, member: member.source == "am-0"
    )

    assert shrunk.incident is not None
    assert ["a"] == [member.labels["model"] for member in shrunk.incident.firing]
    assert ["resolved"] == [event.kind for event in shrunk.events]


def test_all_resolved_of_a_late_twin_ends_only_what_it_lists() -> None:
    """The second Alertmanager never received alert b, so its final notification does not end b."""
    incident, outcomes = merged_all(
        notified(alert("a"), source="am-0"),
        notified(alert("a"), alert("b", 110.0), source="am-0"),
        notified(alert("a", end=130.0), source="am-1"),
    )

    assert ["opened", "changed", "changed"] == outcomes
    assert incident is not None
    assert ["b"] == [member.labels["model"] for member in incident.firing]


def test_a_cut_list_ends_only_what_it_lists() -> None:
    """With max_alerts the status covers the listed alerts only."""
    incident, _ = merged_all(notified(alert("a"), alert("b")), notified(alert("b", end=130.0), truncated=1))

    assert incident is not None
    assert ["a"] == [member.labels["model"] for member in incident.firing]


def test_a_resolve_without_a_start_is_reported() -> None:
    """The start went to a database that is gone: the end is news all the same."""
    incident, outcomes = merged_all(notified(alert("a", end=130.0)))

    assert ["opened"] == outcomes
    assert incident is not None
    assert not incident.open


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"), st.integers(0, 3), st.booleans(), st.sampled_from(("am-0", "am-1"))
        ),
        max_size=12,
    )
)
def test_an_incident_is_open_exactly_while_something_fires(steps: list[tuple[str, int, bool, str]]) -> None:
    """For any notifications in any order, an incident is open only if at least one of its alerts fires."""
    current = None
    for now, (name, start, ended, source) in enumerate(steps):
        sent = alert(name, float(start), float(start + 1) if ended else None)
        result = merge_notification(current, notified(sent, source=source), float(now))
        current = result.incident or current
        if current is not None:
            assert current.open == bool(current.firing)


def body(**changes: object) -> bytes:
    plain: dict[str, object] = {
        "version": "4",
        "receiver": "page",
        "status": "firing",
        "groupKey": "{}",
        "alerts": [
            {"status": "firing", "labels": {"alertname": "A"}, "startsAt": "2026-11-21T02:34:37.417364569Z"}
        ],
    }
    return json.dumps(plain | changes).encode()


def test_fields_of_newer_releases_are_ignored() -> None:
    """0.32 added notification_reason, 0.34 routeLabels; the next one will add more."""
    assert parse(body()) == parse(body(notification_reason="first notification", routeLabels={"a": "b"}))


@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        ({"version": "3"}, "version"),
        ({"alerts": []}, "alerts"),
        (
            {"alerts": [{"status": "odd", "labels": {}, "startsAt": "2026-11-21T02:34:37Z"}]},
            "alerts.0.status",
        ),
        (
            {"alerts": [{"status": "firing", "labels": {"a": 1}, "startsAt": "2026-11-21T02:34:37Z"}]},
            "alerts.0.labels.a",
        ),
        ({"alerts": [{"status": "firing", "labels": {}, "startsAt": "yesterday"}]}, "alerts.0.startsAt"),
        ({"groupKey": ""}, "groupKey"),
    ],
)
def test_a_body_that_is_not_the_webhook_is_refused_with_its_place(
    wrong: dict[str, object], place: str
) -> None:
    """The message names the field, since the answer is all that Alertmanager's log will show."""
    with pytest.raises(MalformedError, match=place):
        parse(body(**wrong))


def test_a_long_value_is_cut_and_marked() -> None:
    """A reason of 100 kB is stored in part."""
    labels = {"alertname": "A" * 100_000}
    alerts = [{"status": "firing", "labels": labels, "startsAt": "2026-11-21T02:34:37Z"}]
    (member,) = parse(body(alerts=alerts)).alerts.values()

    assert member.labels["alertname"].endswith(" [cut]")
    assert member.labels["alertname"].startswith("AAA")

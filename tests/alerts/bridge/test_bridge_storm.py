"""Test dozens of incidents at once: the order of their messages, counted in messages and not in seconds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from support.bridge import CHANNEL, BridgeUnderTest, body_of
from support.slack.workspace import Posted
from triton_alerts.bridge.deliver import messages
from triton_alerts.bridge.deliver.messages import Message
from triton_alerts.bridge.deliver.next_task import DIGEST_SECONDS, MAX_OWN_MESSAGES
from triton_alerts.bridge.deliver.worker import DeliveryOptions, Escalation
from triton_alerts.bridge.incidents.notification import parse
from triton_alerts.bridge.service import Escalator
from triton_alerts.bridge.text import slack_hour

STORM = 80
NEW = "newest-model"
IDLE_SECONDS = 30.0
"""A worker that waits for so long has nothing to send."""
MAX_POSTS_BEFORE = 3
"""Posts that may go out before the new page: Slack takes about one a second."""


class Storm(BridgeUnderTest):
    """Many pages that fire at once."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, options=DeliveryOptions(escalation=Escalation(900)))
        self.worker = self.workers[0]
        self.began = self.clock()
        self.each(lambda name: self.notify({name: self.began}, name=name))

    def each(self, do: Callable[[str], object]) -> None:
        with self.store.transaction():  # one write to disk instead of hundreds
            for number in range(STORM):
                do(f"g{number}")

    def send_until_new(self, most: float = float("inf")) -> int:
        """Send until nothing waits, so many posts were made, or the new page is shown; returns the posts made."""
        before = len(self.workspace.messages)
        while len(self.workspace.messages) - before < most:
            wait = self.worker.step()
            if wait > IDLE_SECONDS:
                break
            self.clock.now += max(wait, 0.01)
            if any(NEW in message.shown for message in self.workspace.messages):
                break
        return len(self.workspace.messages) - before


def nothing_more(storm: Storm) -> None:
    """Change nothing: the storm itself has only just been received."""


def named_by_digests(storm: Storm) -> None:
    """Post the digest that names every page of the storm; each waits for its own message."""
    storm.send_until_new(most=20)


def all_resolved(storm: Storm) -> None:
    """End every page of the storm after the digest."""
    storm.send_until_new()
    storm.each(lambda name: storm.notify({}, {name: (storm.began, storm.clock())}, name=name))


def all_escalated(storm: Storm) -> None:
    """Escalate every page of the storm, because nobody acknowledged one."""
    storm.send_until_new()
    storm.clock.now += 1000
    Escalator(storm.store, storm.worker.options.escalation, lambda _: CHANNEL, lambda: None)(storm.clock())


def all_grown(storm: Storm) -> None:
    """Add an alert to every incident of the storm."""
    storm.send_until_new()
    storm.each(lambda name: storm.notify({name: storm.began, f"{name}-more": storm.clock()}, name=name))


@pytest.mark.parametrize(
    "waiting",
    [nothing_more, named_by_digests, all_resolved, all_escalated, all_grown],
    ids=lambda w: w.__name__,
)
def test_a_new_page_goes_out_before_what_waits(tmp_path: Path, waiting: Callable[[Storm], None]) -> None:
    """On-call sees the newest page at once, before the waiting messages about older ones."""
    storm = Storm(tmp_path)
    waiting(storm)
    storm.notify({NEW: storm.clock()}, name="new")
    posts = storm.send_until_new()
    storm.close()

    assert any(NEW in root.shown for root in storm.workspace.roots())
    assert posts <= MAX_POSTS_BEFORE


def test_a_ticket_that_becomes_a_page_goes_out_before_what_waits(tmp_path: Path) -> None:
    """Raised inside its incident, it is a new page, too."""
    storm = Storm(tmp_path)
    ticket = body_of("ticket", {"m": storm.began}, {}).replace(b'"critical"', b'"warning"')
    storm.store.receive(parse(ticket, "am"), storm.clock())
    all_grown(storm)
    storm.notify({"m": storm.began, NEW: storm.clock()}, name="ticket")
    posts = storm.send_until_new()
    storm.close()

    (shown,) = [message for message in storm.workspace.messages if NEW in message.shown]
    assert shown.broadcast or not shown.thread_ts
    assert posts <= MAX_POSTS_BEFORE


def digests(storm: Storm) -> list[Posted]:
    return [root for root in storm.workspace.roots() if "📋" in root.text]


def named(storm: Storm, before: str = "") -> list[int]:
    """Return the pages of the storm that the channel names, after these words."""
    shown = "".join(message.shown for message in storm.workspace.messages)
    return [number for number in range(STORM) if f"{before}Model g{number} failed" in shown]


def test_a_storm_is_delivered_to_its_end(tmp_path: Path) -> None:
    """Although new pages go first, each end is shown: in the incident's own message, else in the digest."""
    storm = Storm(tmp_path)
    storm.send_until_new(most=50)
    storm.each(lambda name: storm.notify({}, {name: (storm.began, storm.clock())}, name=name))
    storm.send_until_new()
    backlog = storm.store.outbox.backlog()
    left = storm.store.outbox.digests(CHANNEL)
    storm.close()

    assert [f"📋 {STORM} incidents: 0 firing, {STORM} resolved"] == [digest.text for digest in digests(storm)]
    assert MAX_OWN_MESSAGES + messages.DIGEST_LINES == len(named(storm, "Resolved: "))
    assert ((0, None), []) == (backlog, left)


def test_a_storm_is_one_message_that_is_edited_and_few_others(tmp_path: Path) -> None:
    """The channel stays readable: the digest counts what fires, and names as many pages as it can."""
    storm = Storm(tmp_path)
    storm.send_until_new()
    (digest,) = digests(storm)
    first, shown = digest.text, digest.shown
    own = len(storm.workspace.roots()) - 1
    for number in range(MAX_OWN_MESSAGES):
        storm.notify({}, {f"g{number}": (storm.began, storm.clock())}, name=f"g{number}")
    storm.send_until_new()
    later = len(storm.workspace.roots()) - 1
    storm.close()

    assert messages.DIGEST_LINES == shown.count("failed to load")
    assert f"and {STORM - MAX_OWN_MESSAGES - messages.DIGEST_LINES} more" in shown
    assert f"have their own message ({MAX_OWN_MESSAGES} now)" in shown
    assert MAX_OWN_MESSAGES == own
    assert 2 * MAX_OWN_MESSAGES == later
    assert f"📋 {STORM} incidents: {STORM} firing, 0 resolved" == first
    assert (
        f"📋 {STORM} incidents: {STORM - MAX_OWN_MESSAGES} firing, {MAX_OWN_MESSAGES} resolved" == digest.text
    )
    assert [] == storm.workspace.thread(digest)


def test_a_digest_that_cannot_be_composed_delays_no_edit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The digest is edited first; an error there must not stop the edits of the incidents' messages."""
    storm = Storm(tmp_path)
    storm.send_until_new()
    (own, *_) = [root for root in storm.workspace.roots() if "📋" not in root.text]
    (ended,) = [f"g{number}" for number in range(STORM) if f"Model g{number} failed" in own.text]

    def broken(*_: object, **__: object) -> Message:
        raise ValueError("Invalid IPv6 URL")

    monkeypatch.setattr(messages, "digest", broken)
    storm.notify({}, {ended: (storm.began, storm.clock())}, name=ended)
    storm.send_until_new()
    storm.close()

    assert own.text.startswith("🟢")


def test_what_ended_before_the_digest_was_posted_is_counted(tmp_path: Path) -> None:
    """It gets no message of its own; `incidents list` names it."""
    storm = Storm(tmp_path)
    storm.notify({}, {"g70": (storm.began, storm.clock())}, name="g70")
    storm.send_until_new()
    undelivered, _ = storm.store.outbox.backlog()
    storm.close()

    assert [f"📋 {STORM} incidents: {STORM - 1} firing, 1 resolved"] == [each.text for each in digests(storm)]
    assert 70 not in named(storm)
    assert 0 == undelivered


def test_a_digest_that_slack_edits_late_is_edited_again(tmp_path: Path) -> None:
    """All its incidents have ended, and an edit of before takes effect after the last one."""
    storm = Storm(tmp_path)
    storm.send_until_new()
    faults = iter(["late40"])
    storm.slack.fault = lambda method: next(faults, "") if method == "chat.update" else ""
    storm.notify({}, {"g75": (storm.began, storm.clock())}, name="g75")  # which only the digest names
    storm.run_for(15)
    storm.each(lambda name: storm.notify({}, {name: (storm.began, storm.clock())}, name=name))
    storm.slack.fault = lambda _method: ""
    storm.run_for(60)
    storm.slack.act_late()
    storm.run_for(120)
    storm.close()

    [digest] = digests(storm)
    assert storm.slack.acted_late
    assert f"📋 {STORM} incidents: 0 firing, {STORM} resolved" == digest.text


def test_an_alert_that_came_and_went_while_only_a_digest_shows_its_incident_is_named(tmp_path: Path) -> None:
    """The message that the incident gets later has no thread in which the alert was reported."""
    storm = Storm(tmp_path)
    storm.send_until_new()
    shown = "".join(root.shown for root in storm.workspace.roots() if "📋" not in root.text)
    (name, *others) = [f"g{n}" for n in range(STORM) if f"Model g{n} failed" not in shown]
    came = storm.clock()
    storm.notify({name: storm.began, "visitor": came}, name=name)
    storm.notify({name: storm.began}, {"visitor": (came, came + 60)}, name=name)
    for each in {f"g{n}" for n in range(STORM)} - {name, *others}:
        storm.notify({}, {each: (storm.began, storm.clock())}, name=each)
    storm.send_until_new()
    storm.close()

    (root,) = [root for root in storm.workspace.roots() if f"Model {name} failed" in root.text]
    assert f"*Resolved*\\nModel visitor failed to load, {slack_hour(came + 60, came)}" in root.shown


def test_an_earlier_digest_shows_the_ends_of_what_it_counted(tmp_path: Path) -> None:
    """A second storm long after the first has a digest of its own; both end with nothing firing."""
    storm = Storm(tmp_path)
    storm.send_until_new()
    storm.clock.now += 2 * DIGEST_SECONDS
    second = [f"second{number}" for number in range(20)]
    for name in second:
        storm.notify({name: storm.clock()}, name=name)
    storm.send_until_new()
    for name in [f"g{number}" for number in range(STORM)] + second:
        storm.notify({}, {name: (storm.began, storm.clock())}, name=name)
    storm.send_until_new()
    storm.close()

    digests = [root.text for root in storm.workspace.roots() if "📋" in root.text]
    ended = [f"📋 {count} incidents: 0 firing, {count} resolved" for count in (STORM, len(second))]
    assert ended == digests


def test_the_digest_s_deleted_message_is_posted_again(tmp_path: Path) -> None:
    """A new digest names the incidents that a deleted one named."""
    storm = Storm(tmp_path)
    storm.send_until_new(most=3)
    storm.workspace.delete(storm.workspace.roots()[0])
    storm.send_until_new()
    storm.each(lambda name: storm.notify({}, {name: (storm.began, storm.clock())}, name=name))
    storm.send_until_new()
    storm.close()

    (digest,) = digests(storm)
    assert digest.text.endswith(f": 0 firing, {STORM - 4} resolved")
    assert MAX_OWN_MESSAGES + messages.DIGEST_LINES <= len(named(storm, "Resolved: "))


def test_a_page_that_only_a_digest_shows_is_not_escalated(tmp_path: Path) -> None:
    """Only pages with their own message are escalated: hundreds of escalations would not help."""
    storm = Storm(tmp_path)
    storm.send_until_new()
    escalations = []
    storm.clock.now += 1000
    escalate = Escalator(
        storm.store,
        storm.worker.options.escalation,
        lambda _: CHANNEL,
        lambda: None,
        lambda _at, incident, _channel: escalations.append(incident.name),
    )
    escalate(storm.clock())
    storm.close()

    assert MAX_OWN_MESSAGES == len(escalations)

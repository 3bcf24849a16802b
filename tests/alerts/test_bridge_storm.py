"""Hundreds of incidents at once: which message goes out first, counted in messages and not in seconds."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from support.bridge_simulation import CHANNEL, Clock, SimulatedSlack, body_of
from support.slack import Workspace
from triton_alerts.bridge.deliver.plan import DIGEST_SECONDS, MOST_OWN
from triton_alerts.bridge.deliver.transport import Attempts
from triton_alerts.bridge.deliver.worker import DeliveryOptions, DeliveryWorker, Escalation
from triton_alerts.bridge.incidents.notification import parse
from triton_alerts.bridge.incidents.store import Store
from triton_alerts.bridge.operations.chores import Escalator
from triton_alerts.bridge.text import slack_hour

STORM = 150
NEW = "newest-model"
IDLE_SECONDS = 30.0
"""A worker that waits for so long has nothing to send."""
MOST_BEFORE = 3
"""Posts that may go out before the new page: Slack takes about one a second."""


class Storm:
    """Many pages that fire at once, a worker, and simulated time."""

    def __init__(self, folder: Path) -> None:
        self.clock, self.workspace = Clock(), Workspace()
        self.store = Store(folder / "bridge.sqlite", lambda _severity: CHANNEL)
        slack = SimulatedSlack(self.workspace, self.clock, lambda _method: "")
        options = DeliveryOptions(escalation=Escalation(900))
        self.worker = DeliveryWorker(
            CHANNEL, self.store, slack, options, Attempts(self.clock, random.Random(1))
        )
        self.began = self.clock()
        self.each(lambda name: self.take_in(name, {name: self.began}))

    def take_in(
        self, name: str, firing: dict[str, float], ended: dict[str, tuple[float, float]] | None = None
    ) -> None:
        self.store.receive(parse(body_of(name, firing, ended or {}), "am"), self.clock())

    def each(self, do: Callable[[str], None]) -> None:
        with self.store.transaction():  # one write to disk instead of hundreds
            for number in range(STORM):
                do(f"g{number}")

    def send(self, most: float = float("inf")) -> int:
        """Send until nothing waits, so many posts were made, or the new page is shown; returns the posts made."""
        before = len(self.workspace.messages)
        while len(self.workspace.messages) - before < most:
            wait = self.worker.step()
            if wait > IDLE_SECONDS:
                break
            self.clock.now += max(wait, 0.01)
            if any(NEW in one.shown for one in self.workspace.messages):
                break
        return len(self.workspace.messages) - before


def nothing_more(storm: Storm) -> None:
    """The storm itself has only just been received."""


def named_by_digests(storm: Storm) -> None:
    """Every page of the storm is named by a digest and waits for its own message."""
    storm.send(most=20)


def all_resolved(storm: Storm) -> None:
    """Every page of the storm is in a digest and is over."""
    storm.send()
    storm.each(lambda name: storm.take_in(name, {}, {name: (storm.began, storm.clock())}))


def all_escalated(storm: Storm) -> None:
    """Nobody acknowledged any page of the storm."""
    storm.send()
    storm.clock.now += 1000
    Escalator(storm.store, storm.worker.options.escalation, lambda _: CHANNEL, lambda: None)(storm.clock())


def all_grown(storm: Storm) -> None:
    """One more alert in every incident of the storm."""
    storm.send()
    storm.each(lambda name: storm.take_in(name, {name: storm.began, f"{name}-more": storm.clock()}))


@pytest.mark.parametrize(
    "waiting",
    [nothing_more, named_by_digests, all_resolved, all_escalated, all_grown],
    ids=lambda w: w.__name__,
)
def test_a_new_page_goes_out_before_what_waits(tmp_path: Path, waiting: Callable[[Storm], None]) -> None:
    """On-call sees the newest page at once, whatever else there is to say about older ones."""
    storm = Storm(tmp_path)
    waiting(storm)
    storm.take_in("new", {NEW: storm.clock()})
    posts = storm.send()
    storm.store.close()

    assert any(NEW in one.shown for one in storm.workspace.roots())
    assert posts <= MOST_BEFORE


def test_a_ticket_that_becomes_a_page_goes_out_before_what_waits(tmp_path: Path) -> None:
    """Raised inside its incident, it is a new page, too."""
    storm = Storm(tmp_path)
    ticket = body_of("ticket", {"m": storm.began}, {}).replace(b'"critical"', b'"warning"')
    storm.store.receive(parse(ticket, "am"), storm.clock())
    all_grown(storm)
    storm.take_in("ticket", {"m": storm.began, NEW: storm.clock()})
    posts = storm.send()
    storm.store.close()

    (shown,) = [one for one in storm.workspace.messages if NEW in one.shown]
    assert shown.broadcast or not shown.thread_ts
    assert posts <= MOST_BEFORE


def test_a_storm_is_delivered_to_its_end(tmp_path: Path) -> None:
    """New pages that go first starve nothing: in the end every incident has its message and its end."""
    storm = Storm(tmp_path)
    storm.send(most=50)
    storm.each(lambda name: storm.take_in(name, {}, {name: (storm.began, storm.clock())}))
    storm.send()
    storm.store.close()

    shown = "".join(one.shown for one in storm.workspace.messages)
    assert [] == [number for number in range(STORM) if f"Resolved: Model g{number} failed" not in shown]


def test_a_storm_is_one_message_that_is_edited_and_few_others(tmp_path: Path) -> None:
    """The channel stays readable: the digest counts what fires, and its thread names each page."""
    storm = Storm(tmp_path)
    storm.send()
    (digest,) = [one for one in storm.workspace.roots() if "📋" in one.text]
    named = "".join(one.shown for one in [digest, *storm.workspace.thread(digest)])
    first = digest.text
    own = len(storm.workspace.roots()) - 1
    for number in range(MOST_OWN):
        storm.take_in(f"g{number}", {}, {f"g{number}": (storm.began, storm.clock())})
    storm.send()
    later = len(storm.workspace.roots()) - 1
    storm.store.close()

    assert [] == [number for number in range(STORM) if f"Model g{number} failed" not in named]
    assert MOST_OWN == own
    assert 2 * MOST_OWN == later
    assert f"📋 {STORM} incidents: {STORM} firing, 0 already resolved" == first
    assert f"📋 {STORM} incidents: {STORM - MOST_OWN} firing, {MOST_OWN} already resolved" == digest.text


def test_what_ended_before_the_digest_was_posted_stays_named(tmp_path: Path) -> None:
    """The digest's message is edited and then names what fires only; its thread names each incident."""
    storm = Storm(tmp_path)
    storm.take_in("g140", {}, {"g140": (storm.began, storm.clock())})
    storm.send()
    shown = [one.shown for one in storm.workspace.messages]
    storm.store.close()

    assert [True] * STORM == [any(f"Model g{n} failed" in one for one in shown) for n in range(STORM)]


def test_an_alert_that_came_and_went_while_only_a_digest_shows_its_incident_is_named(tmp_path: Path) -> None:
    """The message that the incident gets later has no thread in which the alert was reported."""
    storm = Storm(tmp_path)
    storm.send()
    shown = "".join(one.shown for one in storm.workspace.roots() if "📋" not in one.text)
    (name, *others) = [f"g{n}" for n in range(STORM) if f"Model g{n} failed" not in shown]
    came = storm.clock()
    storm.take_in(name, {name: storm.began, "visitor": came})
    storm.take_in(name, {name: storm.began}, {"visitor": (came, came + 60)})
    for each in {f"g{n}" for n in range(STORM)} - {name, *others}:
        storm.take_in(each, {}, {each: (storm.began, storm.clock())})
    storm.send()
    storm.store.close()

    (root,) = [one for one in storm.workspace.roots() if f"Model {name} failed" in one.text]
    assert f"*Ended*\\nModel visitor failed to load, {slack_hour(came + 60)}" in root.shown


def test_an_earlier_digest_shows_the_ends_of_what_it_counted(tmp_path: Path) -> None:
    """A second storm long after the first has a digest of its own; both end with nothing firing."""
    storm = Storm(tmp_path)
    storm.send()
    storm.clock.now += 2 * DIGEST_SECONDS
    second = [f"second{number}" for number in range(20)]
    for name in second:
        storm.take_in(name, {name: storm.clock()})
    storm.send()
    for name in [f"g{number}" for number in range(STORM)] + second:
        storm.take_in(name, {}, {name: (storm.began, storm.clock())})
    storm.send()
    storm.store.close()

    digests = [one.text for one in storm.workspace.roots() if "📋" in one.text]
    ended = [f"📋 {count} incidents: 0 firing, {count} already resolved" for count in (STORM, len(second))]
    assert ended == digests


def test_the_digest_s_deleted_message_is_posted_again(tmp_path: Path) -> None:
    """What a deleted digest named is not lost with it."""
    storm = Storm(tmp_path)
    storm.send(most=3)
    storm.workspace.delete(storm.workspace.roots()[0])
    storm.send()
    storm.each(lambda name: storm.take_in(name, {}, {name: (storm.began, storm.clock())}))
    storm.send()
    storm.store.close()

    shown = "".join(one.shown for one in storm.workspace.messages)
    assert [] == [number for number in range(STORM) if f"Resolved: Model g{number} failed" not in shown]


def test_a_page_that_only_a_digest_shows_is_not_escalated(tmp_path: Path) -> None:
    """Hundreds of escalations would be no help."""
    storm = Storm(tmp_path)
    storm.send()
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
    storm.store.close()

    assert MOST_OWN == len(escalations)

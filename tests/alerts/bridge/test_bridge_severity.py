"""Test a ticket that becomes a page while its incident is open, where one route receives both severities."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.bridge import BridgeUnderTest, Clock, body_of
from triton_alerts.bridge.assembly import assemble
from triton_alerts.bridge.deliver.worker import DeliveryOptions, Escalation
from triton_alerts.bridge.incidents.notification import parse
from triton_alerts.bridge.service import Escalator
from triton_alerts.bridge.settings import BridgeSettings
from tritonwatch.parser import Parser
from tritonwatch.usage import VERBS

PAGES, TICKETS = "C0PAGES", "C0TICKETS"
ESCALATION = Escalation(900, mention="<!subteam^S0ONCALL>")


class Bridge(BridgeUnderTest):
    """Takes tickets in a channel of their own or in that of pages; what it receives is sent at once."""

    def __init__(self, folder: Path, tickets: str) -> None:
        channels = {"critical": PAGES, "warning": tickets}
        super().__init__(folder, channels=channels, options=DeliveryOptions(escalation=ESCALATION))
        self.began = self.clock()

    def fire(self, *firing: str, ended: tuple[str, ...] = ()) -> None:
        """Receive a notification of one group: alerts named `page...` are critical, the others warnings."""
        body = body_of(
            "g0",
            dict.fromkeys(firing, self.began),
            {name: (self.began, self.clock()) for name in ended},
        )
        for name in {*firing, *ended}:
            if not name.startswith("page"):
                body = body.replace(
                    f'"version": "{name}", "severity": "critical"'.encode(),
                    f'"version": "{name}", "severity": "warning"'.encode(),
                )
        self.receive(body)
        self.send()

    def wait(self, seconds: float) -> None:
        self.clock.now += seconds
        Escalator(self.store, ESCALATION, self.channel_of, lambda: None)(self.clock())
        self.send()

    def click(self, action: str) -> None:
        self.press(action)
        self.send()

    def in_channel(self, channel: str) -> list[str]:
        """Return what a reader of the channel saw appear, in order: messages, and replies shown there too."""
        return [
            message.text
            for message in self.workspace.messages
            if message.channel == channel and _appears(message)
        ]

    def escalations(self) -> int:
        return sum("Nobody has acknowledged" in text for text in self.in_channel(PAGES))


def _appears(message: object) -> bool:
    return not getattr(message, "thread_ts", "") or bool(getattr(message, "broadcast", False))


@pytest.fixture(params=[TICKETS, PAGES], ids=["two channels", "one channel"])
def bridge(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bridge]:
    made = Bridge(tmp_path, request.param)
    yield made
    made.close()


def test_a_page_calls_nobody_in_the_channel_of_tickets(tmp_path: Path) -> None:
    """The page has a message of its own in the channel of pages, whichever of the two is written first."""
    bridge = Bridge(tmp_path, TICKETS)
    bridge.workers.reverse()
    bridge.fire("ticket")
    bridge.fire("ticket", "page")

    assert 1 == len(bridge.in_channel(TICKETS))
    assert not any(ESCALATION.mention in message.text for message in bridge.workspace.messages)
    bridge.close()


def test_the_acknowledgement_of_the_page_counts_for_every_later_page(bridge: Bridge) -> None:
    """A page that flaps inside an acknowledged incident is not sent again."""
    bridge.fire("ticket")
    bridge.fire("ticket", "page")
    bridge.click("acknowledge")
    seen = len(bridge.in_channel(PAGES))
    bridge.fire("ticket", ended=("page",))
    bridge.fire("ticket", "page-2")
    bridge.wait(7200)

    assert bridge.incident().acknowledged is not None
    assert seen == len(bridge.in_channel(PAGES))


def test_every_thread_of_a_raised_incident_learns_of_its_end(bridge: Bridge) -> None:
    """The readers of the ticket and those of the page both see that the incident has ended."""
    bridge.fire("ticket")
    bridge.fire("ticket", "page")
    bridge.fire(ended=("ticket", "page"))
    roots = bridge.workspace.roots()

    assert len(set(bridge.channels.values())) == len(roots)
    assert all("Resolved:" in root.shown for root in roots)
    assert all("Recovered" in bridge.workspace.thread(root)[-1].text for root in roots)


def test_an_escalation_shows_that_its_page_ended_while_the_ticket_goes_on(bridge: Bridge) -> None:
    """Its readers may see no other message: on-call must not search for a page that has ended."""
    bridge.fire("ticket", "page")
    bridge.wait(901)
    (escalation,) = [root for root in bridge.workspace.roots(PAGES) if "Nobody has" in root.text]
    shown = [escalation.text]
    bridge.fire("ticket", ended=("page",))
    shown.append(escalation.text)
    bridge.fire("ticket", "page-2")
    shown.append(escalation.text)
    bridge.fire(ended=("ticket", "page-2"))
    shown.append(escalation.text)

    assert [True, False, False, False] == [ESCALATION.mention in text for text in shown]
    assert [False, True, False, False] == ["continues as a ticket" in text for text in shown]
    assert ["🔴", "🟠", "🔴", "🟢"] == [text.splitlines()[1][0] for text in shown]
    assert all("|thread>" in text for text in shown)


def test_each_escalation_of_an_incident_shows_its_end(bridge: Bridge) -> None:
    """After a second escalation, the first one is edited, too: it must not stay red."""
    bridge.fire("page")
    bridge.wait(901)
    bridge.click("acknowledge")
    bridge.click("release")
    bridge.wait(901)
    escalations = [root for root in bridge.workspace.roots(PAGES) if "Nobody has" in root.text]
    bridge.fire(ended=("page",))

    assert 2 == len(escalations)
    assert ["🟢", "🟢"] == [escalation.text.splitlines()[1][0] for escalation in escalations]


def test_a_page_that_ended_before_it_was_received_raises_nothing(bridge: Bridge) -> None:
    """Nobody needs to be called; if it fires again, the incident is raised."""
    bridge.fire("ticket")
    bridge.click("acknowledge")
    bridge.fire("ticket", ended=("page",))
    before = bridge.incident().acknowledged
    bridge.clock.now += 60
    bridge.began = bridge.clock()
    bridge.fire("ticket", "page")

    assert before is not None
    assert bridge.incident().acknowledged is None


def test_a_webhook_has_one_channel_for_any_urgency(tmp_path: Path) -> None:
    """A webhook posts to its own channel only; a second message would be a duplicate."""
    (tmp_path / "hook").write_text("http://127.0.0.1:9/services/T/B/x")
    parser = Parser()
    VERBS["bridge"].configure(parser)
    args = parser.parse_args(
        [
            f"--slack-webhook-file={tmp_path / 'hook'}",
            "--channel=C0PAGES",
            "--channel-for=warning=C0TICKETS",
            f"--data={tmp_path}",
        ]
    )
    clock = Clock()
    service = assemble(BridgeSettings.read(vars(args), {}), ("127.0.0.1", 0), tmp_path, clock)
    page = body_of("g0", {"m": clock()}, {})
    service.store.receive(parse(page.replace(b'"critical"', b'"warning"'), "am"), clock())
    service.store.receive(parse(page.replace(b'"fingerprint": "m"', b'"fingerprint": "n"'), "am"), clock())
    counts = [len(service.store.outbox.pending(channel)) for channel in ("C0PAGES", "C0TICKETS")]
    service.receiver.server_close()
    service.store.close()

    assert [1, 0] == counts


def test_a_ticket_in_the_thread_of_a_page_is_called_a_ticket(bridge: Bridge) -> None:
    """On-call must not mistake the ticket for a second page."""
    bridge.fire("page")
    bridge.fire("page", "ticket")
    lines = [message.text for message in bridge.workspace.messages if message.thread_ts]

    assert 1 == len([line for line in lines if "also firing (ticket): " in line])


def test_a_page_and_a_ticket_that_end_together_are_a_line_each(bridge: Bridge) -> None:
    """A single line about both would not show which of them was the page."""
    bridge.fire("page", "ticket", "ticket2")
    bridge.fire("ticket2", ended=("page", "ticket"))
    lines = "\n".join(message.text for message in bridge.workspace.messages if message.thread_ts)

    assert (1, 1) == (lines.count("resolved (page): "), lines.count("resolved (ticket): "))

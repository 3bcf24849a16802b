"""Test Slack over HTTP: each failure has a class, and each class its consequence."""

from __future__ import annotations

import logging
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from support.bridge import CHANNEL, Clock, SimulatedSlack, body_of
from support.slack.server import SlackServer
from support.slack.workspace import TOKEN, Workspace
from triton_alerts.bridge.deliver import messages
from triton_alerts.bridge.deliver.messages import Message
from triton_alerts.bridge.deliver.slack import SlackApi, SlackWebhook, refusal
from triton_alerts.bridge.deliver.transport import Attempts, DeliveryError
from triton_alerts.bridge.deliver.worker import DeliveryOptions, DeliveryWorker
from triton_alerts.bridge.incidents.incident import Incident
from triton_alerts.bridge.incidents.notification import parse
from triton_alerts.bridge.incidents.store import Store
from triton_alerts.bridge.settings import Secret
from tritonwatch.commands.bridge import RedactingFormatter

HELLO = Message("hello", ({"type": "section", "text": {"type": "mrkdwn", "text": "hello"}},))


@pytest.fixture
def server() -> Iterator[SlackServer]:
    with SlackServer(Workspace()) as running:
        yield running


@pytest.mark.parametrize(
    ("fault", "kind", "unconfirmed", "after"),
    [
        ("429", "rate_limited", False, 1.0),
        ("500", "server_error", True, None),
        ("502", "server_error", True, None),
        ("internal_error", "server_error", True, None),
        ("fatal_error", "server_error", True, None),
        ("hang", "timeout", True, None),
        ("hang_done", "timeout", True, None),
        ("reset", "connection", True, None),
        ("reset_done", "connection", True, None),
    ],
)
def test_each_fault_has_its_class(
    server: SlackServer, fault: str, kind: str, unconfirmed: bool, after: float | None
) -> None:
    """One attempt, no hidden retries; what may have been posted is in doubt."""
    server.fault = lambda _method: fault
    api = SlackApi(lambda: TOKEN, server.api_url, timeout_seconds=1)
    with pytest.raises(DeliveryError) as refused:
        api.post(CHANNEL, HELLO, "n1")

    value = refused.value
    assert (kind, unconfirmed, after) == (value.kind, value.unconfirmed, value.retry_after)
    assert len(server.workspace.messages) == (1 if fault.endswith("_done") or fault == "fatal_error" else 0)


def test_a_refused_connection_leaves_no_message_unconfirmed() -> None:
    """Nothing was sent, so nothing can have been posted."""
    with pytest.raises(DeliveryError) as refused:
        SlackApi(lambda: TOKEN, "http://127.0.0.1:9/api/").post(CHANNEL, HELLO, "n1")

    assert ("connection", False) == (refused.value.kind, refused.value.unconfirmed)


@pytest.mark.parametrize(
    ("token", "channel", "kind"), [("xoxb-wrong", CHANNEL, "setup"), (TOKEN, "#nowhere", "setup")]
)
def test_what_a_person_must_fix_is_setup(server: SlackServer, token: str, channel: str, kind: str) -> None:
    """A wrong token or an unknown channel is not classified as a failure of Slack."""
    with pytest.raises(DeliveryError) as refused:
        SlackApi(lambda: token, server.api_url).post(channel, HELLO, "n1")

    assert kind == refused.value.kind


def test_a_message_is_found_by_its_name(server: SlackServer) -> None:
    """After a lost answer, in the channel and in a thread, over several pages."""
    api = SlackApi(lambda: TOKEN, server.api_url)
    server.workspace.posts_per_second = server.workspace.burst = 1000
    root = api.post("#pages", HELLO, "n-root")
    reply = api.post(root.channel, HELLO, "n-reply", root.ts)
    for number in range(230):
        api.post(CHANNEL, HELLO, f"noise{number}")

    assert root == api.find(root.channel, "n-root", 0.0)
    assert reply == api.find(root.channel, "n-reply", 0.0, root.ts)
    assert api.find(root.channel, "n-none", 0.0) is None


def test_a_reply_to_a_deleted_message_is_noticed(server: SlackServer) -> None:
    """Slack posts the message in the channel without an error; its response shows no thread."""
    api = SlackApi(lambda: TOKEN, server.api_url)
    root = api.post(CHANNEL, HELLO, "n1")
    server.workspace.delete(server.workspace.messages[0])

    assert not api.post(CHANNEL, HELLO, "n2", root.ts).in_thread
    with pytest.raises(DeliveryError, match="message_not_found"):
        api.edit(root.channel, root.ts, HELLO)


@pytest.mark.parametrize("fault", ["", "429", "500", "hang", "reset"])
def test_a_webhook_delivers_or_states_why_not(server: SlackServer, fault: str) -> None:
    """Failures of the incoming webhook have the same classes."""
    server.fault = lambda _method: fault
    hook = SlackWebhook(lambda: f"{server.url}/services/T/B/x", timeout_seconds=1)
    if fault:
        with pytest.raises(DeliveryError):
            hook.post(CHANNEL, HELLO, "n1")
    else:
        hook.post(CHANNEL, HELLO, "n1")

    assert (0 if fault else 1) == len(server.workspace.messages)


def worker(
    folder: Path, workspace: Workspace, fault: str = "", writes: Sequence[str] = ()
) -> tuple[DeliveryWorker, Clock]:
    """Return a worker whose every request has a fault, or whose first writes have these."""
    clock, rest = Clock(), iter(writes)
    store = Store(folder / "bridge.sqlite", lambda _severity: CHANNEL)
    slack = SimulatedSlack(
        workspace, clock, lambda method: next(rest, "") if method.startswith("chat.") and writes else fault
    )
    return DeliveryWorker(CHANNEL, store, slack, DeliveryOptions(), Attempts(clock, random.Random(1))), clock


def run(sender: DeliveryWorker, clock: Clock, seconds: float) -> None:
    end = clock() + seconds
    while clock() < end:
        clock.now += max(0.01, min(sender.step(), 5.0))


def attempts(folder: Path, seconds: float, fault: Callable[[int], str]) -> list[float]:
    """Return when a worker with one page called Slack, in seconds after the first call; `fault` by number."""
    sender, clock = worker(folder, Workspace())
    times: list[float] = []

    def noted(_method: str) -> str:
        times.append(clock())
        return fault(len(times))

    sender.transport = SimulatedSlack(Workspace(), clock, noted)
    sender.store.receive(parse(body_of("g0", {"a": clock()}, {}), "am"), clock())
    run(sender, clock, seconds)
    sender.store.close()
    return [at - times[0] for at in times]


def test_a_channel_waits_as_long_as_slack_asks(tmp_path: Path) -> None:
    """Retry-After 7: nothing for seven seconds, and then at once."""
    times = attempts(tmp_path, 30, lambda number: "429" if number == 1 else "")

    assert 2 == len(times)
    assert 7.0 <= times[1] < 9.0


@pytest.mark.parametrize(
    ("asked", "seconds"),
    [("0", 0.0), ("9999", 9999.0), ("9" * 400, 30.0), ("²", 30.0), ("-1", 30.0), ("", 30.0)],
)
def test_a_wait_that_is_not_a_sensible_number_silences_no_channel(asked: str, seconds: float) -> None:
    """A number of 400 digits is infinite: the channel waited until the bridge was started again."""
    assert seconds == refusal(429, {"Retry-After": asked}, "ratelimited").retry_after


def test_an_edit_that_cannot_be_composed_delays_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The most urgent edit goes first: one that failed each time would have been the last one of its channel."""
    workspace = Workspace()
    sender, clock = worker(tmp_path, workspace)
    for name in ("g0", "g1"):
        sender.store.receive(parse(body_of(name, {"a": clock()}, {}), "am"), clock())
        run(sender, clock, 5)
    root = messages.root

    def broken(incident: Incident, *rest: Any) -> Message:
        if "g0" in incident.key:
            raise ValueError("Invalid IPv6 URL")
        return root(incident, *rest)

    monkeypatch.setattr(messages, "root", broken)
    for name in ("g0", "g1"):
        sender.store.receive(parse(body_of(name, {}, {"a": (clock(), clock() + 1)}), "am"), clock())
    run(sender, clock, 30)
    sender.store.close()

    assert [False, True] == ["Resolved" in posted.text for posted in workspace.roots()]
    assert [True, True] == ["Recovered" in posted.shown for posted in workspace.messages if posted.thread_ts]


def test_one_channels_wait_delays_no_other(tmp_path: Path) -> None:
    """A page goes out while the tickets' channel has to wait."""
    sender, clock = worker(tmp_path, Workspace(), "429")
    sender.store.close()
    store = Store(
        tmp_path / "two.sqlite", lambda severity: CHANNEL if severity == "critical" else "C0TICKETS"
    )
    tickets = DeliveryWorker(
        "C0TICKETS", store, sender.transport, DeliveryOptions(), Attempts(clock, random.Random(1))
    )
    workspace = Workspace()
    pages = DeliveryWorker(
        CHANNEL,
        store,
        SimulatedSlack(workspace, clock, lambda _: ""),
        DeliveryOptions(),
        Attempts(clock, random.Random(1)),
    )
    ticket = body_of("g0", {"a": clock()}, {}).replace(b'"critical"', b'"warning"')
    store.receive(parse(ticket, "am"), clock())
    store.receive(parse(body_of("g1", {"b": clock()}, {}), "am"), clock())
    refused, reported = tickets.step(), pages.step()
    waits = tickets.step()
    store.close()

    assert (0.0, 0.0) == (refused, reported)
    assert waits > 6.0
    assert 1 == len(workspace.roots())


def test_an_outage_is_asked_about_less_and_less_often_and_at_least_once_a_minute(tmp_path: Path) -> None:
    """The worker waits longer after each failure, with jitter, and continues to retry."""
    times = attempts(tmp_path, 1800, lambda _: "500")
    gaps = [later - sooner for sooner, later in pairwise(times)]

    assert max(gaps[:3]) < 6.0
    assert min(gaps[8:]) > 25.0
    assert max(gaps) < 70.0
    assert len({round(gap, 2) for gap in gaps[8:]}) > 10


def test_every_change_reaches_a_webhook_as_a_message(tmp_path: Path, server: SlackServer) -> None:
    """Without threads and edits the resolve is a message of its own."""
    clock = Clock()
    store = Store(tmp_path / "bridge.sqlite", lambda _severity: CHANNEL)
    hook = SlackWebhook(lambda: f"{server.url}/services/T/B/x")
    server.clock = clock
    sender = DeliveryWorker(CHANNEL, store, hook, DeliveryOptions(), Attempts(clock, random.Random(1)))
    store.receive(parse(body_of("g0", {"a": clock()}, {}), "am"), clock())
    run(sender, clock, 5)
    store.receive(parse(body_of("g0", {}, {"a": (clock(), clock() + 1)}), "am"), clock())
    run(sender, clock, 5)
    store.close()

    assert [False, True] == ["Resolved" in m.text for m in server.workspace.messages]


def test_blocks_that_slack_refuses_become_plain_text(tmp_path: Path) -> None:
    """A message whose blocks are refused is posted as text."""
    workspace = Workspace()
    sender, clock = worker(tmp_path, workspace)
    real = workspace.call

    def picky(method: str, arguments: dict, now: float, **more: str):  # type: ignore[no-untyped-def,type-arg]
        if arguments.get("blocks"):
            arguments = {**arguments, "blocks": [{"type": "wrong"}]}
        return real(method, arguments, now, **more)

    workspace.call = picky  # type: ignore[method-assign,assignment]
    sender.store.receive(parse(body_of("g0", {"a": clock()}, {}), "am"), clock())
    run(sender, clock, 10)
    sender.store.close()

    (posted,) = workspace.messages
    assert posted.text.startswith("🔴 Model a failed to load · since <!date^")
    assert [] == workspace.messages[0].blocks


def test_a_deleted_message_is_written_again(tmp_path: Path) -> None:
    """After a person deletes the message, the next change posts it again."""
    workspace = Workspace()
    sender, clock = worker(tmp_path, workspace)
    sender.store.receive(parse(body_of("g0", {"a": clock()}, {}), "am"), clock())
    run(sender, clock, 5)
    workspace.delete(workspace.messages[0])
    sender.store.receive(parse(body_of("g0", {"a": clock(), "b": clock()}, {}), "am"), clock())
    run(sender, clock, 20)
    sender.store.receive(parse(body_of("g0", {}, {"a": (clock(), clock() + 1)}), "am"), clock())
    run(sender, clock, 20)
    sender.store.close()

    assert any("Resolved" in m.shown for m in workspace.roots())


def test_a_short_outage_of_many_incidents_ends_in_a_digest(tmp_path: Path) -> None:
    """When Slack returns, one summary replaces many messages; ended incidents get no message of their own."""
    workspace = Workspace()
    sender, clock = worker(tmp_path, workspace)
    for number in range(30):
        sender.store.receive(parse(body_of(f"g{number}", {f"m{number}": clock()}, {}), "am"), clock())
    for number in range(20):
        sender.store.receive(
            parse(body_of(f"g{number}", {}, {f"m{number}": (clock(), clock() + 9)}), "am"), clock()
        )
    run(sender, clock, 60)
    sender.store.close()

    digests = [m for m in workspace.roots() if "📋" in m.text]
    assert ["📋 30 incidents: 10 firing, 20 resolved"] == [m.text for m in digests]
    assert 10 == len(workspace.roots()) - len(digests)
    assert digests[0] is workspace.messages[0]


def test_secrets_do_not_reach_the_log() -> None:
    """Anyone who logs a token, a password or a webhook's address logs [secret]."""
    record = logging.makeLogRecord(
        {
            "msg": "%s and %s failed at %s with Bearer abc.def and http://ana:pass@host/",
            "args": ("xoxb-1-secret", "xapp-1-secret", "https://hooks.slack-gov.com/services/T/B/s"),
        }
    )

    assert (
        "[secret] and [secret] failed at [secret] with [secret] and http://[secret]@host/"
        == RedactingFormatter().format(record)
    )


def test_secrets_do_not_reach_the_log_in_a_traceback() -> None:
    """A library's error may quote the address that it was given."""
    try:
        raise ValueError("unknown url type: 'hooks.slack.com/services/T0/B0/s3cret'")
    except ValueError:
        record = logging.makeLogRecord({"msg": "broke", "exc_info": sys.exc_info()})
    line = RedactingFormatter().format(record)

    assert "unknown url type: '[secret]'" in line
    assert "s3cret" not in line


@pytest.mark.parametrize("content", [None, "", "\xff"])
def test_a_missing_secret_is_for_a_person_to_fix(tmp_path: Path, content: str | None) -> None:
    """Nothing was sent, so nothing is in doubt, and the page waits instead of being lost."""
    file = tmp_path / "secret"
    if content is not None:
        file.write_bytes(content.encode("latin-1"))
    for transport in (SlackApi(Secret(file), "http://127.0.0.1:9/"), SlackWebhook(Secret(file))):
        with pytest.raises(DeliveryError) as refused:
            transport.post("C0PAGES", Message("hello"), "name")

        assert ("setup", False) == (refused.value.kind, refused.value.unconfirmed)


def test_a_webhook_that_is_not_an_address_is_never_quoted() -> None:
    """The address is the secret."""
    with pytest.raises(DeliveryError) as refused:
        SlackWebhook(lambda: "hooks.slack.com/services/T0/B0/s3cret").post("C0PAGES", Message("hello"), "n")

    assert "setup: the webhook is not a URL" == str(refused.value)


def test_a_message_that_slack_posts_late_is_removed(tmp_path: Path) -> None:
    """Slack acted on a request 25 s after it was sent: the bridge had sent the message again."""
    workspace = Workspace()
    sender, clock = worker(tmp_path, workspace, writes=["late25"])
    sender.store.receive(parse(body_of("g", {"m": clock()}, {}), "am"), clock())
    run(sender, clock, 120)
    sender.store.close()

    assert ["chat.delete"] == [method for _, method, _, _ in workspace.calls if method == "chat.delete"]
    assert 1 == len(workspace.roots())


def test_an_edit_that_slack_makes_late_is_repeated(tmp_path: Path) -> None:
    """The edit that showed an alert as firing took effect after the one that showed its end."""
    workspace = Workspace()
    sender, clock = worker(tmp_path, workspace, writes=["", "", "late40"])
    start = clock()
    sender.store.receive(parse(body_of("g", {"m": start}, {}), "am"), clock())
    run(sender, clock, 15)
    sender.store.receive(parse(body_of("g", {"m": start, "other": clock()}, {}), "am"), clock())
    run(sender, clock, 15)
    ended = {"m": (start, clock()), "other": (start, clock())}
    sender.store.receive(parse(body_of("g", {}, ended), "am"), clock())
    run(sender, clock, 150)
    sender.store.close()

    assert "Resolved" in workspace.roots()[0].shown
    assert any("Resolved" not in shown for shown in workspace.roots()[0].shown_over_time[-3:])


def test_a_message_that_the_history_shows_late_is_posted_once(tmp_path: Path) -> None:
    """The answer was lost, and the search for the message came too early."""
    workspace = Workspace(history_lag=20.0)
    sender, clock = worker(tmp_path, workspace, writes=["hang_done"])
    sender.store.receive(parse(body_of("g", {"m": clock()}, {}), "am"), clock())
    run(sender, clock, 120)
    sender.store.close()

    assert 1 == len(workspace.roots())

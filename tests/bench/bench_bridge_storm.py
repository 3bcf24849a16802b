"""Measure how fast 10,000 alerts in 500 groups are stored, grouped and posted, and at what cost."""

from __future__ import annotations

import random
import re
import resource
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import requests

from support.bridge import CHANNEL, Clock, SimulatedSlack, body_of
from support.loopback import served
from support.slack.workspace import Workspace
from triton_alerts.bridge.deliver.messages import Style
from triton_alerts.bridge.deliver.next_task import MAX_OWN_MESSAGES
from triton_alerts.bridge.deliver.transport import Attempts
from triton_alerts.bridge.deliver.worker import DeliveryOptions, DeliveryWorker
from triton_alerts.bridge.incidents.notification import parse
from triton_alerts.bridge.incidents.store import Store
from triton_alerts.bridge.receiver import PATH, Instruments, Webhook, listen
from triton_alerts.bridge.service import KEEP_SECONDS, Service

GROUPS, ALERTS = 500, 20
STORED = 10_000
"""Incidents in the database while notifications arrive."""
NEW = "newest-model"
IDLE_SECONDS = 30.0


def test_a_storm_is_stored_named_and_posted(tmp_path: Path) -> None:
    """Real sockets and disk for the storing; Slack's pace in simulated time, the bridge's own work in real."""
    clock, workspace = Clock(), Workspace()
    store = Store(tmp_path / "bridge.sqlite", lambda _severity: CHANNEL)
    receiver = listen(("127.0.0.1", 0), Webhook(store, Instruments(store, clock), clock, lambda: None))
    url = f"http://127.0.0.1:{receiver.server_address[1]}{PATH}"
    bodies = [body_of(f"g{g}", {f"g{g}-m{a}": clock() for a in range(ALERTS)}, {}) for g in range(GROUPS)]
    with served(receiver), ThreadPoolExecutor(8) as pool:
        before = time.perf_counter()
        answers = list(pool.map(lambda body: requests.post(url, data=body, timeout=60).status_code, bodies))
        stored = time.perf_counter() - before
    assert [200] * GROUPS == answers

    slack = SimulatedSlack(workspace, clock, lambda _method: "")
    worker = DeliveryWorker(
        CHANNEL, store, slack, DeliveryOptions(Style()), Attempts(clock, random.Random(1))
    )
    start, named, new, work, wait = clock(), 0.0, 0.0, time.perf_counter(), 0.0
    while wait < IDLE_SECONDS:
        wait = worker.step()
        clock.now += max(wait, 0.0)
        shown = {name for m in workspace.messages for name in re.findall(r"\bg\d+(?=-m\d+\b)", m.shown)}
        if not named and len(shown) == GROUPS:
            named = clock() - start
            store.receive(parse(body_of("new", {NEW: clock()}, {}), "am"), clock())
        if named and not new and any(NEW in m.shown for m in workspace.messages):
            new = clock() - start - named
    took, work = clock() - start, time.perf_counter() - work
    size = sum(path.stat().st_size for path in tmp_path.iterdir())
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    roots = [m for m in workspace.roots() if "📋" not in m.text]
    print(
        f"\nstored {GROUPS * ALERTS} alerts in {GROUPS} groups in {stored:.1f} s ({GROUPS / stored:.0f} groups/s); "
        f"all named in {named:.0f} s of Slack's time, a new page shown after {new:.1f} s more, {len(roots)} own "
        f"messages in {took:.0f} s (the rate limit alone, for one each: {GROUPS} s); own work "
        f"{1000 * work / len(workspace.messages):.1f} ms a message; disk {size / 2**20:.1f} MiB, "
        f"peak memory {memory:.0f} MiB"
    )
    store.close()
    assert MAX_OWN_MESSAGES + 1 == len(roots)
    assert new < 10
    assert 0 == sum(1 for _, _, status, _ in workspace.calls if status == 429)


def test_notifications_are_taken_while_many_incidents_are_stored(tmp_path: Path) -> None:
    """A running service with a full database: how long pruning and a notification take."""
    clock = Clock()
    store = Store(tmp_path / "bridge.sqlite", lambda _severity: CHANNEL)
    with store.transaction():
        for number in range(STORED):
            store.receive(parse(body_of(f"g{number}", {"m": clock()}, {}), "am"), clock())
            store.outbox.set_charted(number + 1)
    before = time.perf_counter()
    store.prune(clock() - KEEP_SECONDS)
    pruned = time.perf_counter() - before
    receiver = listen(("127.0.0.1", 0), Webhook(store, Instruments(store, clock), clock, lambda: None))
    url = f"http://127.0.0.1:{receiver.server_address[1]}{PATH}"
    service = Service(store, receiver, (), clock)
    service.start()
    times = []
    for number in range(50):
        before = time.perf_counter()
        requests.post(url, data=body_of(f"new{number}", {"m": clock()}, {}), timeout=60).raise_for_status()
        times.append(time.perf_counter() - before)
        time.sleep(0.1)
    service.stop()
    print(
        f"\n{STORED} incidents stored: pruning takes {1000 * pruned:.1f} ms, a notification "
        f"{1000 * sorted(times)[25]:.0f} ms (median), {1000 * max(times):.0f} ms (longest of 50)"
    )

"""Test the bridge's database: what it stores, for how long, and at what cost."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.bridge import CHANNEL, body_of
from triton_alerts.bridge.incidents.database import SCHEMA
from triton_alerts.bridge.incidents.history import list_incidents
from triton_alerts.bridge.incidents.incident import Incident
from triton_alerts.bridge.incidents.notification import parse
from triton_alerts.bridge.incidents.store import GRACE_SECONDS, PRUNED_AT_ONCE, Listed, Store

DAY = 86_400.0
NOW = 1_700_000_000.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path / "bridge.sqlite", lambda _severity: CHANNEL)
    yield made
    made.close()


def fill(store: Store, count: int, *, closed_at: float | None = None) -> None:
    """Add incidents, each with a chart; they are delivered in full if they are closed."""
    first = store.incidents.count_open().get("critical", 0)
    with store.transaction():  # one write to disk instead of thousands
        for number in range(first, first + count):
            name = f"g{number} {closed_at}"
            store.receive(parse(body_of(name, {"m": NOW - 9 * DAY}, {}), "am"), NOW - 9 * DAY)
            if closed_at is not None:
                store.receive(parse(body_of(name, {}, {"m": (NOW - 9 * DAY, closed_at)}), "am"), closed_at)
        for delivery in store.outbox.pending(CHANNEL):
            store.outbox.set_charted(delivery.incident)
            if delivery.closed_at is not None:
                store.outbox.update(delivery, seq=delivery.last_seq)


def steps(store: Store, work: Callable[[], object]) -> int:
    """Return how many hundreds of steps SQLite takes for a piece of work."""
    counted = 0

    def count() -> int:
        nonlocal counted
        counted += 1
        return 0

    store.database._connection().set_progress_handler(count, 100)
    work()
    store.database._connection().set_progress_handler(None, 100)
    return counted


def test_a_reader_sees_no_notification_that_is_half_stored(store: Store) -> None:
    """Chores read all open incidents while notifications arrive; half of one would end the chore."""
    fill(store, 300)
    stored = threading.Event()

    def read() -> None:
        while not stored.is_set():
            store.incidents.open()

    with ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        try:
            for number in range(150):
                store.receive(parse(body_of(f"new {number}", {"m": NOW}, {}), "am"), NOW)
        finally:
            stored.set()
    for reader in readers:
        reader.result()


def test_the_cost_of_pruning_does_not_grow_with_the_incidents_that_stay(store: Store) -> None:
    """Pruning takes the lock that a notification waits for."""
    fill(store, 100)
    few = steps(store, lambda: store.prune(NOW - 7 * DAY))
    fill(store, 900)
    many = steps(store, lambda: store.prune(NOW - 7 * DAY))

    assert 1000 == store.incidents.count_open()["critical"]
    assert many <= 2 * few + 10


def test_the_cost_of_reading_open_incidents_does_not_grow_with_the_closed_ones(store: Store) -> None:
    """Open incidents are read each second, and closed ones are stored for a month."""

    def read() -> None:
        store.incidents.open()
        store.incidents.open(NOW)
        store.incidents.silenced()

    fill(store, 10)
    few = steps(store, read)
    fill(store, 500, closed_at=NOW - DAY)
    many = steps(store, read)

    assert many <= 2 * few + 10


def test_pruning_forgets_what_closed_long_ago_and_was_delivered(store: Store, tmp_path: Path) -> None:
    """Open incidents, recent ones and those with something to send stay."""
    fill(store, 2, closed_at=NOW - 8 * DAY)
    fill(store, 2, closed_at=NOW - 6 * DAY)
    fill(store, 2)
    store.receive(parse(body_of("late", {}, {"m": (NOW - 9 * DAY, NOW - 8 * DAY)}), "am"), NOW - 8 * DAY)

    assert 2 == store.prune(NOW - 7 * DAY)
    with sqlite3.connect(tmp_path / "bridge.sqlite") as connection:
        counts = [
            connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for table in ("incidents", "deliveries")
        ]
    connection.close()
    assert [5, 5] == counts


def test_pruning_takes_a_part_at_a_time(store: Store) -> None:
    """A notification must not wait for a week's incidents to be deleted."""
    fill(store, PRUNED_AT_ONCE + 5, closed_at=NOW - 8 * DAY)

    assert [PRUNED_AT_ONCE, 5, 0] == [store.prune(NOW - 7 * DAY) for _ in range(3)]


@pytest.mark.parametrize("late", ["am", "twin"])
@pytest.mark.parametrize("known", [None, "listed", "not listed"])
def test_what_contradicts_an_end_fires_unless_alertmanager_does_not_list_it(
    tmp_path: Path, known: str | None, late: str
) -> None:
    """A late notification reports an alert that has ended; it fires if Alertmanager lists it or was not asked.

    It says what Alertmanager says of it now.
    """
    store = Store(tmp_path / "bridge.sqlite", lambda _severity: CHANNEL)
    firing, ended = body_of("g", {"m": NOW}, {}), body_of("g", {}, {"m": (NOW, NOW + 1)})
    name = next(iter(parse(firing, "am").alerts))
    now = {"summary": "what is wrong now"}
    answer = {None: None, "listed": Listed({name: now}), "not listed": Listed({})}[known]
    for body, source in ((firing, "am"), (ended, "am"), (firing, late)):
        store.receive(parse(body, source), NOW + 2)
    store.merge_held(NOW + 2 + GRACE_SECONDS, lambda _now: answer)
    said = [incident.lead.annotations["summary"] for _, incident in store.incidents.open()]
    again = store.merge_held(NOW + 2 + 3 * GRACE_SECONDS, lambda _now: None)
    store.close()

    words = {None: ["Model m failed to load"], "listed": ["what is wrong now"], "not listed": []}
    assert (words[known], 0) == (said, again)


def test_a_late_firing_is_dropped_where_its_alertmanager_no_longer_reports_it(tmp_path: Path) -> None:
    """Without an Alertmanager to ask, the next notification of the group shows that it was late."""
    store = Store(tmp_path / "bridge.sqlite", lambda _severity: CHANNEL)
    ended = {"m": (NOW, NOW + 1)}
    for firing, resolved in (({"m": NOW}, {}), ({}, ended), ({"m": NOW}, {}), ({"other": NOW + 2}, {})):
        store.receive(parse(body_of("g", firing, resolved), "am"), NOW + 2)
    merged = store.merge_held(NOW + 2 + GRACE_SECONDS)
    (incident,) = [incident for _, incident in store.incidents.open()]
    store.close()

    assert 0 == merged
    assert {"other"} == incident.members.keys()


@pytest.mark.parametrize("known", [None, "listed", "not listed"])
def test_an_alert_that_is_not_reported_as_ended_is_queried(tmp_path: Path, known: str | None) -> None:
    """No notification lists a silenced alert: "all resolved" ends it only if Alertmanager does not list it."""
    store = Store(tmp_path / "bridge.sqlite", lambda _severity: CHANNEL)
    both, last = body_of("g", {"m": NOW, "n": NOW}, {}), body_of("g", {}, {"n": (NOW, NOW + 1)})
    answer = {None: None, "listed": Listed({"m": {}}), "not listed": Listed({})}[known]
    for body in (both, last):
        store.receive(parse(body, "am"), NOW + 2, lambda _fingerprint, member: member.source.startswith("am"))
    firing = []
    for after in (0.0, GRACE_SECONDS):
        store.merge_held(NOW + 2 + after, lambda _now: answer)
        firing.append(
            [
                fingerprint
                for _, incident in store.incidents.open()
                for fingerprint, m in incident.members.items()
                if m.firing
            ]
        )
    store.close()

    assert [["m"], [] if known == "not listed" else ["m"]] == firing


@pytest.mark.parametrize("schema", [SCHEMA - 1, SCHEMA + 1])
def test_a_database_of_another_schema_is_refused(tmp_path: Path, schema: int) -> None:
    """The columns of another schema may mean something else; the error names both schemas."""
    with sqlite3.connect(tmp_path / "bridge.sqlite") as other:
        other.execute(f"PRAGMA user_version = {schema}")
    other.close()

    with pytest.raises(sqlite3.Error, match=f"schema {schema}, known here: {SCHEMA}"):
        Store(tmp_path / "bridge.sqlite", lambda _severity: CHANNEL)


def test_recorded_incidents_are_read_while_the_bridge_runs(store: Store, tmp_path: Path) -> None:
    """The demo asks for a list of them."""
    nothing = list_incidents(tmp_path / "elsewhere")
    fill(store, 1, closed_at=NOW)
    fill(store, 1)
    posted = store.outbox.main(1)
    assert posted is not None
    store.outbox.update(posted, ts="1.0")
    listed = list_incidents(tmp_path)

    assert [] == nothing
    assert [(False, True), (True, False)] == [
        (recorded.incident.open, recorded.posted) for recorded in listed
    ]


def test_the_file_shrinks_when_incidents_are_pruned(store: Store, tmp_path: Path) -> None:
    """The space of a storm on the disk is released."""
    fill(store, 400, closed_at=NOW - 8 * DAY)
    store.database.run("PRAGMA wal_checkpoint(TRUNCATE)")
    before = (tmp_path / "bridge.sqlite").stat().st_size
    while store.prune(NOW - 7 * DAY) == PRUNED_AT_ONCE or store.database.shrink():
        pass
    after = (tmp_path / "bridge.sqlite").stat().st_size

    assert before > 4 * after


def test_space_is_given_back_while_the_database_is_read(store: Store) -> None:
    """A query that another thread is still reading does not make it fail as locked."""
    with store.transaction():
        for number in range(5000):
            store.database.run("INSERT INTO pressed VALUES (?, 0)", str(number))
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(
            lambda: [len(store.database.rows("SELECT id FROM pressed")) for _ in range(100)]
        )
        while not reading.done():
            store.database.shrink()
    assert reading.result() == [5000] * 100


def test_open_incidents_are_parsed_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chores read them each second: 500 of them cost a tenth of a core while nothing happened."""
    fill(store, 50)
    before = store.incidents.open()
    monkeypatch.setattr(Incident, "model_validate_json", None)
    again = store.incidents.open()

    assert before == again

"""Test the bridge's database: what it stores, for how long, and at what cost."""

from __future__ import annotations

import json
import random
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.bridge import CHANNEL, START, Clock, SimulatedSlack, body_of
from support.slack.workspace import Workspace
from support.tools import ROOT
from triton_alerts.bridge.deliver.messages import Message
from triton_alerts.bridge.deliver.transport import Attempts
from triton_alerts.bridge.deliver.worker import DeliveryOptions, DeliveryWorker
from triton_alerts.bridge.incidents import history
from triton_alerts.bridge.incidents.database import DATABASE_FILE, MIGRATIONS
from triton_alerts.bridge.incidents.history import list_incidents
from triton_alerts.bridge.incidents.incident import Event, Incident
from triton_alerts.bridge.incidents.notification import parse
from triton_alerts.bridge.incidents.store import GRACE_SECONDS, PRUNED_AT_ONCE, Listed, Store

RELEASED = sorted((ROOT / "tests" / "captures" / "bridge").glob("database-*.sql"))
"""A dump of the database as each release writes it."""
_SCHEMA = (
    "SELECT m.name, p.name, p.type FROM sqlite_master m LEFT JOIN pragma_table_info(m.name) p ORDER BY 1, 2"
)
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


_OLDER = """
CREATE TABLE incidents (
  id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, key TEXT NOT NULL, document TEXT NOT NULL,
  severity INTEGER NOT NULL, opened_at REAL NOT NULL, closed_at REAL,
  last_seq INTEGER NOT NULL, version INTEGER NOT NULL);
CREATE TABLE events (
  incident INTEGER NOT NULL REFERENCES incidents ON DELETE CASCADE, seq INTEGER NOT NULL, at REAL NOT NULL,
  document TEXT NOT NULL, PRIMARY KEY (incident, seq)) WITHOUT ROWID;
CREATE TABLE deliveries (
  id INTEGER PRIMARY KEY, incident INTEGER NOT NULL REFERENCES incidents ON DELETE CASCADE,
  channel TEXT NOT NULL, role TEXT NOT NULL, root_channel TEXT NOT NULL DEFAULT '',
  root_ts TEXT NOT NULL DEFAULT '', told_seq INTEGER NOT NULL DEFAULT 0,
  told_version INTEGER NOT NULL DEFAULT 0, digest_seq INTEGER NOT NULL DEFAULT 0,
  plainness INTEGER NOT NULL DEFAULT 0, attempts INTEGER NOT NULL DEFAULT 0,
  next_try REAL NOT NULL DEFAULT 0, edited_at REAL NOT NULL DEFAULT 0, pending_since REAL,
  inflight TEXT NOT NULL DEFAULT '', inflight_kind TEXT NOT NULL DEFAULT '',
  inflight_seq INTEGER NOT NULL DEFAULT 0, inflight_at REAL NOT NULL DEFAULT 0,
  UNIQUE (incident, channel, role));
CREATE TABLE held (key TEXT PRIMARY KEY, due REAL NOT NULL, body BLOB NOT NULL, source TEXT NOT NULL);
CREATE TABLE pressed (id TEXT PRIMARY KEY, at REAL NOT NULL);
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""


def test_a_database_of_an_older_bridge_goes_on(tmp_path: Path) -> None:
    """An incident from before severities and matchers were recorded is not a new page; its silence covers it."""
    member = {
        "labels": {"alertname": "g", "severity": "critical", "model": "g", "version": "m"},
        "starts_at": NOW,
    }
    incident = {
        "name": "ab12cd34",
        "key": "page|g",
        "receiver": "page",
        "opened_at": NOW,
        "members": {"m": member},
        "silence": {"id": "s1", "by": "U0ANA", "until": NOW + DAY, "until_resolved": True},
        "acknowledged": {"by": "U0ANA", "at": NOW},
    }
    with sqlite3.connect(tmp_path / "bridge.sqlite") as older:
        older.executescript(_OLDER)
        older.execute(
            "INSERT INTO incidents VALUES (1, 'ab12cd34', 'page|g', ?, 0, ?, NULL, 1, 1)",
            (json.dumps(incident), NOW),
        )
        older.execute(
            "INSERT INTO events VALUES (1, 1, ?, ?)", (NOW, json.dumps({"at": NOW, "kind": "fired"}))
        )
        older.execute(
            "INSERT INTO deliveries (incident, channel, role, root_ts, told_seq, told_version) "
            "VALUES (1, ?, 'main', '1.0', 1, 1)",
            (CHANNEL,),
        )
    older.close()
    store = Store(tmp_path / "bridge.sqlite", lambda _severity: CHANNEL)
    store.receive(parse(body_of("g", {"m": NOW, "other": NOW + 1}, {}), "am"), NOW + 2)
    answer = store.incidents.get(1)
    kinds = [event.kind for event in store.incidents.events(1, 0, 100)]
    pending = store.outbox.pending(CHANNEL)
    store.close()

    assert answer is not None
    assert answer.silenced
    assert answer.acknowledged is not None
    assert ["fired", "fired"] == kinds
    assert [1] == [delivery.id for delivery in pending]


@pytest.mark.parametrize("dump", RELEASED, ids=lambda path: path.stem)
def test_a_database_of_each_release_goes_on(tmp_path: Path, dump: Path) -> None:
    """Each has an acknowledged and silenced incident, a closed one that is contested, and one not posted yet."""
    with sqlite3.connect(tmp_path / "bridge.sqlite") as released:
        released.executescript(dump.read_text())
    released.close()
    new = Store(tmp_path / "new.sqlite", lambda _severity: CHANNEL)
    store = Store(tmp_path / "bridge.sqlite", lambda _severity: CHANNEL)
    clock = Clock(START + 1000)
    open_before = [incident for _, incident in store.incidents.open()]
    store.merge_held(clock())  # the contested one fires again
    for name, key in (("open", "m"), ("waiting", "m"), ("ended", "m")):
        store.receive(parse(body_of(name, {}, {key: (START, clock())}), "am"), clock())
    slack = SimulatedSlack(Workspace(), clock, lambda _method: "")
    worker = DeliveryWorker(CHANNEL, store, slack, DeliveryOptions(), Attempts(clock, random.Random(1)))
    while store.outbox.pending(CHANNEL):
        clock.now += max(worker.step(), 0.01)
    schemas = [sorted(map(str, each.database.rows(_SCHEMA))) for each in (new, store)]
    shown = "".join(message.shown for message in slack.workspace.messages)
    left = store.incidents.open()
    new.close()
    store.close()

    assert schemas[0] == schemas[1]
    assert [True, False] == [incident.silenced for incident in open_before]
    assert ["U0ANA"] == [incident.acknowledged.by for incident in open_before if incident.acknowledged]
    assert [] == left
    assert (
        shown.count("Resolved: Model m failed to load") == 2
    )  # this Workspace never had the first one's message


def _before_states(path: Path, worker: DeliveryWorker, posted: Callable[[str], str]) -> None:
    """Write the database of a bridge of schema 9 that was killed; `posted` posts a message by its random name.

    One incident is posted in full, the message of one arrived and its answer did not, of one only a digest is shown,
    and eleven are in a digest that arrived without an answer.
    """
    with sqlite3.connect(path) as connection:
        connection.create_function("parsed_notification", 2, lambda *_: "")
        connection.create_function("with_subject", 1, lambda document: document)
        for script in MIGRATIONS[:9]:
            connection.executescript(script)
        connection.execute("PRAGMA user_version = 9")
        source = sqlite3.connect(worker.store.database.path)
        for table in ("incidents", "events", "groups"):
            for row in source.execute(f"SELECT * FROM {table}"):
                marks = ", ".join("?" * len(row))
                connection.execute(f"INSERT INTO {table} VALUES ({marks})", row)
        source.close()
        insert = (
            "INSERT INTO deliveries (incident, channel, role, root_channel, root_ts, posted_seq, shown_version, "
            "inflight, inflight_kind, inflight_seq, inflight_at, digest, digest_seq) "
            f"VALUES (?, '{CHANNEL}', 'critical', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        )
        in_full = posted("0" * 32)
        connection.execute(insert, (1, CHANNEL, in_full, 1, 1, "", "", 0, 0, "", 0))
        posted("1" * 32)
        connection.execute(insert, (2, "", "", 0, 0, "1" * 32, "root", 1, START, "", 0))
        digest = posted("2" * 32)
        connection.execute(
            "INSERT INTO digests VALUES (?, ?, ?, ?, 1, 1, ?)", (CHANNEL, CHANNEL, digest, START, START)
        )
        connection.execute(insert, (3, "", "", 0, 0, "", "", 0, 0, digest, 1))
        posted("3" * 32)
        for number in range(4, 15):
            connection.execute(insert, (number, "", "", 0, 0, "3" * 32, "digest", 1, START, "", 0))
    connection.close()


def test_what_was_in_flight_at_the_upgrade_is_not_posted_again(tmp_path: Path) -> None:
    """Names of posts were random; now they follow from the delivery. Every end is shown once."""
    clock, workspace = Clock(), Workspace()
    slack = SimulatedSlack(workspace, clock, lambda _method: "")

    def worker(file: str) -> DeliveryWorker:
        store = Store(tmp_path / file, lambda _severity: CHANNEL)
        return DeliveryWorker(CHANNEL, store, slack, DeliveryOptions(), Attempts(clock, random.Random(1)))

    new = worker("new.sqlite")
    for number in range(1, 15):
        new.store.receive(parse(body_of(f"g{number}", {"m": START}, {}), "am"), START)

    def posted(name: str) -> str:
        clock.now += 2
        return slack.post(CHANNEL, Message("an older bridge's"), name).ts

    _before_states(tmp_path / DATABASE_FILE, new, posted)
    new.store.close()
    upgraded = worker(DATABASE_FILE)
    names = [
        upgraded.store.outbox.name(each) for each in upgraded.store.outbox.pending(CHANNEL) if each.sending
    ]
    for _ in range(200):
        clock.now += max(0.01, min(upgraded.step(), 5.0))
    for number in range(1, 15):
        upgraded.store.receive(parse(body_of(f"g{number}", {}, {"m": (START, clock())}), "am"), clock())
    for _ in range(400):
        clock.now += max(0.01, min(upgraded.step(), 5.0))
    backlog, left = upgraded.store.outbox.backlog(), upgraded.store.database.rows("SELECT name FROM facts")
    upgraded.store.close()
    roots = workspace.roots()

    assert ["1" * 32] == names
    # The four messages of before, and one for each incident that only a digest showed.
    assert [f"{number}" * 32 for number in range(4)] == [root.name for root in roots[:4]]
    assert 12 == len(roots[4:]) == len({root.name for root in roots[4:]})
    assert all("Resolved:" in root.text or "0 firing" in root.text for root in roots)
    assert ((0, None), [("database",)]) == (backlog, left)


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (
            Event(at=NOW, kind="raised", severity="critical", alerts=("TritonServerDown",), by="U0ANA"),
            "critical",
        ),
        (Event(at=NOW, kind="note", words="2 alerts are 🔴 still firing"), "2 alerts are 🔴 still firing"),
    ],
)
def test_an_event_is_stored_and_sent_as_older_bridges_know_it(
    store: Store, tmp_path: Path, event: Event, text: str
) -> None:
    """They have one field for the severity and for the words, and so has what a web page asks a bridge for."""
    fill(store, 1)
    store.change(1, lambda before: (before, (event,)))
    (stored,) = store.database.row("SELECT document FROM events ORDER BY seq DESC LIMIT 1") or ()
    sent = history.to_json(list_incidents(tmp_path))

    assert event == store.incidents.events(1, 0, 100)[-1]
    assert event == history.from_json(sent)[-1].events[-1]
    for document in (json.loads(stored), json.loads(sent)[-1]["events"][-1]):
        assert text == document["text"]
        assert not {"severity", "words"} & set(document)


def test_starts_of_unseen_alerts_are_stored_and_sent_as_older_bridges_know_them(
    store: Store, tmp_path: Path
) -> None:
    """They read the starts of alerts that were not reported as firing from `passed`."""
    opened = Incident(name="a", key="k", receiver="slack", opened_at=NOW, starts_of_unseen={"f": NOW})
    number = store.incidents.add(opened)
    (stored,) = store.database.row("SELECT document FROM incidents") or ()
    sent = history.to_json(list_incidents(tmp_path))

    assert opened == store.incidents.get(number)
    assert opened == history.from_json(sent)[-1].incident
    for document in (json.loads(stored), json.loads(sent)[-1]["incident"]):
        assert {"f": NOW} == document["passed"]


def test_a_delayed_notification_of_an_older_bridge_is_merged(tmp_path: Path) -> None:
    """An older bridge stored the body as it arrived; without it the alert would be reported hours later."""
    with sqlite3.connect(tmp_path / "bridge.sqlite") as older:
        older.executescript(_OLDER)
        older.execute("INSERT INTO held VALUES ('page|g', ?, ?, 'am')", (NOW, body_of("g", {"m": NOW}, {})))
    older.close()
    store = Store(tmp_path / "bridge.sqlite", lambda _severity: CHANNEL)
    merged = store.merge_held(NOW + 1)
    opened = [incident.key for _, incident in store.incidents.open()]
    store.close()

    assert 1 == merged
    assert ['{"model": "g"}'] == opened


@pytest.mark.parametrize("late", ["am", "twin"])
@pytest.mark.parametrize("known", [None, "listed", "not listed"])
def test_what_contradicts_an_end_fires_unless_alertmanager_does_not_list_it(
    tmp_path: Path, known: str | None, late: str
) -> None:
    """A late notification reports an alert that has ended; it fires if Alertmanager lists it or was not asked."""
    store = Store(tmp_path / "bridge.sqlite", lambda _severity: CHANNEL)
    firing, ended = body_of("g", {"m": NOW}, {}), body_of("g", {}, {"m": (NOW, NOW + 1)})
    name = next(iter(parse(firing, "am").alerts))
    answer = {None: None, "listed": Listed({name}), "not listed": Listed(set())}[known]
    for body, source in ((firing, "am"), (ended, "am"), (firing, late)):
        store.receive(parse(body, source), NOW + 2)
    store.merge_held(NOW + 2 + GRACE_SECONDS, lambda _now: answer)
    opened = len(store.incidents.open())
    again = store.merge_held(NOW + 2 + 3 * GRACE_SECONDS, lambda _now: None)
    store.close()

    assert (0 if known == "not listed" else 1, 0) == (opened, again)


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
    answer = {None: None, "listed": Listed({"m"}), "not listed": Listed(set())}[known]
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


def test_a_database_of_a_newer_bridge_is_refused(tmp_path: Path) -> None:
    """The columns of a newer schema may mean something else; the error names both schemas."""
    with sqlite3.connect(tmp_path / "bridge.sqlite") as newer:
        newer.execute("PRAGMA user_version = 99")
    newer.close()

    with pytest.raises(sqlite3.Error, match="newer tritonwatch"):
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


def test_the_file_of_an_older_bridge_shrinks_too(tmp_path: Path) -> None:
    """It was made without giving space back; that is changed when it is migrated."""
    path = tmp_path / "bridge.sqlite"
    with sqlite3.connect(path) as older:
        older.executescript(_OLDER)
        older.execute("INSERT INTO facts VALUES ('large', ?)", ("x" * 1_000_000,))
    older.close()
    store = Store(path, lambda _severity: CHANNEL)
    store.database.run("DELETE FROM facts")
    while store.database.shrink():
        pass
    store.close()

    assert path.stat().st_size < 200_000


def test_open_incidents_are_parsed_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chores read them each second: 500 of them cost a tenth of a core while nothing happened."""
    fill(store, 50)
    before = store.incidents.open()
    monkeypatch.setattr(Incident, "model_validate_json", None)
    again = store.incidents.open()

    assert before == again

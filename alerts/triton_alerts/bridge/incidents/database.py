"""The bridge's SQLite file: one connection, nested transactions, and a schema that is migrated when it is opened.

WAL mode with synchronous=FULL: when the outermost transaction ends, it is on disk. One connection behind one
lock; no request to the outside is made while a transaction is open.
"""

from __future__ import annotations

import json
import logging
import math
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from triton_alerts.bridge.incidents.notification import incident_key, parse

DATABASE_FILE = "bridge.sqlite"
REPORT_SECONDS = 60.0
SHRUNK_AT_ONCE = 500
"""Pages that are freed at once, which notifications that arrive in the meantime wait for."""
INCREMENTAL = 2
"""SQLite's number of auto_vacuum=INCREMENTAL."""

log = logging.getLogger(__name__)

_UNVERSIONED = """
CREATE TABLE IF NOT EXISTS incidents (
  id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, key TEXT NOT NULL, document TEXT NOT NULL,
  severity INTEGER NOT NULL, opened_at REAL NOT NULL, closed_at REAL,
  last_seq INTEGER NOT NULL, version INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS incidents_by_key ON incidents (key, id);
CREATE INDEX IF NOT EXISTS incidents_open ON incidents (closed_at);
CREATE TABLE IF NOT EXISTS events (
  incident INTEGER NOT NULL REFERENCES incidents ON DELETE CASCADE, seq INTEGER NOT NULL, at REAL NOT NULL,
  document TEXT NOT NULL, PRIMARY KEY (incident, seq)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS deliveries (
  id INTEGER PRIMARY KEY, incident INTEGER NOT NULL REFERENCES incidents ON DELETE CASCADE,
  channel TEXT NOT NULL, role TEXT NOT NULL, root_channel TEXT NOT NULL DEFAULT '',
  root_ts TEXT NOT NULL DEFAULT '', told_seq INTEGER NOT NULL DEFAULT 0,
  told_version INTEGER NOT NULL DEFAULT 0, digest_seq INTEGER NOT NULL DEFAULT 0,
  plainness INTEGER NOT NULL DEFAULT 0, attempts INTEGER NOT NULL DEFAULT 0,
  next_try REAL NOT NULL DEFAULT 0, edited_at REAL NOT NULL DEFAULT 0, pending_since REAL,
  inflight TEXT NOT NULL DEFAULT '', inflight_kind TEXT NOT NULL DEFAULT '',
  inflight_seq INTEGER NOT NULL DEFAULT 0, inflight_at REAL NOT NULL DEFAULT 0,
  UNIQUE (incident, channel, role));
CREATE INDEX IF NOT EXISTS deliveries_by_channel ON deliveries (channel);
CREATE TABLE IF NOT EXISTS held (
  key TEXT PRIMARY KEY, due REAL NOT NULL, body BLOB NOT NULL, source TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS pressed (id TEXT PRIMARY KEY, at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""

_PARSED_NOTIFICATIONS = """
ALTER TABLE deliveries RENAME COLUMN told_seq TO posted_seq;
ALTER TABLE deliveries RENAME COLUMN told_version TO shown_version;
ALTER TABLE incidents ADD COLUMN charted INTEGER NOT NULL DEFAULT 0;
UPDATE incidents SET charted = 1 WHERE EXISTS (SELECT 1 FROM facts WHERE name = 'chart ' || incidents.id);
DELETE FROM facts WHERE name LIKE 'chart %';
CREATE TABLE parsed (key TEXT PRIMARY KEY, due REAL NOT NULL, document TEXT NOT NULL);
INSERT INTO parsed SELECT key, due, parsed_notification(body, source) FROM held;
DROP TABLE held;
ALTER TABLE parsed RENAME TO held;
"""

_DIGESTS = """
ALTER TABLE deliveries ADD COLUMN digest TEXT NOT NULL DEFAULT '';
CREATE INDEX deliveries_by_digest ON deliveries (digest) WHERE digest != '';
CREATE TABLE digests (
  channel TEXT PRIMARY KEY, root_channel TEXT NOT NULL, ts TEXT NOT NULL, at REAL NOT NULL,
  total INTEGER NOT NULL, firing INTEGER NOT NULL, edited_at REAL NOT NULL);
"""

_DOUBTS = """
CREATE TABLE doubts (
  channel TEXT NOT NULL, name TEXT NOT NULL, delivery INTEGER NOT NULL, root_channel TEXT NOT NULL,
  thread TEXT NOT NULL, ts TEXT NOT NULL, since REAL NOT NULL, due REAL NOT NULL,
  PRIMARY KEY (channel, name, delivery)) WITHOUT ROWID;
"""

# Before, an incident was one group; two that were open for one subject both stay open until their alerts end.
_SUBJECTS = """
CREATE TABLE groups (
  key TEXT NOT NULL, incident INTEGER NOT NULL REFERENCES incidents ON DELETE CASCADE,
  PRIMARY KEY (key, incident)) WITHOUT ROWID;
CREATE INDEX groups_by_incident ON groups (incident);
INSERT INTO groups SELECT key, id FROM incidents WHERE closed_at IS NULL;
UPDATE incidents SET document = with_subject(document);
UPDATE incidents SET key = json_extract(document, '$.key');
"""

# The few silenced incidents are queried every minute, among the closed incidents of a month.
_SILENCED = """
CREATE INDEX incidents_silenced ON incidents (id) WHERE json_extract(document, '$.silence') IS NOT NULL;
"""

# Before, a digest that was begun while an earlier one had firing incidents replaced it.
_MANY_DIGESTS = """
ALTER TABLE digests RENAME TO latest_digests;
CREATE TABLE digests (
  channel TEXT NOT NULL, root_channel TEXT NOT NULL, ts TEXT NOT NULL, at REAL NOT NULL,
  total INTEGER NOT NULL, firing INTEGER NOT NULL, edited_at REAL NOT NULL,
  PRIMARY KEY (channel, ts)) WITHOUT ROWID;
INSERT INTO digests SELECT channel, root_channel, ts, at, total, firing, edited_at FROM latest_digests;
DROP TABLE latest_digests;
"""

# Before, the bridge itself sent to pagers, and posted summaries and reports.
_SLACK_ONLY = """
DELETE FROM deliveries WHERE role = 'pager';
DELETE FROM doubts WHERE channel LIKE 'pager %';
DELETE FROM facts WHERE name IN ('weekly summary', 'monthly report', 'quarterly report');
"""

# Before, a delivery belonged to a channel's name, not to a severity.
_ROLES = """
UPDATE deliveries SET role = CASE
  WHEN EXISTS (SELECT 1 FROM deliveries l WHERE l.incident = deliveries.incident AND l.id > deliveries.id
               AND l.role NOT LIKE 'escalation%') THEN 'warning'
  ELSE (SELECT CASE i.severity WHEN 0 THEN 'critical' WHEN 1 THEN 'warning' WHEN 2 THEN 'info' ELSE 'none' END
        FROM incidents i WHERE i.id = deliveries.incident) END
WHERE role = 'main';
ALTER TABLE deliveries DROP COLUMN plainness;
"""

# Before, a delivery had fourteen columns of its own; a post in flight keeps its random name among the single values.
_STATES = """
INSERT INTO facts VALUES ('database', lower(hex(randomblob(4))));
CREATE TABLE states (
  id INTEGER PRIMARY KEY, incident INTEGER REFERENCES incidents ON DELETE CASCADE, channel TEXT NOT NULL,
  role TEXT NOT NULL, posted_in TEXT NOT NULL DEFAULT '', ts TEXT NOT NULL DEFAULT '',
  seq INTEGER NOT NULL DEFAULT 0, version INTEGER NOT NULL DEFAULT 0, sending INTEGER NOT NULL DEFAULT 0,
  sent_at REAL NOT NULL DEFAULT 0, check_at REAL NOT NULL DEFAULT 0, UNIQUE (incident, channel, role));
INSERT INTO states SELECT id, incident, channel, role, root_channel, root_ts, posted_seq, shown_version,
  CASE WHEN inflight != '' AND inflight_kind != 'digest' THEN inflight_seq ELSE 0 END,
  CASE WHEN inflight != '' THEN inflight_at ELSE coalesce(pending_since, 0) END, 0 FROM deliveries;
INSERT INTO states (channel, role, posted_in, ts, seq, version, sent_at)
  SELECT g.channel, 'digest', g.root_channel, g.ts, min(d.id), max(d.id), g.at
  FROM digests g JOIN deliveries d ON d.channel = g.channel AND d.digest = g.ts GROUP BY g.channel, g.ts;
INSERT INTO states (channel, role, seq, version, sending, sent_at)
  SELECT channel, 'digest', min(id), max(id), max(id), max(inflight_at) FROM deliveries
  WHERE inflight != '' AND inflight_kind = 'digest' AND digest = '' GROUP BY channel, inflight;
INSERT INTO facts SELECT 'name of ' || s.id, d.inflight FROM states s
  JOIN deliveries d ON d.id = CASE s.role WHEN 'digest' THEN s.version ELSE s.id END WHERE s.sending != 0;
DROP TABLE deliveries;
DROP TABLE digests;
DROP TABLE doubts;
ALTER TABLE states RENAME TO deliveries;
CREATE INDEX deliveries_by_channel ON deliveries (channel);
"""

MIGRATIONS = (
    _UNVERSIONED,
    _PARSED_NOTIFICATIONS,
    _DIGESTS,
    _DOUBTS,
    _SUBJECTS,
    _SILENCED,
    _MANY_DIGESTS,
    _SLACK_ONLY,
    _ROLES,
    _STATES,
)
"""SQL that leads from one schema version (SQLite's user_version) to the next; the first one was not numbered."""


class NewerSchemaError(sqlite3.DatabaseError):
    """The file was written by a newer tritonwatch."""


class Database:
    """One connection to the file; usable from every thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._opened: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._reported_at = -math.inf
        try:
            self._connection()
        except sqlite3.OperationalError as error:
            # With a full disk the bridge starts and refuses notifications with 503, so that they are sent again.
            if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
                raise
            self.report(error)

    def close(self) -> None:
        with self._lock:
            if self._opened is not None:
                self._opened.close()

    def report(self, error: sqlite3.Error) -> None:
        """Log an error at most once a minute: with a full disk every chore and every notification has one."""
        if time.monotonic() - self._reported_at >= REPORT_SECONDS:
            self._reported_at = time.monotonic()
            log.error(
                "the database %s failed: %s; while it does, notifications are answered 503 and sent again",
                self.path,
                error,
            )

    def shrink(self) -> bool:
        """Return some of the space of deleted rows to the file system; return whether there is more."""
        with self._lock:
            connection = self._connection()
            connection.executescript(f"PRAGMA incremental_vacuum({SHRUNK_AT_ONCE})")
            more = bool(connection.execute("PRAGMA freelist_count").fetchone()[0])
            if not more:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            return more

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit everything inside together; an inner transaction is part of the outer one."""
        with self._lock:
            connection = self._connection()
            if connection.in_transaction:
                yield
                return
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                connection.execute("COMMIT")
            except BaseException:
                # SQLite has rolled back on its own after some errors (a full disk).
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise

    def run(self, statement: str, *values: object) -> sqlite3.Cursor:
        with self._lock:
            return self._connection().execute(statement, values)

    def rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        # Under the lock until all is read: an unfinished query blocks shrink, and would see half of a transaction.
        with self._lock:
            return self._connection().execute(statement, values).fetchall()

    def row(self, statement: str, *values: object) -> tuple[Any, ...] | None:
        rows = self.rows(statement, *values)
        return rows[0] if rows else None

    def _connection(self) -> sqlite3.Connection:
        with self._lock:
            if self._opened is None:
                self._opened = _connected(self.path)
                self._file = _file_id(self.path)
            elif self._file != _file_id(self.path):
                # SQLite goes on writing to a file that no other process, and no restart, will find.
                raise sqlite3.OperationalError(
                    "the file was deleted or replaced while the bridge ran; restart the bridge"
                )
            return self._opened

    def check(self) -> None:
        """Raise sqlite3.Error if a row cannot be written, or if the file cannot be read by who opens it now."""
        self.run("INSERT OR REPLACE INTO facts VALUES ('probe', '')")
        # Damage shows in a new connection: this one has read the pages before.
        with closing(sqlite3.connect(f"file:{quote(str(self.path))}?mode=ro", uri=True, timeout=10)) as fresh:
            fresh.execute("SELECT count(*) FROM incidents WHERE closed_at IS NULL").fetchall()


def _file_id(path: Path) -> tuple[int, int] | None:
    """Return device and inode of a file, None if there is none."""
    try:
        known = path.stat()
    except OSError:
        return None
    return known.st_dev, known.st_ino


def _connected(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None, timeout=10)
    try:
        connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        _migrate(connection)
        connection.execute("PRAGMA foreign_keys=ON")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _migrate(connection: sqlite3.Connection) -> None:
    version = schema_version(connection)
    connection.create_function(
        "parsed_notification", 2, lambda body, source: parse(body, source).model_dump_json()
    )
    connection.create_function("with_subject", 1, _with_subject)
    for number, script in list(enumerate(MIGRATIONS, 1))[version:]:
        # When it fails the caller closes the connection, which rolls back.
        connection.executescript(f"BEGIN IMMEDIATE; {script}; PRAGMA user_version = {number}; COMMIT")
    if connection.execute("PRAGMA auto_vacuum").fetchone()[0] != INCREMENTAL:
        # The file of an older bridge, which could only grow. Without disk space for the copy, it stays like that.
        with suppress(sqlite3.OperationalError):
            connection.executescript("PRAGMA auto_vacuum=INCREMENTAL; VACUUM")


def _with_subject(document: str) -> str:
    """Return an incident of an older bridge, of one group, as one of a subject."""
    incident = json.loads(document)
    members = list(incident["members"].values())
    for member in members:
        member["group"] = incident["key"]
    if members:
        incident["key"] = incident_key(members[0]["labels"], incident["key"])
    return json.dumps(incident)


def schema_version(connection: sqlite3.Connection) -> int:
    """Return the version of the file's schema; raises NewerSchemaError when it is unknown here."""
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version > len(MIGRATIONS):
        raise NewerSchemaError(
            f"it was written by a newer tritonwatch (schema {version}, known here: {len(MIGRATIONS)})"
        )
    return version

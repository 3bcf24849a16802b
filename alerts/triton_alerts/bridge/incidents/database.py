"""The bridge's SQLite file: one connection, nested transactions, and its schema.

WAL mode with synchronous=FULL: when the outermost transaction ends, it is on disk. One connection behind one
lock; no request to the outside is made while a transaction is open.
"""

from __future__ import annotations

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

DATABASE_FILE = "bridge.sqlite"
REPORT_SECONDS = 60.0
SHRUNK_AT_ONCE = 500
"""Pages that are freed at once, which notifications that arrive in the meantime wait for."""

log = logging.getLogger(__name__)

SCHEMA = 11
"""SQLite's user_version of the file; the numbers below it were never released."""
_TABLES = """
CREATE TABLE incidents (
  id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, key TEXT NOT NULL, document TEXT NOT NULL,
  severity INTEGER NOT NULL, opened_at REAL NOT NULL, closed_at REAL,
  last_seq INTEGER NOT NULL, version INTEGER NOT NULL, charted INTEGER NOT NULL DEFAULT 0);
CREATE INDEX incidents_by_key ON incidents (key, id);
CREATE INDEX incidents_open ON incidents (closed_at);
-- The few silenced incidents are queried every minute, among the closed incidents of a month.
CREATE INDEX incidents_silenced ON incidents (id) WHERE json_extract(document, '$.silence') IS NOT NULL;
CREATE TABLE events (
  incident INTEGER NOT NULL REFERENCES incidents ON DELETE CASCADE, seq INTEGER NOT NULL, at REAL NOT NULL,
  document TEXT NOT NULL, PRIMARY KEY (incident, seq)) WITHOUT ROWID;
CREATE TABLE groups (
  key TEXT NOT NULL, incident INTEGER NOT NULL REFERENCES incidents ON DELETE CASCADE,
  PRIMARY KEY (key, incident)) WITHOUT ROWID;
CREATE INDEX groups_by_incident ON groups (incident);
CREATE TABLE deliveries (
  id INTEGER PRIMARY KEY, incident INTEGER REFERENCES incidents ON DELETE CASCADE, channel TEXT NOT NULL,
  role TEXT NOT NULL, posted_in TEXT NOT NULL DEFAULT '', ts TEXT NOT NULL DEFAULT '',
  seq INTEGER NOT NULL DEFAULT 0, version INTEGER NOT NULL DEFAULT 0, sending INTEGER NOT NULL DEFAULT 0,
  sent_at REAL NOT NULL DEFAULT 0, check_at REAL NOT NULL DEFAULT 0, UNIQUE (incident, channel, role));
CREATE INDEX deliveries_by_channel ON deliveries (channel);
CREATE TABLE held (key TEXT PRIMARY KEY, due REAL NOT NULL, document TEXT NOT NULL);
CREATE TABLE pressed (id TEXT PRIMARY KEY, at REAL NOT NULL);
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
INSERT INTO facts VALUES ('database', lower(hex(randomblob(4))));
"""


class OtherSchemaError(sqlite3.DatabaseError):
    """The file was written by another tritonwatch."""


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
        if connection.execute("PRAGMA user_version").fetchone()[0]:
            check_schema(connection)
        else:
            # When it fails the caller closes the connection, which rolls back.
            connection.executescript(f"BEGIN IMMEDIATE; {_TABLES} PRAGMA user_version = {SCHEMA}; COMMIT")
        connection.execute("PRAGMA foreign_keys=ON")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def check_schema(connection: sqlite3.Connection) -> None:
    """Raise OtherSchemaError where the columns of the file may mean something else."""
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version != SCHEMA:
        raise OtherSchemaError(
            f"it was written by another version of tritonwatch (schema {version}, known here: {SCHEMA})"
        )

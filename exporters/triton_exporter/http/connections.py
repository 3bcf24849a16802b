"""Bound the open connections of a server, so that callers who send nothing useful cannot shut out the others."""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass

from triton_exporter.catalogue import own
from triton_exporter.family import Family

MAX_CONNECTIONS = 200
"""Connections open at a time, by default."""

REQUEST_SECONDS = 10.0
"""Time for a new connection to send the head of its request, the TLS handshake included."""

IDLE_SECONDS = 30.0
"""Time after an answer until the next request must be complete; Prometheus opens a new connection otherwise."""

ANSWER_SECONDS = 10.0
"""An answer that takes longer gives way to a new connection when all are in use."""

DROPS = ("slow_request", "crowded", "refused")
"""Closed set of values of the label `reason`.

`slow_request`: no complete request in time; `crowded`: the one that waited longest, closed in favour of a
new one; `refused`: a new one, when every other one is being answered.
"""


@dataclass(eq=False, slots=True)
class Connection:
    """One open connection: since when (monotonic seconds) it is `answering`, or waits for a request."""

    socket: socket.socket
    since: float
    patience: float = REQUEST_SECONDS
    answering: bool = False


class Connections:
    """Collector (see `app.parts`) of dropped connections, and the table of the open ones. Safe for threads.

    A dropped socket is only shut down, which wakes the thread that reads or writes it; that thread closes it.
    `note` is called with the reason of each drop, one of DROPS.
    """

    def __init__(
        self,
        max_open: int = MAX_CONNECTIONS,
        now: Callable[[], float] = time.monotonic,
        note: Callable[[str], None] = lambda reason: None,
        request_seconds: float = REQUEST_SECONDS,
    ) -> None:
        self._max_open = max_open
        self._request_seconds = request_seconds
        self._now = now
        self._note = note
        self._lock = threading.Condition()
        self._open: dict[Connection, None] = {}
        self._dropped: Counter[str] = Counter()

    def open(self) -> Collection[Connection]:
        """Return the connections that are open now."""
        with self._lock:
            return tuple(self._open)

    def admit(self, accepted: socket.socket) -> Connection | None:
        """Add a new connection, in place of another one when there are too many; None refuses it."""
        with self._lock:
            if len(self._open) >= self._max_open and not self._evict():
                self._count_dropped("refused")
                return None
            connection = Connection(accepted, self._now(), self._request_seconds)
            self._open[connection] = None
            return connection

    def answer(self, connection: Connection) -> None:
        """Note that a complete request came."""
        connection.since, connection.answering = self._now(), True

    def await_next(self, connection: Connection) -> None:
        """Note that it was answered, and may be used again."""
        connection.since, connection.answering = self._now(), False
        connection.patience = IDLE_SECONDS

    def leave(self, connection: Connection) -> None:
        """Forget a connection; after that its socket may be closed."""
        with self._lock:
            self._open.pop(connection, None)
            self._lock.notify_all()

    def drop_slow(self) -> None:
        """Drop those whose request is overdue."""
        now = self._now()
        with self._lock:
            overdue = [each for each in self._open if not each.answering and now - each.since > each.patience]
            for connection in overdue:
                self._drop(connection, "slow_request")

    def drain(self, seconds: float) -> None:
        """Close the connections without a request, and wait for the others to leave."""
        deadline = time.monotonic() + seconds
        with self._lock:
            while self._open and time.monotonic() < deadline:
                for connection in self._open:
                    if not connection.answering:
                        _shut(connection)
                self._lock.wait(0.05)

    def families(self, now: float) -> Iterable[Family]:
        """Yield dropped connections by reason."""
        with self._lock:
            dropped = dict(self._dropped)
        yield Family.of(own.CONNECTIONS_DROPPED, (((reason,), dropped.get(reason, 0)) for reason in DROPS))

    def _evict(self) -> bool:
        oldest = min(self._open, key=lambda each: (each.answering, each.since))
        if oldest.answering and self._now() - oldest.since < ANSWER_SECONDS:
            return False
        self._drop(oldest, "crowded")
        return True

    def _drop(self, connection: Connection, reason: str) -> None:
        del self._open[connection]
        self._count_dropped(reason)
        _shut(connection)

    def _count_dropped(self, reason: str) -> None:
        self._dropped[reason] += 1
        self._note(reason)


def _shut(connection: Connection) -> None:
    # Not SSLSocket.shutdown, which takes the TLS state away from under the thread that uses it.
    with suppress(OSError):
        socket.socket.shutdown(connection.socket, socket.SHUT_RDWR)

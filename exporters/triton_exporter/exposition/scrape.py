"""Read Triton's /metrics in one thread, for the sampling loop and for every concurrent scrape, and relay it.

Each body is parsed once, and relayed unchanged when it is valid, else without its bad lines. A line is bad, too, if its
name is one that a model's own metrics must not bear, because rules, boards and people believe it.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

from triton_exporter.catalogue import METRICS, llm, own
from triton_exporter.catalogue.external import stack
from triton_exporter.catalogue.state import NOT_TRITON
from triton_exporter.exposition.parse import FAULTS, Exposition, Parser
from triton_exporter.family import Family
from triton_exporter.http.client import Client, FetchError

REUSE_SECONDS = 1.0
"""Longest use of one connection by readings that follow each other fast: opening one costs half a reading, and one
that stays open goes on being served after SIGTERM (see ApiPoller.poll)."""

PATIENCE_SECONDS = 0.5
"""Longest time that processing waits for the scrapes that write the same reading."""

_TRITON = re.compile(
    rf"^(?:# (?:HELP|TYPE) )?(?:nv_|{'|'.join(sorted(llm.FAMILIES))})".encode(), re.MULTILINE
)


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Reading:
    """One request for /metrics; `reason` is empty when it answered, else one of DOWN_REASONS.

    A body beside a reason is what arrived before the answer broke off.
    """

    body: bytes
    reason: str
    detail: str
    at: float
    duration_seconds: float

    @property
    def up(self) -> bool:
        return not self.reason


def fetch_metrics(
    client: Client, path: str, now: Callable[[], float], keep: Callable[[], bool] = lambda: False
) -> Reading:
    """Fetch once; with `keep`, over a connection that others use before and after it.

    Every failure is a reading, none is an exception.
    """
    started = time.monotonic()
    body, reason, detail = b"", "", ""
    try:
        try:
            answer = client.get(path)
        finally:
            if not keep() or client.open_seconds > REUSE_SECONDS:
                client.close()
        if answer.status != 200:
            reason, detail = "http_error", f"HTTP {answer.status}"
        elif _TRITON.search(answer.body):
            body = answer.body
        elif answer.body.strip():
            reason, detail = NOT_TRITON, "the page has no metric of Triton (nv_...)"
        # An older Triton without models may have no metric; every one answers 200 and nothing at any other path.
        elif not client.base_url.endswith("/metrics"):
            reason, detail = NOT_TRITON, "the page is empty; Triton's metrics are at /metrics"
    except FetchError as error:
        # Lines that arrived before the response broke off are valid; the cut line counts as a bad one.
        body, reason, detail = error.partial, error.reason, str(error)
    return Reading(body, reason, detail, now(), time.monotonic() - started)


class SharedReader:
    """Fetches at every tick of the sampling interval, which `next_interval` returns, and whenever a scrape asks.

    A scrape that finds a fetch under way shares it; one that runs out of time gets None, and the fetch goes
    on for the others. Only this thread ever waits on the network, so a name server that hangs delays no scrape.
    `publish` is called before the scrapes get their reading, `process` after they are done with it.
    """

    def __init__(
        self,
        fetch: Callable[[], Reading],
        publish: Callable[[Reading], None],
        process: Callable[[Reading], None],
        next_interval: Callable[[], float],
    ) -> None:
        self._fetch = fetch
        self._publish = publish
        self._process = process
        self._next_interval = next_interval
        self._changed = threading.Condition()
        self._fetches_begun = 0
        self._fetches_ended = 0
        self._wanted_fetch = 0  # highest number of a fetch that was asked for
        self._scrapes: list[int] = []  # which fetch each scrape under way asked for
        self._last: Reading | None = None
        self._stopping = False

    @contextmanager
    def fresh(self, timeout_seconds: float) -> Iterator[Callable[[], Reading | None]]:
        """Ask for a reading that ends after this call, and yield the function that waits for it.

        The function returns None if the reading does not end within `timeout_seconds` of this call. Until the
        block ends, the processing of the reading waits, for PATIENCE_SECONDS at most.
        """
        deadline = time.monotonic() + timeout_seconds
        with self._changed:
            target = (
                self._fetches_begun if self._fetches_begun > self._fetches_ended else self._fetches_begun + 1
            )
            self._wanted_fetch = max(self._wanted_fetch, target)
            self._scrapes.append(target)
            self._changed.notify_all()
        try:
            yield lambda: self._reading(target, deadline)
        finally:
            with self._changed:
                self._scrapes.remove(target)
                self._changed.notify_all()

    def run(self) -> None:
        """Fetch until stopped."""
        tick = time.monotonic()
        while self._wait(tick):
            reading = self._fetch()
            self._publish(reading)
            with self._changed:
                self._last = reading
                self._fetches_ended = self._fetches_begun
                self._changed.notify_all()
                # Processing takes longer than writing a page: scrapes that have this reading go first.
                self._changed.wait_for(self._is_quiet, PATIENCE_SECONDS)
            self._process(reading)
            del reading  # its body is as large as the page
            with self._changed:
                if not self._scrapes:
                    self._last = None
            # Ticks that passed during a slow fetch are skipped, not caught up.
            interval = self._next_interval()
            while tick <= time.monotonic():
                tick += interval

    def stop(self) -> None:
        """End `run` after the fetch under way."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    def _reading(self, target: int, deadline: float) -> Reading | None:
        with self._changed:
            while self._fetches_ended < target and not self._stopping:
                left = deadline - time.monotonic()
                if left <= 0 or not self._changed.wait(left):
                    break
            return self._last if self._fetches_ended >= target else None

    def _is_quiet(self) -> bool:
        # A peer that is slow to take its page must not delay the next scrape.
        waited_for = self._wanted_fetch > self._fetches_begun
        return self._stopping or waited_for or self._fetches_ended not in self._scrapes

    def _wait(self, tick: float) -> bool:
        with self._changed:
            while not self._stopping and self._wanted_fetch <= self._fetches_begun:
                left = tick - time.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
            self._fetches_begun += 1
            return not self._stopping


_NAMES = frozenset(
    name
    for metric in METRICS
    if metric.name.startswith("triton_")
    for name in (metric.name, metric.name.removesuffix("_total"), metric.bucket, metric.sum, metric.count)
) | {stack.UP, "ALERTS", "ALERTS_FOR_STATE"}

_PREFIXES = ("scrape_", "slo:", "triton_alert_bridge_")
"""Prefixes of the series that Prometheus adds to each scrape, that the rules record, and that the bridge has."""

_RECORDED = ":triton_"
"""Part of the names of all other series that the rules record, as in model:triton_..."""


def is_reserved(name: str) -> bool:
    """Return whether only the exporter, Prometheus or the rules may give a series this name.

    https://prometheus.io/docs/concepts/jobs_instances/#automatically-generated-labels-and-time-series
    """
    return name in _NAMES or name.startswith(_PREFIXES) or _RECORDED in name


COLLISION = "collision"
"""Kind of a bad line that bears a name of the exporter, of Prometheus or of the rules."""


class Relay:
    """Parses each reading once, for scrapes and observers. Used under the lock of the exporter."""

    def __init__(self) -> None:
        self._parser = Parser()
        # With the body to pass on. Weak: the megabytes of a reading are not needed until the next scrape.
        self._parsed: WeakKeyDictionary[Reading, tuple[Exposition, bytes]] = WeakKeyDictionary()
        self._bad: Counter[str] = Counter()

    def parse(self, reading: Reading) -> Exposition:
        """Parse a reading, and count its bad lines the first time it is shown."""
        if reading not in self._parsed:
            self._parsed[reading] = self._without_bad_lines(reading.body)
        return self._parsed[reading][0]

    def select(self, reading: Reading, names: Collection[str]) -> Exposition:
        """Return the families with these names: of the whole body if a scrape had it parsed, else parsed alone."""
        exposition = self.parse(reading) if reading in self._parsed else None
        if exposition is None or exposition.scattered:
            return self._parser.parse(reading.body, names)
        return exposition.only(names)

    def body(self, reading: Reading) -> bytes:
        """Return the body to pass on: Triton's very bytes when nothing is wrong with them."""
        self.parse(reading)
        return self._parsed[reading][1]

    def families(self) -> Iterable[Family]:
        """Yield the bad lines by kind."""
        yield Family.of(own.BAD_LINES, (((kind,), self._bad[kind]) for kind in (*FAULTS, COLLISION)))

    def _without_bad_lines(self, body: bytes) -> tuple[Exposition, bytes]:
        exposition = self._parser.parse(body)
        # A Python model can expose any name.
        forged = set(filter(is_reserved, exposition.families))
        if not forged and not exposition.bad:
            return exposition, body
        self._bad.update(exposition.faults)
        self._bad[COLLISION] += sum(len(exposition.families[name].values) for name in forged)
        good = {name: family for name, family in exposition.families.items() if name not in forged}
        corrected = replace(exposition, families=good)
        return corrected, corrected.text.encode()

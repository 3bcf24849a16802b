"""One exporter put together: threads that poll, a lock that guards their results, pages that show them.

`MetricsThread` reads Triton's metrics, another thread polls its API; each gives what it got to the parts that want it.
First the interfaces of the parts: a part implements those that it needs, and `Parts` calls it by them. All but `Poller`
and `Closer` are called under the exporter's lock, so that a page is consistent: no IO, no waiting. Then the pages.
"""

from __future__ import annotations

import contextlib
import ctypes
import html
import json
import logging
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence, Set
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, Protocol, runtime_checkable

from triton_exporter import language_models
from triton_exporter.app.features import lifecycle_sources, optional_parts, triton_client
from triton_exporter.app.settings import Settings
from triton_exporter.catalogue import own, state, triton
from triton_exporter.common.installed_version import installed_version
from triton_exporter.common.printable import printable
from triton_exporter.distribution.distributions import Distributions
from triton_exporter.distribution.state_file import StateFile, StoredModel
from triton_exporter.exposition.parse import Exposition
from triton_exporter.exposition.scrape import Reading, Relay, SharedReader, fetch_metrics
from triton_exporter.exposition.write import (
    EOF,
    OPENMETRICS,
    TEXT,
    Pieces,
    openmetrics_pieces,
    relayed_openmetrics,
    relayed_text,
    text_pieces,
)
from triton_exporter.family import Family
from triton_exporter.http.client import Client
from triton_exporter.http.server import Connections, Handler, Request, Response, routed
from triton_exporter.lifecycle.readiness import readiness
from triton_exporter.lifecycle.tracker import Lifecycle
from triton_exporter.lifecycle.views import (
    FailureLog,
    ModelStates,
    ReachabilityLog,
    is_up,
    phase,
    report,
    server_families,
)
from triton_exporter.processor_time import Pace
from triton_exporter.snapshot import Snapshot
from triton_exporter.triton.poll import ApiPoller, NoApi

_LOG = logging.getLogger(__name__)


@runtime_checkable
class Collector(Protocol):
    """A part with series of its own; called by the thread of any scrape."""

    def families(self, now: float) -> Iterable[Family]:
        """Return families as of now (Unix seconds). One without samples still shows its HELP and TYPE."""


@runtime_checkable
class SnapshotObserver(Protocol):
    """Gets the result of each poll of Triton's API."""

    def observe_snapshot(self, snapshot: Snapshot) -> None:
        """Process the index, statistics and configurations of a poll."""


@runtime_checkable
class MetricsObserver(Protocol):
    """Gets families of complete bodies of Triton's metrics: once a second, or as often as the sampling interval."""

    @property
    def observed(self) -> Collection[str]:
        """The names of the families that it needs next; others may come with them."""

    def observe(self, exposition: Exposition, now: float) -> None:
        """Process one body, read at `now` (Unix seconds, never going back)."""


@runtime_checkable
class MetricsSampler(Protocol):
    """A MetricsObserver that also gets some families of every reading between those that all observers get."""

    sampled: Collection[str]
    """The names of these families."""
    is_told: bool
    """True while more of them would tell nothing: Triton itself tells how times spread."""

    def sample(self, exposition: Exposition, now: float) -> None:
        """Process these families of one body, read at `now` (Unix seconds, never going back)."""


@runtime_checkable
class MetricsLossObserver(Protocol):
    """Wants to know when Triton's metrics cannot be read."""

    def metrics_lost(self, reason: str) -> None:
        """Forget what held only while they could be; `reason` is one of DOWN_REASONS."""


@runtime_checkable
class Poller(Protocol):
    """Does IO in a thread of its own, without the lock; it guards what it shares with its `families`."""

    interval_seconds: float

    def poll(self, now: float) -> None:
        """Poll once. An error that escapes is logged and counted, and the next poll still comes."""


@runtime_checkable
class Closer(Protocol):
    """A Poller with an open resource: closed by its own thread when that ends."""

    def close(self) -> None:
        """Close it."""


class Parts:
    """All parts of one exporter, in the order in which they are called.

    An error that a part did not foresee is logged, and the others go on.
    """

    def __init__(self, parts: Iterable[object]) -> None:
        self.all = tuple(parts)
        # Found once: to check the interfaces of all parts at each reading costs as much as to parse it.
        self._observers = [part for part in self.all if isinstance(part, MetricsObserver)]
        self._samplers = [part for part in self.all if isinstance(part, MetricsSampler)]
        self.sampled = frozenset(name for part in self._samplers for name in part.sampled)

    @property
    def observed(self) -> Collection[str]:
        """The names of the families that observers need next."""
        return frozenset(name for part in self._observers for name in part.observed)

    @property
    def is_told(self) -> bool:
        """True while no part needs more readings than observers get."""
        return all(part.is_told for part in self._samplers)

    def observe(self, exposition: Exposition, now: float) -> None:
        """Give the families `observed` of a reading to all observers."""
        for part in self._observers:
            guarded(part.observe, exposition, now)

    def sample(self, exposition: Exposition, now: float) -> None:
        """Give the families `sampled` of a reading between two that are observed to those that want every one."""
        for part in self._samplers:
            guarded(part.sample, exposition, now)

    def metrics_lost(self, reason: str) -> None:
        """Tell all that want it that Triton's metrics could not be read."""
        for part in self.all:
            if isinstance(part, MetricsLossObserver):
                guarded(part.metrics_lost, reason)

    def observe_snapshot(self, snapshot: Snapshot) -> None:
        """Give the result of one poll of Triton's API to all that want it."""
        for part in self.all:
            if isinstance(part, SnapshotObserver):
                guarded(part.observe_snapshot, snapshot)

    def families(self, now: float) -> Iterable[Family]:
        """Yield the families of every part."""
        for part in self.all:
            if isinstance(part, Collector):
                yield from _collected(part, now)


def guarded(call: Callable[..., None], *arguments: object) -> bool:
    """Call a part; return whether it ended as it should. What it did not foresee is logged."""
    try:
        call(*arguments)
    except Exception:  # noqa: BLE001 - the boundary: one part must not take down the others
        _LOG.exception("%s failed", getattr(call, "__qualname__", call))
        return False
    return True


def _collected(collector: Collector, now: float) -> Sequence[Family]:
    """Return all families of one part, or none: part of them would be taken for all."""
    try:
        return list(collector.families(now))
    except Exception:  # noqa: BLE001 - the boundary, as in `guarded`
        _LOG.exception("%s.families failed", type(collector).__qualname__)
        return ()


SCRAPE_TIMEOUT = "x-prometheus-scrape-timeout-seconds"
_GZIP = 31  # zlib's `wbits` for the gzip format
_SMALL = 1400  # bytes; a smaller answer gains nothing from gzip


def waiting_seconds(headers: Mapping[str, str], default_seconds: float) -> float:
    """Return how long a scrape may wait for Triton, so that its answer still arrives in Prometheus' time."""
    try:
        timeout = float(headers.get(SCRAPE_TIMEOUT, ""))
    except ValueError:
        return default_seconds
    # Half a second to render and send, as blackbox_exporter leaves, or a quarter of a short timeout.
    return min(default_seconds, timeout - min(0.5, timeout / 4)) if 0 < timeout < 3600 else default_seconds


@dataclass(frozen=True, slots=True)
class PageRequest:
    """The parameters of one scrape: the format, and the names that it selects (none: all)."""

    openmetrics: bool
    names: frozenset[str]

    @classmethod
    def of(cls, request: Request) -> PageRequest:
        """Read the format and the names from the headers and the query of a request."""
        names = frozenset(request.query.get("name[]", ()))
        return cls(_prefers_openmetrics(request.headers.get("accept", "")), names)

    def render_own(self, families: Iterable[Family]) -> Pieces:
        """Render those of the exporter's families that the scrape asked for."""
        wanted = [
            family for family in families if not self.names or _is_named(family.metric.name, self.names)
        ]
        return (openmetrics_pieces if self.openmetrics else text_pieces)(wanted)

    def render_relayed(self, relay: Relay, reading: Reading, dropped: Set[str]) -> Pieces:
        """Render those of Triton's families that the scrape asked for, without those that are dropped."""
        families = relay.parse(reading).families
        if not self.openmetrics and not self.names and families.keys().isdisjoint(dropped):
            return (relay.body(reading),)
        wanted = [
            family
            for name, family in families.items()
            if name not in dropped and (not self.names or _is_named(name, self.names))
        ]
        if self.openmetrics:
            return (relayed_openmetrics(wanted),)
        return relayed_text(wanted)

    @property
    def end(self) -> bytes:
        """The last line of a page in this format."""
        return EOF if self.openmetrics else b""

    @property
    def content_type(self) -> str:
        """The value of the header Content-Type."""
        return OPENMETRICS if self.openmetrics else TEXT


def compressed(response: Response, accepted: str) -> Response:
    """Return the response in gzip when the peer accepts it and it is worth the time."""
    body = response.body
    small = isinstance(body, bytes) and len(body) < _SMALL
    if small or not _accepts_gzip(accepted):
        return response
    compressed_body = b"".join(_gzip((body,))) if isinstance(body, bytes) else _gzip_pieces(body)
    return replace(response, body=compressed_body, headers={**response.headers, "Content-Encoding": "gzip"})


def _gzip_pieces(pieces: Generator[bytes]) -> Generator[bytes]:
    with closing(pieces):
        yield from _gzip(pieces)


def _gzip(pieces: Iterable[bytes]) -> Generator[bytes]:
    # Level 1: the page lives for one scrape, and a higher level costs three times the time for a fifth less.
    compressor = zlib.compressobj(level=1, wbits=_GZIP)
    yield from map(compressor.compress, pieces)
    yield compressor.flush()


def json_page(value: Any) -> Response:
    """Return a page of indented JSON."""
    return Response(json.dumps(value, indent=2).encode() + b"\n", "application/json; charset=utf-8")


def landing_page(triton_url: str, paths: Collection[str]) -> Callable[[Request], Response]:
    """Return a page for people: what this is, and where to go."""
    links = "".join(f'<li><a href="{path}">{path}</a></li>' for path in paths)
    text = (
        "<!DOCTYPE html><html lang=en><title>tritonwatch exporter</title>"
        f"<h1>tritonwatch exporter</h1><p>watching {html.escape(triton_url)}</p><ul>{links}</ul></html>\n"
    )
    return lambda _: Response(text.encode(), "text/html; charset=utf-8")


def _is_named(name: str, names: Collection[str]) -> bool:
    return name in names or any(f"{name}{suffix}" in names for suffix in ("_bucket", "_sum", "_count"))


def _prefers_openmetrics(accept: str) -> bool:
    """Return whether OpenMetrics is asked for at least as much as the text format (RFC 9110, section 12.5.1)."""
    weights = {"application/openmetrics-text": 0.0, "text/plain": 0.0}
    for choice in accept.split(","):
        media, *parameters = (part.strip().lower() for part in choice.split(";"))
        if media in weights:
            weights[media] = max(weights[media], _weight(parameters))
    return 0 < weights["application/openmetrics-text"] >= weights["text/plain"]


def _accepts_gzip(accepted: str) -> bool:
    for choice in accepted.split(","):
        coding, *parameters = (part.strip().lower() for part in choice.split(";"))
        if coding == "gzip":
            return _weight(parameters) > 0
    return False


def _weight(parameters: Iterable[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # malloc.h


def give_back_large_buffers() -> None:
    """Have glibc return most of its freed memory to the system at once, and use one arena.

    A scrape of 1,000 models makes several buffers of 5 to 10 MB; by default glibc keeps them, for each thread. One is
    kept, for the next reading: with new memory it takes a third more. Does nothing where the C library is another one.
    """
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_TRIM_THRESHOLD, 6 << 20)
        libc.mallopt(_M_MMAP_THRESHOLD, 8 << 20)
        libc.mallopt(_M_ARENA_MAX, 1)


OBSERVING_SECONDS = 1.0
"""Seconds between two readings that all observers get; distributions also get those in between."""


class MetricsThread:
    """Readings at the pace that the budget of CPU time allows, and at each scrape.

    `lock` is that of the parts; `count_failure` is called with endpoint and reason of a reading that failed.
    """

    def __init__(
        self,
        client: Client,
        settings: Settings,
        parts: Parts,
        lock: threading.Lock,
        count_failure: Callable[[str, str], None],
        now: Callable[[], float],
    ) -> None:
        self.relay = Relay()
        self.last: Reading | None = None
        self._client = client
        self._parts = parts
        self._lock = lock
        self._count_failure = count_failure
        interval = settings.sampling_interval
        self._pace = Pace(settings.sampling_budget, interval)
        self._observing_seconds = min(OBSERVING_SECONDS, interval or OBSERVING_SECONDS)
        self._observed_at = float("-inf")
        self._last_success = 0.0
        self._cpu_seconds = 0.0  # of this thread, up to the last reading
        self._counted: list[bytes] = []  # the lines of the sampled families in the last reading
        self._reader = SharedReader(
            lambda: fetch_metrics(client, "", now, self._pace.is_fast),
            self._publish,
            self._process,
            self._pace.next_interval,
        )

    def run(self) -> None:
        """Read until `stop`."""
        with closing(self._client):
            self._reader.run()

    def stop(self) -> None:
        """Let `run` end."""
        self._reader.stop()

    def fresh(self, timeout_seconds: float) -> AbstractContextManager[Callable[[], Reading | None]]:
        """Ask for a reading that ends after this call, as `SharedReader.fresh` does."""
        return self._reader.fresh(timeout_seconds)

    def families(self) -> Iterable[Family]:
        """Yield series about the readings."""
        yield from self.relay.families()
        # Absent before the first success: an age counted from 1970 means nothing.
        yield Family.of(own.LAST_SUCCESS, [((), self._last_success)] if self._last_success else [])
        yield Family.single(own.SAMPLING_INTERVAL, self._pace.interval)

    def _publish(self, reading: Reading) -> None:
        before, self.last = self.last.reason if self.last else "", replace(reading, body=b"")
        if reading.reason != before:
            url, detail = self._client.base_url, printable(reading.detail)
            if reading.reason:
                _LOG.warning(
                    "Triton's metrics at %s are not read (%s): %s; see --triton-metrics",
                    url,
                    reading.reason,
                    detail,
                )
            else:
                _LOG.info("Triton's metrics at %s are read again", url)
        if reading.up:
            self._last_success = reading.at
        else:
            self._count_failure("metrics", reading.reason)

    def _process(self, reading: Reading) -> None:
        moved = False
        if reading.up:
            is_between = 0 <= reading.at - self._observed_at < self._observing_seconds - 0.001
            with self._lock:
                if is_between:
                    exposition = self.relay.select(reading, self._parts.sampled)
                    self._parts.sample(exposition, reading.at)
                else:
                    self._observed_at = reading.at
                    exposition = self.relay.select(reading, self._parts.observed)
                    self._parts.observe(exposition, reading.at)
            families = exposition.families
            counted = [families[name].lines for name in self._parts.sampled if name in families]
            moved, self._counted = counted != self._counted, counted
        else:
            with self._lock:
                self._parts.metrics_lost(reading.reason)
        cpu_seconds, self._cpu_seconds = time.thread_time() - self._cpu_seconds, time.thread_time()
        if reading.up:
            self._pace.note_reading(cpu_seconds, time.monotonic(), moved, self._parts.is_told)
        else:
            self._pace.note_failure()


class Exporter:
    """Polls one Triton until stopped.

    One lock guards all parts: observing and rendering are short and do no IO.
    """

    def __init__(
        self,
        settings: Settings,
        parts: Sequence[object] | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.settings = settings
        self.model_states = ModelStates(Lifecycle(settings.expected))
        self.connections = Connections()
        self._now = now
        feeding = lifecycle_sources(settings, self.model_states.lifecycle)
        logs = FailureLog(self.model_states.lifecycle), ReachabilityLog(settings.triton)
        optional = optional_parts(settings) if parts is None else parts
        # In the order in which they get each poll: what feeds the lifecycle, the lifecycle, what reads it.
        self._parts = Parts((*feeding, self.model_states, *logs, *optional, self.connections))
        self._lock = threading.Lock()
        self._page_lock = threading.Lock()  # for pages to be stored in the order in which they are made
        self._distributions = next(
            (part for part in self._parts.all if isinstance(part, Distributions)), None
        )
        self._state_file: StateFile | None = None
        if settings.state_file and self._distributions is not None:
            self._state_file = StateFile(settings.state_file, settings.metrics_url)
            stored = self._state_file.load()
            if stored is not None:
                self._distributions.restore(stored, now())
        self._stop = threading.Event()
        self._dropped = triton.UNREAD if settings.relay == "needed" else frozenset[str]()
        self._failures: Counter[tuple[str, str]] = Counter()
        self._threads: list[threading.Thread] = []
        # One connection for each thread that polls.
        metrics = triton_client(settings, settings.metrics_url)
        self._metrics_thread = MetricsThread(
            metrics, settings, self._parts, self._lock, self._count_failure, now
        )
        self._poller: ApiPoller | NoApi = NoApi(now)
        if settings.triton:
            self._poller = ApiPoller(triton_client(settings, settings.triton), now, self._count_failure)

    def start(self) -> None:
        """Start the threads; returns at once."""
        self._spawn("metrics", self._metrics_thread.run)
        self._spawn("state", self._poll_api)
        for part in self._parts.all:
            if isinstance(part, Poller):
                self._spawn(type(part).__name__, partial(self._poll_for_ever, part))

    def stop(self, timeout_seconds: float = 0.5) -> None:
        """End the threads; one that waits on the network ends with the process."""
        self._stop.set()
        self._metrics_thread.stop()
        deadline = time.monotonic() + timeout_seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        if self._state_file is not None:
            with self._page_lock:
                with self._lock:
                    models = self._models_to_store()
                if models is not None:
                    self._state_file.write(models, ended=True, to_disk=True)
                self._state_file.close()

    def pages(self) -> Handler:
        """Return the handler of the server's requests."""
        landing = landing_page(
            self.settings.address, ("/metrics", "/state", "/ready", "/-/healthy", "/-/ready")
        )
        return routed(
            {
                "GET /": landing,
                "GET /metrics": self.metrics,
                "GET /state": self.state,
                "GET /ready": self.triton_ready,
                "GET /-/healthy": lambda _: Response(b"healthy\n"),
                "GET /-/ready": self.ready,
            }
        )

    def metrics(self, request: Request) -> Response:
        """Return the page Prometheus scrapes: 200 whatever Triton does."""
        page = PageRequest.of(request)
        response = Response(self._scrape(request, page), page.content_type)
        return compressed(response, request.headers.get("accept-encoding", ""))

    def _scrape(self, request: Request, page: PageRequest) -> Generator[bytes]:
        """Yield the exporter's own series first: they are sent while Triton answers."""
        started = time.monotonic()
        with self._metrics_thread.fresh(
            waiting_seconds(request.headers, self.settings.timeout)
        ) as wait_for_reading:
            known = self._own_pieces(request, page)
            yield from known
            del known  # as large as Triton's own page
            reading = wait_for_reading()
            if reading is None:
                took = time.monotonic() - started
                reading = Reading(b"", "timeout", "no answer within the scrape's time", self._now(), took)
            with self._lock:
                # Parsed first, so that the page itself shows what was wrong with it.
                relayed = page.render_relayed(self._metrics_thread.relay, reading, self._dropped)
                language = language_models.families(self._metrics_thread.relay.parse(reading))
                after = page.render_own(chain(language, self._after_reading(reading)))
            yield from relayed
            yield from after
            yield page.end

    def _own_pieces(self, request: Request, page: PageRequest) -> Pieces:
        """Return the exporter's own series; the histograms in them are stored before anyone sees them."""
        with self._page_lock:
            with self._lock:
                server = server_families(self.model_states.lifecycle, self._metrics_thread.last)
                known = page.render_own(chain(server, self._parts.families(self._now())))
                if SCRAPE_TIMEOUT in request.headers and not page.names:
                    self.model_states.note_scrape()
                models = self._models_to_store()
            if self._state_file is not None and models is not None:
                self._state_file.write(models)
        return known

    def _models_to_store(self) -> Sequence[StoredModel] | None:
        """Return what goes into the state file; None without one, or before Triton's counters were read."""
        if self._state_file is None or self._distributions is None:
            return None
        return self._distributions.stored(self._now())

    def state(self, request: Request) -> Response:
        """Return every model with its state, since when, and why."""
        with self._lock:
            answer = report(self.model_states.lifecycle, self._metrics_thread.last, self.settings.address)
        return compressed(json_page(answer), request.headers.get("accept-encoding", ""))

    def triton_ready(self, request: Request) -> Response:
        """Return whether Triton should get requests, for a readiness probe: 200, 503, or 400 over the query."""
        reading = self._metrics_thread.last
        try:
            with self._lock:
                lifecycle = self.model_states.lifecycle
                shown = phase(lifecycle, metrics_answer=reading is not None and reading.up)
                is_ready, text = readiness(lifecycle, request.query, shown, self._now())
        except ValueError as error:
            return Response(f"{error}\n".encode("utf-8", "replace"), status=400)
        return Response(f"{text}\n".encode(), status=200 if is_ready else 503)

    def ready(self, request: Request) -> Response:
        """Return whether the exporter has polled Triton's API and metrics once, with any result."""
        polled = self._metrics_thread.last is not None and self.model_states.lifecycle.snapshot.at > 0
        return Response(b"ready\n") if polled else Response(b"has not polled Triton yet\n", status=503)

    def _after_reading(self, reading: Reading) -> Iterable[Family]:
        """Yield series about the reading and the requests to Triton."""
        yield Family.single(state.UP, is_up(self.model_states.lifecycle, reading))
        yield from self._metrics_thread.families()
        yield Family.single(own.STATE_STORED, self._state_file is not None and self._state_file.is_usable)
        yield Family.single(own.SCRAPE_DURATION, reading.duration_seconds)
        # Only those that there were: 80 others would be 0 for ever. No alert reads their increase.
        yield Family.of(own.SCRAPE_FAILURES, sorted(self._failures.items()))
        yield Family.of(own.BUILD_INFO, [((installed_version("unknown"),), 1)])

    def _poll_api(self) -> None:
        """Poll Triton's API until stopped."""
        while not self._stop.is_set():
            started = time.monotonic()
            try:
                snapshot = self._poller.poll()
            except Exception:  # noqa: BLE001 - the boundary, as in `guarded`
                _LOG.exception("a response of Triton's API could not be handled; this poll is lost")
                self._count_failure("index", "bad_response")
                snapshot = Snapshot(self._now(), api_failure="bad_response")
            with self._lock:
                self._parts.observe_snapshot(snapshot)
            took = time.monotonic() - started
            self._stop.wait(max(0.01, self.settings.state_interval - took, self._poller.pause_seconds))

    def _poll_for_ever(self, poller: Poller) -> None:
        while not self._stop.is_set():
            started = time.monotonic()
            if not guarded(poller.poll, self._now()):
                self._count_failure("poll", "bad_response")
            self._stop.wait(max(0.01, poller.interval_seconds - (time.monotonic() - started)))
        if isinstance(poller, Closer):
            poller.close()

    def _count_failure(self, endpoint: str, reason: str) -> None:
        with self._lock:
            self._failures[endpoint, reason] += 1

    def _spawn(self, name: str, target: Callable[[], None]) -> None:
        thread = threading.Thread(target=target, name=name, daemon=True)
        thread.start()
        self._threads.append(thread)

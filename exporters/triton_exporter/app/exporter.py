"""One exporter put together: threads that poll, a lock that guards their results, pages that show them.

`MetricsThread` reads Triton's metrics, another thread polls its API; each gives what it got to the parts that want it.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager, closing
from functools import partial
from itertools import chain, product

from triton_exporter.app.features import lifecycle_sources, optional_parts, triton_client
from triton_exporter.app.pages import (
    SCRAPE_TIMEOUT,
    PageRequest,
    compressed,
    json_page,
    landing_page,
    waiting_seconds,
)
from triton_exporter.app.parts import Closer, Parts, Poller, guarded
from triton_exporter.app.settings import Settings
from triton_exporter.catalogue import own, state, triton
from triton_exporter.common.installed_version import installed_version
from triton_exporter.common.printable import printable
from triton_exporter.distribution.distributions import Distributions
from triton_exporter.distribution.state_file import StateFile, StoredModel
from triton_exporter.exposition.scrape import Reading, Relay, SharedReader, fetch_metrics
from triton_exporter.exposition.write import Pieces
from triton_exporter.family import Family
from triton_exporter.http.client import Client
from triton_exporter.http.server import Connections, Handler, Request, Response, routed
from triton_exporter.lifecycle.tracker import Lifecycle
from triton_exporter.lifecycle.views import FailureLog, ModelStates, ReachabilityLog, report, server_families
from triton_exporter.processor_time import Pace
from triton_exporter.snapshot import Snapshot
from triton_exporter.triton.poll import ApiPoller

_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8  # malloc.h


def give_back_large_buffers() -> None:
    """Have glibc return a freed buffer of a megabyte or more to the system at once, and use one arena.

    A scrape of 1,000 models makes several buffers of 5 to 10 MB; by default glibc keeps them, for each thread.
    Does nothing where the C library is another one.
    """
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, 1 << 20)
        libc.mallopt(_M_ARENA_MAX, 1)


_LOG = logging.getLogger(__name__)


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
        before, self.last = self.last.reason if self.last else "", reading
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
            counted = [families[name].lines for name in sorted(self._parts.sampled) if name in families]
            moved, self._counted = counted != self._counted, counted
        cpu_seconds, self._cpu_seconds = time.thread_time() - self._cpu_seconds, time.thread_time()
        if reading.up:
            self._pace.note_reading(cpu_seconds, time.process_time(), time.monotonic(), moved=moved)
        else:
            self._pace.note_failure()


ENDPOINTS = ("metrics", "live", "ready", "metadata", "index", "statistics", "config", "model_ready", "poll")
"""Closed set of values of the label `endpoint`; `poll` counts errors that escaped from the `poll` of a Poller."""


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
        api = triton_client(settings, settings.triton)
        self._metrics_thread = MetricsThread(
            metrics, settings, self._parts, self._lock, self._count_failure, now
        )
        self._poller = ApiPoller(api, now, self._count_failure)

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
        landing = landing_page(self.settings.triton, ("/metrics", "/state", "/-/healthy", "/-/ready"))
        return routed(
            {
                "GET /": landing,
                "GET /metrics": self.metrics,
                "GET /state": self.state,
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
                after = page.render_own(self._after_reading(reading))
            yield relayed
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
            answer = report(self.model_states.lifecycle, self._metrics_thread.last, self.settings.triton)
        return compressed(json_page(answer), request.headers.get("accept-encoding", ""))

    def ready(self, request: Request) -> Response:
        """Return whether the exporter has polled Triton's API and metrics once, with any result."""
        polled = self._metrics_thread.last is not None and self.model_states.lifecycle.snapshot.at > 0
        return Response(b"ready\n") if polled else Response(b"has not polled Triton yet\n", status=503)

    def _after_reading(self, reading: Reading) -> Iterable[Family]:
        """Yield series about the reading and the requests to Triton."""
        up = reading.up and self.model_states.lifecycle.snapshot.api_failure != state.NOT_TRITON
        yield Family.single(state.UP, up)
        yield from self._metrics_thread.families()
        yield Family.single(own.STATE_STORED, self._state_file is not None and self._state_file.is_usable)
        yield Family.single(own.SCRAPE_DURATION, reading.duration_seconds)
        failure_keys = product(ENDPOINTS, filter(None, state.DOWN_REASONS))
        yield Family.of(own.SCRAPE_FAILURES, ((key, self._failures[key]) for key in failure_keys))
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

"""One exporter put together: threads that poll, a lock that guards their results, pages that show them."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from functools import partial
from importlib import metadata
from itertools import product

from triton_exporter.app.features import optional_parts, sources
from triton_exporter.app.pages import SCRAPE_TIMEOUT, PageRequest, budget, json_page, landing_page, packed
from triton_exporter.app.parts import (
    Closer,
    Collector,
    MetricsObserver,
    MetricsSampler,
    Poller,
    SnapshotObserver,
)
from triton_exporter.app.settings import Settings
from triton_exporter.app.state_file import StateFile
from triton_exporter.catalogue import own, state
from triton_exporter.distribution.distributions import Distributions
from triton_exporter.distribution.stored import StoredModel
from triton_exporter.exposition.pace import Pace
from triton_exporter.exposition.relay import Relay
from triton_exporter.exposition.scrape import Reading, SharedReader, read
from triton_exporter.exposition.write import Pieces
from triton_exporter.family import Family
from triton_exporter.http.certificates import Renewed
from triton_exporter.http.client import Client, Limits
from triton_exporter.http.connections import Connections
from triton_exporter.http.server import Handler, Request, Response, routed
from triton_exporter.lifecycle.model_states import ModelStates
from triton_exporter.lifecycle.state_log import FailureLog, ReachabilityLog
from triton_exporter.lifecycle.state_page import report
from triton_exporter.lifecycle.tracker import Lifecycle
from triton_exporter.snapshot import Snapshot
from triton_exporter.triton.poll import ApiPoller

_LOG = logging.getLogger(__name__)

OBSERVING_SECONDS = 1.0
"""Between two readings that all observers get; those in between are for distributions only."""

ENDPOINTS = ("metrics", "live", "ready", "metadata", "index", "statistics", "config", "model_ready", "poll")
"""Closed set of values of the label `endpoint`; `poll` is one of something other than Triton."""


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
        self.states = ModelStates(Lifecycle(settings.expected))
        self._now = now
        self.connections = Connections()
        # Parts that feed the lifecycle come before it, parts that read it after it.
        self._parts = (
            *sources(settings, self.states.lifecycle),
            self.states,
            FailureLog(self.states.lifecycle),
            ReachabilityLog(settings.triton_url),
            *(optional_parts(settings) if parts is None else parts),
            self.connections,
        )
        # Here, because to ask each part at each reading costs as much as to parse it.
        self._observers = [part for part in self._parts if isinstance(part, MetricsObserver)]
        self._samplers = [part for part in self._parts if isinstance(part, MetricsSampler)]
        self._observed = frozenset(name for part in self._observers for name in part.observed)
        self._sampled = frozenset(name for part in self._samplers for name in part.sampled)
        self._lock = threading.Lock()
        self._page_lock = threading.Lock()  # for pages to be stored in the order in which they are made
        self._distributions = next((part for part in self._parts if isinstance(part, Distributions)), None)
        self._state_file = (
            StateFile(settings.state_file, settings.metrics_url) if settings.state_file else None
        )
        self._restore()
        self._stop = threading.Event()
        self._failures: Counter[tuple[str, str]] = Counter()
        self._last_success = 0.0
        self._relay = Relay()
        self._pace = Pace(settings.sampling_budget, settings.sampling_interval_seconds)
        self._observed_at = float("-inf")
        self._cpu = 0.0  # of the reading thread, up to the last reading
        self._reading: Reading | None = None  # the last one
        limits = Limits(settings.timeout_seconds, settings.max_body_bytes)
        # One connection for each thread that polls.
        tls = Renewed(settings.certificates)
        self._metrics = Client(settings.metrics_url, limits, settings.triton_headers, tls)
        api = Client(settings.triton_url, limits, settings.triton_headers, tls)
        self._reader = SharedReader(
            lambda: read(self._metrics, "", now, self._pace.is_fast),
            self._publish,
            self._process,
            self._pace.next,
        )
        self._api = ApiPoller(api, now, self._count_failure)
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start the threads; returns at once."""
        self._spawn("metrics", self._read)
        self._spawn("state", self._poll_api_for_ever)
        for part in self._parts:
            if isinstance(part, Poller):
                self._spawn(type(part).__name__, partial(self._poll_for_ever, part))

    def stop(self, timeout_seconds: float = 0.5) -> None:
        """End the threads; one that waits on the network ends with the process."""
        self._stop.set()
        self._reader.stop()
        deadline = time.monotonic() + timeout_seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        if self._state_file is not None:
            with self._page_lock:
                with self._lock:
                    stored = self._stored()
                if stored is not None:
                    self._state_file.write(stored, ended=True, to_disk=True)
                self._state_file.close()

    def pages(self) -> Handler:
        """Return the handler of the server's requests."""
        landing = landing_page(self.settings.triton_url, ("/metrics", "/state", "/-/healthy", "/-/ready"))
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
        return packed(response, request.headers.get("accept-encoding", ""))

    def _scrape(self, request: Request, page: PageRequest) -> Generator[bytes]:
        """Yield the exporter's own series first: they are sent while Triton answers."""
        started = time.monotonic()
        with self._reader.fresh(budget(request.headers, self.settings.timeout_seconds)) as fresh:
            known = self._own_pieces(request, page)
            yield from known
            del known  # as large as Triton's own page
            reading = fresh()
            if reading is None:
                took = time.monotonic() - started
                reading = Reading(b"", "timeout", "no answer within the scrape's time", self._now(), took)
            with self._lock:
                # Parsed first, so that the page itself shows what was wrong with it.
                relayed = page.render_tritons(self._relay, reading)
                after = page.render_own(self._after_reading(reading))
            yield relayed
            yield from after
            yield page.end

    def _own_pieces(self, request: Request, page: PageRequest) -> Pieces:
        """Return the exporter's own series; the histograms in them are stored before anyone sees them."""
        with self._page_lock:
            with self._lock:
                known = page.render_own(self._known(self._now()))
                if SCRAPE_TIMEOUT in request.headers and not page.names:
                    self.states.scraped()
                stored = self._stored()
            if self._state_file is not None and stored is not None:
                self._state_file.write(stored)
        return known

    def _stored(self) -> Sequence[StoredModel] | None:
        return self._distributions.stored(self._now()) if self._state_file and self._distributions else None

    def _restore(self) -> None:
        models = self._state_file.load() if self._state_file and self._distributions else None
        if models is not None and self._distributions:
            self._distributions.restore(models, self._now())

    def state(self, request: Request) -> Response:
        """Return every model with its state, since when, and why."""
        with self._lock:
            answer = report(self.states.lifecycle, self._reading, self.settings.triton_url)
        return packed(json_page(answer), request.headers.get("accept-encoding", ""))

    def ready(self, request: Request) -> Response:
        """Return whether the exporter has polled Triton's API and metrics once, with any result."""
        polled = self._reading is not None and self.states.lifecycle.snapshot.at > 0
        return Response(b"ready\n") if polled else Response(b"has not polled Triton yet\n", status=503)

    def _known(self, now: float) -> Iterable[Family]:
        """Yield what the parts know."""
        for part in self._parts:
            if isinstance(part, Collector):
                yield from _collected(part, now)

    def _after_reading(self, reading: Reading) -> Iterable[Family]:
        """Yield series about the reading and the requests to Triton."""
        up = reading.up and self.states.lifecycle.snapshot.api_failure != state.NOT_TRITON
        yield Family.single(state.UP, up)
        yield from self._relay.families()
        # Absent before the first success: an age counted from 1970 means nothing.
        yield Family.of(own.LAST_SUCCESS, [((), self._last_success)] if self._last_success else [])
        yield Family.single(own.SAMPLING_INTERVAL, self._pace.interval)
        yield Family.single(own.STATE_STORED, self._state_file is not None and self._state_file.is_usable)
        yield Family.single(own.SCRAPE_DURATION, reading.duration_seconds)
        asked = product(ENDPOINTS, filter(None, state.DOWN_REASONS))
        yield Family.of(own.SCRAPE_FAILURES, ((reason, self._failures[reason]) for reason in asked))
        yield Family.of(own.BUILD_INFO, [((_version(),), 1)])

    def _publish(self, reading: Reading) -> None:
        self._reading = reading
        if reading.up:
            self._last_success = reading.at
        else:
            self._count_failure("metrics", reading.reason)

    def _process(self, reading: Reading) -> None:
        if reading.up:
            least = min(OBSERVING_SECONDS, self.settings.sampling_interval_seconds or OBSERVING_SECONDS)
            if not 0 <= reading.at - self._observed_at < least - 0.001:
                self._observed_at = reading.at
                self._observe(reading)
            else:
                self._sample(reading)
        cpu, self._cpu = time.thread_time() - self._cpu, time.thread_time()
        if reading.up:
            self._pace.took(cpu, time.process_time(), time.monotonic())
        else:
            self._pace.failed()

    def _observe(self, reading: Reading) -> None:
        with self._lock:
            exposition = self._relay.select(reading, self._observed)
            for part in self._observers:
                _guarded(part.observe, exposition, reading.at)

    def _sample(self, reading: Reading) -> None:
        """Give a reading between two that are observed to those that want every one."""
        with self._lock:
            exposition = self._relay.select(reading, self._sampled)
            for part in self._samplers:
                _guarded(part.sample, exposition, reading.at)

    def _read(self) -> None:
        with closing(self._metrics):
            self._reader.run()

    def _poll_api_for_ever(self) -> None:
        while not self._stop.is_set():
            started = time.monotonic()
            self._observe_snapshot(self._poll_api())
            took = time.monotonic() - started
            pause = max(self.settings.state_interval_seconds - took, self._api.pause_seconds)
            self._stop.wait(max(0.01, pause))

    def _poll_api(self) -> Snapshot:
        """Poll the API once; after a response that cannot be handled, its states are unknown."""
        try:
            return self._api.poll()
        except Exception:  # noqa: BLE001 - the boundary, as in _guarded
            _LOG.exception("a response of Triton's API could not be handled; this poll is lost")
            self._count_failure("index", "bad_response")
            return Snapshot(self._now(), api_failure="bad_response")

    def _observe_snapshot(self, snapshot: Snapshot) -> None:
        with self._lock:
            for part in self._parts:
                if isinstance(part, SnapshotObserver):
                    _guarded(part.observe_snapshot, snapshot)

    def _poll_for_ever(self, poller: Poller) -> None:
        while not self._stop.is_set():
            started = time.monotonic()
            if not _guarded(poller.poll, self._now()):
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


def _collected(collector: Collector, now: float) -> Sequence[Family]:
    """Return all families of one part, or none: part of them would be taken for all."""
    families: list[Family] = []
    _guarded(lambda: families.extend(collector.families(now)))
    return families


def _guarded(call: Callable[..., None], *arguments: object) -> bool:
    """Call a part; what it did not foresee is logged, and the others go on."""
    try:
        call(*arguments)
    except Exception:  # noqa: BLE001 - the boundary: one part must not take down the others
        _LOG.exception("%s failed", getattr(call, "__qualname__", call))
        return False
    return True


def _version() -> str:
    try:
        return metadata.version("tritonwatch")
    except metadata.PackageNotFoundError:
        return "unknown"

"""One exporter put together: threads that poll, a lock that guards their results, pages that show them."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from itertools import chain, product

from triton_exporter.app.api_thread import ApiThread
from triton_exporter.app.features import lifecycle_sources, optional_parts
from triton_exporter.app.histogram_storage import HistogramStorage
from triton_exporter.app.metrics_thread import MetricsThread
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
from triton_exporter.app.state_file import StateFile
from triton_exporter.app.triton_client import triton_client
from triton_exporter.catalogue import own, state, triton
from triton_exporter.common.installed_version import installed_version
from triton_exporter.distribution.distributions import Distributions
from triton_exporter.exposition.scrape import Reading
from triton_exporter.exposition.write import Pieces
from triton_exporter.family import Family
from triton_exporter.http.client import Client
from triton_exporter.http.server import Connections, Handler, Request, Response, routed
from triton_exporter.lifecycle.tracker import Lifecycle
from triton_exporter.lifecycle.views import FailureLog, ModelStates, ReachabilityLog, report, server_families
from triton_exporter.triton.poll import ApiPoller

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
        self._histograms = HistogramStorage(
            next((part for part in self._parts.all if isinstance(part, Distributions)), None),
            StateFile(settings.state_file, settings.metrics_url) if settings.state_file else None,
        )
        self._histograms.restore(now())
        self._stop = threading.Event()
        self._dropped = triton.UNREAD if settings.relay == "needed" else frozenset[str]()
        self._failures: Counter[tuple[str, str]] = Counter()
        self._threads: list[threading.Thread] = []
        # One connection for each thread that polls.
        metrics = triton_client(settings, settings.metrics_url, Client)
        api = triton_client(settings, settings.triton, Client)
        self._metrics_thread = MetricsThread(
            metrics, settings, self._parts, self._lock, self._count_failure, now
        )
        interval = settings.state_interval
        poller = ApiPoller(api, now, self._count_failure)
        self._api_thread = ApiThread(poller, interval, self._parts, self._lock, self._stop)

    def start(self) -> None:
        """Start the threads; returns at once."""
        self._spawn("metrics", self._metrics_thread.run)
        self._spawn("state", self._api_thread.run)
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
        with self._page_lock:
            with self._lock:
                histograms = self._histograms.current(self._now())
            self._histograms.end(histograms)

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
                histograms = self._histograms.current(self._now())
            self._histograms.write(histograms)
        return known

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
        yield Family.single(own.STATE_STORED, self._histograms.is_usable)
        yield Family.single(own.SCRAPE_DURATION, reading.duration_seconds)
        failure_keys = product(ENDPOINTS, filter(None, state.DOWN_REASONS))
        yield Family.of(own.SCRAPE_FAILURES, ((key, self._failures[key]) for key in failure_keys))
        yield Family.of(own.BUILD_INFO, [((installed_version("unknown"),), 1)])

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

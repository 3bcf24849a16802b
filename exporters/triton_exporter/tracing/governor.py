"""Set Triton's trace rates at run time, so that a safe number a second is traced (`--govern-traces`)."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass

from triton_exporter.catalogue import own
from triton_exporter.common.duration import DAY
from triton_exporter.common.printable import printable
from triton_exporter.exposition.exposition_values import Exposition
from triton_exporter.family import Family
from triton_exporter.http.client import Client, FetchError
from triton_exporter.snapshot import Snapshot
from triton_exporter.tracing.allotment import MOST_REQUESTS_PER_SECOND, allot
from triton_exporter.tracing.interference import COUNT_SECONDS, Interference
from triton_exporter.tracing.trace import Mailbox
from triton_exporter.tracing.trace_setting import SettingClient, TraceSetting
from triton_exporter.tracing.traffic import REQUEST_COUNTERS, Traffic, measured, requests_by_model

_LOG = logging.getLogger(__name__)

STATES: Mapping[str, str] = {
    "starting": "the usual speed of Triton's answers is measured first",
    "idle": "no model has requests",
    "tracing": "some requests are traced",
    "busy": f"more than {MOST_REQUESTS_PER_SECOND:.0f} requests a second in all",
    "not_possible": "Triton was started without --trace-config mode=opentelemetry, or restricts trace settings",
    "already_on": "Triton was started with a trace level, which traces every model",
    "not_ready": "Triton is not ready",
    "post_failed": "Triton did not take a trace setting",
    "slow_api": "Triton's API answers more slowly than before",
    "slow_metrics": "Triton's metrics answer more slowly than before",
    "malformed": "traces arrived that cannot be read",
    "too_many": "more traces arrive than were asked for",
    "ended": "the exporter ends",
}
"""Closed set of values of the label `state`, with what each means."""

LEAST_COUNT = 10
RENEWAL_SECONDS = 5.0
"""Minimum seconds between two settings of the same rate for a model, and between two reductions of its rate."""

IDLE_SECONDS = 60.0
MOST_MODELS = 100
MOST_POSTS = 10
MOST_CHECKS = 10
"""Settings sent, and settings of models read, in one poll (a second)."""

FIRST_PAUSE_SECONDS, MOST_PAUSE_SECONDS = 600.0, float(DAY)
"""Pause of tracing after interference with Triton: ten minutes, doubled each time, up to a day."""

_GLOBAL_SECONDS = 30.0

_TOO_OFTEN, _TOO_SELDOM = 1.25, 0.6
"""A model is given another rate if that is higher or lower by these factors, so that small changes of its traffic
cost no setting. To trace too often does harm, so the first is nearer to 1."""


@dataclass(frozen=True, slots=True)
class _Given:
    """The setting that a model was given: at what time, and how many requests it had counted then."""

    rate: int
    count: int
    at: float
    total: float


def _why_blocked(setting: TraceSetting | None) -> str:
    """Return the state in which nothing may be traced, by Triton's own setting, or ""."""
    if setting is None or setting.mode != "opentelemetry":
        return "not_possible"
    return "already_on" if setting.on else ""


class TraceGovernor:
    """Poller, Closer, MetricsObserver, SnapshotObserver and Collector (see `app.parts`).

    Each model's rate follows its traffic: fewer are traced at once when it grows, more when it has been lower
    for a while. A setting names how many requests it is for and is renewed when half of them are used, so
    that nothing is traced for long without an exporter. At the first sign of trouble all is turned off.
    """

    interval_seconds = 1.0
    observed = REQUEST_COUNTERS

    def __init__(self, client: SettingClient, metrics: Client, mailbox: Mailbox, per_second: float) -> None:
        self._client = client
        self._metrics = metrics
        self._interference = Interference(client, metrics, mailbox, per_second)
        self._mailbox = mailbox
        self._per_second = per_second
        self._lock = threading.Lock()  # guards what observe, see and families share with poll
        self._traffic: dict[str, Traffic] = {}
        self._observed_at = float("-inf")
        self._given: dict[str, _Given] = {}
        self._models: frozenset[str] = frozenset()
        self._checked: set[str] = set()
        self._state = "starting"
        self._posts: Counter[str] = Counter()
        self._global_asked = float("-inf")
        self._blocked = ""
        self._pauses = 0
        self._paused_until = float("-inf")

    def observe_snapshot(self, snapshot: Snapshot) -> None:
        """Learn which models there are."""
        if snapshot.index is not None:
            with self._lock:
                self._models = frozenset(model.model for model in snapshot.index if model.state == "READY")

    def observe(self, exposition: Exposition, now: float) -> None:
        """Measure the traffic of each model."""
        totals = requests_by_model(exposition)
        with self._lock:
            lasted = now - self._observed_at
            self._observed_at = now
            self._traffic = {
                model: measured(self._traffic.get(model), total, now, lasted)
                for model, total in totals.items()
            }

    def poll(self, now: float) -> None:
        """Check for interference, then give each model with requests its rate."""
        with closing(self._client), closing(self._metrics):  # not kept open: see ApiPoller.poll
            trouble = self._interference.sign(now, self._observed_at, learn=not self._given)
            try:
                if not trouble and now >= self._paused_until:
                    self._govern(now)
            except FetchError as error:
                _LOG.warning("traces: %s", error)
                with self._lock:
                    self._posts["failed"] += 1
                trouble = "post_failed"
            if trouble:
                self._end(trouble, now)

    def close(self) -> None:
        """Turn all traces off."""
        with closing(self._client):
            self._clear(self._given)
        self._log_state("ended")

    def families(self, now: float) -> Iterable[Family]:
        """Yield the trace rates in force, and the state (the reason if nothing is traced)."""
        with self._lock:
            rates = {model: given.rate for model, given in self._given.items()}
            posts = dict(self._posts)
        yield Family.of(own.TRACE_RATE, (((model,), rate) for model, rate in rates.items()))
        yield Family.of(own.TRACE_GOVERNOR, (((state,), state == self._state) for state in STATES))
        yield Family.of(
            own.TRACE_POSTS, (((result,), posts.get(result, 0)) for result in ("accepted", "failed"))
        )

    def _govern(self, now: float) -> None:
        if not self._interference.is_usual_known:
            return
        if now - self._global_asked >= _GLOBAL_SECONDS:
            self._global_asked = now
            self._blocked = _why_blocked(self._client.setting())
        if self._blocked:
            self._clear(dict(self._given))
            self._log_state(self._blocked)
            return
        self._take_over(now)
        with self._lock:
            traffic = dict(self._traffic)
        in_all = sum(rate.per_second for rate in traffic.values())
        quiet = MOST_REQUESTS_PER_SECOND / (2 if self._state == "busy" else 1)
        active = {model: rate for model, rate in traffic.items() if now - rate.seen < IDLE_SECONDS}
        busiest = sorted(active, key=lambda model: active[model].per_second, reverse=True)[:MOST_MODELS]
        wanted = {model: active[model].per_second for model in busiest} if in_all <= quiet else {}
        self._clear({model: given for model, given in self._given.items() if model not in wanted})
        posts = 0
        rates = allot(wanted, self._per_second)
        # Those first that are traced too often.
        for model in sorted(
            rates, key=lambda model: model not in self._given or rates[model] <= self._given[model].rate
        ):
            rate = self._next_rate(self._given.get(model), rates[model], traffic[model], now)
            if rate and posts < MOST_POSTS:
                posts += 1
                self._give(model, rate, traffic[model], now)
        self._log_state("tracing" if self._given else "busy" if in_all > quiet else "idle")

    def _next_rate(self, given: _Given | None, wanted: int, traffic: Traffic, now: float) -> int:
        """Return the rate to set now, or 0 where what is set may stay."""
        if given is None or wanted > _TOO_OFTEN * given.rate:
            return wanted
        if now - given.at < RENEWAL_SECONDS:
            return 0
        if wanted < _TOO_SELDOM * given.rate:
            return wanted
        used = (traffic.total - given.total) / given.rate
        return given.rate if used >= given.count / 2 or traffic.total < given.total else 0

    def _give(self, model: str, rate: int, traffic: Traffic, now: float) -> None:
        count = max(LEAST_COUNT, math.ceil(COUNT_SECONDS * traffic.per_second / rate))
        self._client.trace(model, rate, count)
        self._mailbox.set_rate(model, time.time(), rate)
        self._checked.add(model)
        with self._lock:
            self._posts["accepted"] += 1
            self._given[model] = _Given(rate, count, now, traffic.total)

    def _take_over(self, now: float) -> None:
        """Find what an exporter that was killed has left: its rate is remembered, and it is turned off."""
        with self._lock:
            unknown = sorted(self._models - self._checked - self._given.keys())
            self._checked &= self._models
        for model in unknown[:MOST_CHECKS]:
            setting = self._client.setting(model)
            if setting is not None and setting.on:
                _LOG.info(
                    "traces: model %s was left with every %d. request traced; turned off",
                    printable(model),
                    setting.rate,
                )
                self._mailbox.set_rate(model, 0.0, setting.rate)
                self._client.clear(model)
                with self._lock:
                    self._posts["accepted"] += 1
            self._checked.add(model)

    def _clear(self, models: Iterable[str]) -> None:
        """Turn models off; where Triton does not answer, its own count ends the traces."""
        for model in list(models):
            result = "accepted"
            try:
                self._client.clear(model)
            except FetchError:
                result = "failed"
                self._checked.discard(model)
            with self._lock:
                self._posts[result] += 1
                del self._given[model]

    def _end(self, trouble: str, now: float) -> None:
        if self._given or trouble == "post_failed":
            self._paused_until = now + min(MOST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2**self._pauses)
            self._pauses += 1
            self._clear(self._given)
        if now >= self._paused_until or self._state in ("starting", "idle", "tracing", "busy"):
            self._log_state(trouble)

    def _log_state(self, state: str) -> None:
        if state == self._state:
            return
        self._state = state
        off = "" if state == "tracing" else " nothing is traced:"
        _LOG.log(
            logging.INFO if state in ("tracing", "idle", "ended") else logging.WARNING,
            "traces:%s %s",
            off,
            STATES[state],
        )

"""Set Triton's trace rates at run time, so that a safe number a second is traced (`--govern-traces`)."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import closing

from triton_exporter.catalogue import own
from triton_exporter.common.duration import DAY
from triton_exporter.common.printable import printable
from triton_exporter.exposition.exposition_values import Exposition
from triton_exporter.family import Family
from triton_exporter.http.client import Client, FetchError
from triton_exporter.snapshot import Snapshot
from triton_exporter.tracing.allotment import (
    MAX_REQUESTS_PER_SECOND,
    SentSetting,
    rates_to_send,
    wanted_rates,
)
from triton_exporter.tracing.interference import COUNT_SECONDS, Interference
from triton_exporter.tracing.request_rates import REQUEST_COUNTERS, Traffic, measured, requests_by_model
from triton_exporter.tracing.trace import Mailbox
from triton_exporter.tracing.trace_setting import SettingClient, TraceSetting

_LOG = logging.getLogger(__name__)

STATES: Mapping[str, str] = {
    "starting": "the usual speed of Triton's answers is measured first",
    "idle": "no model has requests",
    "tracing": "some requests are traced",
    "busy": f"more than {MAX_REQUESTS_PER_SECOND:.0f} requests a second in all",
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

MIN_COUNT = 10
"""Traces that a setting allows, at least."""

MAX_POSTS = 10
"""Settings sent in one poll (a second) at most."""

MAX_CHECKS = 10
"""Settings of models read in one poll (a second) at most."""

FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 600.0, float(DAY)
"""Pause of tracing after interference with Triton: ten minutes, doubled each time, up to a day."""

_GLOBAL_SECONDS = 30.0
"""Time between two readings of Triton's global trace setting."""


def _why_blocked(setting: TraceSetting | None) -> str:
    """Return the state in which nothing may be traced, by Triton's own setting, or ""."""
    if setting is None or setting.mode != "opentelemetry":
        return "not_possible"
    return "already_on" if setting.on else ""


class TraceGovernor:
    """Poller, Closer, MetricsObserver, SnapshotObserver and Collector (see `app.parts`).

    When the traffic of a model grows, a smaller part of it is traced immediately; when it falls, a larger part
    after some seconds. Each setting allows a number of traces and is renewed when half of them are used, so that
    tracing soon stops if the exporter is killed. At the first interference with Triton, all traces are turned off.
    """

    interval_seconds = 1.0
    observed = REQUEST_COUNTERS

    def __init__(self, client: SettingClient, metrics: Client, mailbox: Mailbox, per_second: float) -> None:
        self._client = client
        self._metrics = metrics
        self._interference = Interference(client, metrics, mailbox, per_second)
        self._mailbox = mailbox
        self._per_second = per_second
        self._lock = threading.Lock()  # guards what observe, observe_snapshot and families share with poll
        self._traffic: dict[str, Traffic] = {}
        self._observed_at = float("-inf")
        self._sent: dict[str, SentSetting] = {}
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
        with closing(self._client), closing(self._metrics):  # not left open: see ApiPoller.poll
            trouble = self._interference.detected(now, self._observed_at, learn=not self._sent)
            try:
                if not trouble and now >= self._paused_until:
                    self._govern(now)
            except FetchError as error:
                _LOG.warning("traces: %s", error)
                with self._lock:
                    self._posts["failed"] += 1
                trouble = "post_failed"
            if trouble:
                self._pause(trouble, now)

    def close(self) -> None:
        """Turn all traces off."""
        with closing(self._client):
            self._clear(self._sent)
        self._set_state("ended")

    def families(self, now: float) -> Iterable[Family]:
        """Yield the trace rates in force, and the state (the reason if nothing is traced)."""
        with self._lock:
            rates = {model: sent.rate for model, sent in self._sent.items()}
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
            self._clear(self._sent)
            self._set_state(self._blocked)
            return
        self._take_over(now)
        with self._lock:
            traffic = dict(self._traffic)
        wanted = wanted_rates(traffic, self._per_second, now, was_busy=self._state == "busy")
        self._clear(self._sent.keys() - (wanted or {}))
        for model, rate in rates_to_send(wanted or {}, self._sent, traffic, now)[:MAX_POSTS]:
            self._send_setting(model, rate, traffic[model], now)
        self._set_state("busy" if wanted is None else "tracing" if self._sent else "idle")

    def _send_setting(self, model: str, rate: int, traffic: Traffic, now: float) -> None:
        count = max(MIN_COUNT, math.ceil(COUNT_SECONDS * traffic.per_second / rate))
        self._client.trace(model, rate, count)
        self._mailbox.set_rate(model, time.time(), rate)
        self._checked.add(model)
        with self._lock:
            self._posts["accepted"] += 1
            self._sent[model] = SentSetting(rate, count, now, traffic.total)

    def _take_over(self, now: float) -> None:
        """Turn off what an exporter that was killed left on; remember its rate for the traces still to come."""
        with self._lock:
            unknown = sorted(self._models - self._checked - self._sent.keys())
            self._checked &= self._models
        for model in unknown[:MAX_CHECKS]:
            setting = self._client.setting(model)
            if setting is not None and setting.on:
                _LOG.info(
                    "traces: an exporter that was killed left one request in %d of model %s traced; turned off",
                    setting.rate,
                    printable(model),
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
                del self._sent[model]

    def _pause(self, trouble: str, now: float) -> None:
        """Turn all traces off, for longer each time; without any, only record the trouble."""
        if self._sent or trouble == "post_failed":
            self._paused_until = now + min(MAX_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2**self._pauses)
            self._pauses += 1
            self._clear(self._sent)
        if now >= self._paused_until or self._state in ("starting", "idle", "tracing", "busy"):
            self._set_state(trouble)

    def _set_state(self, state: str) -> None:
        """Set the state that is shown, and log each change."""
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

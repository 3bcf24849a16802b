"""Detect that tracing does harm: Triton is slow or not ready, or sends more traces than were asked for."""

from __future__ import annotations

import time
from collections import deque
from statistics import median

from triton_exporter.http import triton_paths
from triton_exporter.http.client import Client, FetchError
from triton_exporter.tracing.request_rates import STALE_SECONDS
from triton_exporter.tracing.trace import Mailbox
from triton_exporter.tracing.trace_setting import SettingClient

COUNT_SECONDS = 10.0
"""A setting allows as many traces as this time brings, so that Triton soon stops if the exporter is killed."""

_METRICS_SECONDS = 5.0
_TOO_MANY_SECONDS = 20.0


class SlownessDetector:
    """Detects slow answers: each of the last three took over half a second and ten times as long as usual."""

    def __init__(self) -> None:
        self._usual: deque[float] = deque(maxlen=60)
        self._last: deque[float] = deque(maxlen=3)

    @property
    def is_known(self) -> bool:
        """True if enough answers were timed to know what is usual."""
        return len(self._usual) >= 3

    def add(self, seconds: float, learn: bool) -> bool:
        """Add the duration of one answer; return whether answers are slow now.

        With `learn`, the answer is one of those that show what is usual.
        """
        self._last.append(seconds)
        if learn:
            self._usual.append(seconds)
        usual = median(self._usual) if self._usual else 0.0
        return len(self._last) == 3 and min(self._last) > max(0.5, 10 * usual)


class Interference:
    """Asks Triton's API and metrics, and counts the traces that arrive; `per_second` of them are asked for."""

    def __init__(self, client: SettingClient, metrics: Client, mailbox: Mailbox, per_second: float) -> None:
        self._client = client
        self._metrics = metrics
        self._mailbox = mailbox
        self._per_second = per_second
        self._api_latency, self._metrics_latency = SlownessDetector(), SlownessDetector()
        self._metrics_asked = float("-inf")
        self._malformed = 0
        self._received: deque[tuple[float, int]] = deque()  # when, and how many traces had arrived by then

    @property
    def is_usual_known(self) -> bool:
        """True if enough answers were timed to know how long they usually take."""
        return self._api_latency.is_known and self._metrics_latency.is_known

    def detected(self, now: float, observed_at: float, *, learn: bool) -> str:
        """Return the first interference that is found, as one of the governor's STATES; "" if there is none.

        `observed_at` is when the traffic was last measured. Pass `learn` while nothing is traced: the answers then
        show what is usual.
        """
        try:
            started = time.monotonic()
            if self._client.get(triton_paths.READY).status != 200:
                return "not_ready"
            if self._api_latency.add(time.monotonic() - started, learn):
                return "slow_api"
        except FetchError:
            return "not_ready"
        if now - self._metrics_asked >= _METRICS_SECONDS or not self._metrics_latency.is_known:
            self._metrics_asked = now
            try:
                started = time.monotonic()
                self._metrics.get("")
                if self._metrics_latency.add(time.monotonic() - started, learn):
                    return "slow_metrics"
            except FetchError:
                return "slow_metrics"
        if not learn and now - observed_at > STALE_SECONDS:
            return "slow_metrics"
        return self._detected_in_traces(now)

    def _detected_in_traces(self, now: float) -> str:
        malformed = self._mailbox.lost().get("malformed", 0) + self._mailbox.batches().get("malformed", 0)
        malformed, self._malformed = malformed - self._malformed, malformed
        self._received.append((now, self._mailbox.received))
        while self._received[0][0] < now - _TOO_MANY_SECONDS:
            self._received.popleft()
        received = self._received[-1][1] - self._received[0][1]
        limit = self._per_second * (2 * _TOO_MANY_SECONDS + COUNT_SECONDS)
        return "malformed" if malformed else "too_many" if received > limit else ""

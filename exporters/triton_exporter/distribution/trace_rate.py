"""How often Triton traces, and how often it safely can."""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import ceil

from triton_exporter.client import Client, FetchError
from triton_exporter.distribution.trace import Mailbox

SAFE_TRACES_PER_SECOND = 10.0
"""Traced requests a second to aim for.

Triton 2.51 ran 60 s without trouble at 200 traced of 200 requests a second and at 8 of 800; it died within
seconds at about 8,000 requests a second whether it traced all, every 10th or (one of two runs) every 100th of
them. https://github.com/triton-inference-server/server/issues/7795
"""

RISKY_REQUESTS_PER_SECOND = 2000.0
"""Above this, between what ran and what crashed, no rate is known to be safe."""


@dataclass(frozen=True, slots=True)
class TraceAdvice:
    """Trace one request in `rate`; `flags` turn it on, `warning` says what it can cost."""

    rate: int
    traces_per_second: float
    risky: bool
    warning: str
    flags: tuple[str, ...]


def advise(requests_per_second: float, receiver_url: str) -> TraceAdvice:
    """Find a trace rate for the traffic of one server, all models together."""
    rate = max(1, ceil(requests_per_second / SAFE_TRACES_PER_SECOND))
    risky = requests_per_second > RISKY_REQUESTS_PER_SECOND
    warning = "Triton can crash when it is traced too hard (seen with 2.51: signals 6 and 11)"
    if risky:
        warning += (
            f"; at {requests_per_second:.0f} requests a second no rate is known to be safe: "
            "leave traces off, or try them on one replica first"
        )
    else:
        warning += f"; {rate} keeps it at about {requests_per_second / rate:.1f} traces a second"
    config = ("mode=opentelemetry", f"opentelemetry,url={receiver_url}", "level=TIMESTAMPS", f"rate={rate}")
    flags = tuple(f"--trace-config={one}" for one in config)
    return TraceAdvice(rate, requests_per_second / rate, risky, warning, flags)


class TraceRate:
    """Poller (see `family`) that keeps the mailbox's rate at what Triton's trace setting says."""

    interval_seconds = 30.0

    def __init__(self, client: Client, mailbox: Mailbox) -> None:
        self._client = client
        self._mailbox = mailbox

    def poll(self, now: float) -> None:
        """Ask once; while Triton does not say, the last rate holds."""
        try:
            answer = self._client.get("/v2/trace/setting")
        except FetchError:
            return
        rate = read_rate(answer.body) if answer.status == 200 else None
        if rate is not None:
            self._mailbox.rate = rate

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


def read_rate(body: bytes) -> float | None:
    """Read trace_rate (one in how many) from an answer of /v2/trace/setting, or None."""
    try:
        rate = float(json.loads(body)["trace_rate"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return rate if 1 <= rate < 1e12 else None

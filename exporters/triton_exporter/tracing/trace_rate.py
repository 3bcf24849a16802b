"""How often Triton traces."""

from __future__ import annotations

import json
from contextlib import closing

from triton_exporter.http.client import Client, FetchError
from triton_exporter.tracing.trace import Mailbox


class TraceRate:
    """Poller (see `app.parts`) that keeps the mailbox's rate at what Triton's trace setting says."""

    interval_seconds = 30.0

    def __init__(self, client: Client, mailbox: Mailbox) -> None:
        self._client = client
        self._mailbox = mailbox

    def poll(self, now: float) -> None:
        """Ask once; while Triton does not say, the last rate holds."""
        try:
            with closing(self._client):  # not kept open: see ApiPoller.poll
                answer = self._client.get("/v2/trace/setting")
        except FetchError:
            return
        rate = read_rate(answer.body) if answer.status == 200 else None
        if rate is not None:
            self._mailbox.rate = rate


def read_rate(body: bytes) -> float | None:
    """Read trace_rate (one in how many) from an answer of /v2/trace/setting, or None."""
    try:
        rate = float(json.loads(body)["trace_rate"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return rate if 1 <= rate < 1e12 else None

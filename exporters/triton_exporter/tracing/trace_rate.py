"""Poll one request in how many Triton traces."""

from __future__ import annotations

from contextlib import closing

from triton_exporter.http.client import Client, FetchError
from triton_exporter.tracing.trace import Mailbox
from triton_exporter.tracing.trace_setting import GLOBAL_PATH, read_setting


class TraceRate:
    """Poller (see `app.parts`) that updates the mailbox's rate from Triton's trace setting."""

    interval_seconds = 30.0

    def __init__(self, client: Client, mailbox: Mailbox) -> None:
        self._client = client
        self._mailbox = mailbox

    def poll(self, now: float) -> None:
        """Poll once; without a valid response the last rate is kept."""
        try:
            with closing(self._client):  # not kept open: see ApiPoller.poll
                answer = self._client.get(GLOBAL_PATH)
        except FetchError:
            return
        setting = read_setting(answer.body) if answer.status == 200 else None
        if setting is not None and 1 <= setting.rate < 1e12:
            self._mailbox.rate = setting.rate

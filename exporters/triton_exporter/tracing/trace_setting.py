"""Triton's trace settings, which are only read."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import dataclass

from triton_exporter.http.client import TRACE_SETTING_PATH, Client, FetchError, model_path
from triton_exporter.tracing.trace import Mailbox

MAX_SETTING_BYTES = 1024 * 1024
"""Largest answer that is read: a setting takes some hundred bytes."""


@dataclass(frozen=True, slots=True)
class TraceSetting:
    """Triton's setting: whether it traces, one request in how many, how many more (-1: no end), and its mode."""

    on: bool
    rate: int
    count: int
    mode: str

    @property
    def is_in_use(self) -> bool:
        """True if requests are traced now: Triton leaves a setting on when its count is used up."""
        return self.on and self.count != 0


def fetch_setting(client: Client, model: str = "") -> TraceSetting | None:
    """Read the setting of one model, or of all; None where Triton does not report it. Raises FetchError.

    A model without a setting of its own answers with that of all.
    """
    path = f"{model_path(model)}/trace/setting" if model else TRACE_SETTING_PATH
    answer = client.get(path)
    return read_setting(answer.body) if answer.status == 200 else None


def read_setting(body: bytes) -> TraceSetting | None:
    """Read an answer of a trace setting, or None."""
    try:
        content = json.loads(body)
        return TraceSetting(
            content["trace_level"] not in ([], ["OFF"]),
            int(content["trace_rate"]),
            int(content["trace_count"]),
            str(content.get("trace_mode", "")),
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


class TraceRate:
    """A poller (see `app.exporter`) that updates the mailbox's rate from Triton's trace setting."""

    interval_seconds = 30.0

    def __init__(self, client: Client, mailbox: Mailbox) -> None:
        self._client = client
        self._mailbox = mailbox

    def poll(self, now: float) -> None:
        """Poll once; without a valid response the last rate stays."""
        try:
            with closing(self._client):  # not left open: see ApiPoller.poll
                setting = fetch_setting(self._client)
        except FetchError:
            return
        if setting is not None and 1 <= setting.rate < 1e12:
            self._mailbox.rate = setting.rate

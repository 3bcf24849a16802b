"""The requests of one poll of Triton's API: none is sent after its deadline, and each that fails is counted."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from triton_exporter.http.client import Answer, Client, FetchError
from triton_exporter.triton.answers import AnswerError

T = TypeVar("T")

CountFailure = Callable[[str, str], None]
"""Called with endpoint and reason for every request that failed."""


@dataclass
class PollRequests:
    """Requests to one Triton, poll after poll; `unanswered` is true once one of this poll got no answer."""

    client: Client
    count_failure: CountFailure
    unanswered: bool = field(default=False, init=False)
    _began: float = field(default=0.0, init=False)  # time.monotonic()

    def begin(self) -> None:
        """Begin a poll, which has one timeout for all its requests."""
        self._began = time.monotonic()
        self.unanswered = False
        self.allow(1.0)

    def allow(self, share: float) -> None:
        """Let the next requests last until this share of the timeout has passed since the poll began."""
        self.client.until = self._began + share * self.client.limits.timeout_seconds

    @property
    def is_late(self) -> bool:
        """True if the time for requests has passed."""
        return time.monotonic() >= self.client.until

    def answer(self, endpoint: str, path: str) -> Answer | str:
        """Return the answer with any status, or the reason why there is none."""
        try:
            return self.client.get(path)
        except FetchError as error:
            self._count_unanswered(endpoint, error)
            return error.reason

    def parsed(self, endpoint: str, ask: Callable[[], Answer], parse: Callable[[bytes], T]) -> T | None:
        """Return the parsed body of an answer with status 200; None after any failure, and when it is late."""
        if self.is_late:
            return None
        try:
            answer = ask()
            if answer.status == 200:
                return parse(answer.body)
            self.count_failure(endpoint, "http_error")
        except FetchError as error:
            self._count_unanswered(endpoint, error)
        except AnswerError:
            self.count_failure(endpoint, "bad_response")
        return None

    def _count_unanswered(self, endpoint: str, error: FetchError) -> None:
        self.unanswered = True
        self.count_failure(endpoint, error.reason)

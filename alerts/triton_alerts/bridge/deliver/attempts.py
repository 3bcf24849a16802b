"""Attempts of one worker to send: how long to wait after a failure, or after a request without a response."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field

MAX_WAIT_SECONDS = 60.0
UNCONFIRMED_SECONDS = 60.0
"""Slack has acted up to 40 s after a request that it did not answer in time."""


def backoff(failures: int, rng: random.Random) -> float:
    """Return the seconds to wait after a number of failures: exponential, jittered above half, at most a minute."""
    longest = min(MAX_WAIT_SECONDS, 2.0 ** min(failures - 1, 10))
    return rng.uniform(longest / 2, longest)


def retry_after_seconds(retry_after: str) -> float:
    """Return the seconds of a Retry-After header, or 30 if it is not a number of one to four digits."""
    return float(retry_after) if re.fullmatch(r"[0-9]{1,4}", retry_after) else 30.0


@dataclass
class Attempts:
    """The clock of one worker, its failures in a row, and the counters of its requests.

    `count` receives (what, kind) for the bridge's own metrics.
    """

    clock: Callable[[], float]
    rng: random.Random = field(default_factory=random.Random)
    count: Callable[[str, str], None] = lambda _what, _kind: None
    failures: int = 0

    def wait(self) -> float:
        """Count a failure; returns how long to wait after it."""
        self.failures += 1
        return backoff(self.failures, self.rng)

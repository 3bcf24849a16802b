"""Waiting for what real servers do in their own time, and timing what they promise."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import requests

_Found = TypeVar("_Found")


def eventually(
    look: Callable[[], _Found], otherwise: str | Callable[[], str], seconds: float = 30.0
) -> _Found:
    """What `look` finds, asked until it finds something; a server that is not up yet is asked again.

    Fails with `otherwise`, or with what it says then.
    """
    deadline = time.monotonic() + seconds
    pause = 0.02
    while True:
        try:
            if found := look():
                return found
        except requests.RequestException:
            pass
        if time.monotonic() > deadline:
            said = otherwise if isinstance(otherwise, str) else otherwise()
            raise AssertionError(f"not within {seconds:g} s: {said}")
        # What is not there soon takes a while: asking costs the machine what the servers need.
        time.sleep(pause)
        pause = min(1.3 * pause, 0.2)


def quickly(act: Callable[[], _Found], seconds: float, attempts: int = 5) -> _Found:
    """What `act` gives when it takes less than so long: a busy machine may delay some attempts, and not all."""
    took = []
    for _ in range(attempts):
        started = time.monotonic()
        found = act()
        took.append(time.monotonic() - started)
        if took[-1] < seconds:
            return found
    raise AssertionError(
        f"every attempt took {seconds:g} s or more: {', '.join(f'{one:.2f}' for one in took)}"
    )

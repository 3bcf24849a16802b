"""Wait until a condition of a real server is true."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import requests

_Value = TypeVar("_Value")


def eventually(
    condition: Callable[[], _Value | None], otherwise: str | Callable[[], str], seconds: float = 180.0
) -> _Value:
    """Return the value of `condition` once it is true; a server that refuses the connection is asked again.

    It waits for so long because all other tests may run on the same two cores; a test that is about how long
    something takes measures it. Fails with the message `otherwise`, which may be a function.
    """
    deadline = time.monotonic() + seconds
    pause = 0.02
    while True:
        asked = time.monotonic()
        try:
            if value := condition():
                return value
        except requests.RequestException:
            pass
        if time.monotonic() > deadline:
            printed = otherwise if isinstance(otherwise, str) else otherwise()
            raise AssertionError(f"not within {seconds:g} s: {printed}")
        # What is not there soon takes a while: asking costs the machine what the servers need.
        time.sleep(max(pause, min(3 * (time.monotonic() - asked), 2.0)))
        pause = min(1.3 * pause, 0.2)

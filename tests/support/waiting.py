"""Waiting for what real servers do in their own time."""

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
            printed = otherwise if isinstance(otherwise, str) else otherwise()
            raise AssertionError(f"not within {seconds:g} s: {printed}")
        # What is not there soon takes a while: asking costs the machine what the servers need.
        time.sleep(pause)
        pause = min(1.3 * pause, 0.2)

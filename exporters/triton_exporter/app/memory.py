"""Keep the resident memory of a process that handles megabytes at a time near what it needs."""

from __future__ import annotations

import contextlib
import ctypes

_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8  # malloc.h


def give_back_large_buffers() -> None:
    """Have glibc return a freed buffer of a megabyte or more to the system at once, and use one arena.

    A scrape of 1,000 models makes several buffers of 5 to 10 MB; by default glibc keeps them, for each thread.
    Does nothing where the C library is another one.
    """
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, 1 << 20)
        libc.mallopt(_M_ARENA_MAX, 1)

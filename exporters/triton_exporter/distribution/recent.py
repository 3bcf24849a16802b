"""Distribution of the requests of the last minutes, which serves for requests that nothing measured."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import sub

from triton_exporter.distribution.guarantee import within
from triton_exporter.distribution.shape import Estimated

RECENT_SECONDS = 120.0
"""The gain that is kept is that of the last one to two times this long."""

ALIKE = 1.5
"""Requests whose mean is further than this factor from that of the last minutes are not like them."""


class Recent:
    """Recent gain of a histogram: counts by bucket, and their seconds. It begins with a gain known from before."""

    def __init__(self, counts: Sequence[int], seconds: float, gained: Sequence[int], gain: float) -> None:
        self._turned = float("-inf")
        self._older = self._newer = (tuple(map(sub, counts, gained)), seconds - gain)

    def gained(self, counts: Sequence[int], seconds: float, now: float) -> tuple[tuple[int, ...], float]:
        """Return the gain until `now` (Unix seconds), when the histogram is at `counts` and `seconds`."""
        if not 0 <= now - self._turned < RECENT_SECONDS:
            self._older, self._newer = self._newer, (tuple(counts), seconds)
            self._turned = now
        before, sum_before = self._older
        # Requests that wait for an estimate are stored at their mean, and may enter other buckets later.
        grown = tuple([max(0, count - earlier) for count, earlier in zip(counts, before, strict=True)])
        return grown, max(0.0, seconds - sum_before)


def like(
    gained: Sequence[int], gain: float, bounds: Sequence[float], requests: float, seconds: float
) -> Estimated | None:
    """Return the shape of `requests` that took `seconds`, if they are like the recent ones; None if they are not.

    It stays within what the sum guarantees.
    """
    total = sum(gained)
    if not total:
        return None
    usual, mean = gain / total, seconds / requests
    if not usual / ALIKE <= mean <= usual * ALIKE:
        return None
    shares = []
    for bound, below in zip(bounds, accumulate(gained), strict=False):
        least, most = within(bound, requests, seconds)
        shares.append(min(max(below / total, least / requests), most / requests))
    return Estimated(shares)

"""Measure the requests a second of each model from Triton's counters."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from triton_exporter.catalogue import triton
from triton_exporter.exposition.exposition_values import Exposition

REQUEST_COUNTERS = (triton.REQUEST_SUCCESS.name, triton.REQUEST_FAILURE.name)

SLOW_SECONDS = 30.0
"""Time constant of the slower of two measures of the traffic; the faster one is that of the last reading."""

STALE_SECONDS = 10.0
"""Readings further apart than this do not show the traffic of now."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Requests of one model: `total` so far, and per second; `seen` is when the last ones came (Unix seconds)."""

    total: float
    seen: float = float("-inf")
    last_per_second: float = 0.0
    slow_per_second: float = 0.0

    @property
    def per_second(self) -> float:
        """The greater of both measures: a rate that suits it never traces too much."""
        return max(self.last_per_second, self.slow_per_second)


def requests_by_model(exposition: Exposition) -> Mapping[str, float]:
    """Return how many requests of each model have ended since Triton started."""
    totals: Counter[str] = Counter()
    for name in REQUEST_COUNTERS:
        family = exposition.families.get(name)
        for series, value in zip(family.series, family.values, strict=True) if family else ():
            if math.isfinite(value):
                totals[series.labels.get("model", "")] += value  # type: ignore[assignment]
    del totals[""]
    return totals


def measured(known: Traffic | None, total: float, now: float, lasted: float) -> Traffic:
    """Return the traffic at the next reading, `lasted` seconds after that of `known`."""
    if known is None or not 0 < lasted < STALE_SECONDS or total < known.total:
        return Traffic(total)
    per_second = (total - known.total) / lasted
    weight = 1 - math.exp(-lasted / SLOW_SECONDS)
    before = known.slow_per_second
    slow = before + weight * (per_second - before) if before else per_second
    return Traffic(total, now if per_second else known.seen, per_second, slow)

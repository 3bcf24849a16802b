"""Divide the allowed traces a second among the models, as a rate for each."""

from __future__ import annotations

import math
from collections.abc import Mapping

SAFE_TRACES_PER_SECOND = 20.0
"""Traced requests a second that a real server took without trouble, with room to spare."""

MAX_REQUESTS_PER_SECOND = 2000.0
"""More than this in all is not traced: Triton 2.51 ended at 8,000 requests/s with every 100th traced."""


def allot(traffic: Mapping[str, float], per_second: float) -> dict[str, int]:
    """Return one traced request in how many, by model; `traffic` is requests a second.

    A model with little traffic is traced whole, and what it leaves is shared evenly by the others.
    """
    rates: dict[str, int] = {}
    left = per_second
    for number, (model, requests) in enumerate(sorted(traffic.items(), key=lambda entry: entry[1])):
        share = min(requests, left / (len(traffic) - number))
        left -= share
        rates[model] = max(1, math.ceil(requests / share)) if share > 0 else 1
    return rates

"""Compare two versions of a model over the same time: is the canary worse, and how sure is that?

Two error ratios are compared by Newcombe's hybrid score interval for their difference (R. G. Newcombe,
"Interval estimation for the difference between independent proportions", Statistics in Medicine 17, 1998,
method 10), built from Wilson's intervals, so it is valid for few requests and few failures.

Requests are not independent: failures come in bursts, and a sampled histogram counts all requests of one
second at their mean. The window is therefore cut into slices, and both counts are divided by the dispersion
between slices (Pearson's chi-square over its degrees of freedom, as in quasi-binomial models), so that bursts
lower the confidence instead of faking it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

Verdict = Literal["promote", "hold", "rollback"]

_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class EventCount:
    """Events of one version in a slice of the window or in all; fractions come from Prometheus' extrapolation."""

    bad: float
    total: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """The verdict on a canary, and what it rests on.

    `worse` is the confidence (0 to 1) that the canary's error ratio is higher than the baseline's;
    `acceptable` the confidence that it is at most `margin` higher. `low` and `high` bound the difference
    (canary minus baseline) at `confidence`, each side for itself.
    """

    verdict: Verdict
    reason: str
    canary: EventCount
    baseline: EventCount
    worse: float
    acceptable: float
    low: float
    high: float
    margin: float
    confidence: float
    dispersion: float


def compare(
    canary: Sequence[EventCount],
    baseline: Sequence[EventCount],
    *,
    margin: float,
    confidence: float = 0.95,
    minimum_events: float = 50,
) -> Comparison:
    """Judge a canary against its baseline from slices over the same time.

    `rollback` when it is worse than the baseline at the asked confidence, `promote` when it is at most
    `margin` (a difference of error ratios) worse at that confidence, else `hold`. Fewer events than
    `minimum_events` on either side always give `hold`.
    """
    ours, theirs = _sum(canary), _sum(baseline)
    factor = max(dispersion(canary), dispersion(baseline))
    difference = _Difference(ours, theirs, factor)
    worse, acceptable = difference.sure_above(0.0), 1 - difference.sure_above(margin)
    low, high = difference.interval(confidence)
    verdict, reason = _judge(ours, theirs, worse, acceptable, margin, confidence, minimum_events)
    return Comparison(verdict, reason, ours, theirs, worse, acceptable, low, high, margin, confidence, factor)


def dispersion(slices: Sequence[EventCount]) -> float:
    """Return how much more the slices differ than independent events would: 1 or more."""
    whole = _sum(slices)
    busy = [part for part in slices if part.total > 0]
    if len(busy) < 2 or not 0 < whole.bad < whole.total:
        return 1.0
    ratio = whole.bad / whole.total
    chi_square = sum(
        (part.bad - part.total * ratio) ** 2 / (part.total * ratio * (1 - ratio)) for part in busy
    )
    return max(1.0, chi_square / (len(busy) - 1))


def wilson(bad: float, total: float, z: float) -> tuple[float, float]:
    """Return Wilson's score interval of a ratio, for a normal deviate z; (0, 1) without events."""
    if total <= 0:
        return 0.0, 1.0
    ratio, spread = bad / total, z * z / total
    middle = (ratio + spread / 2) / (1 + spread)
    half = z / (1 + spread) * math.sqrt(max(0.0, ratio * (1 - ratio) / total + spread / total / 4))
    return max(0.0, middle - half), min(1.0, middle + half)


class _Difference:
    """The canary's error ratio minus the baseline's."""

    def __init__(self, canary: EventCount, baseline: EventCount, factor: float) -> None:
        self._canary = EventCount(min(canary.bad, canary.total) / factor, canary.total / factor)
        self._baseline = EventCount(min(baseline.bad, baseline.total) / factor, baseline.total / factor)

    def interval(self, confidence: float) -> tuple[float, float]:
        """Return bounds that are each right with `confidence`."""
        return self._bounds(_NORMAL.inv_cdf(confidence))

    def sure_above(self, limit: float) -> float:
        """Return the confidence, 0 to 1, with which the difference exceeds `limit`."""
        # The lower bound falls as z grows, so the z at which a bound meets the limit is found by halving;
        # negative z means the upper bound: being sure of the opposite.
        low, high = -8.0, 8.0
        for _ in range(60):
            z = (low + high) / 2
            bound = self._bounds(z)[0] if z >= 0 else self._bounds(-z)[1]
            low, high = (z, high) if bound > limit else (low, z)
        return _NORMAL.cdf(low)

    def _bounds(self, z: float) -> tuple[float, float]:
        if self._canary.total <= 0 or self._baseline.total <= 0:
            return -1.0, 1.0
        p, q = self._canary.bad / self._canary.total, self._baseline.bad / self._baseline.total
        p_low, p_high = wilson(self._canary.bad, self._canary.total, z)
        q_low, q_high = wilson(self._baseline.bad, self._baseline.total, z)
        return (
            p - q - math.hypot(p - p_low, q_high - q),
            p - q + math.hypot(p_high - p, q - q_low),
        )


def _judge(
    ours: EventCount,
    theirs: EventCount,
    worse: float,
    acceptable: float,
    margin: float,
    confidence: float,
    minimum: float,
) -> tuple[Verdict, str]:
    for name, events in (("canary", ours.total), ("baseline", theirs.total)):
        if events <= 0 and not minimum > 0:
            return "hold", f"the {name} has no events"
        if events < minimum:
            return "hold", f"the {name} has {events:.0f} events, {minimum:.0f} are needed"
    ratios = f"{ours.bad / ours.total:.3%} bad against {theirs.bad / theirs.total:.3%}"
    # With very many events a canary can be surely worse and surely within the margin; the margin decides.
    if acceptable >= confidence:
        return "promote", f"{acceptable:.1%} sure that the canary is at most {margin:.3%} worse ({ratios})"
    if worse >= confidence:
        return "rollback", f"{worse:.1%} sure that the canary is worse ({ratios})"
    chances = f"{worse:.1%} that it is worse, {acceptable:.1%} that it is at most {margin:.3%} worse"
    return "hold", f"not sure enough: {chances} ({ratios})"


def _sum(slices: Sequence[EventCount]) -> EventCount:
    return EventCount(sum(part.bad for part in slices), sum(part.total for part in slices))

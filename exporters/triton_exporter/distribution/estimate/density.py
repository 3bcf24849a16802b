"""The distribution of single requests, recovered from sums of several: decompounding.

An interval gives how many requests ended in it and what they took in all. If requests are independent, that sum is
distributed as a convolution power of the distribution of one, which expectation-maximisation recovers:
Buchmann and Gruebel, Decompounding, Annals of Statistics 31 (2003), https://doi.org/10.1214/aos/1059655905.
The convolutions are done for all sums at once, on a grid of equal steps, by Fourier transforms, so that the cost
depends on the size of the grid and not on the number of intervals.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]
"""Positions in another array."""

COLD_ROUNDS = 20
WARM_ROUNDS = 6
"""Rounds of expectation-maximisation without and with an estimate to start from."""

_CARRIED_SHARE = 0.85
"""Share of the last estimate in the start of the next: all of it, and ever more rounds fit the noise."""

_SIZES = (512, 1024, 2048, 4096)
_STEPS_OF_A_FAST_REQUEST = 5.0
_FINEST_SECONDS = 0.00025
"""A quarter of the lowest bound of the histograms: a finer grid costs time and shows nothing."""

_EXACT_COUNTS = 12.0
_COUNT_SPACING = 0.08
_CACHED_POINTS = 8192
"""Most points of convolution powers that are cached, so that 100 histograms stay small."""

_NOISE = 1e-13
"""Fourier transforms of doubles are exact to about this part of their largest value."""


@dataclass(frozen=True, slots=True)
class Sums:
    """Intervals of independent units: `units` (1 or more) took `seconds` in all and stand for `weight` requests."""

    units: Floats
    seconds: Floats
    weight: Floats

    def __len__(self) -> int:
        return len(self.units)

    def at(self, chosen: npt.NDArray[np.bool_]) -> Sums:
        """Return the chosen intervals."""
        return Sums(self.units[chosen], self.seconds[chosen], self.weight[chosen])

    @property
    def means(self) -> Floats:
        return np.asarray(self.seconds / self.units)

    def rounded(self) -> Sums:
        """Return the same means with large numbers of units rounded by a few percent, so that few differ."""
        coarse = np.round(np.exp(np.round(np.log(self.units) / _COUNT_SPACING) * _COUNT_SPACING))
        units = np.where(self.units > _EXACT_COUNTS, coarse, np.round(self.units))
        return Sums(units, self.seconds * units / self.units, self.weight)


@dataclass(frozen=True, slots=True)
class Density:
    """The share of requests at each multiple of `step` seconds."""

    step: float
    shares: Floats
    _powers: dict[int, Floats] = field(default_factory=dict)

    def below(self, bounds: Floats) -> Floats:
        """Return the share of requests at or below each bound; each grid point is spread over one step."""
        edges = (np.arange(len(self.shares) + 1) - 0.5) * self.step
        cumulative = np.concatenate([[0.0], np.cumsum(self.shares)])
        return np.asarray(np.minimum(np.interp(bounds, edges, cumulative), 1.0))

    def posterior(self, sums: Sums, bounds: Floats, reach: Floats) -> Floats:
        """Return for each interval the expected share of its requests at or below its bounds, given its sum.

        `bounds` and the result have a row for each interval, NaN where the density does not allow the sum.
        Each bound is taken evenly from `reach` below it to `reach` above it.
        """
        rounded = sums.rounded()
        estimates = np.full(bounds.shape, np.nan)
        size = len(self.shares)
        at = rounded.seconds / self.step
        for units in np.unique(rounded.units):
            rows = np.flatnonzero((rounded.units == units) & (at < size - 1))
            others = self._power(int(units) - 1)
            for low in range(0, len(rows), 32):
                block = rows[low : low + 32]
                whole = at[block].astype(np.int64)
                part = (at[block] - whole)[:, None]
                back = whole[:, None] - np.arange(whole.max() + 2)[None, :]
                rest = others[back] * (1 - part) + others[back + 1] * part
                joint = rest * self.shares[: whole.max() + 2]
                total = joint.sum(axis=1)
                fits = total > _NOISE
                chosen = block[fits]
                shares = joint[fits] / total[fits, None]
                estimates[chosen] = _read_off(shares, bounds[chosen] / self.step, reach[chosen] / self.step)
        return estimates

    def _power(self, count: int) -> Floats:
        """Return the distribution of a sum of `count`, with zeros behind it, which negative indexes find."""
        if count not in self._powers:
            size = len(self.shares)
            if len(self._powers) >= _CACHED_POINTS // size:
                self._powers.clear()
            power = np.fft.irfft(np.fft.rfft(self.shares, 2 * size) ** count, 2 * size)
            power[size:] = 0.0
            power[power < _NOISE * power.max()] = 0.0
            self._powers[count] = np.asarray(power)
        return self._powers[count]


def estimate(sums: Sums, before: Density | None = None) -> Density:
    """Estimate the distribution of single units, from `before` on where that has a fitting grid."""
    rounded = sums.rounded()
    step, size = _grid(rounded)
    if before is not None and len(before.shares) == size and 0.5 < step / before.step <= 1.0:
        step = before.step
    shares = _started(rounded, step, size)
    rounds = COLD_ROUNDS
    if before is not None:
        edges = (np.arange(size + 1) - 0.5) * step
        shares = _CARRIED_SHARE * np.diff(before.below(edges)) + (1 - _CARRIED_SHARE) * shares
        shares /= shares.sum()
        rounds = WARM_ROUNDS
    singles = rounded.units == 1
    known = _on_grid(rounded.at(singles), step, size)
    counts = np.unique(rounded.units[~singles]).astype(np.int64)
    if not len(counts):
        return Density(step, known / known.sum())
    seen = np.array([_on_grid(rounded.at(rounded.units == count), step, size) for count in counts])
    for _ in range(rounds):
        shares = _improved(shares, counts, seen, known)
    return Density(step, shares)


def _improved(shares: Floats, counts: Places, seen: Floats, known: Floats) -> Floats:
    """Improve the estimate once: share each sum out over single requests in proportion to the current estimate."""
    size = len(shares)
    transformed = np.fft.rfft(shares, 2 * size)
    others = _powers(transformed, counts - 1)
    expected = np.fft.irfft(others * transformed, 2 * size)[:, :size]
    ratio = np.divide(seen, np.maximum(expected, _NOISE), out=np.zeros_like(seen), where=seen > 0)
    correlated = np.fft.irfft((np.conj(others) * np.fft.rfft(ratio, 2 * size)).sum(axis=0), 2 * size)[:size]
    improved = known + shares * np.maximum(correlated, 0.0)
    return np.asarray(improved / improved.sum())


def _powers(transformed: npt.NDArray[np.complex128], exponents: Places) -> npt.NDArray[np.complex128]:
    """Return powers to ascending exponents, each from the one before: cheaper than one by one."""
    powers = np.empty((len(exponents), len(transformed)), dtype=np.complex128)
    last, reached = np.ones_like(transformed), 0
    for row, exponent in enumerate(exponents.tolist()):
        last = last * (transformed if exponent == reached + 1 else transformed ** (exponent - reached))
        powers[row], reached = last, exponent
    return powers


def _grid(sums: Sums) -> tuple[float, int]:
    """Return step and size of a grid that contains every sum and, if it can, keeps fast requests apart."""
    top = float(sums.seconds.max()) * 1.02 + 1e-6
    wanted = max(_FINEST_SECONDS, float(np.quantile(sums.means, 0.05)) / _STEPS_OF_A_FAST_REQUEST)
    size = next((candidate for candidate in _SIZES if top <= wanted * candidate), _SIZES[-1])
    return top / (size - 2), size


def _started(sums: Sums, step: float, size: int) -> Floats:
    """Return a first estimate: the single requests, and a lognormal with mean and variance of the rest."""
    weight = sums.weight.sum()
    mean = float((sums.weight * sums.means).sum() / weight)
    variance = float((sums.weight * sums.units * (sums.means - mean) ** 2).sum() / weight)
    spread = np.log1p(max(variance / mean**2, 4e-4)) if mean > 0 else 1.0
    seconds = np.maximum(np.arange(size) * step, step / 4)
    centre = np.log(max(mean, step / 4)) - spread / 2
    smooth = np.exp(-((np.log(seconds) - centre) ** 2) / (2 * spread)) / seconds
    smooth /= max(float(smooth.sum()), 1e-300)
    singles = sums.at(sums.units == 1)
    part = float(singles.weight.sum() / weight)
    if part:
        smooth = (1 - part) * smooth + part * _on_grid(singles, step, size) / singles.weight.sum()
    shares = 0.98 * smooth + 0.02 / size
    return np.asarray(shares / shares.sum())


def _on_grid(sums: Sums, step: float, size: int) -> Floats:
    """Return the weights on the grid, each shared by its two neighbours so that means stay."""
    at = np.clip(sums.seconds / step, 0, size - 1.001)
    low = at.astype(np.int64)
    high = at - low
    spread = np.bincount(low, weights=sums.weight * (1 - high), minlength=size)
    spread += np.bincount(low + 1, weights=sums.weight * high, minlength=size)
    return np.asarray(spread)


def _read_off(shares: Floats, at: Floats, reach: Floats) -> Floats:
    """Return the share at or below each place of the grid, by row.

    Places are spread evenly over `reach` both ways. Read off the integral of the cumulative shares, which is
    linear between the points of the grid. Each point is spread over at least one step.
    """
    below = np.cumsum(shares, axis=1)
    integral = np.concatenate([np.zeros((len(shares), 1)), np.cumsum(below, axis=1)], axis=1)
    reach = np.maximum(reach, 0.5)
    places = np.stack([at - reach, at + reach])
    low = np.clip(places, 0, shares.shape[1] - 1).astype(np.int64)
    rows = np.arange(len(shares))[:, None]
    start, end = integral[rows, low] + np.maximum(places - low, 0.0) * below[rows, low]
    return np.asarray(np.clip((end - start) / (2 * reach), 0.0, 1.0))

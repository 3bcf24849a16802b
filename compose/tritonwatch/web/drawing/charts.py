"""Charts over time: as JSON for the chart library, and as a table where there is no JavaScript."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from triton_slo.prometheus import Series

Unit = Literal["share", "times", "per second"]
Values = tuple[float | None, ...]
POINTS = 240
"""Steps of a chart or a timeline."""
_TABLE_ROWS = 12


def gap(before: float, at: float, step: float) -> bool:
    """Return whether a sample is missing between two Unix times, given the step of a query."""
    return at - before > 1.5 * step


@dataclass(frozen=True, slots=True)
class Curve:
    """One line of a chart; None where there was no data."""

    label: str
    values: Values
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Limit:
    """A horizontal line, such as the burn rate at which a tier fires."""

    label: str
    value: float


@dataclass(frozen=True, slots=True)
class Band:
    """A stretch of time (Unix seconds) that is shaded."""

    kind: str
    start: float
    end: float
    label: str = ""


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment (Unix seconds) that is marked, such as a deployment."""

    at: float
    label: str


@dataclass(frozen=True, slots=True)
class ChartAxis:
    """The steps of a chart: Unix seconds from `start` to `end`."""

    start: float
    end: float
    step: float

    @classmethod
    def until(cls, end: float, seconds: float) -> ChartAxis:
        """Return the steps of the last seconds."""
        return cls(end - seconds, end, seconds / POINTS)

    @property
    def times(self) -> tuple[float, ...]:
        """Unix seconds of each step."""
        return tuple(
            self.start + self.step * i for i in range(round((self.end - self.start) / self.step) + 1)
        )

    def values(self, series: Series | None) -> Values:
        """Return the values of a series at the steps."""
        values: list[float | None] = [None] * len(self.times)
        for at, value in zip(series.times, series.values, strict=True) if series else ():
            index = round((at - self.start) / self.step)
            if 0 <= index < len(values) and math.isfinite(value):
                values[index] = value
        return tuple(values)

    def stretches(self, series: Series) -> Iterator[tuple[float, float]]:
        """Return from when to when a series existed, given that each point stands for the step before it."""
        begun: float | None = None
        last = 0.0
        for at in series.times:
            if begun is not None and gap(last, at, self.step):
                yield begun, last
                begun = None
            begun = at - self.step if begun is None else begun
            last = at
        if begun is not None:
            yield begun, last


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines over time, with limits, bands and marks."""

    name: str
    title: str
    unit: Unit
    times: tuple[float, ...]
    curves: tuple[Curve, ...]
    limits: tuple[Limit, ...] = ()
    bands: tuple[Band, ...] = ()
    marks: tuple[Mark, ...] = ()
    log: bool = False

    def as_json(self) -> dict[str, object]:
        """Return what `static/charts.js` draws."""
        return asdict(self)

    def rows(self) -> Sequence[tuple[float, Sequence[float | None]]]:
        """Return some of the steps, the last one first, for a table."""
        every = max(1, len(self.times) // _TABLE_ROWS)
        chosen = range(len(self.times) - 1, -1, -every)
        return [(self.times[i], [curve.values[i] for curve in self.curves]) for i in chosen]


def joined(bands: Iterable[Band]) -> tuple[Band, ...]:
    """Return the bands in the order of their time."""
    return tuple(sorted(bands, key=lambda band: (band.start, band.kind)))

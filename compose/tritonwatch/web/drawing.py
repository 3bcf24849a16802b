"""Charts over time and server-rendered drawings: values become curves, bands and places. No queries, no HTML."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Literal

from triton_exporter.common.duration import DAY
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


WIDTH = 1000.0
"""Units of a drawing's width; it is stretched to the page's."""
_TICKS = (60, 300, 900, 1800, 3600, 3 * 3600, 6 * 3600, 12 * 3600, DAY, 2 * DAY, 7 * DAY, 14 * DAY)
_MAX_TICKS = 8


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark of the time axis: its place in the drawing and its words."""

    x: float
    words: str


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """Unix times of the left and right edge."""

    start: float
    end: float

    def x(self, at: float) -> float:
        """Return the place of a moment, within the drawing."""
        share = (at - self.start) / (self.end - self.start) if self.end > self.start else 0.0
        return round(WIDTH * min(1.0, max(0.0, share)), 1)

    def width(self, start: float, end: float) -> float:
        """Return the width of a stretch of time, which is at least visible."""
        return round(max(2.0, self.x(end) - self.x(start)), 1)

    @property
    def ticks(self) -> tuple[Tick, ...]:
        """Whole minutes, hours or days (UTC), at most eight."""
        length = self.end - self.start
        every = next((seconds for seconds in _TICKS if length / seconds <= _MAX_TICKS), 28 * DAY)
        form = "%d %b" if every >= DAY else "%H:%M" if length <= DAY else "%d %b %H:%M"
        first = -(-self.start // every) * every
        count = int((self.end - first) // every) + 1
        moments = [first + index * every for index in range(max(0, count))]
        return tuple(Tick(self.x(at), datetime.fromtimestamp(at, UTC).strftime(form)) for at in moments)


def lines(
    axis: TimeAxis,
    times: Sequence[float],
    values: Iterable[float | None],
    low: float,
    high: float,
    height: float,
) -> tuple[str, ...]:
    """Return the points of a curve as SVG polylines: one for each stretch without a gap."""
    pieces: list[list[str]] = [[]]
    for at, value in zip(times, values, strict=True):
        if value is None:
            pieces.append([])
            continue
        share = (min(high, max(low, value)) - low) / (high - low)
        pieces[-1].append(f"{axis.x(at):g},{height * (1 - share):.1f}")
    # A point alone is a short line, so that it is seen.
    return tuple(" ".join(points if len(points) > 1 else points * 2) for points in pieces if points)

"""Server-rendered drawings: positions in percent and points of lines, for SVG without any script or style."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from triton_exporter.common.duration import DAY

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

"""Counters that Prometheus can trust, though sources change and some report an older sample than before.

Prometheus takes any fall for a restart and adds the whole value again, so a counter of 10 GJ that dips by one
joule counts as 10 GJ used at once.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field, replace

from triton_exporter.gpu.gpu_reading import GpuReading, Slot

_DIP = 0.5
"""A value below this share of the one before means that the counter started again, above an older sample."""


@dataclass(frozen=True, slots=True)
class _Track:
    origin: str
    raw: float
    offset: float

    @property
    def shown(self) -> float:
        return self.raw + self.offset


@dataclass
class SteadyCounters:
    """Remembers each counter of each GPU.

    DCGM and NVML read the driver's own counters; Triton counts from its start, so going from or to it the
    counter is continued from its last value.
    """

    _tracks: dict[Slot, _Track] = field(default_factory=dict)

    def counters(self, reading: GpuReading, known: Container[str]) -> GpuReading:
        """Return the same reading with counters that only fall when they really started again."""
        origin = "server" if reading.source == "triton" else "driver"
        values = dict(reading.values)
        for slot, value in reading.values.items():
            if slot.metric.kind == "counter" and slot.entity.uuid in known:
                track = self._tracks[slot] = _next_track(self._tracks.get(slot), origin, value)
                values[slot] = track.shown
        return replace(reading, values=values)


def _next_track(before: _Track | None, origin: str, value: float) -> _Track:
    if before is None:
        return _Track(origin, value, 0.0)
    if before.origin != origin:
        return _Track(origin, value, before.shown - value)
    if value >= before.raw:
        return _Track(origin, value, before.offset)
    return before if value >= _DIP * before.raw else _Track(origin, value, 0.0)

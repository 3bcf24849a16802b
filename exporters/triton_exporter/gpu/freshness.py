"""Age of a GPU's data: when its engine hangs, dcgm-exporter goes on serving the last sample with status 200."""

from __future__ import annotations

from dataclasses import dataclass, field

from triton_exporter.catalogue import gpu
from triton_exporter.gpu.gpu_reading import Entity, GpuReading, Slot

MAX_GPUS = 256
"""GPUs remembered; a source that invents new ones for ever cannot fill the memory."""


@dataclass
class Freshness:
    """Remembers when each GPU's data were new.

    A GPU with an energy counter never reports the same values twice while it is really read; of one without,
    only the response of the source is known.
    """

    _new_at: dict[str, float] = field(default_factory=dict)
    _last: dict[str, frozenset[tuple[Slot, float]]] = field(default_factory=dict)

    def note(self, reading: GpuReading) -> frozenset[str]:
        """Take in a reading and give back the GPUs whose data are new."""
        values_of: dict[str, set[tuple[Slot, float]]] = {uuid: set() for uuid in reading.devices}
        for slot, value in reading.values.items():
            values_of[slot.entity.uuid].add((slot, value))
        new = set()
        for uuid, values in values_of.items():
            if uuid not in self._last and len(self._last) >= MAX_GPUS:
                continue
            frozen = frozenset(values)
            always_changes = Slot(gpu.ENERGY, Entity(uuid)) in reading.values
            if not always_changes or frozen != self._last.get(uuid):
                self._new_at[uuid] = reading.at
                new.add(uuid)
            self._last[uuid] = frozen
        return frozenset(new)

    @property
    def known(self) -> frozenset[str]:
        """GPUs remembered."""
        return frozenset(self._new_at)

    def ages(self, now: float) -> dict[str, float]:
        """Return seconds since each GPU's data were new; a GPU that is gone ages on."""
        return {uuid: max(0.0, now - at) for uuid, at in self._new_at.items()}

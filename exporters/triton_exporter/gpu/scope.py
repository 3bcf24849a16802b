"""Select the GPUs to show: those that Triton can see, as far as that is known, else all of the machine.

dcgm-exporter knows every GPU of its node, also those of other pods. Shown by every exporter there they would
be counted many times, and an XID of another team's GPU would be blamed on this Triton.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from triton_exporter.gpu.gpu_reading import Entity

PATIENCE_SECONDS = 60.0
"""Time without a report of Triton's own GPUs after which all GPUs are shown."""


@dataclass
class GpuScope:
    """Grows, and never shrinks: a GPU that was shown and is shown no more means that it is lost."""

    _mine: set[Entity] = field(default_factory=set)
    _all: bool = False
    _waiting_since: float | None = None

    def learn(self, mine: Iterable[Entity], *, triton_read: bool, now: float) -> None:
        """Take in the GPUs known to be Triton's (perhaps none), and whether Triton's metrics have been read."""
        self._mine.update(mine)
        self._waiting_since = now if self._waiting_since is None else self._waiting_since
        if not self._mine and (triton_read or now - self._waiting_since >= PATIENCE_SECONDS):
            self._all = True

    def includes(self, entity: Entity) -> bool:
        """Return whether to show this GPU or instance; the whole of a GPU is shown if one of its instances is."""
        if self._all or entity in self._mine or Entity(entity.uuid) in self._mine:
            return True
        return not entity.instance and any(entity.uuid == own.uuid for own in self._mine)

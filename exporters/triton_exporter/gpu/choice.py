"""Choose the GPU source: the best that answers. A short failure does not change the choice."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from triton_exporter.gpu.gpu_reading import GpuReading
from triton_exporter.gpu.sources.source import GpuSource, SourceError

RETRY_SECONDS = 30.0
"""Time after which a source that failed is tried again while another serves."""

PATIENCE = 3
"""Number of reads in a row that the source in use may miss before a worse one is asked."""


@dataclass
class SourceChoice:
    """Sources from best to worst. Used by one thread.

    `wanted` are those the operator named: their failures always count. A source that is only searched for
    counts failures once it has answered, so that a machine without GPUs shows none.
    """

    sources: Sequence[GpuSource]
    wanted: frozenset[str] = frozenset()
    failures: Counter[tuple[str, str]] = field(default_factory=Counter)
    current: str = "none"
    details: dict[str, str] = field(default_factory=dict)
    _answered: set[str] = field(default_factory=set)
    _tried: dict[str, float] = field(default_factory=dict)
    _misses: int = 0

    def read(self, at: float) -> GpuReading | None:
        """Read the best source that answers now, or None."""
        for source in self._candidates(at):
            self._tried[source.name] = at
            try:
                reading = source.read(at)
            except SourceError as error:
                self._note_failure(source.name, error)
                continue
            self._answered.add(source.name)
            self.details[source.name] = reading.dialect
            self.current, self._misses = source.name, 0
            return reading
        self._misses += 1
        if self._misses >= PATIENCE:
            self.current = "none"
        return None

    def _candidates(self, at: float) -> list[GpuSource]:
        names = [source.name for source in self.sources]
        if self.current not in names:
            return list(self.sources)
        position = names.index(self.current)
        better = [
            source
            for source in self.sources[:position]
            if at - self._tried.get(source.name, -math.inf) >= RETRY_SECONDS
        ]
        worse = self.sources[position + 1 :] if self._misses + 1 >= PATIENCE else ()
        return [*better, self.sources[position], *worse]

    def _note_failure(self, name: str, error: SourceError) -> None:
        self.details[name] = str(error)
        if name in self.wanted or name in self._answered:
            self.failures[name, error.reason] += 1

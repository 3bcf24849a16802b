"""Samples that rarely change: written once, shown on every scrape."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import overload

from triton_exporter.exposition.page import written
from triton_exporter.family import Sample


class CachedSamples(Sequence[Sample]):
    """A list of samples whose text is rendered once; Written (see `family`)."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        self._samples = samples
        self._lines: tuple[bytes, ...] = ()

    def __len__(self) -> int:
        return len(self._samples)

    @overload
    def __getitem__(self, index: int) -> Sample: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Sample]: ...

    def __getitem__(self, index: int | slice) -> Sample | Sequence[Sample]:
        return self._samples[index]

    @property
    def has_exemplars(self) -> bool:
        """Whether any sample has one."""
        return any(sample.exemplar is not None for sample in self._samples)

    def pieces(self) -> Iterable[bytes]:
        """All of them in the text format."""
        if not self._lines:
            self._lines = (written(self._samples),)
        return self._lines

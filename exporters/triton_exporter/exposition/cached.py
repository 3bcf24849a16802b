"""Samples that rarely change: written once, shown on every scrape."""

from __future__ import annotations

from collections.abc import Iterable

from triton_exporter.exposition.page import written
from triton_exporter.family import Sample


class CachedSamples(list[Sample]):
    """Samples whose text is rendered once, so that none is added later; Written (see `family`)."""

    _text = b""

    @property
    def has_exemplars(self) -> bool:
        """Whether any sample has one."""
        return any(sample.exemplar is not None for sample in self)

    def pieces(self) -> Iterable[bytes]:
        """Return all of them in the text format."""
        self._text = self._text or written(self)
        return (self._text,)

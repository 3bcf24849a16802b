"""Keep the histograms over restarts of the exporter: what the last page showed is in the state file before it."""

from __future__ import annotations

from collections.abc import Sequence

from triton_exporter.app.state_file import StateFile
from triton_exporter.distribution.distributions import Distributions
from triton_exporter.distribution.stored import StoredModel


class HistogramStorage:
    """The distributions and their state file; without either, nothing is stored. Times are Unix seconds."""

    def __init__(self, distributions: Distributions | None, file: StateFile | None) -> None:
        self._distributions = distributions
        self._file = file

    @property
    def is_usable(self) -> bool:
        """True if the state written now can be read at the next start."""
        return self._file is not None and self._file.is_usable

    def restore(self, now: float) -> None:
        """Let the distributions go on from the state file, if it can be used."""
        if self._file is None or self._distributions is None:
            return
        models = self._file.load()
        if models is not None:
            self._distributions.restore(models, now)

    def current(self, now: float) -> Sequence[StoredModel] | None:
        """Return the models to write, or None if nothing is stored. Called under the lock of the parts."""
        if self._file is None or self._distributions is None:
            return None
        return self._distributions.stored(now)

    def write(self, models: Sequence[StoredModel] | None) -> None:
        """Store what `current` returned."""
        if self._file is not None and models is not None:
            self._file.write(models)

    def end(self, models: Sequence[StoredModel] | None) -> None:
        """Store what `current` returned for the last time, and let another exporter have the file."""
        if self._file is None:
            return
        if models is not None:
            self._file.write(models, ended=True, to_disk=True)
        self._file.close()

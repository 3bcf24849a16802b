"""Interface of a source of GPU data."""

from __future__ import annotations

from typing import Protocol

from triton_exporter.gpu.gpu_reading import GpuReading


class SourceError(Exception):
    """A source could not be read; `reason` is one of the catalogue's SOURCE_FAILURES."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class GpuSource(Protocol):
    """Something that knows GPUs. Used by one thread."""

    name: str

    def read(self, at: float) -> GpuReading:
        """Read once, at Unix time `at`. Raises SourceError; may wait on network or driver."""

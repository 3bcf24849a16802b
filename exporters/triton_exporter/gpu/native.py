"""Triton's own GPU series to a reading: the last source, where there is no better one."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping

from triton_exporter.catalogue import Metric, gpu, triton
from triton_exporter.distribution.counters import version_of
from triton_exporter.exposition.parse import Exposition
from triton_exporter.gpu.gpu_reading import (
    Device,
    Entity,
    GpuReading,
    Slot,
    SourceError,
    plausible_value,
    with_derived,
)
from triton_exporter.snapshot import ModelVersion

SOURCE = "triton"

_CANONICAL: Mapping[str, Metric] = {
    triton.GPU_UTILIZATION.name: gpu.UTILIZATION,
    triton.GPU_MEMORY_TOTAL_BYTES.name: gpu.MEMORY_TOTAL,
    triton.GPU_MEMORY_USED_BYTES.name: gpu.MEMORY_USED,
    triton.GPU_POWER_USAGE.name: gpu.POWER,
    triton.GPU_POWER_LIMIT.name: gpu.POWER_LIMIT,
    triton.ENERGY_CONSUMPTION.name: gpu.ENERGY,
}

LABELLED = (triton.REQUEST_SUCCESS.name, triton.INFERENCE_COUNT.name)
"""Per-model families that carry gpu_uuid if any does."""

FAMILIES = frozenset({*_CANONICAL, *LABELLED})
"""Families of Triton's page that have to be parsed."""


def read(exposition: Exposition, at: float) -> GpuReading:
    """Read Triton's own GPU series.

    A GPU whose total memory is 0 is one that Triton gave up reading: all its series stay 0 for ever, so it
    is listed as a device without values.
    """
    rows: dict[str, dict[Metric, float]] = defaultdict(dict)
    for name, metric in _CANONICAL.items():
        for uuid, value in _values_by_gpu(exposition, name):
            rows[uuid][metric] = value
    dropped: Counter[str] = Counter()
    values: dict[Slot, float] = {}
    for uuid, figures in rows.items():
        if figures.get(gpu.MEMORY_TOTAL) == 0:
            dropped["blank"] += len(figures)
            continue
        for metric, value in figures.items():
            accepted = plausible_value(metric, value, dropped)
            if accepted is not None:
                values[Slot(metric, Entity(uuid))] = accepted
    return GpuReading(
        SOURCE, at, {uuid: Device(uuid) for uuid in rows}, values=with_derived(values), dropped=dict(dropped)
    )


def model_labels(exposition: Exposition) -> dict[ModelVersion, frozenset[str]]:
    """Return each model version that has series, with the GPUs its series name (none where gpu_uuid is missing).

    Empty where Triton has no GPU, which most of a fleet may not: its labels are not read.
    """
    uuids_by_version: dict[ModelVersion, set[str]] = defaultdict(set)
    families = [exposition.families[name] for name in FAMILIES if name in exposition.families]
    if not any(b"gpu_uuid=" in family.lines for family in families):
        return {}
    for family in families:
        for series in family.series if family.name in LABELLED else ():
            version = version_of(series)
            if version is not None:
                uuids_by_version[version] |= {series.labels.get("gpu_uuid", "")} - {""}
    return {key: frozenset(uuids) for key, uuids in uuids_by_version.items()}


def _values_by_gpu(exposition: Exposition, name: str) -> list[tuple[str, float]]:
    family = exposition.families.get(name)
    if family is None:
        return []
    rows = [(series.labels.get("gpu_uuid", ""), value) for series, value in family.samples()]
    return [(uuid, value) for uuid, value in rows if uuid]


class NativeSource:
    """The last GPU reading from Triton's metrics; `put` may be called from another thread than `read`."""

    name = SOURCE

    def __init__(self, max_age_seconds: float) -> None:
        self._max_age = max_age_seconds
        self._last = GpuReading(SOURCE, -math.inf)

    def put(self, reading: GpuReading) -> None:
        self._last = reading

    def read(self, at: float) -> GpuReading:
        """Return the last reading. Raises SourceError when it is old or shows no GPU that Triton can read."""
        last = self._last
        if at - last.at > self._max_age:
            raise SourceError("timeout", "Triton's metrics have not been read lately")
        if not last.values:
            raise SourceError("no_gpu", "Triton shows no GPU that it can read")
        return last

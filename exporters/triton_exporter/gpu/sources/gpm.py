"""Activity of a GPU's parts, and its NVLinks' data rate, from NVML's GPU performance monitoring (Hopper and later).

A figure needs two samples, so the first read of a GPU gives none. Unlike DCGM's profiling module on
older cards this takes no lock that another reader could miss.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from triton_exporter.catalogue import Metric, gpu
from triton_exporter.gpu.gpu_reading import Entity


class _Figure(NamedTuple):
    constant: str
    metric: Metric
    label: str = ""
    unit: float = 0.01  # in the metric's


_MIB_PER_SECOND = float(2**20)

# https://docs.nvidia.com/deploy/nvml-api/group__nvmlGpmEnums.html: percent, and MiB/s for the links.
_FIGURES = (
    _Figure("NVML_GPM_METRIC_GRAPHICS_UTIL", gpu.ENGINE_ACTIVE),
    _Figure("NVML_GPM_METRIC_SM_UTIL", gpu.SM_ACTIVE),
    _Figure("NVML_GPM_METRIC_SM_OCCUPANCY", gpu.SM_OCCUPANCY),
    _Figure("NVML_GPM_METRIC_ANY_TENSOR_UTIL", gpu.TENSOR_ACTIVE),
    _Figure("NVML_GPM_METRIC_DRAM_BW_UTIL", gpu.DRAM_ACTIVE),
    _Figure("NVML_GPM_METRIC_FP16_UTIL", gpu.PIPE_ACTIVE, "fp16"),
    _Figure("NVML_GPM_METRIC_FP32_UTIL", gpu.PIPE_ACTIVE, "fp32"),
    _Figure("NVML_GPM_METRIC_FP64_UTIL", gpu.PIPE_ACTIVE, "fp64"),
    # Two directions of one series.
    _Figure("NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC", gpu.NVLINK_THROUGHPUT, unit=_MIB_PER_SECOND),
    _Figure("NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC", gpu.NVLINK_THROUGHPUT, unit=_MIB_PER_SECOND),
)


class Gpm:
    """Keeps the last sample of each GPU and instance."""

    def __init__(self, library: Any) -> None:
        self._lib = library
        self._samples: dict[Entity, Any] = {}

    def read(self, handle: Any, entity: Entity) -> Mapping[tuple[Metric, str], float]:
        """Return ratios, and rates in bytes a second, since the last read of `entity`; `handle` is the whole GPU's.

        Raises the library's NVMLError where the card cannot do it.
        """
        if not self._lib.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
            return {}
        sample = self._lib.nvmlGpmSampleAlloc()
        try:
            if entity.instance:
                self._lib.nvmlGpmMigSampleGet(handle, int(entity.instance), sample)
            else:
                self._lib.nvmlGpmSampleGet(handle, sample)
        except self._lib.NVMLError:
            self._lib.nvmlGpmSampleFree(sample)
            raise
        before = self._samples.get(entity)
        self._samples[entity] = sample
        if before is None:
            return {}
        try:
            figures = self._between(before, sample)
            if entity.instance:
                figures.pop((gpu.NVLINK_THROUGHPUT, ""), None)  # the links are the whole board's
            return figures
        finally:
            self._lib.nvmlGpmSampleFree(before)

    def close(self) -> None:
        """Free all samples."""
        for sample in self._samples.values():
            with contextlib.suppress(self._lib.NVMLError):
                self._lib.nvmlGpmSampleFree(sample)
        self._samples.clear()

    def _between(self, before: Any, after: Any) -> dict[tuple[Metric, str], float]:
        asked = self._lib.c_nvmlGpmMetricsGet_t()
        asked.version = self._lib.NVML_GPM_METRICS_GET_VERSION
        asked.numMetrics = len(_FIGURES)
        asked.sample1, asked.sample2 = before, after
        for position, figure in enumerate(_FIGURES):
            asked.metrics[position].metricId = getattr(self._lib, figure.constant)
        self._lib.nvmlGpmMetricsGet(asked)
        figures: dict[tuple[Metric, str], float] = {}
        unknown: set[tuple[Metric, str]] = set()
        for figure, answer in zip(_FIGURES, asked.metrics, strict=False):
            key = figure.metric, figure.label
            if answer.nvmlReturn == self._lib.NVML_SUCCESS:
                figures[key] = figures.get(key, 0.0) + answer.value * figure.unit
            else:
                unknown.add(key)
        # A figure of one direction alone would be taken for the sum of both.
        return {key: value for key, value in figures.items() if key not in unknown}

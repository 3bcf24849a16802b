"""Every number that NVML reports of a GPU: one row a number, in base units."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from triton_exporter.catalogue import Metric, gpu

Library = Any
"""The module pynvml, or something that answers like it; it has no types of its own."""

Ask = Callable[[Library, Any], float]


class NvmlProbe(NamedTuple):
    """One number that the library reports of a GPU; `label` is the value of the family's own label."""

    metric: Metric
    ask: Ask
    label: str = ""


def _field(constant: str) -> Ask:
    """Ask for a numbered field (https://docs.nvidia.com/deploy/nvml-api/group__nvmlFieldValueEnums.html)."""

    def ask(lib: Library, handle: Any) -> float:
        answer = lib.nvmlDeviceGetFieldValues(handle, [getattr(lib, constant)])[0]
        if answer.nvmlReturn != lib.NVML_SUCCESS:
            return math.nan
        member = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")[answer.valueType]
        return float(getattr(answer.value, member))

    return ask


def _throttled(constant: str) -> Ask:
    def ask(lib: Library, handle: Any) -> float:
        status = lib.nvmlDeviceGetViolationStatus(handle, getattr(lib, constant))
        return float(status.violationTime) * 1e-9

    return ask


def _ecc(constant: str) -> Ask:
    def ask(lib: Library, handle: Any) -> float:
        return float(lib.nvmlDeviceGetTotalEccErrors(handle, getattr(lib, constant), lib.NVML_VOLATILE_ECC))

    return ask


def _pcie(constant: str) -> Ask:
    def ask(lib: Library, handle: Any) -> float:
        return float(lib.nvmlDeviceGetPcieThroughput(handle, getattr(lib, constant))) * 1e3

    return ask


def _remapped(position: int) -> Ask:
    return lambda lib, handle: float(lib.nvmlDeviceGetRemappedRows(handle)[position])


PROBES: tuple[NvmlProbe, ...] = (
    NvmlProbe(gpu.UTILIZATION, lambda lib, handle: lib.nvmlDeviceGetUtilizationRates(handle).gpu / 100),
    NvmlProbe(gpu.MEMORY_BUSY, lambda lib, handle: lib.nvmlDeviceGetUtilizationRates(handle).memory / 100),
    NvmlProbe(
        gpu.ENCODER_UTILIZATION, lambda lib, handle: lib.nvmlDeviceGetEncoderUtilization(handle)[0] / 100
    ),
    NvmlProbe(
        gpu.DECODER_UTILIZATION, lambda lib, handle: lib.nvmlDeviceGetDecoderUtilization(handle)[0] / 100
    ),
    NvmlProbe(gpu.POWER, lambda lib, handle: lib.nvmlDeviceGetPowerUsage(handle) / 1e3),
    NvmlProbe(gpu.POWER_LIMIT, lambda lib, handle: lib.nvmlDeviceGetEnforcedPowerLimit(handle) / 1e3),
    NvmlProbe(gpu.ENERGY, lambda lib, handle: lib.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3),
    NvmlProbe(
        gpu.TEMPERATURE, lambda lib, handle: lib.nvmlDeviceGetTemperature(handle, lib.NVML_TEMPERATURE_GPU)
    ),
    NvmlProbe(gpu.MEMORY_TEMPERATURE, _field("NVML_FI_DEV_MEMORY_TEMP")),
    NvmlProbe(gpu.TEMPERATURE_MARGIN, lambda lib, handle: lib.nvmlDeviceGetMarginTemperature(handle)),
    NvmlProbe(gpu.SM_CLOCK, lambda lib, handle: lib.nvmlDeviceGetClockInfo(handle, lib.NVML_CLOCK_SM) * 1e6),
    NvmlProbe(
        gpu.MEMORY_CLOCK, lambda lib, handle: lib.nvmlDeviceGetClockInfo(handle, lib.NVML_CLOCK_MEM) * 1e6
    ),
    NvmlProbe(gpu.THROTTLED_SECONDS, _throttled("NVML_PERF_POLICY_POWER"), "power"),
    NvmlProbe(gpu.THROTTLED_SECONDS, _throttled("NVML_PERF_POLICY_THERMAL"), "thermal"),
    NvmlProbe(gpu.THROTTLED_SECONDS, _throttled("NVML_PERF_POLICY_SYNC_BOOST"), "sync_boost"),
    NvmlProbe(gpu.THROTTLED_SECONDS, _throttled("NVML_PERF_POLICY_BOARD_LIMIT"), "board_limit"),
    NvmlProbe(gpu.THROTTLED_SECONDS, _throttled("NVML_PERF_POLICY_RELIABILITY"), "reliability"),
    NvmlProbe(gpu.THROTTLED_SECONDS, _throttled("NVML_PERF_POLICY_LOW_UTILIZATION"), "low_utilization"),
    NvmlProbe(gpu.ECC_ERRORS, _ecc("NVML_MEMORY_ERROR_TYPE_CORRECTED"), "corrected"),
    NvmlProbe(gpu.ECC_ERRORS, _ecc("NVML_MEMORY_ERROR_TYPE_UNCORRECTED"), "uncorrected"),
    NvmlProbe(gpu.REMAPPED_ROWS, _remapped(0), "corrected"),
    NvmlProbe(gpu.REMAPPED_ROWS, _remapped(1), "uncorrected"),
    NvmlProbe(gpu.ROW_REMAP_PENDING, _remapped(2)),
    NvmlProbe(gpu.ROW_REMAP_FAILED, _remapped(3)),
    NvmlProbe(gpu.PCIE_THROUGHPUT, _pcie("NVML_PCIE_UTIL_TX_BYTES"), "transmit"),
    NvmlProbe(gpu.PCIE_THROUGHPUT, _pcie("NVML_PCIE_UTIL_RX_BYTES"), "receive"),
    NvmlProbe(gpu.PCIE_REPLAYS, lambda lib, handle: lib.nvmlDeviceGetPcieReplayCounter(handle)),
    NvmlProbe(gpu.NVLINK_ERRORS, _field("NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL"), "crc_flit"),
    NvmlProbe(gpu.NVLINK_ERRORS, _field("NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL"), "crc_data"),
    NvmlProbe(gpu.NVLINK_ERRORS, _field("NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL"), "replay"),
    NvmlProbe(gpu.NVLINK_ERRORS, _field("NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL"), "recovery"),
)

"""Names of dcgm-exporter's rows in all its dialects, and what they are in canonical series and base units.

A row has whatever name is in the collector file of dcgm-exporter, so any dialect can come from any
version: 1.x (dcgm_*), 2.x to 4.8 (DCGM_FI_*, often in MHz, MiB, mJ and %) and 4.9 (base units, other names).

Field list: https://docs.nvidia.com/datacenter/dcgm/latest/dcgm-api/dcgm-api-field-ids.html
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from triton_exporter.catalogue import gpu
from triton_exporter.catalogue.metric import Metric


@dataclass(frozen=True, slots=True)
class Alias:
    """One name of a row: `scale` turns its value into the unit of `metric`, None if the name does not show it.

    `label` is the value of the family's own label (direction, type, cause). `since_47` marks names that
    only DCGM 4.7 and later know. Where several aliases of one series are there the first of the table wins.
    """

    name: str
    metric: Metric
    scale: float | None = 1.0
    label: str = ""
    since_47: bool = False


UTILIZATION_RATIO = "DCGM_FI_DEV_GPU_UTIL_RATIO"
"""Integer percent in DCGM 4.6 (field 203), a ratio in 4.7 (field 1613): the name alone does not show which."""

PERCENT = 0.01
_SCALES = {
    "1": 1.0,
    "%": PERCENT,
    "mJ": 1e-3,
    "MiB": 1024.0 * 1024.0,
    "MHz": 1e6,
    "ns": 1e-9,
    "kB": 1e3,
    "KiB/1000": 1000.0 * 1024.0,  # DCGM divides KiB/s by 1000 and calls it MB/s
    "?": None,
}

# Series, value of its own label (or -), unit of the names that follow. A name with ^ came with DCGM 4.7, in base
# units. The reasons of throttling are nanoseconds, though their HELP states microseconds (dcgm-exporter's PR #589).
_TABLE = """
triton_gpu_utilization_ratio - % DCGM_FI_DEV_GPU_UTIL dcgm_gpu_utilization
triton_gpu_utilization_ratio - ? DCGM_FI_DEV_GPU_UTIL_RATIO
triton_gpu_engine_active_ratio - 1 DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO DCGM_FI_PROF_GR_ENGINE_ACTIVE
triton_gpu_engine_active_ratio - 1 dcgm_fi_prof_gr_engine_active
triton_gpu_sm_active_ratio - 1 DCGM_FI_PROF_SM_UTIL_RATIO DCGM_FI_PROF_SM_ACTIVE dcgm_fi_prof_sm_active
triton_gpu_sm_occupancy_ratio - 1 DCGM_FI_PROF_SM_OCCUPANCY_RATIO DCGM_FI_PROF_SM_OCCUPANCY
triton_gpu_sm_occupancy_ratio - 1 dcgm_fi_prof_sm_occupancy
triton_gpu_tensor_active_ratio - 1 DCGM_FI_PROF_TENSOR_UTIL_RATIO DCGM_FI_PROF_PIPE_TENSOR_ACTIVE
triton_gpu_tensor_active_ratio - 1 dcgm_fi_prof_pipe_tensor_active
triton_gpu_dram_active_ratio - 1 DCGM_FI_PROF_DRAM_UTIL_RATIO DCGM_FI_PROF_DRAM_ACTIVE dcgm_fi_prof_dram_active
triton_gpu_memory_used_bytes - MiB ^DCGM_FI_DEV_FB_USED_BYTES DCGM_FI_DEV_FB_USED dcgm_fb_used
triton_gpu_memory_free_bytes - MiB ^DCGM_FI_DEV_FB_FREE_BYTES DCGM_FI_DEV_FB_FREE dcgm_fb_free
triton_gpu_memory_reserved_bytes - MiB ^DCGM_FI_DEV_FB_RESERVED_BYTES DCGM_FI_DEV_FB_RESERVED
triton_gpu_memory_total_bytes - MiB ^DCGM_FI_DEV_FB_CAPACITY_BYTES DCGM_FI_DEV_FB_TOTAL
triton_gpu_power_watts - 1 DCGM_FI_DEV_BOARD_POWER_WATTS DCGM_FI_DEV_POWER_USAGE dcgm_power_usage
triton_gpu_power_limit_watts - 1 DCGM_FI_DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS DCGM_FI_DEV_ENFORCED_POWER_LIMIT
triton_gpu_power_limit_watts - 1 DCGM_FI_DEV_BOARD_POWER_LIMIT_REQUESTED_WATTS DCGM_FI_DEV_POWER_MGMT_LIMIT
triton_gpu_energy_joules_total - mJ ^DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION
triton_gpu_energy_joules_total - mJ dcgm_total_energy_consumption
triton_gpu_temperature_celsius - 1 DCGM_FI_DEV_GPU_TEMP_CELSIUS DCGM_FI_DEV_GPU_TEMP dcgm_gpu_temp
triton_gpu_memory_temperature_celsius - 1 DCGM_FI_DEV_MEMORY_TEMP_CELSIUS DCGM_FI_DEV_MEMORY_TEMP dcgm_memory_temp
triton_gpu_temperature_margin_celsius - 1 DCGM_FI_DEV_GPU_TEMP_MARGIN_CELSIUS DCGM_FI_DEV_GPU_TEMP_LIMIT
triton_gpu_sm_clock_hertz - MHz ^DCGM_FI_DEV_SM_CLOCK_HERTZ DCGM_FI_DEV_SM_CLOCK dcgm_sm_clock
triton_gpu_throttled_seconds_total power ns DCGM_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP_NS
triton_gpu_throttled_seconds_total power ns DCGM_FI_DEV_POWER_VIOLATION
triton_gpu_throttled_seconds_total thermal ns DCGM_FI_DEV_THERMAL_VIOLATION
triton_gpu_throttled_seconds_total sw_thermal ns DCGM_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN_NS
triton_gpu_throttled_seconds_total hw_thermal ns DCGM_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN_NS
triton_gpu_throttled_seconds_total hw_power_brake ns DCGM_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN_NS
triton_gpu_throttled_seconds_total sync_boost ns DCGM_FI_DEV_CLOCKS_EVENT_REASON_SYNC_BOOST_NS
triton_gpu_throttled_seconds_total sync_boost ns DCGM_FI_DEV_SYNC_BOOST_VIOLATION
triton_gpu_throttled_seconds_total board_limit ns DCGM_FI_DEV_BOARD_LIMIT_VIOLATION
triton_gpu_throttled_seconds_total reliability ns DCGM_FI_DEV_RELIABILITY_VIOLATION
triton_gpu_throttled_seconds_total low_utilization ns DCGM_FI_DEV_LOW_UTIL_VIOLATION
triton_gpu_ecc_errors_total corrected 1 DCGM_FI_DEV_ECC_SBE_VOL_TOTAL dcgm_ecc_sbe_volatile_total
triton_gpu_ecc_errors_total uncorrected 1 DCGM_FI_DEV_ECC_DBE_VOL_TOTAL dcgm_ecc_dbe_volatile_total
triton_gpu_remapped_rows_total corrected 1 DCGM_FI_DEV_ROW_REMAP_CORRECTABLE_TOTAL
triton_gpu_remapped_rows_total corrected 1 DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS
triton_gpu_remapped_rows_total uncorrected 1 DCGM_FI_DEV_ROW_REMAP_UNCORRECTABLE_TOTAL
triton_gpu_remapped_rows_total uncorrected 1 DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS
triton_gpu_row_remap_failed - 1 DCGM_FI_DEV_ROW_REMAP_FAILED DCGM_FI_DEV_ROW_REMAP_FAILURE
triton_gpu_row_remap_pending - 1 DCGM_FI_DEV_ROW_REMAP_PENDING
triton_gpu_pcie_bytes_per_second transmit 1 DCGM_FI_PROF_PCIE_TX_BYTES dcgm_fi_prof_pcie_tx_bytes
triton_gpu_pcie_bytes_per_second transmit kB DCGM_FI_DEV_PCIE_TX_THROUGHPUT dcgm_pcie_tx_throughput
triton_gpu_pcie_bytes_per_second receive 1 DCGM_FI_PROF_PCIE_RX_BYTES dcgm_fi_prof_pcie_rx_bytes
triton_gpu_pcie_bytes_per_second receive kB DCGM_FI_DEV_PCIE_RX_THROUGHPUT dcgm_pcie_rx_throughput
triton_gpu_pcie_replays_total - 1 DCGM_FI_DEV_PCIE_REPLAY_TOTAL DCGM_FI_DEV_PCIE_REPLAY_COUNTER
triton_gpu_pcie_replays_total - 1 dcgm_pcie_replay_counter
triton_gpu_nvlink_bytes_per_second - KiB/1000 ^DCGM_FI_DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND
triton_gpu_nvlink_bytes_per_second - KiB/1000 DCGM_FI_DEV_NVLINK_THROUGHPUT_TOTAL DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL
triton_gpu_nvlink_bytes_per_second - KiB/1000 dcgm_nvlink_bandwidth_total
triton_gpu_nvlink_errors_total crc_flit 1 DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_TOTAL
triton_gpu_nvlink_errors_total crc_flit 1 DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL
triton_gpu_nvlink_errors_total crc_flit 1 dcgm_nvlink_flit_crc_error_count_total
triton_gpu_nvlink_errors_total crc_data 1 DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_TOTAL
triton_gpu_nvlink_errors_total crc_data 1 DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL
triton_gpu_nvlink_errors_total crc_data 1 dcgm_nvlink_data_crc_error_count_total
triton_gpu_nvlink_errors_total replay 1 DCGM_FI_DEV_NVLINK_REPLAY_ERROR_TOTAL
triton_gpu_nvlink_errors_total replay 1 DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL
triton_gpu_nvlink_errors_total replay 1 dcgm_nvlink_replay_error_count_total
triton_gpu_nvlink_errors_total recovery 1 DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_TOTAL
triton_gpu_nvlink_errors_total recovery 1 DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL
triton_gpu_nvlink_errors_total recovery 1 dcgm_nvlink_recovery_error_count_total
"""


_METRICS = {value.name: value for value in vars(gpu).values() if isinstance(value, Metric)}


def _aliases(row: str) -> Iterator[Alias]:
    series, label, unit, *names = row.split()
    for name in names:
        old = name.removeprefix("^") == name
        scale = _SCALES[unit] if old else 1.0
        yield Alias(name.removeprefix("^"), _METRICS[series], scale, label.strip("-"), since_47=not old)


ALIASES: tuple[Alias, ...] = tuple(alias for row in _TABLE.split("\n") if row for alias in _aliases(row))

THROTTLE_MASKS = ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS")
"""Rows whose value is a bit mask of reasons."""

XID_LAST = ("DCGM_FI_DEV_XID_ERROR", "DCGM_FI_DEV_XID_ERRORS", "dcgm_xid_errors")
"""Rows whose value is the last XID code."""

XID_WINDOW = "DCGM_EXP_XID_ERRORS_COUNT"
"""Records of the last minutes by label `xid`: falls as its window slides."""

XID_TOTAL = "DCGM_EXP_XID_ERRORS_TOTAL"
"""A true counter by label `xid`; a series appears with its first event."""

XID_CODE = "xid"
"""Label of the two rows above that has the code."""

UUID_LABELS = ("UUID", "gpu_uuid", "uuid")
NAME_LABELS = ("modelName", "model_name")
DRIVER_LABELS = ("DCGM_FI_SYSTEM_DRIVER_VERSION", "DCGM_FI_DRIVER_VERSION")
INSTANCE_LABEL = "GPU_I_ID"
PROFILE_LABEL = "GPU_I_PROFILE"
POD_LABELS = ("pod", "pod_name")
CONSUMER_LABELS = (*POD_LABELS, "pod_uid", "vgpu", "hpc_job")
"""Labels that mark a row as one user's share or copy of a device's row."""

OTHER_ENTITIES = ("nvswitch", "cpu", "cpucore")
"""Labels of rows that are about no GPU."""

"""Names of dcgm-exporter's rows in all its dialects, and what they are in canonical series and base units.

A row carries whatever name stands in the collector file of dcgm-exporter, so any dialect can come from any
version: 1.x (dcgm_*), 2.x to 4.8 (DCGM_FI_*, often in MHz, MiB, mJ and %) and 4.9 (base units, other names).

Field list: https://docs.nvidia.com/datacenter/dcgm/latest/dcgm-api/dcgm-api-field-ids.html
"""

from __future__ import annotations

from dataclasses import dataclass

from triton_exporter.catalogue import gpu
from triton_exporter.catalogue.metric import Metric

MEGAHERTZ = 1e6
PERCENT = 0.01
MILLIJOULE = 1e-3
MEBIBYTE = 1024.0 * 1024.0
NANOSECOND = 1e-9
KILOBYTE = 1e3
NVLINK_UNIT = 1000.0 * 1024.0
"""DCGM divides KiB/s by 1000 and calls it MB/s."""


@dataclass(frozen=True, slots=True)
class Alias:
    """One name of a row: `scale` turns its value into the unit of `metric`, None if the name does not tell.

    `label` is the value of the family's own label (pipe, direction, type, cause). `since_47` marks names that
    only DCGM 4.7 and later know. Where several aliases of one series are there the first of the table wins.
    """

    name: str
    metric: Metric
    scale: float | None = 1.0
    label: str = ""
    since_47: bool = False


def _aliases(metric: Metric, *names: str, scale: float | None = 1.0, label: str = "") -> tuple[Alias, ...]:
    return tuple(Alias(name, metric, scale, label) for name in names)


def _renamed(metric: Metric, name: str, *old: str, scale: float, label: str = "") -> tuple[Alias, ...]:
    """A name of 4.9 in base units, and its elders in `scale`."""
    return (Alias(name, metric, 1.0, label, since_47=True), *_aliases(metric, *old, scale=scale, label=label))


UTILIZATION_RATIO = "DCGM_FI_DEV_GPU_UTIL_RATIO"
"""Integer percent in DCGM 4.6 (field 203), a ratio in 4.7 (field 1613): the name alone does not tell."""

ALIASES: tuple[Alias, ...] = (
    *_aliases(gpu.UTILIZATION, "DCGM_FI_DEV_GPU_UTIL", "dcgm_gpu_utilization", scale=PERCENT),
    *_aliases(gpu.UTILIZATION, UTILIZATION_RATIO, scale=None),
    *_aliases(
        gpu.ENGINE_ACTIVE,
        "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO",
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
        "dcgm_fi_prof_gr_engine_active",
    ),
    *_aliases(
        gpu.SM_ACTIVE, "DCGM_FI_PROF_SM_UTIL_RATIO", "DCGM_FI_PROF_SM_ACTIVE", "dcgm_fi_prof_sm_active"
    ),
    *_aliases(
        gpu.SM_OCCUPANCY,
        "DCGM_FI_PROF_SM_OCCUPANCY_RATIO",
        "DCGM_FI_PROF_SM_OCCUPANCY",
        "dcgm_fi_prof_sm_occupancy",
    ),
    *_aliases(
        gpu.TENSOR_ACTIVE,
        "DCGM_FI_PROF_TENSOR_UTIL_RATIO",
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
        "dcgm_fi_prof_pipe_tensor_active",
    ),
    *_aliases(
        gpu.DRAM_ACTIVE,
        "DCGM_FI_PROF_DRAM_UTIL_RATIO",
        "DCGM_FI_PROF_DRAM_ACTIVE",
        "dcgm_fi_prof_dram_active",
    ),
    *(
        alias
        for pipe in gpu.PIPES
        for alias in _aliases(
            gpu.PIPE_ACTIVE,
            f"DCGM_FI_PROF_{pipe.upper()}_UTIL_RATIO",
            f"DCGM_FI_PROF_PIPE_{pipe.upper()}_ACTIVE",
            label=pipe,
        )
    ),
    *_renamed(
        gpu.MEMORY_BUSY,
        "DCGM_FI_DEV_MEMORY_UTIL_RATIO",
        "DCGM_FI_DEV_MEM_COPY_UTIL",
        "dcgm_mem_copy_utilization",
        scale=PERCENT,
    ),
    *_renamed(
        gpu.ENCODER_UTILIZATION,
        "DCGM_FI_DEV_ENC_UTIL_RATIO",
        "DCGM_FI_DEV_ENC_UTIL",
        "dcgm_enc_utilization",
        scale=PERCENT,
    ),
    *_renamed(
        gpu.DECODER_UTILIZATION,
        "DCGM_FI_DEV_DEC_UTIL_RATIO",
        "DCGM_FI_DEV_DEC_UTIL",
        "dcgm_dec_utilization",
        scale=PERCENT,
    ),
    *_renamed(
        gpu.MEMORY_USED,
        "DCGM_FI_DEV_FB_USED_BYTES",
        "DCGM_FI_DEV_FB_USED",
        "dcgm_fb_used",
        scale=MEBIBYTE,
    ),
    *_renamed(
        gpu.MEMORY_FREE,
        "DCGM_FI_DEV_FB_FREE_BYTES",
        "DCGM_FI_DEV_FB_FREE",
        "dcgm_fb_free",
        scale=MEBIBYTE,
    ),
    *_renamed(
        gpu.MEMORY_RESERVED, "DCGM_FI_DEV_FB_RESERVED_BYTES", "DCGM_FI_DEV_FB_RESERVED", scale=MEBIBYTE
    ),
    *_renamed(gpu.MEMORY_TOTAL, "DCGM_FI_DEV_FB_CAPACITY_BYTES", "DCGM_FI_DEV_FB_TOTAL", scale=MEBIBYTE),
    *_aliases(gpu.POWER, "DCGM_FI_DEV_BOARD_POWER_WATTS", "DCGM_FI_DEV_POWER_USAGE", "dcgm_power_usage"),
    *_aliases(
        gpu.POWER_LIMIT,
        "DCGM_FI_DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS",
        "DCGM_FI_DEV_ENFORCED_POWER_LIMIT",
        "DCGM_FI_DEV_BOARD_POWER_LIMIT_REQUESTED_WATTS",
        "DCGM_FI_DEV_POWER_MGMT_LIMIT",
    ),
    *_renamed(
        gpu.ENERGY,
        "DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL",
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
        "dcgm_total_energy_consumption",
        scale=MILLIJOULE,
    ),
    *_aliases(gpu.TEMPERATURE, "DCGM_FI_DEV_GPU_TEMP_CELSIUS", "DCGM_FI_DEV_GPU_TEMP", "dcgm_gpu_temp"),
    *_aliases(
        gpu.MEMORY_TEMPERATURE,
        "DCGM_FI_DEV_MEMORY_TEMP_CELSIUS",
        "DCGM_FI_DEV_MEMORY_TEMP",
        "dcgm_memory_temp",
    ),
    *_aliases(gpu.TEMPERATURE_MARGIN, "DCGM_FI_DEV_GPU_TEMP_MARGIN_CELSIUS", "DCGM_FI_DEV_GPU_TEMP_LIMIT"),
    *_renamed(
        gpu.SM_CLOCK,
        "DCGM_FI_DEV_SM_CLOCK_HERTZ",
        "DCGM_FI_DEV_SM_CLOCK",
        "dcgm_sm_clock",
        scale=MEGAHERTZ,
    ),
    *_renamed(
        gpu.MEMORY_CLOCK,
        "DCGM_FI_DEV_MEMORY_CLOCK_HERTZ",
        "DCGM_FI_DEV_MEM_CLOCK",
        "dcgm_memory_clock",
        scale=MEGAHERTZ,
    ),
    *(
        alias
        for cause, names in (
            ("power", ("DCGM_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP_NS", "DCGM_FI_DEV_POWER_VIOLATION")),
            ("thermal", ("DCGM_FI_DEV_THERMAL_VIOLATION",)),
            ("sw_thermal", ("DCGM_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN_NS",)),
            ("hw_thermal", ("DCGM_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN_NS",)),
            ("hw_power_brake", ("DCGM_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN_NS",)),
            (
                "sync_boost",
                ("DCGM_FI_DEV_CLOCKS_EVENT_REASON_SYNC_BOOST_NS", "DCGM_FI_DEV_SYNC_BOOST_VIOLATION"),
            ),
            ("board_limit", ("DCGM_FI_DEV_BOARD_LIMIT_VIOLATION",)),
            ("reliability", ("DCGM_FI_DEV_RELIABILITY_VIOLATION",)),
            ("low_utilization", ("DCGM_FI_DEV_LOW_UTIL_VIOLATION",)),
        )
        # Nanoseconds, whatever their HELP says: the microseconds there are an old mistake (PR #589).
        for alias in _aliases(gpu.THROTTLED_SECONDS, *names, scale=NANOSECOND, label=cause)
    ),
    *_aliases(gpu.ECC_ERRORS, "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", label="corrected"),
    *_aliases(gpu.ECC_ERRORS, "dcgm_ecc_sbe_volatile_total", label="corrected"),
    *_aliases(gpu.ECC_ERRORS, "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", label="uncorrected"),
    *_aliases(gpu.ECC_ERRORS, "dcgm_ecc_dbe_volatile_total", label="uncorrected"),
    *_aliases(
        gpu.REMAPPED_ROWS,
        "DCGM_FI_DEV_ROW_REMAP_CORRECTABLE_TOTAL",
        "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
        label="corrected",
    ),
    *_aliases(
        gpu.REMAPPED_ROWS,
        "DCGM_FI_DEV_ROW_REMAP_UNCORRECTABLE_TOTAL",
        "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
        label="uncorrected",
    ),
    *_aliases(gpu.ROW_REMAP_FAILED, "DCGM_FI_DEV_ROW_REMAP_FAILED", "DCGM_FI_DEV_ROW_REMAP_FAILURE"),
    *_aliases(gpu.ROW_REMAP_PENDING, "DCGM_FI_DEV_ROW_REMAP_PENDING"),
    *(
        alias
        for direction, short in (("transmit", "tx"), ("receive", "rx"))
        for alias in (
            *_aliases(
                gpu.PCIE_THROUGHPUT,
                f"DCGM_FI_PROF_PCIE_{short.upper()}_BYTES",
                f"dcgm_fi_prof_pcie_{short}_bytes",
                label=direction,
            ),
            *_aliases(
                gpu.PCIE_THROUGHPUT,
                f"DCGM_FI_DEV_PCIE_{short.upper()}_THROUGHPUT",
                f"dcgm_pcie_{short}_throughput",
                scale=KILOBYTE,
                label=direction,
            ),
        )
    ),
    *_aliases(
        gpu.PCIE_REPLAYS,
        "DCGM_FI_DEV_PCIE_REPLAY_TOTAL",
        "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
        "dcgm_pcie_replay_counter",
    ),
    *_renamed(
        gpu.NVLINK_THROUGHPUT,
        "DCGM_FI_DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND",
        "DCGM_FI_DEV_NVLINK_THROUGHPUT_TOTAL",
        "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
        "dcgm_nvlink_bandwidth_total",
        scale=NVLINK_UNIT,
    ),
    *(
        alias
        for kind, old in (
            ("crc_flit", "flit_crc"),
            ("crc_data", "data_crc"),
            ("replay", "replay"),
            ("recovery", "recovery"),
        )
        for alias in _aliases(
            gpu.NVLINK_ERRORS,
            f"DCGM_FI_DEV_NVLINK_{kind.upper()}_ERROR_TOTAL",
            f"DCGM_FI_DEV_NVLINK_{kind.upper()}_ERROR_COUNT_TOTAL",
            f"dcgm_nvlink_{old}_error_count_total",
            label=kind,
        )
    ),
)

THROTTLE_MASKS = ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS")
"""Rows whose value is a bit mask of reasons."""

XID_LAST = ("DCGM_FI_DEV_XID_ERROR", "DCGM_FI_DEV_XID_ERRORS", "dcgm_xid_errors")
"""Rows whose value is the last XID code."""

XID_WINDOW = "DCGM_EXP_XID_ERRORS_COUNT"
"""Records of the last minutes by label `xid`: falls as its window slides."""

XID_TOTAL = "DCGM_EXP_XID_ERRORS_TOTAL"
"""A true counter by label `xid`; a series appears with its first event."""

XID_CODE = "xid"
"""Label of the two rows above that holds the code."""

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

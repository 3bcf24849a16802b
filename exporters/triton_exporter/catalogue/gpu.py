"""Canonical GPU series in base units, whatever dialect the GPU source has.

A GPU split by MIG has, in the families that carry `gpu_instance_id`, one series per instance and none for the
whole; any other GPU has one series without that label. So a sum over a family never counts a part twice.
What a source cannot read is absent, never 0.
"""

from __future__ import annotations

from triton_exporter.catalogue.metric import Kind, Metric

SOURCES = ("dcgm", "nvml", "triton", "none")
"""Closed set of values of the label `source` of triton_gpu_source, best first."""

THROTTLE_REASONS = (
    "idle",
    "app_clocks",
    "sw_power_cap",
    "hw_slowdown",
    "sync_boost",
    "sw_thermal",
    "hw_thermal",
    "hw_power_brake",
    "display_clock",
)
"""Closed set of values of the label `reason` of throttling, by ascending bit of NVIDIA's mask.

https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html
"""

MAPPING_CONFIDENCES = ("certain", "likely", "guess")
"""Closed set of values of the label `confidence` of triton_model_gpu_info, best first."""

_DEVICE = ("gpu_uuid",)
_INSTANCE = ("gpu_uuid", "gpu_instance_id")
_MODEL = ("model", "version", *_INSTANCE)
_SOURCE = "dcgm-exporter, NVML or Triton"


def _board(name: str, text: str, unit: str = "", caveat: str = "", kind: Kind = "gauge") -> Metric:
    return Metric(f"triton_gpu_{name}", kind, text, _DEVICE, unit, _SOURCE, caveat=caveat)


def _instance_metric(name: str, text: str, unit: str = "ratio", caveat: str = "") -> Metric:
    return Metric(f"triton_gpu_{name}", "gauge", text, _INSTANCE, unit, _SOURCE, caveat=caveat)


# --- Which GPUs there are, and which source reports them ----------------------------------------------------

INFO = Metric(
    "triton_gpu_info",
    "gauge",
    "A GPU that is there, always 1; index is the source's own and is not a CUDA ordinal.",
    (*_DEVICE, "index", "name", "driver_version", "pci_bus_id"),
    source=_SOURCE,
)
INSTANCE_INFO = Metric(
    "triton_gpu_instance_info",
    "gauge",
    "A MIG instance of a GPU, always 1; compute_instance_id is known to NVML only.",
    (*_INSTANCE, "compute_instance_id", "profile"),
    source="dcgm-exporter or NVML",
)
SOURCE = Metric(
    "triton_gpu_source",
    "gauge",
    "1 for the source of GPU data that is in use, 0 for the others; none means that no source answers.",
    ("source",),
)
SOURCE_FAILURES_TOTAL = Metric(
    "triton_gpu_source_failures_total",
    "counter",
    "Failed reads of a GPU source, by class of reason.",
    ("source", "reason"),
)
ROWS_DROPPED = Metric(
    "triton_gpu_rows_dropped_total",
    "counter",
    "Rows of a GPU source left out, by reason.",
    ("source", "reason"),
)
DATA_AGE = _board(
    "data_age_seconds",
    "Seconds since this GPU's data last were new. Where there is an energy counter (it never rests) they are "
    "new when it moved, else when the source was last read.",
    "s",
    "dcgm-exporter samples every 30 s by default, so up to about 30 is normal there. Readings older than the "
    "limit are withdrawn; the age stays.",
)

# --- Activity -----------------------------------------------------------------------------------------------

UTILIZATION = _instance_metric(
    "utilization_ratio",
    "Share of time in which any kernel ran; for a MIG instance the activity of its graphics engine.",
    caveat="One tiny kernel makes it 1: headroom is read from triton_gpu_sm_active_ratio.",
)
ENGINE_ACTIVE = _instance_metric(
    "engine_active_ratio", "Share of time the graphics and compute engine was active."
)
SM_ACTIVE = _instance_metric(
    "sm_active_ratio",
    "Mean share of streaming multiprocessors with work; the best single figure of headroom.",
    caveat="dcgm-exporter has it off by default (DCGM_FI_PROF_SM_ACTIVE).",
)
SM_OCCUPANCY = _instance_metric(
    "sm_occupancy_ratio", "Resident warps over the most that fit; more is not always better."
)
TENSOR_ACTIVE = _instance_metric(
    "tensor_active_ratio",
    "Share of cycles the tensor pipes were active.",
    caveat="In practice peaks near 0.93.",
)
DRAM_ACTIVE = _instance_metric(
    "dram_active_ratio",
    "Share of cycles the memory interface was busy.",
    caveat="In practice peaks near 0.8; high with low tensor activity means bound by memory.",
)

# --- Memory -------------------------------------------------------------------------------------------------

MEMORY_USED = _instance_metric("memory_used_bytes", "Memory in use by all processes.", "bytes")
MEMORY_FREE = _instance_metric("memory_free_bytes", "Memory free.", "bytes")
MEMORY_RESERVED = _instance_metric("memory_reserved_bytes", "Memory kept by driver and firmware.", "bytes")
MEMORY_TOTAL = _instance_metric(
    "memory_total_bytes",
    "Memory of the device: as reported, else used + free + reserved.",
    "bytes",
    "Absent when the source gives neither the total nor all three parts.",
)

# --- Power and heat -----------------------------------------------------------------------------------------

POWER = _board("power_watts", "Power drawn by the board.", "W", "On MIG for the whole card.")
POWER_LIMIT = _board("power_limit_watts", "Power limit in force.", "W")
ENERGY = _board(
    "energy_joules_total",
    "Energy used by the board since the driver was loaded (from Triton: since the server started).",
    "J",
    "Starts again at a driver reload or GPU reset.",
    "counter",
)
TEMPERATURE = _board("temperature_celsius", "Temperature of the GPU.", "C")
MEMORY_TEMPERATURE = _board(
    "memory_temperature_celsius", "Temperature of the memory; not all cards report it.", "C"
)
TEMPERATURE_MARGIN = _board(
    "temperature_margin_celsius", "Degrees left before the GPU slows itself down for heat.", "C"
)
SM_CLOCK = _board("sm_clock_hertz", "Clock of the streaming multiprocessors.", "Hz")
THROTTLE_REASON = Metric(
    "triton_gpu_throttle_reason",
    "gauge",
    "1 while this reason holds the clocks down, else 0.",
    (*_DEVICE, "reason"),
    source="dcgm-exporter (DCGM_FI_DEV_CLOCKS_EVENT_REASONS, off by default) or NVML",
    caveat="Idle and app_clocks are normal.",
)
THROTTLED_SECONDS = Metric(
    "triton_gpu_throttled_seconds_total",
    "counter",
    "Time the clocks were held down, by cause.",
    (*_DEVICE, "cause"),
    "s",
    "dcgm-exporter (DCGM_FI_DEV_POWER_VIOLATION, DCGM_FI_DEV_THERMAL_VIOLATION, off by default) or NVML",
    caveat="Causes overlap (thermal holds sw_thermal and hw_thermal), so they do not add up.",
)

# --- Errors -------------------------------------------------------------------------------------------------

XID_ERRORS = Metric(
    "triton_gpu_xid_errors_total",
    "counter",
    "XID errors seen since the exporter started, by code and class; known codes are there at 0 once the source "
    "is known to report XID errors.",
    (*_DEVICE, "xid", "class"),
    source="DCGM_EXP_XID_ERRORS_TOTAL, DCGM_EXP_XID_ERRORS_COUNT, DCGM_FI_DEV_XID_ERRORS or NVML events",
    caveat="From DCGM_FI_DEV_XID_ERRORS a repeat of the same code is invisible; from Triton there are none.",
)
LAST_XID = _board(
    "last_xid",
    "The last XID code that the source reported; 0 where there was none.",
    caveat="Sticks until the driver or dcgm-exporter restarts.",
)
ECC_ERRORS = Metric(
    "triton_gpu_ecc_errors_total",
    "counter",
    "ECC memory errors since the last reset, by type (corrected or uncorrected).",
    (*_DEVICE, "type"),
    source="dcgm-exporter (DCGM_FI_DEV_ECC_{SBE,DBE}_VOL_TOTAL, off by default) or NVML",
)
REMAPPED_ROWS = Metric(
    "triton_gpu_remapped_rows_total",
    "counter",
    "Memory rows remapped in the life of the card, by type of error (corrected or uncorrected).",
    (*_DEVICE, "type"),
    source="dcgm-exporter or NVML",
)
ROW_REMAP_FAILED = _board("row_remap_failed", "1 when remapping a memory row failed: replace the card.")
ROW_REMAP_PENDING = _board("row_remap_pending", "1 when a remapped row waits for a reset of the GPU.")

# --- Links --------------------------------------------------------------------------------------------------

PCIE_THROUGHPUT = Metric(
    "triton_gpu_pcie_bytes_per_second",
    "gauge",
    "Data rate over PCIe, by direction (transmit or receive).",
    (*_DEVICE, "direction"),
    "bytes/s",
    "dcgm-exporter or NVML",
    caveat="A rate already: never apply rate().",
)
PCIE_REPLAYS = _board(
    "pcie_replays_total",
    "PCIe transfers repeated.",
    caveat="DCGM flags more than 8 a minute.",
    kind="counter",
)
NVLINK_THROUGHPUT = _board(
    "nvlink_bytes_per_second", "Data rate over all NVLinks, both directions.", "bytes/s", "A rate already."
)
NVLINK_ERRORS = Metric(
    "triton_gpu_nvlink_errors_total",
    "counter",
    "NVLink errors, by type (crc_flit, crc_data, replay, recovery).",
    (*_DEVICE, "type"),
    source="dcgm-exporter or NVML",
)

# --- Models on GPUs -----------------------------------------------------------------------------------------

MODEL_GPU_INFO = Metric(
    "triton_model_gpu_info",
    "gauge",
    "This model version runs on this GPU, always 1; source is how that is known, confidence how reliably.",
    (*_MODEL, "source", "confidence"),
    source="model config, statistics, order of visible devices",
)
MODEL_LABEL_PROBLEM = Metric(
    "triton_model_gpu_label_problem",
    "gauge",
    "1 when the gpu_uuid on Triton's own series of this model is missing, names a GPU that is not Triton's "
    "(unknown_gpu) or another one than the model's config (disagrees); absent otherwise.",
    ("model", "version", "problem"),
    source="Triton /metrics against the mapping",
)
MODEL_BUSY = Metric(
    "triton_model_gpu_busy_seconds_total",
    "counter",
    "Wall time of this model's executions on this GPU, counted once per execution.",
    _MODEL,
    "s",
    "statistics API (batch_stats) and triton_model_gpu_info",
    caveat="An upper bound of kernel time: it holds host work and waiting. Overlapping executions add up. A "
    "model on several GPUs is split by its instances on each.",
)
MODEL_UTILIZATION = Metric(
    "triton_model_gpu_utilization_estimate_ratio",
    "gauge",
    "Estimate: part of triton_gpu_utilization_ratio that this model caused since the last poll, by its share "
    "of execution time.",
    _MODEL,
    "ratio",
    "triton_model_gpu_busy_seconds_total and triton_gpu_utilization_ratio",
    caveat="With triton_gpu_utilization_unattributed_estimate_ratio adds up to the device.",
)
UTILIZATION_UNATTRIBUTED = _instance_metric(
    "utilization_unattributed_estimate_ratio",
    "Estimate: part of the utilization that no model's execution time explains (other processes, or an "
    "unmapped model).",
)
MODEL_MEMORY = Metric(
    "triton_model_gpu_memory_estimate_bytes",
    "gauge",
    "Estimate: memory this model took when it was loaded, from Triton's statistics.",
    _MODEL,
    "bytes",
    "statistics API (memory_usage)",
    "23.06",
    caveat="Only ONNX Runtime and TensorRT report it; workspaces and caches that grow later are not in it.",
)

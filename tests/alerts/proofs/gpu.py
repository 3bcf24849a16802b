"""Define the proofs of the gpu family."""

from __future__ import annotations

from alerts.proofs.proof import Fires, boundary, fires, quiet, reset
from alerts.proofs.proof_series import GPU, SERVER, VERSION, only, series
from triton_exporter.catalogue import gpu, triton

_ID = only(GPU, "instance", "gpu_uuid")
_UNCORRECTED = series(gpu.ECC_ERRORS, GPU, type="uncorrected")
_ROWS = series(gpu.REMAPPED_ROWS, GPU, type="uncorrected")
_REMAP_FAILED = series(gpu.ROW_REMAP_FAILED, GPU)
_REMAP_PENDING = series(gpu.ROW_REMAP_PENDING, GPU)
_LINK = series(gpu.NVLINK_ERRORS, GPU, type="replay")
_REPLAYS = series(gpu.PCIE_REPLAYS, GPU)
_INFO = series(
    gpu.INFO, GPU, index="0", name="NVIDIA L4", driver_version="580", pci_bus_id="00000000:31:00.0"
)
_OTHER_INFO = series(gpu.INFO, SERVER, gpu_uuid="GPU-77c0", index="0", name="NVIDIA L4")
_DCGM = series(gpu.SOURCE, source="dcgm")
_NO_SOURCE = series(gpu.SOURCE, source="none")
_HOT_SECONDS = series(gpu.THROTTLED_SECONDS, GPU, cause="thermal")
_CAPPED_SECONDS = series(gpu.THROTTLED_SECONDS, GPU, cause="power")
_HOT = series(gpu.THROTTLE_REASON, GPU, reason="hw_thermal")
_CAPPED = series(gpu.THROTTLE_REASON, GPU, reason="sw_power_cap")
_IDLE = series(gpu.THROTTLE_REASON, GPU, reason="idle")
_USED = series(gpu.MEMORY_USED, GPU)
_FREE = series(gpu.MEMORY_FREE, GPU)
_ALL = series(gpu.MEMORY_TOTAL, GPU)
_UTILIZATION = series(gpu.UTILIZATION, GPU)
_PENDING = series(triton.PENDING_REQUESTS, VERSION)
_AGE = series(gpu.DATA_AGE, GPU)
_LABEL = {**VERSION, "problem": "disagrees"}


def _xid(code: str, kind: str) -> str:
    return series(gpu.XID_ERRORS, GPU, **{"xid": code, "class": kind})


ERRORS = (
    fires(
        "GpuXidHardware",
        "fires at the first hardware XID, and names it",
        {_xid("79", "hardware"): "0x8 1x200", _xid("48", "hardware"): "0x200"},
        "2m30s",
        Fires(GPU, cause="XID 79"),
    ),
    boundary(
        "GpuXidHardware",
        "ends when window and grace have passed",
        {_xid("79", "hardware"): "0x8 1x300"},
        "50m",
    ),
    quiet(
        "GpuXidHardware", "is quiet about an application's XID", {_xid("31", "application"): "0x8 1x60"}, "5m"
    ),
    reset(
        "GpuXidHardware",
        "takes an exporter's restart for no error",
        {_xid("79", "hardware"): "3x20 0x60"},
        "8m",
    ),
    fires(
        "GpuXidContained",
        "fires for a contained XID",
        {_xid("94", "contained"): "0x8 1x60"},
        "2m30s",
        Fires(GPU, cause="XID 94"),
    ),
    fires(
        "GpuXidContained",
        "fires for an XID that is in no table",
        {_xid("999", "unknown"): "0x8 1x60"},
        "2m30s",
        Fires(GPU, cause="XID 999"),
    ),
    boundary(
        "GpuXidContained",
        "ends when window and grace have passed",
        {_xid("94", "contained"): "0x8 1x300"},
        "50m",
    ),
    quiet(
        "GpuXidContained",
        "leaves hardware errors to GpuXidHardware",
        {_xid("79", "hardware"): "0x8 1x60"},
        "5m",
    ),
    reset(
        "GpuXidContained",
        "takes an exporter's restart for no error",
        {_xid("94", "contained"): "3x20 0x60"},
        "8m",
    ),
    fires(
        "GpuXidApplication",
        "fires for a program's XID",
        {_xid("31", "application"): "0x8 1x60"},
        "2m30s",
        Fires(GPU, cause="XID 31"),
    ),
    boundary(
        "GpuXidApplication",
        "ends when window and grace have passed",
        {_xid("31", "application"): "0x8 1x300"},
        "35m",
    ),
    quiet(
        "GpuXidApplication",
        "is quiet about an informational XID",
        {_xid("63", "informational"): "0x8 1x60"},
        "5m",
    ),
    reset(
        "GpuXidApplication",
        "takes an exporter's restart for no error",
        {_xid("31", "application"): "3x20 0x60"},
        "8m",
    ),
    fires(
        "GpuEccUncorrected",
        "fires at the first uncorrected error",
        {_UNCORRECTED: "0x8 1x60"},
        "2m30s",
        Fires(GPU),
    ),
    fires(
        "GpuEccUncorrected",
        "fires at an uncorrected row remapping where ECC counters are off",
        {_ROWS: "2x8 3x60"},
        "2m30s",
        Fires(GPU),
    ),
    boundary(
        "GpuEccUncorrected", "ends when window and grace have passed", {_UNCORRECTED: "0x8 1x300"}, "50m"
    ),
    quiet(
        "GpuEccUncorrected",
        "is quiet about corrected errors",
        {series(gpu.ECC_ERRORS, GPU, type="corrected"): "0+1x60"},
        "10m",
    ),
    reset("GpuEccUncorrected", "takes a reset of the GPU for no error", {_UNCORRECTED: "3x20 0x60"}, "8m"),
    fires(
        "GpuRowRemapFailed", "fires after a minute", {_REMAP_FAILED: "1x20"}, "1m", Fires(GPU), before="45s"
    ),
    quiet("GpuRowRemapFailed", "is quiet about a healthy card", {_REMAP_FAILED: "0x20"}, "4m"),
    fires(
        "GpuRowRemapPending",
        "fires after five minutes",
        {_REMAP_PENDING: "1x40"},
        "5m",
        Fires(GPU),
        before="4m45s",
    ),
    quiet("GpuRowRemapPending", "is quiet about a healthy card", {_REMAP_PENDING: "0x40"}, "8m"),
    fires(
        "GpuNvlinkErrors", "fires when links replay", {_LINK: "0+1x100"}, "8m", Fires(GPU, "32"), before="5m"
    ),
    quiet(
        "GpuNvlinkErrors",
        "is quiet about flit errors, which links correct",
        {series(gpu.NVLINK_ERRORS, GPU, type="crc_flit"): "0+1x100"},
        "20m",
    ),
    reset("GpuNvlinkErrors", "takes a reset of the GPU for no error", {_LINK: "30x20 0x80"}, "12m"),
    fires(
        "GpuPcieReplays",
        "fires at forty a minute",
        {_REPLAYS: "0+10x100"},
        "10m",
        Fires(GPU, "400"),
        before="7m",
    ),
    boundary("GpuPcieReplays", "is quiet at eight a minute", {_REPLAYS: "0+2x100"}, "20m"),
    quiet("GpuPcieReplays", "is quiet without replays", {_REPLAYS: "7x100"}, "20m"),
    reset("GpuPcieReplays", "takes a reset of the GPU for no replay", {_REPLAYS: "500x40 0x60"}, "20m"),
    fires(
        "GpuLost",
        "fires when a GPU leaves while its source answers",
        {_INFO: "1x20 stale", _DCGM: "1x100"},
        "12m",
        Fires(_ID),
        before="10m",
    ),
    quiet(
        "GpuLost",
        "is quiet while the source itself is away",
        {_INFO: "1x20 stale", _DCGM: "1x20 0x80"},
        "15m",
    ),
    fires(
        "GpuLost",
        "fires when one of two GPUs falls off the bus",
        {_INFO: "1x20 stale", _OTHER_INFO: "1x100", _DCGM: "1x100"},
        "12m",
        Fires(_ID),
    ),
    quiet(
        "GpuLost",
        "is quiet about a pod that was rescheduled onto another GPU",
        {_INFO: "1x20 stale", _OTHER_INFO: "_x25 1x100", _DCGM: "1x20 _x4 1x100"},
        "20m",
    ),
    quiet("GpuLost", "is quiet while the GPU is there", {_INFO: "1x100", _DCGM: "1x100"}, "15m"),
)

LOAD = (
    fires(
        "GpuThermalThrottling",
        "fires when a fifth of the time is lost to heat",
        {_HOT_SECONDS: "0+3x100"},
        "15m",
        Fires(GPU, "20%"),
    ),
    fires(
        "GpuThermalThrottling",
        "fires by the reason where no time is counted",
        {_HOT: "1x100", _IDLE: "0x100"},
        "11m",
        Fires(GPU, "100%"),
        before="9m45s",
    ),
    boundary("GpuThermalThrottling", "is quiet at four percent", {_HOT_SECONDS: "0+0.6x100"}, "15m"),
    quiet("GpuThermalThrottling", "is quiet about an idle GPU", {_HOT: "0x100", _IDLE: "1x100"}, "15m"),
    reset(
        "GpuThermalThrottling",
        "takes a reload of the driver for no heat",
        {_HOT_SECONDS: "90x40 0x60"},
        "20m",
    ),
    fires(
        "GpuPowerThrottling",
        "fires after half an hour at the limit",
        {_CAPPED_SECONDS: "0+6x200"},
        "40m",
        Fires(GPU, "40%"),
        before="30m",
    ),
    fires(
        "GpuPowerThrottling",
        "fires by the reason where no time is counted",
        {_CAPPED: "1x200"},
        "31m",
        Fires(GPU, "100%"),
    ),
    quiet("GpuPowerThrottling", "is quiet about heat", {_HOT: "1x200"}, "40m"),
    reset(
        "GpuPowerThrottling",
        "takes a reload of the driver for no limit",
        {_CAPPED_SECONDS: "90x40 0x160"},
        "45m",
    ),
    fires(
        "GpuMemoryNearFull",
        "fires at 98 percent",
        {_USED: "98x80", _ALL: "100x80"},
        "15m",
        Fires(GPU, "98%"),
        before="14m45s",
    ),
    fires(
        "GpuMemoryNearFull",
        "goes on at 92 percent, where it would not begin",
        {_USED: "98x120 92x240", _ALL: "100x360"},
        "80m",
        Fires(GPU, "92%"),
    ),
    boundary(
        "GpuMemoryNearFull",
        "ends below nine tenths of the limit",
        {_USED: "98x120 86x240", _ALL: "100x360"},
        "80m",
    ),
    boundary("GpuMemoryNearFull", "is quiet at exactly 97 percent", {_USED: "97x80", _ALL: "100x80"}, "18m"),
    quiet("GpuMemoryNearFull", "is quiet where the total is unknown", {_USED: "98x80"}, "18m"),
    quiet(
        "GpuMemoryGrowth",
        "is quiet while a fall leaves plenty",
        {_FREE: "80-0.5x100", _ALL: "100x100"},
        "20m",
    ),
    fires(
        "GpuMemoryGrowth",
        "fires when memory runs out within the hour",
        {_FREE: "19-0.1x150", _ALL: "100x150"},
        "25m",
        Fires(GPU),
        before="14m",
    ),
    quiet(
        "GpuMemoryGrowth", "is quiet about memory reserved once", {_FREE: "50x4 3x150", _ALL: "100x154"}, "2h"
    ),
    fires(
        "GpuIdleWhileQueueing",
        "fires when requests wait for an idle GPU",
        {_UTILIZATION: "0x60", _PENDING: "8x60"},
        "6m",
        Fires(only(SERVER, "instance")),
        before="4m45s",
    ),
    boundary(
        "GpuIdleWhileQueueing",
        "is quiet at exactly five waiting",
        {_UTILIZATION: "0x60", _PENDING: "5x60"},
        "10m",
    ),
    quiet(
        "GpuIdleWhileQueueing", "is quiet about a busy GPU", {_UTILIZATION: "0.9x60", _PENDING: "8x60"}, "10m"
    ),
    quiet("GpuIdleWhileQueueing", "is quiet on a server without GPU data", {_PENDING: "8x60"}, "10m"),
)

DATA = (
    fires(
        "GpuDataMissing",
        "fires when the last source of GPU data goes away",
        {_NO_SOURCE: "0x20 1x80", _INFO: "1x20 stale"},
        "10m30s",
        Fires(SERVER),
        before="10m",
    ),
    quiet("GpuDataMissing", "is quiet on a server that never had a GPU", {_NO_SOURCE: "1x100"}, "15m"),
    fires(
        "GpuDataStale",
        "fires when readings do not move for minutes",
        {_AGE: "15+15x100"},
        "10m",
        Fires(GPU, "10m 15s"),
        before="6m45s",
    ),
    quiet("GpuDataStale", "is quiet at the 30 s of dcgm-exporter", {_AGE: "0 15 30 " * 30}, "15m"),
    fires(
        "GpuModelLabelWrong",
        "fires when Triton's label disagrees with the mapping",
        {series(gpu.MODEL_LABEL_PROBLEM, _LABEL): "1x80"},
        "15m",
        Fires(_LABEL),
        before="14m45s",
    ),
    quiet(
        "GpuModelLabelWrong",
        "is quiet about a missing label, which is common",
        {series(gpu.MODEL_LABEL_PROBLEM, VERSION, problem="missing"): "1x80"},
        "18m",
    ),
)

PROOFS = (*ERRORS, *LOAD, *DATA)

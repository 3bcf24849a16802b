"""Alerts about GPUs, based on the exporter's triton_gpu_* series, so they work with every source of GPU data.

Which XID means what: https://docs.nvidia.com/deploy/xid-errors/ (the classes are the exporter's table).
"""

from __future__ import annotations

from functools import partial

from triton_alerts.alert import Alert, Lookup
from triton_exporter.catalogue import Metric, gpu, triton
from triton_slo import links, signals
from triton_slo.alert_settings import AlertThreshold

_GPU = ("instance", "gpu_uuid")
_LINK_FAULTS = 'type=~"replay|recovery|crc_data"'
_THERMAL_REASONS = 'reason=~"sw_thermal|hw_thermal"'
_POWER_REASONS = 'reason=~"sw_power_cap|hw_power_brake"'
_MEMORY_ALL = f"({gpu.MEMORY_TOTAL} > 0)"


def _throttled(cause: str, reasons: str, share: str, window: str = "5m") -> str:
    """Return the condition of throttling for more than a share of the time, counted by the GPU or by scrapes."""
    return f"""\
sum without (cause) (rate({gpu.THROTTLED_SECONDS}{{cause="{cause}"}}[{window}])) > {share}
or
max without (reason) (avg_over_time({gpu.THROTTLE_REASON}{{{reasons}}}[{window}])) > {share}"""


_GPUS = f"count by (instance) (count by (instance, gpu_uuid) ({gpu.INFO}))"


def _xids(matchers: str) -> str:
    return f"sum without (xid, class) (increase({gpu.XID_ERRORS}{{{matchers}}}[15m])) > 0"


def _which_xids(matchers: str) -> Lookup:
    return Lookup(f"sum by (xid) ({gpu.XID_ERRORS}{{%q, {matchers}}}) > 0", _GPU, "xid", "XID ")


def _faults(metric: Metric, types: str) -> str:
    return f"sum without (type) (increase({metric}{{{types}}}[15m]))"


_gpu_alert = partial(Alert, component="gpu", dashboard=links.GPU, owner="gpu-platform", labels=_GPU)

ERRORS = (
    _gpu_alert(
        name="GpuXidHardware",
        expr=_xids('class="hardware"'),
        severity="warning",
        keep_firing_for="30m",
        summary="{{ $labels.gpu_uuid }} on {{ $labels.instance }} reported a hardware error",
        description="NVIDIA's driver reported an error (XID) after which the GPU needs a reset, a reboot or a "
        "replacement. Results computed on it cannot be trusted.",
        action="Drain the node, then look up the XID in the output of dmesg.",
        cause_from=_which_xids('class="hardware"'),
        silence="gpu_uuid, once the node is drained",
    ),
    _gpu_alert(
        name="GpuXidContained",
        expr=_xids('class=~"contained|unknown"'),
        severity="warning",
        keep_firing_for="30m",
        summary="{{ $labels.gpu_uuid }} on {{ $labels.instance }} reported an error",
        description="NVIDIA's driver reported an error (XID) that terminated a program but left the GPU usable, or "
        "one that the exporter does not know. The GPU should be reset soon.",
        action="Look up the XID in the output of dmesg, restart the processes that ran on the GPU, and "
        "plan a reset of the GPU.",
        cause_from=_which_xids('class=~"contained|unknown"'),
        silence="gpu_uuid, until the planned reset",
    ),
    _gpu_alert(
        name="GpuXidApplication",
        expr=_xids('class="application"'),
        severity="info",
        owner="ml-platform",
        keep_firing_for="15m",
        summary="A program on {{ $labels.gpu_uuid }} on {{ $labels.instance }} caused a driver error",
        description="NVIDIA's driver reported an error (XID) that a program usually causes, most often by an invalid "
        "memory access. A model or its backend has a bug; if the error recurs only on this GPU, suspect the "
        "hardware.",
        action="Find the model that failed at that moment in Triton's log.",
        cause_from=_which_xids('class="application"'),
        silence="gpu_uuid",
    ),
    _gpu_alert(
        name="GpuEccUncorrected",
        expr=f"""\
{_faults(gpu.ECC_ERRORS, 'type="uncorrected"')} > 0
or
{_faults(gpu.REMAPPED_ROWS, 'type="uncorrected"')} > 0""",
        severity="warning",
        keep_firing_for="30m",
        summary="Memory of {{ $labels.gpu_uuid }} on {{ $labels.instance }} lost data",
        description="The GPU had memory errors that its error correction could not repair. Weights or results in "
        "this memory may be wrong.",
        action="Drain the node and reset the GPU before it is used again.",
        silence="gpu_uuid, once the node is drained",
    ),
    _gpu_alert(
        name="GpuRowRemapFailed",
        expr=f"{gpu.ROW_REMAP_FAILED} > 0",
        severity="warning",
        for_="1m",
        keep_firing_for="30m",
        summary="{{ $labels.gpu_uuid }} on {{ $labels.instance }} must be replaced",
        description="The GPU could not replace a faulty part of its memory by a spare one. This is NVIDIA's "
        "criterion for returning the card.",
        action="Drain the node and open a case with the vendor.",
        silence="gpu_uuid, once the node is drained",
    ),
    _gpu_alert(
        name="GpuRowRemapPending",
        expr=f"{gpu.ROW_REMAP_PENDING} > 0",
        severity="warning",
        for_="5m",
        keep_firing_for="30m",
        summary="{{ $labels.gpu_uuid }} on {{ $labels.instance }} needs a reset",
        description="A spare part replaces a faulty part of the GPU's memory, but only after a reset of the GPU.",
        action="Drain the GPU in a period of low traffic and reset it.",
        silence="gpu_uuid, until the planned reset",
    ),
    _gpu_alert(
        name="GpuNvlinkErrors",
        # A link corrects a replay now and then.
        expr=_faults(gpu.NVLINK_ERRORS, _LINK_FAULTS) + " > 3",
        severity="warning",
        for_="5m",
        keep_firing_for="30m",
        summary="{{ $labels.gpu_uuid }} on {{ $labels.instance }} had {{ $value | humanize }} NVLink errors within [15m]",
        description="The links between this GPU and its neighbours fail. Models that span GPUs slow down or fail.",
        action="Run the link test of dcgmi diag on the drained node.",
        silence="gpu_uuid",
    ),
    _gpu_alert(
        name="GpuPcieReplays",
        expr=f"increase({gpu.PCIE_REPLAYS}[10m]) > $threshold",
        until=f"increase({gpu.PCIE_REPLAYS}[10m]) > 0.75 * $threshold",
        threshold=AlertThreshold(
            80,
            "number",
            "PCIe replays within 10 minutes",
            "NVIDIA's own health check complains at more than 8 a minute.",
        ),
        severity="warning",
        for_="5m",
        keep_firing_for="30m",
        summary="{{ $labels.gpu_uuid }} on {{ $labels.instance }} repeated {{ $value | humanize }} PCIe transfers "
        "within [10m]",
        description="The slot, riser or cable of the GPU is bad. Copies to and from the GPU are slow.",
        action="Compare the PCIe link's width and speed with what it should be, then reseat the card.",
        silence="gpu_uuid",
    ),
    _gpu_alert(
        name="GpuLost",
        # The GPU's data vanished while the exporter and its source still answer. A pod that was rescheduled onto
        # other GPUs has as many of them as before.
        expr=f"""\
count by (instance, gpu_uuid) (last_over_time({gpu.INFO}[1d]))
unless on (instance, gpu_uuid) count by (instance, gpu_uuid) ({gpu.INFO})
and on (instance) {gpu.SOURCE}{{source=~"dcgm|nvml"}} == 1
unless on (instance) ({_GPUS} >= max_over_time({_GPUS}[1d:2m]))""",
        severity="warning",
        for_="5m",
        keep_firing_for="10m",
        summary="{{ $labels.gpu_uuid }} on {{ $labels.instance }} has disappeared",
        description="The GPU was present within the last [1d]. Its data source responds but no longer lists it, and no "
        "other GPU has replaced it: most likely it fell off the bus.",
        action="Look for XID 79 in dmesg; drain the node and reboot it.",
        silence="gpu_uuid, when the card was moved on purpose",
    ),
)

LOAD = (
    _gpu_alert(
        name="GpuThermalThrottling",
        expr=_throttled("thermal", _THERMAL_REASONS, "$threshold"),
        until=_throttled("thermal", _THERMAL_REASONS, "0.5 * $threshold", "1h"),
        threshold=AlertThreshold(
            0.05,
            "share",
            "share of the time that heat lowers the clocks",
            "Cooling that suffices never lets it happen; 5 % of five minutes (15 s) lets one single reading "
            "pass.",
        ),
        severity="warning",
        for_="10m",
        keep_firing_for="1h",
        summary="{{ $labels.gpu_uuid }} on {{ $labels.instance }} was slowed down by heat "
        "{{ $value | humanizePercentage }} of the time",
        description="The GPU lowers its clocks to stay cool enough. Its models run slower.",
        action="Check the fans and the air flow of the machine, and the temperature of the other GPUs.",
        silence="gpu_uuid",
    ),
    _gpu_alert(
        name="GpuPowerThrottling",
        expr=_throttled("power", _POWER_REASONS, "$threshold"),
        until=_throttled("power", _POWER_REASONS, "0.5 * $threshold", "1h"),
        threshold=AlertThreshold(
            0.2,
            "share",
            "share of the time that the power limit lowers the clocks",
            "Bursts of a loaded GPU touch its limit at times; a fifth of the time for half an hour is a limit "
            "that costs throughput.",
        ),
        severity="info",
        for_="30m",
        keep_firing_for="15m",
        summary="{{ $labels.gpu_uuid }} on {{ $labels.instance }} was slowed down by its power limit "
        "{{ $value | humanizePercentage }} of the time",
        description="Under full load this is normal; under light load, the power limit is too low or the power supply "
        "is insufficient.",
        action="Compare the power limit with the card's default.",
        silence="gpu_uuid",
    ),
    _gpu_alert(
        name="GpuMemoryNearFull",
        expr=f"{signals.GPU_MEMORY.expr(str)} > $threshold",
        until=f"{signals.GPU_MEMORY.expr(signals.mean_30m)} > 0.9 * $threshold",
        threshold=signals.GPU_MEMORY.threshold,
        severity="info",
        owner="ml-platform",
        for_="15m",
        keep_firing_for="15m",
        summary="{{ $value | humanizePercentage }} of the memory of {{ $labels.gpu_uuid }} on "
        "{{ $labels.instance }} was in use",
        description="Language-model servers reserve nearly all of it on purpose; for others the next load or a larger "
        "batch will fail.",
        action="Check on the GPU dashboard which models use the memory.",
        silence="gpu_uuid, where memory is reserved on purpose",
    ),
    _gpu_alert(
        name="GpuMemoryGrowth",
        # A trend that explains three quarters of the variance (a straight line: sqrt(12)): noise has a slope, too.
        expr=f"""\
predict_linear({gpu.MEMORY_FREE}[1h], 1h) < 0
and -1h * deriv({gpu.MEMORY_FREE}[1h]) > 3 * stddev_over_time({gpu.MEMORY_FREE}[1h])
and {gpu.MEMORY_FREE} / {_MEMORY_ALL} < $threshold
and {gpu.MEMORY_FREE} / {_MEMORY_ALL} > 0.01""",
        threshold=AlertThreshold(
            0.2,
            "share",
            "share of the memory that is free while it shrinks towards 0 within the hour",
            "With more than a fifth free, the line through the last hour is usually a load of models that "
            "ends.",
            below=True,
        ),
        severity="warning",
        owner="ml-platform",
        for_="15m",
        keep_firing_for="30m",
        summary="The memory of {{ $labels.gpu_uuid }} on {{ $labels.instance }} will be full within the hour",
        description="Memory use grows steadily: a process leaks memory, or a cache grows without a limit. When no "
        "memory is left, executions and loads fail.",
        action="See which process grows (nvidia-smi), and restart that model before it fails on its own.",
        silence="gpu_uuid, while models are loaded one after the other",
    ),
    _gpu_alert(
        name="GpuIdleWhileQueueing",
        expr=f"""\
max by (instance) (max_over_time({gpu.UTILIZATION}[5m])) < 0.01
and on (instance) sum by (instance) (min_over_time({triton.PENDING_REQUESTS}[5m])) > $threshold""",
        threshold=AlertThreshold(
            5,
            "number",
            "number of requests that wait for 5 minutes",
            "A batcher holds a few requests back on purpose; five that wait for five minutes at an idle GPU "
            "are more than that.",
        ),
        severity="warning",
        owner="ml-platform",
        labels=("instance",),
        for_="5m",
        keep_firing_for="10m",
        summary="Requests waited for over [5m] on {{ $labels.instance }} while its GPUs were idle",
        description="More than $threshold requests waited while all GPUs of the server were idle: "
        "the model runs on the CPU, the model hangs, or its input preparation is the bottleneck.",
        action="Find the model with waiting requests on the dashboard; check in its config.pbtxt that "
        "instance_group has KIND_GPU.",
        silence="instance",
    ),
)

DATA = (
    _gpu_alert(
        name="GpuDataMissing",
        # Servers without any GPU never had another source than none.
        expr=f"""\
max without (source) ({gpu.SOURCE}{{source="none"}}) == 1
and on (instance) count by (instance) (last_over_time({gpu.INFO}[1d])) > 0""",
        severity="warning",
        labels=("instance",),
        for_="5m",
        keep_firing_for="5m",
        owner="observability",
        summary="No GPU data for {{ $labels.instance }}",
        description="No source of GPU data (dcgm-exporter, NVML, Triton) responds, although one responded within the "
        "last [1d]. GPU alerts for this server cannot fire.",
        action="Check whether dcgm-exporter runs on that node and answers on its port.",
        silence="instance, while dcgm-exporter is updated",
    ),
    _gpu_alert(
        name="GpuDataStale",
        expr=f"{signals.GPU_DATA_AGE.expr(str)} > $threshold",
        threshold=signals.GPU_DATA_AGE.threshold,
        severity="warning",
        for_="5m",
        keep_firing_for="5m",
        owner="observability",
        summary="The data of {{ $labels.gpu_uuid }} on {{ $labels.instance }} is "
        '{{ $value | printf "%.0f" | humanizeDuration }} old',
        description="The source still lists the GPU, but its readings no longer change. Triton freezes a GPU's series "
        "after three failed reads, and dcgm-exporter can hang; the GPU itself may hang too.",
        action="Run nvidia-smi on the node: if the command hangs, the driver hangs too.",
        silence="gpu_uuid",
    ),
    _gpu_alert(
        name="GpuModelLabelWrong",
        expr=f'{gpu.MODEL_LABEL_PROBLEM}{{problem=~"unknown_gpu|disagrees"}} == 1',
        severity="info",
        labels=("instance", "model", "version", "problem"),
        for_="15m",
        keep_firing_for="15m",
        owner="observability",
        summary="Triton on {{ $labels.instance }} names the wrong GPU for model {{ $labels.model }}",
        description="The label gpu_uuid on Triton's own series names a GPU that the server does not have, or one on "
        "which the model does not run. Queries that join on this label return the wrong GPU.",
        action="Use the exporter's mapping of models to GPUs, which does not use that label.",
        silence="instance",
    ),
)

ALERTS = (*ERRORS, *LOAD, *DATA)

"""GPU: is a GPU failing, full or busy, and which models share it?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from triton_dashboards import displays, shared
from triton_dashboards.query import BoardScope, or_zero, scope, summed, total
from triton_dashboards.recording import window
from triton_dashboards.values import (
    Column,
    Dashboard,
    Display,
    LabelColumn,
    Panel,
    Query,
    Row,
    Stat,
    Style,
    Table,
    TimeSeries,
    fires,
)
from triton_exporter.catalogue import Metric, gpu
from triton_slo import links, signals
from triton_slo.alert_settings import Tuning
from triton_slo.artifact import Options
from triton_slo.names import UTILIZATION_CAUSED
from triton_slo.signals import Share

_GPU = ("instance", "gpu_uuid")
_BY_GPU = f"by ({', '.join(_GPU)})"
_LEGEND = "{{instance}} {{gpu_uuid}}"
_ABSENT = "Not reported"
_NO_GPU = "No GPU"
_HARDWARE = 'class="hardware"'
_SLOWED = 'reason=~"hw_slowdown|sw_thermal|hw_thermal|hw_power_brake"'


@dataclass(frozen=True, slots=True)
class _Gpus:
    """Series of the chosen GPUs, and of their servers."""

    chosen: BoardScope
    servers: BoardScope
    tuning: Tuning
    every: str
    """The window of what is recorded, and the shortest step of its graphs."""

    @property
    def memory(self) -> Share:
        return signals.GPU_MEMORY.tuned(self.tuning)

    def mean(self, metric: Metric) -> str:
        """Return the mean by GPU; a GPU that MIG splits counts as the mean of its instances."""
        return f"avg {_BY_GPU} ({self.chosen(metric)})"

    def most(self, metric: Metric, *more: str) -> str:
        return f"max {_BY_GPU} ({self.chosen(metric, *more)})"

    def sum(self, metric: Metric) -> str:
        return f"sum {_BY_GPU} ({self.chosen(metric)})"

    def caused(self, recorded: str, each: Callable[[BoardScope], str]) -> str:
        """Return the models' part of all GPUs as it is recorded, or the sum of `each` over the chosen ones."""
        return summed(self.chosen, recorded, each, "instance", "gpu_uuid")

    def memory_share(self) -> str:
        return signals.GPU_MEMORY.expr(self.sum)


def dashboard(options: Options) -> Dashboard:
    servers = ("cluster", "job", "instance")
    chosen, all_of = scope(options.selector, *servers, "gpu_uuid"), scope(options.selector, *servers)
    gpus = _Gpus(chosen, all_of, options.tuning, window(options))
    return Dashboard(
        uid=links.GPU,
        title="Triton / GPU",
        description="Is a GPU failing, full or busy, and which models share it? Uses the exporter's "
        "`triton_gpu_*` series, whose source is dcgm-exporter, NVML or Triton; values that a source cannot "
        "read are absent, never 0.",
        tags=shared.tags("gpu"),
        variables=(*shared.variables("cluster", "job", "instance"), shared.GPU_UUID),
        annotations=shared.event_annotations(gpus.servers, (shared.OF_SERVER,)),
        links=shared.links(options),
        rows=(
            Row("Is a GPU failing?", (*_broken_gpus(gpus), *_highest_loads(gpus))),
            Row("Which GPU?", (_gpu_table(gpus),)),
            Row("Busy, full or hot?", _load_panels(gpus)),
            Row("Which models share it?", _model_panels(gpus), collapsed=True),
            Row("Throttling", _throttling(gpus), collapsed=True),
            Row("Faults", _faults(gpus), collapsed=True),
        ),
    )


def _broken_gpus(gpus: _Gpus) -> tuple[Panel, ...]:
    faults = displays.FAULTS.when_empty(_ABSENT)
    slowed = f"count(max {_BY_GPU} ({gpus.chosen(gpu.THROTTLE_REASON, _SLOWED)}) == 1)"

    def errors(title: str, about: str, metric: Metric, matcher: str) -> Stat:
        increase = f"sum(increase({gpus.chosen(metric, matcher)}[$__range]))"
        return Stat(title, about, [Query(increase, instant=True)], faults, sparkline=False)

    return (
        Stat(
            "GPUs seen",
            "Number of GPUs that the exporters report.",
            f"count(count {_BY_GPU} ({gpus.chosen(gpu.INFO)}))",
            displays.COUNT.when_empty(_NO_GPU),
        ),
        errors(
            "Hardware XIDs",
            "XID errors in the time range that require a reset or a replacement of the GPU.",
            gpu.XID_ERRORS,
            _HARDWARE,
        ),
        errors(
            "Memory errors",
            "Memory errors in the time range that could not be corrected.",
            gpu.ECC_ERRORS,
            'type="uncorrected"',
        ),
        Stat(
            "Remaps failed",
            "GPUs with a failed row remapping: replace them.",
            f"sum({gpus.chosen(gpu.ROW_REMAP_FAILED)})",
            faults,
        ),
        Stat(
            "Throttled by heat",
            "GPUs that are throttled now because of heat or of the power supply.",
            or_zero(slowed, f"max({gpus.chosen(gpu.INFO)})"),
            displays.WARNINGS.when_empty(_ABSENT),
            reads=gpu.THROTTLE_REASON,
        ),
    )


def _highest_loads(gpus: _Gpus) -> tuple[Panel, ...]:
    age = signals.GPU_DATA_AGE.tuned(gpus.tuning)
    return (
        Stat(
            "Fullest memory",
            "The highest share of memory in use on one GPU.",
            f"max({gpus.memory_share()})",
            displays.filled(gpus.memory).when_empty(_ABSENT),
        ),
        Stat(
            "Busiest",
            "The highest utilisation of one GPU.",
            f"max({gpus.mean(gpu.UTILIZATION)})",
            replace(displays.SHARE, decimals=0, no_value=_ABSENT),
        ),
        Stat(
            "Oldest data",
            "Age of the oldest GPU reading. " + fires(age),
            f"max({age.expr(gpus.chosen)})",
            displays.aged(age, _ABSENT),
        ),
    )


def _gpu_table(gpus: _Gpus) -> Panel:
    slowed = gpus.most(gpu.THROTTLE_REASON, _SLOWED)
    shown = (
        Column("Busy", gpus.mean(gpu.UTILIZATION), replace(displays.SHARE, decimals=0)),
        Column("SMs active", gpus.mean(gpu.SM_ACTIVE), replace(displays.SHARE, decimals=0)),
        Column(
            "Memory used",
            gpus.memory_share(),
            displays.calm(displays.filled(gpus.memory)),
            colored=True,
        ),
        Column("Power", gpus.most(gpu.POWER), Display("watt", 0)),
        Column("Temperature", gpus.most(gpu.TEMPERATURE), Display("celsius", 0)),
        Column("Slowed", slowed, Display(words={0: ("–", "text"), 1: ("By heat", "orange")}), colored=True),
        Column(
            "XIDs",
            f"sum {_BY_GPU} ({gpus.chosen(gpu.XID_ERRORS, _HARDWARE)})",
            displays.calm(displays.FAULTS),
            colored=True,
        ),
        Column(
            "Models",
            f"count {_BY_GPU} (count by ({', '.join(_GPU)}, model, version) "
            f"({gpus.chosen(gpu.MODEL_GPU_INFO)}))",
            displays.COUNT,
        ),
    )
    link = shared.to(links.GPU, "Only this GPU", "cluster", "job", gpu_uuid=shared.field("GPU"))
    return Table(
        "GPUs",
        "One row per GPU.",
        (LabelColumn("instance", "Server"), LabelColumn("gpu_uuid", "GPU", link, 330)),
        shown,
        reads=(gpu.INFO, gpu.UTILIZATION, gpu.MEMORY_USED, gpu.XID_ERRORS, gpu.MODEL_GPU_INFO),
        sort_by="Memory used",
        height=7,
        no_value="No exporter reports a GPU: see --gpu of the exporter for its sources, and docs/gpu.md "
        "for how to add one",
    )


def _lines(title: str, lead: str, metric: Metric, gpus: _Gpus, display: Display) -> Panel:
    return TimeSeries(title, lead, {_LEGEND: gpus.mean(metric)}, display)


def _load_panels(gpus: _Gpus) -> tuple[Panel, ...]:
    """Return panels of the series that every source of GPU series has; Triton's own lack the temperature."""
    share = displays.SHARE.when_empty(_NO_GPU)
    watts = Display("watt", minimum=0, no_value=_NO_GPU, styles=(displays.DASHED_LIMIT,))
    return (
        _lines(
            "Busy",
            "Share of time in which at least one kernel ran: shows whether the GPU was used, not how "
            "much of it.",
            gpu.UTILIZATION,
            gpus,
            share,
        ),
        TimeSeries(
            "Memory used",
            "Share of memory in use by all processes. " + fires(gpus.memory),
            {_LEGEND: gpus.memory_share()},
            displays.warned(share, gpus.memory),
            limit_line=True,
        ),
        TimeSeries(
            "Power",
            "Power drawn, and the limit in force as a dashed line.",
            {_LEGEND: gpus.most(gpu.POWER), "limit": f"max({gpus.chosen(gpu.POWER_LIMIT)})"},
            watts,
        ),
        _lines(
            "Temperature",
            "Temperature of the GPU.",
            gpu.TEMPERATURE,
            gpus,
            Display("celsius", minimum=0, no_value=_NO_GPU),
        ),
    )


def _throttling(gpus: _Gpus) -> tuple[Panel, ...]:
    throttled = total(gpus.chosen.rate(gpu.THROTTLED_SECONDS), *_GPU, "cause")
    return (
        TimeSeries(
            "Throttled",
            "Share of time in which the GPU was throttled, by cause.",
            {"{{cause}}: " + _LEGEND: throttled},
            displays.SHARE.when_empty(_ABSENT),
        ),
        _lines(
            "SM clock",
            "Clock of the streaming multiprocessors; falls while the GPU is throttled.",
            gpu.SM_CLOCK,
            gpus,
            Display("hertz", minimum=0, no_value=_ABSENT),
        ),
    )


def _model_panels(gpus: _Gpus) -> tuple[Panel, ...]:
    keys = ("model", "version", *_GPU)
    by = f"by ({', '.join(keys)})"
    shown = (
        Column("Busy", f"sum {by} ({gpus.chosen.rate(gpu.MODEL_BUSY)})", Display("percentunit", 0, 0)),
        Column(
            "Utilisation (estimate)",
            f"sum {by} ({gpus.chosen(gpu.MODEL_UTILIZATION)})",
            replace(displays.SHARE, decimals=0),
        ),
        Column("Memory (estimate)", f"sum {by} ({gpus.chosen(gpu.MODEL_MEMORY)})", displays.BYTES),
        Column(
            "Mapped", f"max {by} ({gpus.chosen(gpu.MODEL_GPU_INFO)})", Display(words={1: ("yes", "text")})
        ),
    )
    link = shared.to(links.MODEL, "Model dashboard", "cluster", "job", model=shared.field("Model"))
    return (
        TimeSeries(
            "Utilisation by model (estimate)",
            "Utilisation of the GPUs by model, from each model's share of the execution time; the parts "
            "add up to the utilisation of the GPU.",
            {
                "{{model}}": total(
                    gpus.caused(UTILIZATION_CAUSED, lambda chosen: chosen(gpu.MODEL_UTILIZATION)), "model"
                ),
                "no model": total(gpus.chosen(gpu.UTILIZATION_UNATTRIBUTED)),
            },
            Display("percentunit", minimum=0, no_value=_ABSENT, styles=(Style("no model", "silver"),)),
            stacked=True,
            legend="right",
            calcs=("lastNotNull",),
            every=gpus.every,
            width=24,
        ),
        Table(
            "Models on GPUs",
            "The GPU of each model, with the model's estimated share of utilisation and memory.",
            (
                LabelColumn("model", link=link),
                LabelColumn("version"),
                LabelColumn("instance", "Server"),
                LabelColumn("gpu_uuid", "GPU"),
            ),
            shown,
            reads=(gpu.MODEL_GPU_INFO, gpu.MODEL_BUSY, gpu.MODEL_UTILIZATION, gpu.MODEL_MEMORY),
            sort_by="Busy",
            width=24,
            height=8,
        ),
    )


def _faults(gpus: _Gpus) -> tuple[Panel, ...]:
    none = Display("short", 0, 0, no_value="None, or not reported")
    return (
        TimeSeries(
            "XID errors",
            "New XID errors by code and class.",
            {"XID {{xid}} ({{class}}) " + _LEGEND: gpus.chosen.events(gpu.XID_ERRORS, *_GPU, "xid", "class")},
            replace(none, shade="red"),
            bars=True,
        ),
        TimeSeries(
            "ECC errors",
            "Memory errors since the last reset.",
            {"{{type}} " + _LEGEND: total(gpus.chosen(gpu.ECC_ERRORS), *_GPU, "type")},
            none,
        ),
        TimeSeries(
            "Sources",
            "Failed reads of GPU sources.",
            {"{{source}}: {{reason}}": gpus.servers.events(gpu.SOURCE_FAILURES_TOTAL, "source", "reason")},
            replace(none, shade="red"),
            bars=True,
        ),
    )

"""NVIDIA's management library, read in this process: the source when no dcgm-exporter is there.

It is loaded when first asked for, because most exporters run where there is none. Everything the library
does not report for a card is absent. Each number is a row of PROBES; the activity of a GPU's parts, and the data rate
of its NVLinks, come from its performance monitoring (`Gpm`, Hopper and later).
https://docs.nvidia.com/deploy/nvml-api/
"""

from __future__ import annotations

import contextlib
import importlib
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from triton_exporter.catalogue import Metric, gpu
from triton_exporter.gpu.gpu_reading import (
    Device,
    Entity,
    GpuReading,
    Instance,
    Slot,
    SourceError,
    XidReport,
    canonical_pci,
    canonical_uuid,
    decode_throttle,
    plausible_value,
    with_derived,
)

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
    NvmlProbe(gpu.POWER, lambda lib, handle: lib.nvmlDeviceGetPowerUsage(handle) / 1e3),
    NvmlProbe(gpu.POWER_LIMIT, lambda lib, handle: lib.nvmlDeviceGetEnforcedPowerLimit(handle) / 1e3),
    NvmlProbe(gpu.ENERGY, lambda lib, handle: lib.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3),
    NvmlProbe(
        gpu.TEMPERATURE, lambda lib, handle: lib.nvmlDeviceGetTemperature(handle, lib.NVML_TEMPERATURE_GPU)
    ),
    NvmlProbe(gpu.MEMORY_TEMPERATURE, _field("NVML_FI_DEV_MEMORY_TEMP")),
    NvmlProbe(gpu.TEMPERATURE_MARGIN, lambda lib, handle: lib.nvmlDeviceGetMarginTemperature(handle)),
    NvmlProbe(gpu.SM_CLOCK, lambda lib, handle: lib.nvmlDeviceGetClockInfo(handle, lib.NVML_CLOCK_SM) * 1e6),
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


class _Figure(NamedTuple):
    constant: str
    metric: Metric
    unit: float = 0.01  # in the metric's


_MIB_PER_SECOND = float(2**20)

# https://docs.nvidia.com/deploy/nvml-api/group__nvmlGpmEnums.html: percent, and MiB/s for the links.
_FIGURES = (
    _Figure("NVML_GPM_METRIC_GRAPHICS_UTIL", gpu.ENGINE_ACTIVE),
    _Figure("NVML_GPM_METRIC_SM_UTIL", gpu.SM_ACTIVE),
    _Figure("NVML_GPM_METRIC_SM_OCCUPANCY", gpu.SM_OCCUPANCY),
    _Figure("NVML_GPM_METRIC_ANY_TENSOR_UTIL", gpu.TENSOR_ACTIVE),
    _Figure("NVML_GPM_METRIC_DRAM_BW_UTIL", gpu.DRAM_ACTIVE),
    # Two directions of one series.
    _Figure("NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC", gpu.NVLINK_THROUGHPUT, _MIB_PER_SECOND),
    _Figure("NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC", gpu.NVLINK_THROUGHPUT, _MIB_PER_SECOND),
)


class Gpm:
    """Keeps the last sample of each GPU and instance."""

    def __init__(self, library: Any) -> None:
        self._lib = library
        self._samples: dict[Entity, Any] = {}

    def read(self, handle: Any, entity: Entity) -> Mapping[Metric, float]:
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
                figures.pop(gpu.NVLINK_THROUGHPUT, None)  # the links are the whole board's
            return figures
        finally:
            self._lib.nvmlGpmSampleFree(before)

    def close(self) -> None:
        """Free all samples."""
        for sample in self._samples.values():
            with contextlib.suppress(self._lib.NVMLError):
                self._lib.nvmlGpmSampleFree(sample)
        self._samples.clear()

    def _between(self, before: Any, after: Any) -> dict[Metric, float]:
        asked = self._lib.c_nvmlGpmMetricsGet_t()
        asked.version = self._lib.NVML_GPM_METRICS_GET_VERSION
        asked.numMetrics = len(_FIGURES)
        asked.sample1, asked.sample2 = before, after
        for position, figure in enumerate(_FIGURES):
            asked.metrics[position].metricId = getattr(self._lib, figure.constant)
        self._lib.nvmlGpmMetricsGet(asked)
        figures: dict[Metric, float] = {}
        unknown: set[Metric] = set()
        for figure, answer in zip(_FIGURES, asked.metrics, strict=False):
            if answer.nvmlReturn == self._lib.NVML_SUCCESS:
                figures[figure.metric] = figures.get(figure.metric, 0.0) + answer.value * figure.unit
            else:
                unknown.add(figure.metric)
        # A figure of one direction alone would be taken for the sum of both.
        return {metric: value for metric, value in figures.items() if metric not in unknown}


SOURCE = "nvml"

_MAX_EVENTS = 1000
"""XID events taken in one read; a card that dies can send them without end."""


def load_library() -> Library:
    """Import nvidia-ml-py. Raises SourceError when it is not installed."""
    try:
        return importlib.import_module("pynvml")
    except ImportError as error:
        raise SourceError(
            "library", "nvidia-ml-py is missing; try: pip install 'tritonwatch[exporter]'"
        ) from error


@dataclass
class _NvmlDraft:
    devices: dict[str, Device] = field(default_factory=dict)
    instances: list[Instance] = field(default_factory=list)
    values: dict[Slot, float] = field(default_factory=dict)
    dropped: Counter[str] = field(default_factory=Counter)

    def add(self, slot: Slot, value: float) -> None:
        if math.isnan(value):
            return  # not supported on this card
        accepted = plausible_value(slot.metric, value, self.dropped)
        if accepted is not None:
            self.values[slot] = accepted


class NvmlSource:
    """Reads all GPUs this process may see. `load` gives the library when it is first needed."""

    name = SOURCE

    def __init__(self, load: Callable[[], Library] = load_library) -> None:
        self._load = load
        self._lib: Library = None
        self._gpm: Gpm | None = None
        self._events: Any = None

    def read(self, at: float) -> GpuReading:
        """Ask the driver. Raises SourceError when library, driver or GPU are missing."""
        lib = self._lib or self._open()
        draft = _NvmlDraft()
        try:
            driver = _decoded(lib.nvmlSystemGetDriverVersion())
            count = lib.nvmlDeviceGetCount()
        except lib.NVMLError as error:
            self.close()
            raise SourceError("library", str(error)) from error
        for index in range(count):
            # A GPU that has fallen off the bus fails here; the others are still read.
            with contextlib.suppress(lib.NVMLError):
                self._read_gpu(lib.nvmlDeviceGetHandleByIndex(index), driver, draft)
        if not draft.devices:
            raise SourceError("no_gpu", "NVML knows no GPU")
        return GpuReading(
            source=SOURCE,
            at=at,
            devices=draft.devices,
            instances=tuple(draft.instances),
            values=with_derived(draft.values),
            xids=tuple(self._take_events()) if self._events is not None else None,
            watches_xids=self._events is not None,
            dropped=dict(draft.dropped),
        )

    def close(self) -> None:
        """Let the driver go."""
        lib, self._lib = self._lib, None
        if lib is None:
            return
        if self._gpm is not None:
            self._gpm.close()
        with contextlib.suppress(lib.NVMLError):
            if self._events is not None:
                lib.nvmlEventSetFree(self._events)
        self._events = None
        with contextlib.suppress(lib.NVMLError):
            lib.nvmlShutdown()

    def _open(self) -> Library:
        lib = self._load()
        try:
            lib.nvmlInit()
        except lib.NVMLError as error:
            raise SourceError("library", str(error)) from error
        self._lib, self._gpm = lib, Gpm(lib)
        self._events = _watch_xids(lib)
        return lib

    def _read_gpu(self, handle: Any, driver: str, draft: _NvmlDraft) -> None:
        lib = self._lib
        uuid = canonical_uuid(_decoded(lib.nvmlDeviceGetUUID(handle)))
        draft.devices[uuid] = Device(
            uuid,
            str(lib.nvmlDeviceGetIndex(handle)),
            _decoded(lib.nvmlDeviceGetName(handle)),
            driver,
            canonical_pci(_decoded(lib.nvmlDeviceGetPciInfo(handle).busId)),
        )
        entity = Entity(uuid)
        for probe in PROBES:
            with contextlib.suppress(lib.NVMLError, AttributeError):  # not on this card; too new a question
                draft.add(Slot(probe.metric, entity, probe.label), float(probe.ask(lib, handle)))
        with contextlib.suppress(lib.NVMLError, AttributeError):
            for reason, holds in decode_throttle(_throttle_mask(lib, handle)).items():
                draft.add(Slot(gpu.THROTTLE_REASON, entity, reason), float(holds))
        self._read_part(handle, handle, entity, draft)
        for part, part_handle in _mig_parts(lib, handle, uuid):
            if part.entity not in {known.entity for known in draft.instances}:
                self._read_part(handle, part_handle, part.entity, draft)
            draft.instances.append(part)

    def _read_part(self, gpu_handle: Any, handle: Any, entity: Entity, draft: _NvmlDraft) -> None:
        lib = self._lib
        with contextlib.suppress(lib.NVMLError, AttributeError):
            for metric, value in _memory(lib, handle).items():
                draft.add(Slot(metric, entity), value)
        assert self._gpm is not None
        with contextlib.suppress(lib.NVMLError, AttributeError):
            for metric, value in self._gpm.read(gpu_handle, entity).items():
                draft.add(Slot(metric, entity), value)

    def _take_events(self) -> Iterator[XidReport]:
        if self._events is None:
            return
        lib = self._lib
        for _ in range(_MAX_EVENTS):
            try:
                event = lib.nvmlEventSetWait_v2(self._events, 0)
                uuid = canonical_uuid(_decoded(lib.nvmlDeviceGetUUID(event.device)))
            except lib.NVMLError:  # a timeout: there is no more
                return
            if event.eventType == lib.nvmlEventTypeXidCriticalError:
                yield XidReport(uuid, int(event.eventData), 1.0, "event")


def _watch_xids(lib: Library) -> Any:
    """Return an event set for XIDs of all GPUs, or None where the driver offers none."""
    watched = 0
    try:
        events = lib.nvmlEventSetCreate()
        for index in range(lib.nvmlDeviceGetCount()):
            with contextlib.suppress(lib.NVMLError):
                handle = lib.nvmlDeviceGetHandleByIndex(index)
                lib.nvmlDeviceRegisterEvents(handle, lib.nvmlEventTypeXidCriticalError, events)
                watched += 1
        if not watched:
            lib.nvmlEventSetFree(events)
    except lib.NVMLError:
        return None
    return events if watched else None


def _throttle_mask(lib: Library, handle: Any) -> int:
    try:
        return int(lib.nvmlDeviceGetCurrentClocksEventReasons(handle))
    except (lib.NVMLError, AttributeError):  # drivers before 535 know the older name only
        return int(lib.nvmlDeviceGetCurrentClocksThrottleReasons(handle))


def _memory(lib: Library, handle: Any) -> dict[Metric, float]:
    try:
        memory = lib.nvmlDeviceGetMemoryInfo(handle, version=lib.nvmlMemory_v2)
    except (lib.NVMLError, AttributeError):
        # The first version counts what is reserved as used, so only what is true of both is taken.
        memory = lib.nvmlDeviceGetMemoryInfo(handle)
        return {gpu.MEMORY_TOTAL: float(memory.total), gpu.MEMORY_FREE: float(memory.free)}
    return {
        gpu.MEMORY_TOTAL: float(memory.total),
        gpu.MEMORY_FREE: float(memory.free),
        gpu.MEMORY_USED: float(memory.used),
        gpu.MEMORY_RESERVED: float(memory.reserved),
    }


def _mig_parts(lib: Library, handle: Any, uuid: str) -> Iterator[tuple[Instance, Any]]:
    try:
        if not lib.nvmlDeviceGetMigMode(handle)[0]:
            return
        count = lib.nvmlDeviceGetMaxMigDeviceCount(handle)
    except (lib.NVMLError, AttributeError):
        return
    for index in range(count):
        try:
            part = lib.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
            instance = Instance(
                Entity(uuid, str(lib.nvmlDeviceGetGpuInstanceId(part))),
                str(lib.nvmlDeviceGetComputeInstanceId(part)),
                _decoded(lib.nvmlDeviceGetName(part)).partition("MIG ")[2],
            )
        except lib.NVMLError:  # indexes have gaps
            continue
        yield instance, part


def _decoded(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value

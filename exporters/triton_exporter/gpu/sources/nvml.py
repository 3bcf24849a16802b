"""NVIDIA's management library, read in this process: the source when no dcgm-exporter is there.

It is loaded when first asked for, because most exporters run where there is none. Everything the library
does not report for a card is absent. https://docs.nvidia.com/deploy/nvml-api/
"""

from __future__ import annotations

import contextlib
import importlib
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from triton_exporter.catalogue import Metric, gpu
from triton_exporter.gpu.gpu_reading import (
    Device,
    Entity,
    GpuReading,
    Instance,
    Slot,
    XidReport,
    canonical_pci,
    canonical_uuid,
    plausible_value,
    with_derived,
)
from triton_exporter.gpu.sources import throttle
from triton_exporter.gpu.sources.gpm import Gpm
from triton_exporter.gpu.sources.nvml_probes import PROBES, Library
from triton_exporter.gpu.sources.source import SourceError

SOURCE = "nvml"

_MAX_EVENTS = 1000
"""XID events taken in one read; a card that dies can send them without end."""


def load_library() -> Library:
    """Import nvidia-ml-py. Raises SourceError when it is not installed."""
    try:
        return importlib.import_module("pynvml")
    except ImportError as error:
        raise SourceError(
            "library", "nvidia-ml-py is missing; try: pip install 'tritonwatch[nvml]'"
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
            for reason, holds in throttle.decode(_throttle_mask(lib, handle)).items():
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
            for (metric, label), value in self._gpm.read(gpu_handle, entity).items():
                draft.add(Slot(metric, entity, label), value)

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

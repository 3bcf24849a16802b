"""One reading of GPUs in canonical series and base units, whatever the source; and the choice of the source."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

from triton_exporter.catalogue import Metric, gpu
from triton_exporter.catalogue.gpu import THROTTLE_REASONS

XidKind = Literal["last", "window", "total", "event"]

TOLERANCE = 0.01
"""Excess of a ratio over 1 above which it is dropped; a smaller excess is rounding."""

NO_READING_AT_ZERO = frozenset({gpu.POWER, gpu.POWER_LIMIT, gpu.MEMORY_TOTAL, gpu.MEMORY_TEMPERATURE})
"""Families in which NVIDIA's libraries report 0 for what they could not measure."""

_LIMITS: Mapping[str, tuple[float, float]] = {
    "ratio": (0.0, 1.0 + TOLERANCE),
    "C": (-100.0, 200.0),
    "W": (0.0, 1e5),
    "Hz": (0.0, 1e11),
    "bytes": (0.0, 2.0**50),
    "bytes/s": (0.0, 2.0**50),
}
"""Minimum and maximum that a real card can report, by unit. Values of other units are at least 0."""


class Entity(NamedTuple):
    """A GPU, or one MIG instance of it (`instance` is its GPU instance id, empty for the whole)."""

    uuid: str
    instance: str = ""


class Slot(NamedTuple):
    """One series: `label` is the value of the family's own label (pipe, direction, ...), if it has one."""

    metric: Metric
    entity: Entity
    label: str = ""


class XidReport(NamedTuple):
    """The report of one XID code on one GPU.

    `kind`: `last` names the last code (0 for none), `window` counts the last minutes, `total` counts
    since the source started, `event` is so many new ones.
    """

    uuid: str
    code: int
    events: float
    kind: XidKind


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU that is there; what the source does not report is empty."""

    uuid: str
    index: str = ""
    name: str = ""
    driver_version: str = ""
    pci_bus_id: str = ""


@dataclass(frozen=True, slots=True)
class Instance:
    """A MIG instance that is there."""

    entity: Entity
    compute_instance: str = ""
    profile: str = ""


@dataclass(frozen=True, slots=True)
class GpuReading:
    """The report of one source at Unix time `at`.

    `xids` is None where the source reports none; `watches_xids` tells that it would report one that happens.
    `pods` names the pods that use a GPU, where the source reports them; `dialect` is the version of its names.
    """

    source: str
    at: float
    devices: Mapping[str, Device] = field(default_factory=dict)
    instances: tuple[Instance, ...] = ()
    values: Mapping[Slot, float] = field(default_factory=dict)
    xids: tuple[XidReport, ...] | None = None
    watches_xids: bool = False
    dropped: Mapping[str, int] = field(default_factory=dict)
    pods: Mapping[str, frozenset[Entity]] = field(default_factory=dict)
    dialect: str = ""


def plausible_value(metric: Metric, value: float, dropped: Counter[str]) -> float | None:
    """Return a value that can be true, a ratio at most 1; return None for others and count them in `dropped`."""
    if not math.isfinite(value):
        dropped["malformed"] += 1
        return None
    if value == 0 and metric in NO_READING_AT_ZERO:
        dropped["blank"] += 1
        return None
    low, high = _LIMITS.get(metric.unit, (0.0, math.inf))
    if metric is gpu.TEMPERATURE_MARGIN or low <= value <= high:
        return min(value, 1.0) if metric.unit == "ratio" else value
    dropped["implausible"] += 1
    return None


def with_derived(values: Mapping[Slot, float]) -> dict[Slot, float]:
    """Add what follows from other values, and leave out a whole GPU's value beside those of its parts."""
    done = dict(values)
    for entity in {slot.entity for slot in values}:
        _fill_total(done, entity)
        engine = done.get(Slot(gpu.ENGINE_ACTIVE, entity))
        if engine is not None:
            done.setdefault(Slot(gpu.UTILIZATION, entity), engine)
    in_parts = {(slot.metric, slot.entity.uuid, slot.label) for slot in done if slot.entity.instance}
    return {
        slot: value
        for slot, value in done.items()
        if slot.entity.instance or (slot.metric, slot.entity.uuid, slot.label) not in in_parts
    }


def _fill_total(values: dict[Slot, float], entity: Entity) -> None:
    if Slot(gpu.MEMORY_TOTAL, entity) in values:
        return
    parts = [
        values.get(Slot(part, entity)) for part in (gpu.MEMORY_USED, gpu.MEMORY_FREE, gpu.MEMORY_RESERVED)
    ]
    known = [part for part in parts if part is not None]
    if len(known) == len(parts):
        values[Slot(gpu.MEMORY_TOTAL, entity)] = sum(known)


def is_split(metric: Metric) -> bool:
    """Return whether the family has one series per MIG instance; others are of the whole board."""
    return "gpu_instance_id" in metric.labels


def canonical_uuid(text: str) -> str:
    """Return a GPU's UUID as DCGM writes it (`GPU-...`), or empty when the text is not a UUID."""
    text = text.strip()
    if not text or text.startswith("<<<") or text.upper() in ("N/A", "[N/A]"):
        return ""
    return text if text.startswith(("GPU-", "MIG-")) else f"GPU-{text}"


def canonical_pci(text: str) -> str:
    """Return a PCI bus id with an eight-digit domain in lower case, as both DCGM and CUDA ids can be written."""
    domain, colon, rest = text.strip().lower().partition(":")
    return f"{domain.rjust(8, '0')}:{rest}" if colon and rest else ""


_THROTTLE_BITS = {1 << position: reason for position, reason in enumerate(THROTTLE_REASONS)}
"""Bit -> reason. https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html"""


def decode_throttle(mask: int) -> dict[str, bool]:
    """Return which reasons apply now; bits that have no name yet are ignored."""
    return {reason: bool(mask & bit) for bit, reason in _THROTTLE_BITS.items()}


class SourceError(Exception):
    """A source could not be read; `reason` is that of a FetchError, or one of two:

    `no_gpu`: the source answered and knows no GPU; `library`: NVML or its driver is not there or failed.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class GpuSource(Protocol):
    """Something that knows GPUs. Used by one thread."""

    name: str

    def read(self, at: float) -> GpuReading:
        """Read once, at Unix time `at`. Raises SourceError; may wait on network or driver."""


RETRY_SECONDS = 30.0
"""Time after which a source that failed is tried again while another serves."""

PATIENCE = 3
"""Number of reads in a row that the source in use may miss before a worse one is asked."""


@dataclass
class SourceChoice:
    """Sources from best to worst. Used by one thread.

    `wanted` are those the operator named: their failures always count. A source that is only searched for
    counts failures once it has answered, so that a machine without GPUs shows none.
    """

    sources: Sequence[GpuSource]
    wanted: frozenset[str] = frozenset()
    failures: Counter[tuple[str, str]] = field(default_factory=Counter)
    current: str = "none"
    details: dict[str, str] = field(default_factory=dict)
    _answered: set[str] = field(default_factory=set)
    _tried: dict[str, float] = field(default_factory=dict)
    _misses: int = 0

    def read(self, at: float) -> GpuReading | None:
        """Read the best source that answers now, or None."""
        for source in self._candidates(at):
            self._tried[source.name] = at
            try:
                reading = source.read(at)
            except SourceError as error:
                self._note_failure(source.name, error)
                continue
            self._answered.add(source.name)
            self.details[source.name] = reading.dialect
            self.current, self._misses = source.name, 0
            return reading
        self._misses += 1
        if self._misses >= PATIENCE:
            self.current = "none"
        return None

    def _candidates(self, at: float) -> list[GpuSource]:
        names = [source.name for source in self.sources]
        if self.current not in names:
            return list(self.sources)
        position = names.index(self.current)
        better = [
            source
            for source in self.sources[:position]
            if at - self._tried.get(source.name, -math.inf) >= RETRY_SECONDS
        ]
        worse = self.sources[position + 1 :] if self._misses + 1 >= PATIENCE else ()
        return [*better, self.sources[position], *worse]

    def _note_failure(self, name: str, error: SourceError) -> None:
        self.details[name] = str(error)
        if name in self.wanted or name in self._answered:
            self.failures[name, error.reason] += 1

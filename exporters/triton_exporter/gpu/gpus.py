"""GPUs as one part of the exporter: polls the source, watches Triton, shows the canonical series.

`Freshness`, `GpuScope` and `SteadyCounters` decide what of a reading is shown: which data are new, which GPUs are
Triton's, and what a counter stands at.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from triton_exporter.catalogue import Metric, gpu
from triton_exporter.doctor.finding import Finding
from triton_exporter.exposition.parse import Exposition
from triton_exporter.family import Family, Sample, escape
from triton_exporter.gpu import native, xid
from triton_exporter.gpu.advice import GpuFacts, advise
from triton_exporter.gpu.gpu_reading import Entity, GpuReading, Slot, SourceChoice, is_split
from triton_exporter.gpu.gpu_use import GpuUse
from triton_exporter.gpu.mapping import (
    GpuClaim,
    GpuEvidence,
    VisibleGpus,
    gpu_claims,
    label_problems,
    labelled_ordinals,
    visible_gpus,
)
from triton_exporter.snapshot import ModelConfig, ModelStatistics, ModelVersion, Snapshot

MAX_GPUS = 256
"""GPUs remembered; a source that invents new ones for ever cannot fill the memory."""


@dataclass
class Freshness:
    """Remembers when each GPU's data were new.

    A GPU with an energy counter never reports the same values twice while it is really read; of one without,
    only the response of the source is known.
    """

    _new_at: dict[str, float] = field(default_factory=dict)
    _last: dict[str, frozenset[tuple[Slot, float]]] = field(default_factory=dict)

    def note(self, reading: GpuReading) -> frozenset[str]:
        """Take in a reading and give back the GPUs whose data are new."""
        values_of: dict[str, set[tuple[Slot, float]]] = {uuid: set() for uuid in reading.devices}
        for slot, value in reading.values.items():
            values_of[slot.entity.uuid].add((slot, value))
        new = set()
        for uuid, values in values_of.items():
            if uuid not in self._last and len(self._last) >= MAX_GPUS:
                continue
            frozen = frozenset(values)
            always_changes = Slot(gpu.ENERGY, Entity(uuid)) in reading.values
            if not always_changes or frozen != self._last.get(uuid):
                self._new_at[uuid] = reading.at
                new.add(uuid)
            self._last[uuid] = frozen
        return frozenset(new)

    @property
    def known(self) -> frozenset[str]:
        return frozenset(self._new_at)

    def ages(self, now: float) -> dict[str, float]:
        """Return seconds since each GPU's data were new; a GPU that is gone ages on."""
        return {uuid: max(0.0, now - at) for uuid, at in self._new_at.items()}


PATIENCE_SECONDS = 60.0
"""Time without a report of Triton's own GPUs after which all GPUs are shown."""


@dataclass
class GpuScope:
    """Grows, and never shrinks: a GPU that was shown and is shown no more means that it is lost."""

    _mine: set[Entity] = field(default_factory=set)
    _all: bool = False
    _waiting_since: float | None = None

    def learn(self, mine: Iterable[Entity], *, triton_read: bool, now: float) -> None:
        """Take in the GPUs known to be Triton's (perhaps none), and whether Triton's metrics have been read."""
        self._mine.update(mine)
        self._waiting_since = now if self._waiting_since is None else self._waiting_since
        if not self._mine and (triton_read or now - self._waiting_since >= PATIENCE_SECONDS):
            self._all = True

    def includes(self, entity: Entity) -> bool:
        """Return whether to show this GPU or instance; the whole of a GPU is shown if one of its instances is."""
        if self._all or entity in self._mine or Entity(entity.uuid) in self._mine:
            return True
        return not entity.instance and any(entity.uuid == own.uuid for own in self._mine)


_DIP = 0.5
"""A value below this share of the one before means that the counter started again, above an older sample."""


@dataclass(frozen=True, slots=True)
class _Track:
    origin: str
    raw: float
    offset: float

    @property
    def shown(self) -> float:
        return self.raw + self.offset


@dataclass
class SteadyCounters:
    """Remembers each counter of each GPU.

    DCGM and NVML read the driver's own counters; Triton counts from its start, so going from or to it the
    counter is continued from its last value.
    """

    _tracks: dict[Slot, _Track] = field(default_factory=dict)

    def counters(self, reading: GpuReading, known: Container[str]) -> GpuReading:
        """Return the same reading with counters that only fall when they really started again."""
        origin = "server" if reading.source == "triton" else "driver"
        values = dict(reading.values)
        for slot, value in reading.values.items():
            if slot.metric.kind == "counter" and slot.entity.uuid in known:
                track = self._tracks[slot] = _next_track(self._tracks.get(slot), origin, value)
                values[slot] = track.shown
        return replace(reading, values=values)


def _next_track(before: _Track | None, origin: str, value: float) -> _Track:
    if before is None:
        return _Track(origin, value, 0.0)
    if before.origin != origin:
        return _Track(origin, value, before.shown - value)
    if value >= before.raw:
        return _Track(origin, value, before.offset)
    return before if value >= _DIP * before.raw else _Track(origin, value, 0.0)


_Rows = dict[tuple[str, ...], float]
"""Values of one family by the values of its labels."""

_SHOWN = tuple(
    metric
    for metric in vars(gpu).values()
    if isinstance(metric, Metric) and metric.labels[:1] == ("gpu_uuid",)
)
"""Every family about a GPU; those that are not in a reading are filled from elsewhere."""


@dataclass(frozen=True, slots=True)
class GpuOptions:
    """Options of the GPU part. Times are seconds.

    `devices` is the order of Triton's CUDA devices, `trusted_models` are patterns of models that really run on
    the GPUs their config names, `pod` is the name of Triton's pod.
    """

    interval_seconds: float = 5.0
    max_age_seconds: float = 120.0
    devices: tuple[str, ...] = ()
    trusted_models: tuple[str, ...] = ()
    pod: str = ""


class Gpus:
    """A Poller, MetricsObserver, SnapshotObserver and Collector; see `app.exporter` for who calls what when."""

    observed = native.FAMILIES

    def __init__(self, choice: SourceChoice, own_series: native.NativeSource, options: GpuOptions) -> None:
        self.interval_seconds = options.interval_seconds
        self._choice = choice
        self._native = own_series
        self._options = options
        self._lock = threading.Lock()
        self._observed_at = float("-inf")
        self._reading: GpuReading | None = None
        self._source = "none"
        self._failures: _Rows = {}
        self._details: Mapping[str, str] = {}
        self._freshness = Freshness()
        self._xids = xid.XidCounter()
        self._dropped: _Rows = defaultdict(float)
        self._steady = SteadyCounters()
        self._use = GpuUse()
        self._scope = GpuScope()
        self._model_labels: Mapping[ModelVersion, frozenset[str]] = {}
        self._triton_gpus: frozenset[str] = frozenset()
        self._triton_reading: GpuReading | None = None
        self._configs: Mapping[ModelVersion, ModelConfig] = {}
        self._claims: tuple[GpuClaim, ...] = ()
        self._label_problems: Mapping[ModelVersion, str] = {}
        self._memory: Mapping[tuple[ModelVersion, Entity], float] = {}

    def poll(self, now: float) -> None:
        """Read the best source that answers."""
        reading = self._choice.read(now)
        with self._lock:
            self._source = self._choice.current
            self._failures = {key: float(count) for key, count in self._choice.failures.items()}
            self._details = dict(self._choice.details)
            if reading is None:
                return
            new = self._freshness.note(reading)
            reading = self._reading = self._steady.counters(reading, self._freshness.known)
            self._learn_scope(now)
            for reason, rows in reading.dropped.items():
                self._dropped[reading.source, reason] += rows
            if reading.xids is not None:
                known = self._freshness.known & reading.devices.keys()
                reports = [report for report in reading.xids if report.uuid in known]
                self._xids.update(known, reports, now, is_watched=reading.watches_xids)
            self._use.share(reading, new)

    def observe(self, exposition: Exposition, now: float) -> None:
        """Take in Triton's own GPU series, as often as GPUs are read."""
        if now - self._observed_at < self.interval_seconds:
            return
        self._observed_at = now
        reading = native.read(exposition, now)
        self._native.put(reading)
        with self._lock:
            self._model_labels = native.model_labels(exposition)
            self._triton_gpus = frozenset(reading.devices)
            self._triton_reading = reading
            self._learn_scope(now)

    def observe_snapshot(self, snapshot: Snapshot) -> None:
        """Take in configs and statistics: which model is on which GPU, and how long it executed."""
        with self._lock:
            self._configs = snapshot.configs
            visible = self._learn_scope(snapshot.at)
            if not visible.order and not self._triton_gpus and not self._claims:
                return  # no GPU anywhere: nothing to map, at any number of models
            evidence = self._evidence(snapshot.statistics or ())
            self._claims = gpu_claims(evidence, visible)
            self._label_problems = label_problems(evidence, self._claims, visible)
            if snapshot.statistics is not None:
                sizes: dict[tuple[ModelVersion, Entity], float] = defaultdict(float)
                for row in snapshot.statistics:
                    for use in row.memory:
                        for entity in visible.pick([use.device]) if use.kind == "GPU" else ():
                            sizes[row.key, entity] += use.bytes
                self._memory = sizes
                self._use.update(evidence.statistics, self._claims)

    def _evidence(self, statistics: tuple[ModelStatistics, ...] = ()) -> GpuEvidence:
        return GpuEvidence(
            self._configs, statistics, self._model_labels, self._triton_gpus, self._options.trusted_models
        )

    def _learn_scope(self, now: float) -> VisibleGpus:
        named = labelled_ordinals(self._evidence()) if self._triton_gpus else {}
        visible = visible_gpus(
            self._options.devices, self._reading, self._triton_gpus, self._options.pod, named
        )
        if self._reading is not None:
            read = self._observed_at > float("-inf")
            self._scope.learn(visible.order if visible.known else (), triton_read=read, now=now)
        return visible

    def examine(self, now: float) -> tuple[Finding, ...]:
        """Return what to change to see more, from what was polled, observed and seen so far."""
        with self._lock:
            return advise(
                GpuFacts(
                    self._source,
                    self._details,
                    self._reading,
                    self._triton_reading,
                    self._freshness.ages(now),
                    self._configs,
                    self._claims,
                    self._label_problems,
                    self._options.devices,
                    self._choice.wanted,
                )
            )

    def families(self, now: float) -> Iterable[Family]:
        """Return all GPU families; those about a GPU without a value are left out, not 0."""
        with self._lock:
            return list(self._families(now))

    def _families(self, now: float) -> Iterator[Family]:
        yield _gpu_family(gpu.SOURCE, {(name,): float(name == self._source) for name in gpu.SOURCES})
        yield _gpu_family(gpu.SOURCE_FAILURES_TOTAL, self._failures)
        yield _gpu_family(gpu.ROWS_DROPPED, self._dropped)
        ages = {
            uuid: age for uuid, age in self._freshness.ages(now).items() if self._scope.includes(Entity(uuid))
        }
        young = frozenset(uuid for uuid, age in ages.items() if age <= self._options.max_age_seconds)
        rows = self._metric_rows(young, ages, now)
        for metric in _SHOWN:
            if rows.get(metric):
                yield _gpu_family(metric, rows[metric])
        yield from self._model_families(young)

    def _metric_rows(
        self, young: frozenset[str], ages: Mapping[str, float], now: float
    ) -> dict[Metric, _Rows]:
        rows: dict[Metric, _Rows] = defaultdict(dict)
        rows[gpu.DATA_AGE] = {(uuid,): age for uuid, age in ages.items()}
        for (uuid, code), count in self._xids.counts(now).items():
            if uuid in ages:
                rows[gpu.XID_ERRORS][uuid, str(code), xid.classify(code)] = count
        if self._reading is not None:
            self._add_reading(self._reading, young, rows)
        return rows

    def _add_reading(self, reading: GpuReading, young: frozenset[str], rows: dict[Metric, _Rows]) -> None:
        def shown(entity: Entity) -> bool:
            return entity.uuid in young and self._scope.includes(entity)

        for device in reading.devices.values():
            if device.uuid in young:
                rows[gpu.INFO][
                    device.uuid, device.index, device.name, device.driver_version, device.pci_bus_id
                ] = 1.0
        for instance in reading.instances:
            if shown(instance.entity):
                rows[gpu.INSTANCE_INFO][*instance.entity, instance.compute_instance, instance.profile] = 1.0
        values = {slot: value for slot, value in reading.values.items() if shown(slot.entity)}
        for slot, value in values.items():
            labels = slot.entity if is_split(slot.metric) else (slot.entity.uuid,)
            rows[slot.metric][(*labels, slot.label) if slot.label else tuple(labels)] = value
        for entity, shares in self._use.utilization.items():
            if shown(entity):
                rows[gpu.UTILIZATION_UNATTRIBUTED][entity] = shares.rest

    def _model_families(self, young: frozenset[str]) -> Iterator[Family]:
        info: _Rows = {
            (*claim.key, *claim.entity, claim.source, claim.confidence): 1.0 for claim in self._claims
        }
        busy: _Rows = {(*pair.key, *pair.entity): seconds for pair, seconds in self._use.busy.items()}
        shares: _Rows = {
            (*pair.key, *entity): part
            for entity, shared in self._use.utilization.items()
            if entity.uuid in young
            for pair, part in shared.parts.items()
            if pair in self._use.busy
        }
        memory: _Rows = {(*key, *entity): size for (key, entity), size in self._memory.items()}
        problems: _Rows = {(*key, problem): 1.0 for key, problem in self._label_problems.items()}
        for metric, rows in (
            (gpu.MODEL_GPU_INFO, info),
            (gpu.MODEL_LABEL_PROBLEM, problems),
            (gpu.MODEL_BUSY, busy),
            (gpu.MODEL_UTILIZATION, shares),
            (gpu.MODEL_MEMORY, memory),
        ):
            if rows:
                yield _gpu_family(metric, rows)


def _gpu_family(metric: Metric, rows: _Rows) -> Family:
    name, names = metric.name, metric.labels
    return Family(
        metric, [Sample(_series_text(name, names, labels), value) for labels, value in rows.items()]
    )


@lru_cache(maxsize=1 << 16)
def _series_text(metric: str, names: tuple[str, ...], values: tuple[str, ...]) -> str:
    # An empty label is to Prometheus the same as none, and on most GPUs the instance is empty.
    pairs = [f'{name}="{escape(text)}"' for name, text in zip(names, values, strict=True) if text]
    return f"{metric}{{{','.join(pairs)}}}"

"""Totals of each model on each GPU: execution time, and estimates of utilization and energy."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from triton_exporter.catalogue import gpu
from triton_exporter.gpu.attribution import BusyMeter, Shares, share_energy, share_utilization
from triton_exporter.gpu.gpu_reading import Entity, GpuReading, Slot
from triton_exporter.gpu.mapping import GUESS, GpuClaim
from triton_exporter.snapshot import ModelStatistics, ModelVersion


class Pair(NamedTuple):
    """A model version on a GPU."""

    key: ModelVersion
    entity: Entity


@dataclass
class _UseAccount:
    """One GPU between two of its samples."""

    at: float
    joules: float | None
    busy: Mapping[Pair, float]
    min_watts: float | None = None


@dataclass
class GpuUse:
    """Adds up execution time at every poll of Triton, and shares each new sample of a GPU out.

    Only models whose GPU is known better than by guess take part; the others' share stays unattributed.
    """

    busy: dict[Pair, float] = field(default_factory=dict)
    utilization: dict[Entity, Shares[Pair]] = field(default_factory=dict)
    energy: dict[Pair, float] = field(default_factory=lambda: defaultdict(float))
    idle_energy: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    other_energy: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    _meter: BusyMeter[ModelVersion] = field(default_factory=BusyMeter)
    _accounts: dict[Entity, _UseAccount] = field(default_factory=dict)

    def update(self, statistics: Iterable[ModelStatistics], claims: Iterable[GpuClaim]) -> None:
        """Add the execution time since the last poll, and forget models that run on no GPU any more."""
        nanoseconds = {
            ModelVersion(row.model, row.version): sum(batch.infer_ns for batch in row.batches)
            for row in statistics
        }
        sure = [claim for claim in claims if claim.confidence != GUESS and claim.key in nanoseconds]
        spent = {key: self._meter.advance(key, nanoseconds[key]) for key in {claim.key for claim in sure}}
        # A model that is gone has no series; should it come back, its counters start again at 0.
        self._meter.keep_only(frozenset(spent))
        before, self.busy = self.busy, {}
        for claim in sure:
            pair = Pair(claim.key, claim.entity)
            self.busy[pair] = before.get(pair, 0.0) + spent[claim.key] * claim.weight
        self.energy = defaultdict(float, {pair: self.energy[pair] for pair in self.busy})

    def share(self, reading: GpuReading, uuids: Iterable[str]) -> None:
        """Share out what the GPUs `uuids`, whose data are new, did since their last sample."""
        fresh = frozenset(uuids)
        entities = {slot.entity for slot in reading.values if slot.entity.uuid in fresh}
        for entity in sorted(entities):
            self._share_entity(reading, entity)
        gone = self._accounts.keys() - {slot.entity for slot in reading.values}
        for entity in gone:
            del self._accounts[entity]
            self.utilization.pop(entity, None)

    def _share_entity(self, reading: GpuReading, entity: Entity) -> None:
        mine = {pair: seconds for pair, seconds in self.busy.items() if pair.entity == entity}
        before = self._accounts.get(entity)
        joules = reading.values.get(Slot(gpu.ENERGY, entity))
        now = _UseAccount(reading.at, joules, mine, before.min_watts if before else None)
        self._accounts[entity] = now
        if before is None or reading.at <= before.at:
            return
        elapsed = reading.at - before.at
        # A pair that is new since the last sample started at 0 then.
        spent = {pair: max(0.0, seconds - before.busy.get(pair, 0.0)) for pair, seconds in mine.items()}
        utilization = reading.values.get(Slot(gpu.UTILIZATION, entity))
        shares = share_utilization(1.0 if utilization is None else utilization, spent, elapsed)
        if utilization is not None:
            self.utilization[entity] = shares
        if joules is not None and before.joules is not None:
            used = joules - before.joules if joules >= before.joules else joules
            watts = reading.values.get(Slot(gpu.POWER, entity), used / elapsed)
            now.min_watts = watts if now.min_watts is None else min(watts, now.min_watts)
            self._share_energy(entity.uuid, used, elapsed, now.min_watts, shares)

    def _share_energy(
        self, uuid: str, joules: float, elapsed: float, idle_watts: float, shares: Shares[Pair]
    ) -> None:
        energy = share_energy(joules, idle_watts, elapsed, shares)
        for pair, part in energy.parts.items():
            self.energy[pair] += part
        self.idle_energy[uuid] += energy.idle
        self.other_energy[uuid] += energy.rest

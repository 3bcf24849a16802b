"""Totals of each model on each GPU: execution time, and an estimate of utilization.

What a GPU did is shared out to the models that ran on it, so that parts and remainder are the whole. Triton's
statistics give the wall time of each model's executions, once per execution. That bounds from above what a model can
have done on the GPU. Whatever the executions cannot explain stays unattributed.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from triton_exporter.catalogue import gpu
from triton_exporter.gpu.gpu_reading import Entity, GpuReading, Slot
from triton_exporter.gpu.mapping import GUESS, GpuClaim
from triton_exporter.snapshot import ModelStatistics, ModelVersion

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Shares(Generic[Key]):
    """Parts of a whole by who caused them; `rest` is what no model is known to have caused."""

    parts: Mapping[Key, float] = field(default_factory=dict)
    rest: float = 0.0


def share_utilization(
    utilization: float, busy_seconds: Mapping[Key, float], elapsed_seconds: float
) -> Shares[Key]:
    """Share a utilization (0 to 1) in proportion to execution time.

    All models together get at most the share of time in which anything of theirs executed: a GPU that is
    90 % busy while Triton executed 10 % of the time is busy with something else.
    """
    total = math.fsum(busy_seconds.values())
    if total <= 0 or elapsed_seconds <= 0:
        return Shares(dict.fromkeys(busy_seconds, 0.0), utilization)
    explained = min(utilization, total / elapsed_seconds)
    parts = {key: explained * (busy / total) for key, busy in busy_seconds.items()}
    return Shares(parts, max(0.0, utilization - math.fsum(parts.values())))


class BusyMeter(Generic[Key]):
    """Cumulative execution time per model, whatever resets Triton's statistics do."""

    def __init__(self) -> None:
        self._before: dict[Key, int] = {}

    def advance(self, key: Key, nanoseconds: int) -> float:
        """Return seconds added since the last call; 0 at the first. A reload starts Triton's count again at 0."""
        before = self._before.get(key)
        self._before[key] = nanoseconds
        if before is None:
            return 0.0
        return (nanoseconds - before if nanoseconds >= before else nanoseconds) * 1e-9

    def keep_only(self, keys: frozenset[Key]) -> None:
        """Forget models that are gone."""
        self._before = {key: value for key, value in self._before.items() if key in keys}


class Pair(NamedTuple):
    """A model version on a GPU."""

    key: ModelVersion
    entity: Entity


@dataclass
class GpuUse:
    """Adds up execution time at every poll of Triton, and shares each new sample of a GPU out.

    Only models whose GPU is known better than by guess take part; the others' share stays unattributed.
    """

    busy: dict[Pair, float] = field(default_factory=dict)
    utilization: dict[Entity, Shares[Pair]] = field(default_factory=dict)
    _meter: BusyMeter[ModelVersion] = field(default_factory=BusyMeter)
    _samples: dict[Entity, tuple[float, Mapping[Pair, float]]] = field(default_factory=dict)
    """The last sample of each GPU: when it was, and the execution time until then."""

    def update(self, statistics: Iterable[ModelStatistics], claims: Iterable[GpuClaim]) -> None:
        """Add the execution time since the last poll, and forget models that run on no GPU any more."""
        nanoseconds = {row.key: sum(batch.infer_ns for batch in row.batches) for row in statistics}
        sure = [claim for claim in claims if claim.confidence != GUESS and claim.key in nanoseconds]
        spent = {key: self._meter.advance(key, nanoseconds[key]) for key in {claim.key for claim in sure}}
        # A model that is gone has no series; should it come back, its counters start again at 0.
        self._meter.keep_only(frozenset(spent))
        before, self.busy = self.busy, {}
        for claim in sure:
            pair = Pair(claim.key, claim.entity)
            self.busy[pair] = before.get(pair, 0.0) + spent[claim.key] * claim.weight

    def share(self, reading: GpuReading, uuids: Iterable[str]) -> None:
        """Share out what the GPUs `uuids`, whose data are new, did since their last sample."""
        fresh = frozenset(uuids)
        entities = {slot.entity for slot in reading.values if slot.entity.uuid in fresh}
        for entity in sorted(entities):
            self._share_entity(reading, entity)
        gone = self._samples.keys() - {slot.entity for slot in reading.values}
        for entity in gone:
            del self._samples[entity]
            self.utilization.pop(entity, None)

    def _share_entity(self, reading: GpuReading, entity: Entity) -> None:
        mine = {pair: seconds for pair, seconds in self.busy.items() if pair.entity == entity}
        before = self._samples.get(entity)
        self._samples[entity] = reading.at, mine
        utilization = reading.values.get(Slot(gpu.UTILIZATION, entity))
        if before is None or reading.at <= before[0] or utilization is None:
            return
        # A pair that is new since the last sample started at 0 then.
        spent = {pair: max(0.0, seconds - before[1].get(pair, 0.0)) for pair, seconds in mine.items()}
        self.utilization[entity] = share_utilization(utilization, spent, reading.at - before[0])

"""Share what a GPU did out to the models that ran on it, so that parts and remainder are the whole.

Triton's statistics give the wall time of each model's executions, once per execution. That bounds from above
what a model can have done on the GPU. Whatever the executions cannot explain stays unattributed; energy that
would have been spent idling is nobody's (as Kepler does it:
https://sustainable-computing.io/kepler/design/power_model/).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

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


@dataclass(frozen=True, slots=True)
class EnergyShares(Generic[Key]):
    """Joules by who caused them: models, idling, and what is left."""

    parts: Mapping[Key, float]
    idle: float
    rest: float


def share_energy(
    joules: float, idle_watts: float, elapsed_seconds: float, utilization: Shares[Key]
) -> EnergyShares[Key]:
    """Share energy above idle as the utilization was shared."""
    idle = min(joules, idle_watts * elapsed_seconds)
    active = joules - idle
    whole = math.fsum(utilization.parts.values()) + utilization.rest
    parts = {
        key: active * min(1.0, part / whole) if whole > 0 else 0.0 for key, part in utilization.parts.items()
    }
    return EnergyShares(parts, idle, max(0.0, active - math.fsum(parts.values())))


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

"""The headroom of every model as series for Prometheus, computed again only where something moved."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from triton_exporter.catalogue.external import headroom
from triton_exporter.family import Family
from triton_slo.advise.advice import Advice, Promise, advise
from triton_slo.advise.measured import Configuration, Measured, total
from triton_slo.advise.promises import Promises

MOVED = 0.05
"""Traffic, or the time of executions, that differs by more than this share is computed again."""
_LASTS = 3600.0
"""Seconds after which it is computed again in any case: what is measured is another hour then."""


@dataclass(frozen=True, slots=True)
class _Computed:
    at: float
    configuration: Configuration | None
    servers: frozenset[str]
    objectives: tuple[tuple[object, ...], ...]
    amounts: tuple[float, ...]
    advice: tuple[Advice, ...]


class Watch:
    """The headroom as it was last computed. `update` and `families` may be called by different threads."""

    def __init__(self, keep_seconds: float) -> None:
        self.keep_seconds = keep_seconds
        """Values older than this are not exposed."""
        self.computations = 0
        self._updated = 0.0
        self._known: dict[tuple[str, str], _Computed] = {}

    def update(self, models: Iterable[Measured], promises: Promises, now: float) -> None:
        """Take what was measured until `now` (Unix time)."""
        known = {}
        for measured in models:
            key = measured.model, measured.version
            known[key] = self._computed(measured, promises.get(key, ()), now)
        self._known, self._updated = known, now

    def families(self, now: float) -> tuple[Family, ...]:
        """Return the series."""
        known = self._known if now - self._updated <= self.keep_seconds else {}
        ratios: list[tuple[tuple[str, ...], float]] = []
        unknown: list[tuple[tuple[str, ...], float]] = []
        for advice in (each for computed in known.values() for each in computed.advice):
            key = advice.model, advice.version, advice.promise.slo
            room = advice.headroom
            least, estimate = (room.least, room.estimate) if room else (None, None)
            ratios += [
                ((*key, bound), value)
                for bound, value in (("estimate", estimate), ("least", least))
                if value is not None
            ]
            # Where executions vary much only an upper limit is known, which advice does not call unknown.
            if reason := advice.unknown or ("unseen_tail" if least is None else ""):
                unknown.append(((*key, reason), 1.0))
        return Family.of(headroom.RATIO, ratios), Family.of(headroom.UNKNOWN, unknown)

    def _computed(self, measured: Measured, promises: Sequence[Promise], now: float) -> _Computed:
        sums = total(measured.steps)
        amounts = sums.executions, sums.requests + sums.failures, sums.busy_seconds
        end = max((step.at for step in measured.steps), default=0.0)
        # The headroom is that of the servers of now: autoscaling on an older one would add ever more.
        servers = frozenset(step.server for step in measured.steps if step.at >= end - 2 * step.seconds)
        objectives = tuple(
            (
                each.slo,
                each.signal,
                each.target,
                each.threshold,
                each.good is None or each.good >= each.target,
            )
            for each in promises
        )
        last = self._known.get((measured.model, measured.version))
        if (
            last is not None
            and now - last.at < _LASTS
            and (last.configuration, last.servers) == (measured.configuration, servers)
            and last.objectives == objectives
            and all(abs(new - old) <= MOVED * old for new, old in zip(amounts, last.amounts, strict=True))
        ):
            return last
        self.computations += 1
        advice = advise(measured, promises, changes=False)
        return _Computed(now, measured.configuration, servers, objectives, amounts, advice)

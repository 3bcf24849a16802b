"""The headroom of every model as series for Prometheus, computed again only where something moved."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from triton_exporter.catalogue.external import headroom
from triton_exporter.family import Family
from triton_slo.advise.advice import Advice, advise
from triton_slo.advise.fit import present
from triton_slo.advise.measured import Measured, total

MOVED = 0.05
"""Traffic, or the time of executions, that differs by more than this share is computed again."""


@dataclass(frozen=True, slots=True)
class _Computed:
    at: float
    conditions: object
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

    def update(self, models: Iterable[Measured], now: float) -> None:
        """Take what was measured until `now` (Unix time)."""
        known = {}
        for measured in models:
            key = measured.model, measured.version
            end = max((step.at for step in measured.steps), default=0.0)
            # The headroom is that of the servers of now: autoscaling on an older one would add ever more.
            servers = {step.server for step in measured.steps if step.at >= end - 2 * step.seconds}
            objectives = [(replace(each, good=None, seconds=0), each.holds) for each in measured.promises]
            conditions = measured.configuration, servers, objectives
            sums = total(measured.steps)
            amounts = sums.executions, sums.requests + sums.failures, sums.busy_seconds
            last = self._known.get(key)
            if (
                last is None
                or now - last.at >= 3600  # what is measured is another hour then
                or any(each.unknown == "load_changed" for each in last.advice)
                or last.conditions != conditions
                or any(abs(new - old) > MOVED * old for new, old in zip(amounts, last.amounts, strict=True))
            ):
                self.computations += 1
                last = _Computed(now, conditions, amounts, advise(measured, changes=False))
            # The break rate stays; the traffic is that of now.
            now_fits = ((each, each.fit and present(each.fit, measured.steps)) for each in last.advice)
            known[key] = replace(last, advice=tuple(replace(each, fit=fit) for each, fit in now_fits))
        self._known, self._updated = known, now

    def families(self, now: float) -> tuple[Family, ...]:
        known = self._known if now - self._updated <= self.keep_seconds else {}
        ratios: list[tuple[tuple[str, ...], float]] = []
        unknown: list[tuple[tuple[str, ...], float]] = []
        for advice in (each for computed in known.values() for each in computed.advice):
            key = advice.model, advice.version, advice.promise.slo
            if room := advice.headroom:
                bounds = ("estimate", room.estimate), ("least", room.least)
                ratios += [((*key, bound), value) for bound, value in bounds if value is not None]
            unknown += [((*key, advice.unknown), 1.0)] * bool(advice.unknown)
        return Family.of(headroom.RATIO, ratios), Family.of(headroom.UNKNOWN, unknown)

"""Ask a Prometheus what a gate needs to know: how old the data is, what fires, and how two versions did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from triton_exporter.catalogue import own, state
from triton_slo import names
from triton_slo.prometheus.client import Prometheus, Sample, Series
from triton_slo.promql import Matchers
from triton_slo.verdict.canary import EventCount
from triton_slo.verdict.judgement import Firing

COMPARISON_SLICE_SECONDS = 300.0
"""Length of the slices into which a comparison is cut."""


@dataclass(frozen=True, slots=True)
class Ages:
    """Age of the last poll of Triton, in seconds: by (model, version), and over all exporters."""

    by_group: Mapping[tuple[str, str], float]
    overall: float | None

    def of(self, model: str, version: str) -> float | None:
        """Return the age of a group's data; None if unknown.

        Without a version it is the oldest of the model's versions, without a model that of all data.
        """
        if not model:
            return self.overall
        if version:
            return self.by_group.get((model, version))
        return max((age for (of_group, _), age in self.by_group.items() if of_group == model), default=None)


def ages(prometheus: Prometheus, at: float | None = None) -> Ages:
    """Return the age of the data.

    A scrape may be fresh and its content old (Triton hangs), or the other way round (the exporter is gone and
    Prometheus still shows its last answer), so the exporter's own time of its last complete poll decides; of
    several servers, that of the one polled longest ago.
    """
    polled = f"max by (job, instance) ({own.LAST_SUCCESS})"
    by_group = f"min by (model, version) (0 * {state.MODEL_READY} + on (job, instance) group_left {polled})"
    samples = prometheus.instant(by_group, at)
    oldest = prometheus.instant(f"min({own.LAST_SUCCESS})", at)
    return Ages(
        {(s.labels.get("model", ""), s.labels.get("version", "")): s.at - s.value for s in samples},
        oldest[0].at - oldest[0].value if oldest else None,
    )


def firing(prometheus: Prometheus, at: float | None = None) -> tuple[Firing, ...]:
    """Return the burn alerts that fire now, as Prometheus evaluates them."""
    matchers = f'alertstate="firing", {names.COMPONENT}="slo", {names.TIER}!=""'
    return tuple(_firing(sample) for sample in prometheus.instant(f"{names.ALERTS}{{{matchers}}}", at))


def _firing(sample: Sample) -> Firing:
    return Firing(sample.labels.get(names.SEVERITY, ""), sample.labels.get(names.TIER, ""), sample.labels)


def ready_servers(
    prometheus: Prometheus, model: str, version: str, at: float | None = None
) -> tuple[int, int]:
    """Return on how many servers a version of a model is ready now, and how many have it."""
    ready = f"{state.MODEL_READY}{Matchers().equal('model', model).equal('version', version)}"
    by_state = {
        sample.labels["ready"]: int(sample.value)
        for sample in prometheus.instant(f'count_values("ready", {ready})', at)
    }
    return by_state.get("1", 0), sum(by_state.values())


def stopped_objectives(prometheus: Prometheus, at: float | None = None) -> tuple[str, ...]:
    """Return objectives that were recorded in the last hour and are not now: their rules failed or were removed."""
    query = f"group by ({names.SLO}) (last_over_time({names.INFO}[1h]))"
    now = f"group by ({names.SLO}) ({names.INFO})"
    samples = prometheus.instant(f"{query} unless {now}", at)
    return tuple(sorted(sample.labels.get(names.SLO, "") for sample in samples))


def slices(
    prometheus: Prometheus, slo: str, group: Mapping[str, str], start: float, end: float
) -> tuple[EventCount, ...]:
    """Return recorded events of one model version (or other group), slice by slice; empty when there are none."""
    first = start + COMPARISON_SLICE_SECONDS
    bad, total = (
        _by_time(prometheus.range(_events_query(slo, group, event), first, end, COMPARISON_SLICE_SECONDS))
        for event in (names.ERROR, names.TOTAL)
    )
    return tuple(EventCount(min(bad.get(at, 0.0), events), events) for at, events in sorted(total.items()))


def _events_query(slo: str, group: Mapping[str, str], event: str) -> str:
    matchers = Matchers()
    for label, value in {**group, names.SLO: slo, names.EVENT: event}.items():
        matchers = matchers.equal(label, value)
    return f"sum (increase({names.COUNTER}{matchers}[{round(COMPARISON_SLICE_SECONDS)}s]))"


def _by_time(recorded: Sequence[Series]) -> dict[float, float]:
    return {at: value for series in recorded for at, value in zip(series.times, series.values, strict=True)}

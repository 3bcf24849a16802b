"""Asks a Prometheus what a gate needs to know: how old the data is, what fires, and how two versions did."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from triton_exporter.catalogue import own, state
from triton_slo import conventions
from triton_slo.canary import Slice
from triton_slo.gate import Firing
from triton_slo.prometheus import Prometheus, Sample, Series

_ALERTS = "ALERTS"
"""The series in which Prometheus itself keeps the state of alerts: not ours to rename."""
SLICE = "5m"
"""Nominal window whose recorded rates cut a comparison into slices."""
SLICE_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Ages:
    """How old the newest look at Triton is, in seconds: by (model, version), and over all exporters."""

    by_group: Mapping[tuple[str, str], float]
    overall: float | None

    def of(self, model: str, version: str) -> float | None:
        """The age of a group's data; that of all data for a group without a model; None if unknown."""
        return self.by_group.get((model, version)) if model else self.overall


def ages(prometheus: Prometheus, at: float | None = None) -> Ages:
    """Look how old the data is.

    A scrape may be fresh and its content old (Triton hangs), or the other way round (the exporter is gone and
    Prometheus still shows its last answer), so the exporter's own time of its last complete look decides.
    """
    looked = f"max by (job, instance) ({own.LAST_SUCCESS})"
    by_group = f"max by (model, version) (0 * {state.MODEL_READY} + on (job, instance) group_left {looked})"
    found = prometheus.instant(by_group, at)
    newest = prometheus.instant(f"max({own.LAST_SUCCESS})", at)
    return Ages(
        {(s.labels.get("model", ""), s.labels.get("version", "")): s.at - s.value for s in found},
        newest[0].at - newest[0].value if newest else None,
    )


def firing(prometheus: Prometheus, at: float | None = None) -> tuple[Firing, ...]:
    """Burn alerts that fire now, as Prometheus' own rules say."""
    matchers = f'alertstate="firing", {conventions.COMPONENT}="slo", {conventions.TIER}!=""'
    return tuple(_firing(sample) for sample in prometheus.instant(f"{_ALERTS}{{{matchers}}}", at))


def _firing(sample: Sample) -> Firing:
    keys = (conventions.SLO, "model", "version", conventions.SEVERITY, conventions.TIER)
    slo, model, version, severity, tier = (sample.labels.get(key, "") for key in keys)
    return Firing(slo, model, version, severity, tier)


def slices(
    prometheus: Prometheus, slo: str, model: str, version: str, start: float, end: float
) -> tuple[Slice, ...]:
    """Recorded events of one version of a model, slice by slice; empty when there are none."""
    matchers = ", ".join(
        f"{label}={json.dumps(value, ensure_ascii=False)}"  # PromQL reads what JSON escapes
        for label, value in ((conventions.SLO, slo), ("model", model), ("version", version))
    )
    name = conventions.sli_events(SLICE)
    found = prometheus.range(
        f"sum by ({conventions.EVENT}) ({name}{{{matchers}}})", start + SLICE_SECONDS, end, SLICE_SECONDS
    )
    by_event = {series.labels.get(conventions.EVENT, ""): _by_time(series) for series in found}
    total, bad = by_event.get(conventions.TOTAL, {}), by_event.get(conventions.ERROR, {})
    return tuple(
        Slice(min(bad.get(at, 0.0), rate) * SLICE_SECONDS, rate * SLICE_SECONDS)
        for at, rate in sorted(total.items())
    )


def _by_time(series: Series) -> dict[float, float]:
    return dict(zip(series.times, series.values, strict=True))

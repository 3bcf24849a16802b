"""Asks a Prometheus where every objective stands."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence

from triton_exporter.catalogue import EXPORTER_JOB, state
from triton_slo import conventions
from triton_slo.objective.model import DAY
from triton_slo.prometheus import Prometheus, PrometheusError, Sample
from triton_slo.rules.plan import Plan
from triton_slo.verdict import raw
from triton_slo.verdict.live import SELECTOR, UNKNOWN_TIME, Standing, standings

_UNKNOWN_STEP_SECONDS = 300


def look(prometheus: Prometheus, at: float | None = None, plans: Sequence[Plan] = ()) -> tuple[Standing, ...]:
    """Where every objective stands now (or at Unix time `at`), the most urgent first.

    Objectives in `plans` that Prometheus has not recorded are worked out from the exporter's series. Raises
    PrometheusError, also when there is nothing to look at: an empty table would read as "all well".
    """
    samples = prometheus.instant(SELECTOR, at)
    recorded = {sample.labels.get(conventions.SLO) for sample in samples}
    missing = [plan for plan in plans if plan.objective.name not in recorded]
    if not samples or missing:
        _require_exporter(prometheus, at, plans)
    samples += _unknown_times(prometheus, samples, at)
    if missing:
        moment = time.time() if at is None else at
        samples += raw.samples(prometheus, missing, moment)
        if not any(sample.labels.get("__name__") == conventions.CAUSE_SHARE for sample in samples):
            samples += raw.causes(prometheus, missing[0].options, moment)
    return standings(samples)


def _unknown_time(period_days: float) -> str:
    """PromQL for the seconds of a period in which a group was unknown, looked at every 5 minutes."""
    looks = f"count_over_time({conventions.UNKNOWN}[{round(period_days * 86400)}s:{_UNKNOWN_STEP_SECONDS}s])"
    return f"max without ({conventions.REASON}) ({looks}) * {_UNKNOWN_STEP_SECONDS}"


def _unknown_times(prometheus: Prometheus, samples: Sequence[Sample], at: float | None) -> tuple[Sample, ...]:
    """How long each recorded group was unknown, asked once for each length of period (so far)."""
    lengths: dict[str, float] = {}
    for sample in sorted(samples, key=lambda one: one.labels.get("__name__") == conventions.PERIOD_START):
        slo, name = sample.labels.get(conventions.SLO, ""), sample.labels.get("__name__")
        if name == conventions.PERIOD_DAYS:
            lengths[slo] = sample.value
        elif name == conventions.PERIOD_START:
            lengths[slo] = max(1.0, sample.at - sample.value) / DAY
    days: dict[float, set[str]] = defaultdict(set)
    for slo, length in lengths.items():
        days[length].add(slo)
    return tuple(
        Sample({**sample.labels, "__name__": UNKNOWN_TIME}, sample.value, sample.at)
        for length, slos in days.items()
        for sample in prometheus.instant(_unknown_time(length), at)
        if sample.labels.get(conventions.SLO) in slos
    )


def _require_exporter(prometheus: Prometheus, at: float | None, plans: Sequence[Plan]) -> None:
    if not prometheus.instant(f"count({state.UP})", at):
        raise PrometheusError(
            f"Prometheus has no series of the exporter: does it scrape job {EXPORTER_JOB}, "
            "and is the exporter up?"
        )
    if not plans:
        raise PrometheusError(
            "Prometheus has the exporter's series but no recorded objectives: load the rules that "
            "`tritonwatch generate` writes, or name the objectives by --objectives"
        )

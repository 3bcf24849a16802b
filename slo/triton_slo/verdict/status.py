"""Ask a Prometheus for the status of every objective."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from triton_exporter.catalogue import EXPORTER_JOB, state
from triton_exporter.common.duration import DAY
from triton_exporter.common.moments import utc_text
from triton_slo import names
from triton_slo.prometheus.client import Prometheus, PrometheusError, Sample
from triton_slo.verdict.group_status import GroupStatus
from triton_slo.verdict.recorded_status import SELECTOR, UNKNOWN_TIME, group_statuses

_UNKNOWN_STEP_SECONDS = 300


def read_status(prometheus: Prometheus, at: float | None = None) -> tuple[GroupStatus, ...]:
    """Return the status of every recorded objective now (or at Unix time `at`), the most urgent first.

    Every objective whose rules are loaded has a row; without rows no rules are loaded. Raises PrometheusError,
    also when Prometheus does not scrape the exporter.
    """
    samples = prometheus.instant_with_all(SELECTOR, at)
    if not samples:
        _require_exporter(prometheus, at)
    return group_statuses(samples + _unknown_times(prometheus, samples, at))


def _unknown_time(period_days: float) -> str:
    """Return PromQL for the seconds of a period in which a group was unknown, evaluated every 5 minutes."""
    evaluations = f"count_over_time({names.UNKNOWN}[{round(period_days * DAY)}s:{_UNKNOWN_STEP_SECONDS}s])"
    return f"max without ({names.REASON}) ({evaluations}) * {_UNKNOWN_STEP_SECONDS}"


def _unknown_times(prometheus: Prometheus, samples: Sequence[Sample], at: float | None) -> tuple[Sample, ...]:
    """Return how long each recorded group was unknown, asked once for each length of period (so far)."""
    lengths: dict[str, float] = {}
    for sample in sorted(samples, key=lambda each: each.labels.get("__name__") == names.PERIOD_START):
        slo, name = sample.labels.get(names.SLO, ""), sample.labels.get("__name__")
        if not math.isfinite(sample.value):
            continue
        if name == names.PERIOD_DAYS:
            lengths[slo] = sample.value
        elif name == names.PERIOD_START:
            lengths[slo] = max(1.0, sample.at - sample.value) / DAY
    days: dict[float, set[str]] = defaultdict(set)
    for slo, length in lengths.items():
        days[length].add(slo)
    return tuple(
        Sample({**sample.labels, "__name__": UNKNOWN_TIME}, sample.value, sample.at)
        for length, slos in days.items()
        for sample in prometheus.instant(_unknown_time(length), at)
        if sample.labels.get(names.SLO) in slos
    )


def _require_exporter(prometheus: Prometheus, at: float | None) -> None:
    if prometheus.instant(f"count({state.UP})", at):
        return
    if at is None:
        raise PrometheusError(
            f"Prometheus has no series of the exporter: does it scrape job {EXPORTER_JOB}, "
            "and is the exporter up?"
        )
    raise PrometheusError(
        f"Prometheus has no series of the exporter at {utc_text(at)}: did it scrape job {EXPORTER_JOB} then, "
        "and does it keep samples for so long (--storage.tsdb.retention.time)?"
    )

"""Asks a Prometheus where every objective stands."""

from __future__ import annotations

from triton_exporter.catalogue import EXPORTER_JOB, state
from triton_slo.live import SELECTOR, Standing, standings
from triton_slo.prometheus import Prometheus, PrometheusError


def look(prometheus: Prometheus, at: float | None = None) -> tuple[Standing, ...]:
    """Where every objective stands now (or at Unix time `at`), the most urgent first.

    Raises PrometheusError, also when there is nothing to look at: an empty table would read as "all well".
    """
    samples = prometheus.instant(SELECTOR, at)
    if not samples:
        raise PrometheusError(_nothing(prometheus, at))
    return standings(samples)


def _nothing(prometheus: Prometheus, at: float | None) -> str:
    if prometheus.instant(f"count({state.UP})", at):
        return (
            "Prometheus has the exporter's series but no recorded objectives: load the rules that "
            "`tritonwatch generate` writes"
        )
    return (
        f"Prometheus has no series of the exporter: does it scrape job {EXPORTER_JOB}, "
        "and is the exporter up?"
    )

"""Every series that is read or exposed: the one place where its name is written.

Rules, panels, runbooks, docs and tests take names from here; a metric name in a string literal
anywhere else is a bug, and a test finds it.
"""

from __future__ import annotations

from triton_exporter.catalogue import gpu, llm, models, own, probe, processes, state, triton
from triton_exporter.catalogue.metric import Kind, Metric

__all__ = [
    "EXPORTER_JOB",
    "METRICS",
    "Kind",
    "Metric",
    "gpu",
    "llm",
    "models",
    "own",
    "probe",
    "processes",
    "state",
    "triton",
]

EXPORTER_JOB = "triton-exporter"
"""The job label under which Prometheus scrapes the exporter (and through it Triton)."""

METRICS: tuple[Metric, ...] = tuple(
    value
    for module in (triton, llm, state, models, probe, processes, gpu, own)
    for value in vars(module).values()
    if isinstance(value, Metric)
)
"""Families on the exporter's page; those in `external` are not on it."""

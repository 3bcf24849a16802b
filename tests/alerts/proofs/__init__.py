"""List the promtool proofs of the alert catalogue, one module for each family."""

from __future__ import annotations

from alerts.proofs import gpu, lifecycle, llm, meta, traffic, unknown
from alerts.proofs.proof import Proof, missing
from triton_alerts.catalogue import ALERTS

WITHOUT_SERIES = frozenset({"Watchdog", "TritonExporterAbsent"})
"""Alerts that fire just because there are no series."""

PROOFS: tuple[Proof, ...] = (
    *(proof for family in (lifecycle, traffic, llm, gpu, meta, unknown) for proof in family.PROOFS),
    *(missing(alert) for alert in ALERTS if alert.name not in WITHOUT_SERIES),
)

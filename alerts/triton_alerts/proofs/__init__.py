"""The promises promtool checks, one module a family."""

from __future__ import annotations

from triton_alerts.catalogue import ALERTS
from triton_alerts.proof import Proof, missing
from triton_alerts.proofs import gpu, lifecycle, llm, meta, traffic

WITHOUT_SERIES = frozenset({"Watchdog", "TritonExporterAbsent"})
"""Alerts that fire just because there are no series."""

PROOFS: tuple[Proof, ...] = (
    *(proof for family in (lifecycle, traffic, llm, gpu, meta) for proof in family.PROOFS),
    *(missing(alert) for alert in ALERTS if alert.name not in WITHOUT_SERIES),
)

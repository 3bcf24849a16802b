"""The promises promtool checks, one module a family."""

from __future__ import annotations

from triton_alerts.proof import Proof
from triton_alerts.proofs import lifecycle, meta

PROOFS: tuple[Proof, ...] = (*lifecycle.PROOFS, *meta.PROOFS)

"""Define the labels of the server and the GPU of the proofs, and write their series."""

from __future__ import annotations

from collections.abc import Mapping

from alerts.proofs.proof import Fires
from triton_exporter.catalogue import EXPORTER_JOB

SERVER = {"instance": "gpu-1:9095", "job": EXPORTER_JOB}
MODEL = {**SERVER, "model": "ranker"}
VERSION = {**MODEL, "version": "1"}
GPU = {**SERVER, "gpu_uuid": "GPU-5a1e"}
NOBODY = Fires({})
"""An alert without labels of its own."""


def series(metric: object, labels: Mapping[str, str] = SERVER, /, **more: str) -> str:
    """Return a series as Prometheus stores it: `labels` and `more` together."""
    inner = ",".join(f'{name}="{value}"' for name, value in {**labels, **more}.items())
    return f"{metric}{{{inner}}}"


def only(labels: Mapping[str, str], *names: str) -> dict[str, str]:
    """Return these labels alone: what is left when an expression aggregates the others away."""
    return {name: labels[name] for name in names}

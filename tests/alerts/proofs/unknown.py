"""Define the proofs of what nobody can know."""

from __future__ import annotations

from alerts.proofs.proof import Fires, fires, quiet, reset
from alerts.proofs.proof_series import MODEL, only, series
from triton_exporter.catalogue import state
from triton_slo import names

_ELSEWHERE = {"instance": "gpu-2:9095"}
_GONE = "1x39 stale"
_SERVED = "1x120"
_EXPECTED = series(state.MODEL_EXPECTED, MODEL)
_BESIDE = {series(state.MODEL_EXPECTED, MODEL, **_ELSEWHERE, model="embedder"): _SERVED}
"""Another model on another server, which is there."""

PROOFS = (
    fires(
        names.UNKNOWN_ALERT,
        "fires when a model's only server is gone with its exporter",
        {_EXPECTED: _GONE} | _BESIDE,
        "26m",
        Fires(only(MODEL, "model")),
        before="19m",
    ),
    quiet(
        names.UNKNOWN_ALERT,
        "is quiet while another server reports the model",
        {_EXPECTED: _GONE, series(state.MODEL_EXPECTED, MODEL, **_ELSEWHERE): _SERVED},
        "29m",
    ),
    quiet(
        names.UNKNOWN_ALERT,
        "is quiet when the server drops the model and reports others",
        {_EXPECTED: _GONE, series(state.MODEL_EXPECTED, MODEL, model="embedder"): _SERVED},
        "29m",
    ),
    quiet(
        names.UNKNOWN_ALERT,
        "is quiet when the model was unloaded before its server went",
        {_EXPECTED: "1x29 0x9 stale"} | _BESIDE,
        "29m",
    ),
    reset(
        names.UNKNOWN_ALERT,
        "is quiet when the server is back within nine minutes",
        {_EXPECTED: "1x39 stale _x35 1x80"} | _BESIDE,
        "29m",
    ),
)

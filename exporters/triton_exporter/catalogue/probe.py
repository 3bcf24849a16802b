"""Series of the prober: small inference requests that the exporter sends where `--probe` asks for them."""

from __future__ import annotations

from triton_exporter.catalogue.metric import Metric

_MODEL = ("model", "version")
_FLAG = "--probe"

RESULTS = ("success", "timeout", "unreachable", "rejected", "failed", "not_found", "bad_input", "unproven")
"""Closed set of values of the label `result`.

`rejected`: Triton would not take the request (503: queue full, timed out in the queue, not ready); `failed`:
the model answered with an error; `not_found`: the model or version is gone; `bad_input`: the model does not
take the probe's input, which shows nothing about the model: give it a payload of its own; `unproven`: the
probe failed in another way, and its input has not worked with this model yet.
"""

INCONCLUSIVE = ("bad_input", "unproven")
"""Results that do not show whether the model works."""

REQUESTS = Metric(
    "triton_probe_requests_total",
    "counter",
    "Probes by result, one in each interval: the early repetitions of one that failed are not counted. bad_input: "
    "the model does not accept the probe's input; unproven: the probe failed with an input that has never worked "
    "with this model. Neither shows whether the model works.",
    (*_MODEL, "result"),
    "requests",
    "prober",
    flag=_FLAG,
    caveat="Probes are requests like any other: Triton counts them among its own. Subtract them where they "
    "are many.",
)
SUCCESS = Metric(
    "triton_probe_success",
    "gauge",
    "1 when the last probe of this model version succeeded, 0 when it failed; absent where a failure proves "
    "nothing: the input was refused or has never worked, or other requests to the model succeed.",
    _MODEL,
    source="prober",
    flag=_FLAG,
)
UNPROBED = Metric(
    "triton_probe_skipped",
    "gauge",
    "1 for a model version that matches --probe and cannot be probed: decoupled without a gRPC address, or "
    "stateful or of an unknown datatype without a payload.",
    (*_MODEL, "reason"),
    source="prober",
    flag=_FLAG,
)

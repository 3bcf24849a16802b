"""Series of the prober: cheap real inferences that the exporter sends when it is told to."""

from __future__ import annotations

from triton_exporter.catalogue.metric import Metric

_MODEL = ("model", "version")
_FLAG = "--probe"

RESULTS = ("success", "timeout", "unreachable", "rejected", "failed", "not_found", "bad_input", "unproven")
"""Closed set of values of the label `result`.

`rejected`: Triton would not take the request (503: queue full, timed out in the queue, not ready); `failed`:
the model answered with an error; `not_found`: the model or version is gone; `bad_input`: the model does not
take the probe's input, which says nothing about the model: give it a payload of its own; `unproven`: the
probe failed in another way, and its input has not worked with this model yet.
"""

SAYS_NOTHING = ("bad_input", "unproven")
"""Results that show nothing about the model."""

REQUESTS = Metric(
    "triton_probe_requests_total",
    "counter",
    "Probes sent, by result; bad_input means that the probe is wrong, not the model, and unproven that it failed "
    "with an input that has never worked, which may be the probe's fault.",
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
    "1 when the last probe of this model version worked, 0 when it failed; absent while that shows nothing: "
    "the input was refused or has never worked, or other requests to the model succeed.",
    _MODEL,
    source="prober",
    flag=_FLAG,
)
DURATION = Metric(
    "triton_probe_duration_seconds",
    "histogram",
    "Time of the probes that worked, as a client sees it.",
    _MODEL,
    "s",
    "prober",
    flag=_FLAG,
)
UNPROBED = Metric(
    "triton_probe_skipped",
    "gauge",
    "1 for a model version that should be probed and cannot be: decoupled without a gRPC address, or "
    "stateful or of an unknown datatype without a payload.",
    (*_MODEL, "reason"),
    source="prober",
    flag=_FLAG,
)

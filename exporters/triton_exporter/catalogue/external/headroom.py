"""Series of `tritonwatch advise --watch`: how much more traffic each objective bears."""

from __future__ import annotations

from triton_exporter.catalogue.metric import Metric

RATIO = Metric(
    "triton_model_headroom_ratio",
    "gauge",
    "Traffic at which the objective breaks, over the present traffic. `bound` is estimate or least.",
    ("model", "version", "slo", "bound"),
    caveat="Only where `tritonwatch advise` runs with `--watch`, and absent where it is not known.",
)
UNKNOWN = Metric(
    "triton_model_headroom_unknown",
    "gauge",
    "1 where the headroom, or its estimate, is not known; reasons are those of `tritonwatch advise`.",
    ("model", "version", "slo", "reason"),
    caveat="Only where `tritonwatch advise` runs with `--watch`.",
)
METRICS = (RATIO, UNKNOWN)

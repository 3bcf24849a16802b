"""Settings that leave a group without data: what is wrong, and what to change."""

from __future__ import annotations

from triton_exporter.catalogue import Metric
from triton_slo.indicators.common.measure import Scope, WrongSetting
from triton_slo.indicators.gateways.gateway_indicator import GatewayRequests
from triton_slo.promql import le_matcher

STORE_CLASSIC = (
    "set convert_classic_histograms_to_nhcb: false or always_scrape_classic_histograms: true in the scrape "
    "job, and make sure that metric_relabel_configs does not drop these series"
)
_MAKE_BUCKET = (
    "start the exporter with --buckets-from and the folder of this objective (with a gateway as source: "
    "configure a bucket with this bound), or change the threshold"
)
_TRITON_NEEDS = (
    "26.01 (2.65) or later, or 24.11 (2.52) or later for decoupled models, with "
    "--metrics-config histogram_latencies=true"
)
_VLLM_NEEDS = (
    '24.08 (2.49) or later, with the parameter REPORT_CUSTOM_METRICS "true" in config.pbtxt and '
    "disable_log_stats false in model.json"
)
WRONG_SETTINGS = {
    "no_bucket": ("its histogram has no bucket bound at the threshold", _MAKE_BUCKET),
    "no_histogram": (
        "the exporter exposes its histogram, but Prometheus does not store the _bucket and _count series",
        STORE_CLASSIC,
    ),
    "no_first_response": (
        "Triton exports no histogram of its first responses",
        f"run Triton {_TRITON_NEEDS}; or choose by `models` those that export it",
    ),
    "no_first_token": (
        "the vLLM backend exports no histogram of its first tokens",
        f"run Triton {_VLLM_NEEDS}; or choose by `models` those that export it",
    ),
}
"""Reason for not knowing -> what is wrong, and what to change."""


def no_bucket(histogram: Metric, edge: float, scope: Scope | GatewayRequests) -> WrongSetting:
    """Return the reason for groups whose threshold is between two bucket bounds."""
    bucket = scope.present(histogram.bucket, le_matcher(edge))
    expr = f"({scope.present(histogram.count)} unless {scope.on} {bucket}) == 1"
    return WrongSetting("no_bucket", expr, *WRONG_SETTINGS["no_bucket"])


def no_histogram(histogram: Metric, exported: str, scope: Scope) -> WrongSetting:
    """Return the reason for groups whose `exported` histogram Prometheus does not store as a classic one."""
    expr = f"({exported} unless {scope.on} {scope.present(histogram.count)}) == 1"
    return WrongSetting("no_histogram", expr, *WRONG_SETTINGS["no_histogram"])

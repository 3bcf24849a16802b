"""Series about the exporter itself."""

from __future__ import annotations

from triton_exporter.catalogue.metric import Metric

LAST_SUCCESS = Metric(
    "triton_exporter_last_success_timestamp_seconds",
    "gauge",
    "Unix time of the last complete look at Triton.",
    unit="s",
)
SCRAPE_DURATION = Metric(
    "triton_exporter_scrape_duration_seconds", "gauge", "Duration of the last look at Triton.", unit="s"
)
SCRAPE_FAILURES = Metric(
    "triton_exporter_scrape_failures_total",
    "counter",
    "Failed requests to Triton, by endpoint and class of reason.",
    ("endpoint", "reason"),
)
BUILD_INFO = Metric("triton_exporter_build_info", "gauge", "Version of the exporter, always 1.", ("version",))
DISCARDED_REQUESTS = Metric(
    "triton_exporter_discarded_requests_total",
    "counter",
    "Requests left out of the histograms because Triton's time counter made an impossible jump.",
    ("model", "version", "signal"),
)
TRACES_LOST = Metric(
    "triton_exporter_traces_lost_total",
    "counter",
    "Traced requests received but not observed, by reason: overflow, late, orphan, malformed.",
    ("reason",),
)
TRACE_BATCHES = Metric(
    "triton_exporter_trace_batches_total",
    "counter",
    "Batches of traces received, by result: accepted, or why they were refused and lost.",
    ("result",),
)

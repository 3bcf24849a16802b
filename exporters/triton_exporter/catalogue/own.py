"""Series about the exporter itself."""

from __future__ import annotations

from triton_exporter.catalogue.metric import Metric
from triton_exporter.catalogue.state import DOWN_REASONS

LAST_SUCCESS = Metric(
    "triton_exporter_last_success_timestamp_seconds",
    "gauge",
    "Unix time when Triton's metrics were last read successfully.",
    unit="s",
)
SCRAPE_DURATION = Metric(
    "triton_exporter_scrape_duration_seconds",
    "gauge",
    "Duration of the last request for Triton's metrics.",
    unit="s",
)
SCRAPE_FAILURES = Metric(
    "triton_exporter_scrape_failures_total",
    "counter",
    "Failed requests to Triton, by endpoint (metrics, live, ready, metadata, index, statistics, config, model_ready; "
    f"poll: an error of the exporter) and reason ({', '.join(DOWN_REASONS[1:])}); absent before the first.",
    ("endpoint", "reason"),
)
LOG_READABLE = Metric(
    "triton_exporter_log_readable", "gauge", "1 while Triton's log can be read, else 0.", flag="--triton-log"
)
LOG_LINES = Metric(
    "triton_exporter_log_lines_total", "counter", "Lines of Triton's log read.", flag="--triton-log"
)
EXPECTED_FILE_VALID = Metric(
    "triton_exporter_expected_file_valid",
    "gauge",
    "1 while the list of expected models can be read, else 0; then the last good list is used.",
    flag="--expect-file",
)
BAD_LINES = Metric(
    "triton_exporter_bad_lines_total",
    "counter",
    "Invalid lines of Triton's metrics, by kind. They are not relayed, except those of kind `corrected`, which are "
    "corrected first.",
    ("kind",),
)
CONNECTIONS_DROPPED = Metric(
    "triton_exporter_connections_dropped_total",
    "counter",
    "Connections that the exporter closed, by reason: slow_request (no complete request in time), crowded (the "
    "longest waiting one, to make room for a new one), refused (a new one, while all others were being answered).",
    ("reason",),
)
BUILD_INFO = Metric("triton_exporter_build_info", "gauge", "Version of the exporter, always 1.", ("version",))
SAMPLING_INTERVAL = Metric(
    "triton_exporter_sampling_interval_seconds",
    "gauge",
    "Time between two readings of Triton's request counters now: as short as --sampling-budget allows, or fixed.",
    unit="s",
)
STATE_STORED = Metric(
    "triton_exporter_state_stored",
    "gauge",
    "1 while the histograms are stored for the next start (--state-file); 0 if no file is named or it cannot be "
    "written: the requests around a restart of the exporter are then in no histogram.",
)
TORN_READINGS = Metric(
    "triton_exporter_torn_readings_total",
    "counter",
    "Readings in which the requests of a model version had moved without their time, or the reverse; each is "
    "joined with the next one.",
)
TRACES_LOST = Metric(
    "triton_exporter_traces_lost_total",
    "counter",
    "Traced requests received but not used, by reason: overflow, late, orphan, malformed, ahead (dated in the "
    "future), contradicts (their mean differs from that of the requests that Triton counted; another source is "
    "used).",
    ("reason",),
)
TRACE_BATCHES = Metric(
    "triton_exporter_trace_batches_total",
    "counter",
    "Batches of traces received, by result: accepted, or the reason for which the batch was refused (over_budget: "
    "traces have taken their quarter of a core).",
    ("result",),
)

"""Series that the Slack bridge exposes about itself; its alerts and dashboards read them here."""

from __future__ import annotations

from typing import Literal, get_args

from triton_exporter.catalogue.metric import Metric

BRIDGE_JOB = "triton-alert-bridge"
"""The job label under which Prometheus scrapes the bridge."""

OUTCOMES = ("opened", "changed", "repeated", "stale", "held", "heartbeat")
"""Closed set of values of the label `outcome` of RECEIVED."""

MESSAGE_KINDS = ("root", "reply", "edit", "digest", "escalation", "chart")
"""Closed set of values of the label `kind` of DELIVERED."""

ErrorKind = Literal[
    "rate_limited", "server_error", "timeout", "connection", "refused_message", "gone", "setup"
]
ERROR_KINDS: tuple[ErrorKind, ...] = get_args(ErrorKind)
"""Closed set of values of the label `error` of SEND_FAILURES; `setup` needs a person (token, channel)."""

EVIDENCE_SOURCES = (
    *("exporter", "prometheus", "cause", "changes", "gpu", "overload", "servers"),
    *("alertmanager", "chart"),
)
"""Closed set of values of the label `source` of ENRICHMENT_FAILURES: what is asked for a message's facts."""

RECEIVED = Metric(
    "triton_alert_bridge_notifications_received_total",
    "counter",
    "Alertmanager notifications stored and answered 200, by what they meant for their incident.",
    ("outcome",),
    caveat="repeated and stale are duplicates: repeat_interval, HA peers, retries after a slow answer.",
)
REJECTED = Metric(
    "triton_alert_bridge_requests_rejected_total",
    "counter",
    "Requests refused, by HTTP status; Alertmanager never retries a 4xx.",
    ("code",),
)
STORE_FAILURES = Metric(
    "triton_alert_bridge_store_failures_total",
    "counter",
    "Notifications that could not be written to disk and were answered 503, so that Alertmanager retries.",
)
DELIVERED = Metric(
    "triton_alert_bridge_messages_delivered_total", "counter", "Messages Slack accepted, by kind.", ("kind",)
)
SEND_FAILURES = Metric(
    "triton_alert_bridge_send_failures_total",
    "counter",
    "Requests to Slack that failed and will be tried again, by class of error.",
    ("error",),
)
IN_DOUBT = Metric(
    "triton_alert_bridge_in_doubt_total",
    "counter",
    "Messages whose fate was unknown (a kill, a timeout): found in Slack, or sent again.",
    ("outcome",),
)
OLDEST_UNDELIVERED_AGE = Metric(
    "triton_alert_bridge_oldest_undelivered_age_seconds",
    "gauge",
    "Age of the oldest opening, change or resolve that Slack has not accepted yet; 0 when none waits.",
    unit="s",
)
UNDELIVERED = Metric(
    "triton_alert_bridge_undelivered_incidents",
    "gauge",
    "Incidents with a message that Slack has not accepted yet.",
)
OPEN_INCIDENTS = Metric(
    "triton_alert_bridge_open_incidents", "gauge", "Incidents open now, by severity.", ("severity",)
)
HEARTBEAT = Metric(
    "triton_alert_bridge_heartbeat_timestamp_seconds",
    "gauge",
    "Unix time of the last watchdog notification (severity none); absent before the first.",
    unit="s",
)
ACTIONS = Metric(
    "triton_alert_bridge_actions_total",
    "counter",
    "Buttons pressed in Slack, by action and outcome.",
    ("action", "outcome"),
)
ENRICHMENT_FAILURES = Metric(
    "triton_alert_bridge_enrichment_failures_total",
    "counter",
    "Questions about an incident that were not answered in time; the page went out without the answer.",
    ("source",),
)
SOCKET_CONNECTED = Metric(
    "triton_alert_bridge_socket_connected",
    "gauge",
    "1 while Slack's Socket Mode is connected, so that buttons work; absent without an app token.",
)
DATABASE_SIZE = Metric(
    "triton_alert_bridge_database_size_bytes", "gauge", "Size of the database and its log.", unit="bytes"
)
BUILD_INFO = Metric(
    "triton_alert_bridge_build_info", "gauge", "Version of the bridge, always 1.", ("version",)
)

METRICS: tuple[Metric, ...] = tuple(value for value in list(vars().values()) if isinstance(value, Metric))

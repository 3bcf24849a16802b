"""Series of the other programs of the stack: names that the exporter's catalogue does not hold, because the
exporter does not expose them.
"""

from __future__ import annotations

PROMETHEUS_JOB = "prometheus"

UP = "up"
"""Prometheus, for each target: 1 when the last scrape worked."""
SAMPLES_SCRAPED = "scrape_samples_post_metric_relabeling"
"""Prometheus, for each target: samples of the last scrape that were kept."""
CONFIG_RELOADED = "prometheus_config_last_reload_successful"
"""Prometheus: 1 when the last reload of its configuration worked."""
RULE_FAILURES = "prometheus_rule_evaluation_failures_total"
"""Prometheus: rule evaluations that failed, by rule_group."""
RULE_MISSED = "prometheus_rule_group_iterations_missed_total"
"""Prometheus: evaluations of a group left out because the one before took too long."""
COMPACTIONS_FAILED = "prometheus_tsdb_compactions_failed_total"
"""Prometheus: blocks that it could not write."""
WAL_WRITES_FAILED = "prometheus_tsdb_wal_writes_failed_total"
"""Prometheus: samples that it could not write to its log."""
ALERTMANAGERS = "prometheus_notifications_alertmanagers_discovered"
"""Prometheus: how many Alertmanagers it knows."""
DROPPED = "prometheus_notifications_dropped_total"
"""Prometheus: alerts it could not hand to any Alertmanager."""
SEND_ERRORS = "prometheus_notifications_errors_total"
"""Prometheus: notifications that an Alertmanager did not take, by its address in the label `alertmanager`."""
AM_INFO = "alertmanager_build_info"
"""Alertmanager: always 1; which target is an Alertmanager, whatever its job is called."""
AM_CONFIG_RELOADED = "alertmanager_config_last_reload_successful"
"""Alertmanager: 1 when the last reload of its configuration worked."""
AM_FAILED = "alertmanager_notifications_failed_total"
"""Alertmanager: notifications that failed, by integration (and reason in newer ones)."""
AM_SENT = "alertmanager_notifications_total"
"""Alertmanager: notifications tried, by integration."""

NAMES = (
    UP,
    SAMPLES_SCRAPED,
    CONFIG_RELOADED,
    RULE_FAILURES,
    RULE_MISSED,
    COMPACTIONS_FAILED,
    WAL_WRITES_FAILED,
    ALERTMANAGERS,
    DROPPED,
    SEND_ERRORS,
    AM_INFO,
    AM_CONFIG_RELOADED,
    AM_FAILED,
    AM_SENT,
)

"""Series of the other programs of the stack: names that the exporter's catalogue does not hold, because the
exporter does not expose them.
"""

from __future__ import annotations

UP = "up"
"""Prometheus, for each target: 1 when the last scrape worked."""
RULE_FAILURES = "prometheus_rule_evaluation_failures_total"
"""Prometheus: rule evaluations that failed."""

NAMES = (UP, RULE_FAILURES)

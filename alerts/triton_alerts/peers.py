"""Series of the other programs of the stack (Prometheus, Alertmanager): names that the catalogue of the
exporter does not hold because the exporter does not expose them.
"""

from __future__ import annotations

UP = "up"
"""Prometheus, for each target: 1 when the last scrape worked."""

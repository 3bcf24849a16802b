"""Every alert that is not a burn alert, one module for each family."""

from __future__ import annotations

from triton_alerts.alert import Alert
from triton_alerts.catalogue import gpu, lifecycle, llm, meta, traffic, unknown

FAMILIES: dict[str, tuple[Alert, ...]] = {
    "lifecycle": lifecycle.ALERTS,
    "traffic": traffic.ALERTS,
    "llm": llm.ALERTS,
    "gpu": gpu.ALERTS,
    "meta": meta.ALERTS,
    "unknown": unknown.ALERTS,
}
"""Family -> its alerts, in the order in which Prometheus evaluates them."""

ALERTS: tuple[Alert, ...] = tuple(alert for alerts in FAMILIES.values() for alert in alerts)

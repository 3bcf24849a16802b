"""Every name that the rules record or put on alerts: the other half of the catalogue.

Metadata names follow Sloth's, so that its dashboards and habits carry over. `<w>` in a name is the nominal
window (5m, 1h, 30d) even when a time scale shortens the real one, so that panels and alerts keep working in
the demo.
"""

from __future__ import annotations

SLO = "slo"
"""Label: name of the objective."""
INDICATOR = "indicator"
"""Label: readiness, latency, queue, errors, ..."""
WINDOW = "slo_window"
"""Label: nominal window of a recorded ratio. Burn alerts drop it before comparing two windows."""
SEVERITY = "severity"
"""Label of every alert: critical pages, warning opens a ticket, info informs, none is the watchdog."""
TIER = "tier"
"""Label of burn alerts: page_fast, page_slow, ticket_fast, ticket_slow. Stable: inhibition relies on it."""
COMPONENT = "component"
"""Label of every alert: slo, lifecycle, traffic, llm, gpu, meta."""
OWNER = "owner"

OBJECTIVE_RATIO = "slo:objective:ratio"
ERROR_BUDGET_RATIO = "slo:error_budget:ratio"
PERIOD_DAYS = "slo:time_period:days"
CURRENT_BURN_RATE = "slo:current_burn_rate:ratio"
PERIOD_BURN_RATE = "slo:period_burn_rate:ratio"
PERIOD_BUDGET_REMAINING = "slo:period_error_budget_remaining:ratio"


def sli_error(window: str) -> str:
    """Name of the recorded error ratio over a nominal window, as in Sloth."""
    return f"slo:sli_error:ratio_rate{window}"

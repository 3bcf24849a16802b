"""One module for each kind of indicator: all that differs between kinds is a method or an attribute there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, get_args

from pydantic import Field

from triton_slo.indicators.custom import Custom
from triton_slo.indicators.errors import Errors
from triton_slo.indicators.first_response import FirstResponse
from triton_slo.indicators.indicator import Indicator
from triton_slo.indicators.latency import Latency
from triton_slo.indicators.probe import Probe
from triton_slo.indicators.queue import Queue
from triton_slo.indicators.readiness import Readiness
from triton_slo.indicators.tokens import EndToEnd, FirstToken, Goodput, InterToken
from triton_slo.names import BUDGET_ALERTS, UNKNOWN_ALERT

__all__ = [
    "ALERTS",
    "BURN_ALERTS",
    "KINDS",
    "AnyIndicator",
    "Custom",
    "Errors",
    "FirstResponse",
    "Indicator",
    "Latency",
    "Probe",
    "Queue",
    "Readiness",
    "indicator_class",
]

AnyIndicator = Annotated[
    Readiness
    | Latency
    | Queue
    | FirstResponse
    | FirstToken
    | InterToken
    | EndToEnd
    | Goodput
    | Errors
    | Probe
    | Custom,
    Field(discriminator="kind"),
]
KINDS: Mapping[str, type[Indicator]] = {
    indicator.name(): indicator for indicator in get_args(get_args(AnyIndicator)[0])
}
BURN_ALERTS: Mapping[str, str] = {kind: indicator.burn_alert for kind, indicator in KINDS.items()}
"""Kind of indicator -> name of its burn alert; the tiers share the name and differ in `tier` and `severity`."""
ALERTS = frozenset({*BURN_ALERTS.values(), UNKNOWN_ALERT, *BUDGET_ALERTS})
"""All alerts that are made of objectives."""


def indicator_class(kind: str) -> type[Indicator]:
    """Return the class of a kind that a recorded series names; the common defaults where it is not known here."""
    return KINDS.get(kind, Indicator)

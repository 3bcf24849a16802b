"""Inhibitions between the alerts of objectives: which of them is sent, and which is not."""

from __future__ import annotations

from dataclasses import dataclass

from triton_slo import names
from triton_slo.indicators import BURN_ALERTS, KINDS


@dataclass(frozen=True, slots=True)
class Inhibition:
    """While an alert that matches all of `source` fires, those that match all of `target` are not sent.

    Only where they have the same values of the labels `equal`.
    """

    why: str
    source: tuple[str, ...]
    target: tuple[str, ...]
    equal: tuple[str, ...]


_SLO = f'{names.COMPONENT}="slo"'
_GROUP = (names.SLO, *names.GROUPING)
_CAUSED = {
    cause: [kind for kind, indicator in KINDS.items() if indicator.caused_by == cause]
    for cause in {indicator.caused_by for indicator in KINDS.values()} - {""}
}
"""Kind of the indicator whose page explains others -> those others."""
INHIBITIONS: tuple[Inhibition, ...] = (
    *(
        Inhibition(
            "Of the tiers of one objective only the most urgent is sent.",
            (_SLO, f'{names.URGENCY}="{urgency}"'),
            (_SLO, f'{names.URGENCY}=~"[{urgency + 1}-{names.URGENCIES}]"'),
            _GROUP,
        )
        for urgency in range(1, names.URGENCIES)
    ),
    Inhibition(
        "A page about an objective that burns already concerns its budget.",
        (_SLO, f'{names.TIER}!=""', f'{names.SEVERITY}="critical"'),
        (f'alertname=~"{"|".join(names.BUDGET_ALERTS)}"',),
        _GROUP,
    ),
    *(
        inhibition
        for cause, members in sorted(_CAUSED.items())
        for inhibition in (
            Inhibition(
                "A model that is not ready, or whose probes fail, cannot keep its other objectives either.",
                (f'alertname="{BURN_ALERTS[cause]}"', _SLO, f'{names.SEVERITY}="critical"'),
                (_SLO, f'{names.INDICATOR}=~"{"|".join(members)}"'),
                # Readiness is of models, whatever their versions.
                ("model",),
            ),
        )
    ),
)
"""Matchers as Alertmanager writes them; nothing here knows names, thresholds or windows of tiers."""

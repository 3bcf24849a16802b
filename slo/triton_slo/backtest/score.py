"""Score of alerts: precision, recall, detection and reset time against labelled incidents.

The four attributes are those of the SRE workbook, chapter 5 (https://sre.google/workbook/alerting-on-slos/).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from triton_slo.backtest.incident import LabelledIncident
from triton_slo.backtest.replay import Episode


@dataclass(frozen=True, slots=True)
class Score:
    """Alerts against the incidents. Times in seconds; None where nothing was there to measure.

    `precision` is the share of alerts that began during an incident they are about: one that begins after
    its end is noise. `recall` is the share of incidents alerted as loudly as their label asks.
    `detection` runs from an incident's start to its first such alert, `reset` from its end until the last
    alert that began in it has ended; one that still fires where the history ends counts until there.
    """

    incidents: int
    alerts: int
    pages: int
    precision: float | None
    recall: float | None
    detection_median: float | None
    detection_worst: float | None
    reset_median: float | None
    reset_worst: float | None
    pages_per_incident: float | None
    false_pages: int


def score(episodes: Sequence[Episode], incidents: Sequence[LabelledIncident], history_end: float) -> Score:
    """Score the alerts over a history that ends at `history_end` (Unix seconds)."""
    began = [[e for e in episodes if _belongs(e, incident)] for incident in incidents]
    matched = [
        [e for e in alerts if e.severity == "page" or incident.severity == "ticket"]
        for alerts, incident in zip(began, incidents, strict=True)
    ]
    true = {id(e) for alerts in began for e in alerts}
    pages = [e for e in episodes if e.severity == "page"]
    detections = [min(e.started for e in f) - i.start for f, i in zip(matched, incidents, strict=True) if f]
    resets = [
        max(0.0, max(history_end if e.ended is None else e.ended for e in alerts) - incident.end)
        for alerts, incident in zip(began, incidents, strict=True)
        if alerts
    ]
    paged = [sum(e.severity == "page" for e in alerts) for alerts in began]
    return Score(
        incidents=len(incidents),
        alerts=len(episodes),
        pages=len(pages),
        precision=len(true) / len(episodes) if episodes else None,
        recall=sum(map(bool, matched)) / len(incidents) if incidents else None,
        detection_median=median(detections) if detections else None,
        detection_worst=max(detections, default=None),
        reset_median=median(resets) if resets else None,
        reset_worst=max(resets, default=None),
        pages_per_incident=sum(paged) / len(incidents) if incidents else None,
        false_pages=sum(id(e) not in true for e in pages),
    )


def _belongs(episode: Episode, incident: LabelledIncident) -> bool:
    return incident.covers(episode.key) and incident.start <= episode.started <= incident.end

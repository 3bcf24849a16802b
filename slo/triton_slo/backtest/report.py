"""What a replay is reported as: its alerts, and their score against incidents that a person labelled.

Precision, recall, detection and reset time are the four attributes of the SRE workbook, chapter 5
(https://sre.google/workbook/alerting-on-slos/).
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from triton_exporter.common.duration import duration_text
from triton_exporter.common.moments import parse_moment
from triton_slo.backtest.history import History
from triton_slo.backtest.replay import Episode, Replayed, Severity, data_from

INCIDENT_COLUMNS = ("start", "end", "slo", "model", "version", "severity")
"""Header of an incident file; start and end are Unix seconds or ISO 8601 (UTC where no zone is given)."""


class IncidentError(Exception):
    """An incident file that cannot be used; the message is one line with the place."""


@dataclass(frozen=True, slots=True)
class LabelledIncident:
    """A failure that should have raised a page (or a ticket) from `start` to `end`, Unix seconds.

    An empty `slo`, `model` or `version` matches any.
    """

    start: float
    end: float
    slo: str = ""
    model: str = ""
    version: str = ""
    severity: Severity = "page"

    def covers(self, key: tuple[str, str, str]) -> bool:
        """Return whether it is about this (slo, model, version); an alert about no model is about all of them."""
        pairs = zip((self.slo, self.model, self.version), key, strict=True)
        return all("" in pair or pair[0] == pair[1] for pair in pairs)


def read_incidents(text: str) -> tuple[LabelledIncident, ...]:
    """Read incidents with the header `INCIDENT_COLUMNS`. Raises IncidentError."""
    return tuple(_incident_rows(text))


def _incident_rows(text: str) -> Iterator[LabelledIncident]:
    reader = csv.reader(io.StringIO(text))
    if tuple(next(reader, ())) != INCIDENT_COLUMNS:
        raise IncidentError(f"line 1: the header must be {','.join(INCIDENT_COLUMNS)}")
    for line in reader:
        where = f"line {reader.line_num}"
        if len(line) != len(INCIDENT_COLUMNS):
            raise IncidentError(f"{where}: {len(INCIDENT_COLUMNS)} values are needed, there are {len(line)}")
        start, end = (_moment(text, where) for text in line[:2])
        severity = line[5] or "page"
        if severity not in ("page", "ticket"):
            raise IncidentError(f"{where}: severity is page or ticket, not {severity!r}")
        if not start < end:
            raise IncidentError(f"{where}: the incident ends before it starts")
        yield LabelledIncident(
            start, end, line[2], line[3], line[4], "page" if severity == "page" else "ticket"
        )


def _moment(text: str, where: str) -> float:
    try:
        return parse_moment(text)
    except ValueError as error:
        raise IncidentError(f"{where}: {error}") from None


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
    began = [
        [e for e in episodes if incident.covers(e.key) and incident.start <= e.started <= incident.end]
        for incident in incidents
    ]
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


@dataclass(frozen=True, slots=True)
class Report:
    """Alerts over a history, the oldest first, and their score against labelled incidents.

    `unknown` is the share of steps without data (0 to 1), counted from when each series first had some, and
    `data_from` the Unix time at which the data of each objective begin.
    """

    series: int
    steps: int
    step_seconds: float
    start: float
    end: float
    unknown: float
    data_from: Mapping[str, float]
    incidents: int
    episodes: tuple[Episode, ...]
    score: Score


def resolution(step_seconds: float) -> str:
    """Return what a replay with such steps does not show of rules that are evaluated more often."""
    return (
        f"steps of {duration_text(step_seconds)}: alerts are dated to the step, shorter bursts are averaged, and "
        f"an alert of less than {duration_text(2 * step_seconds)} may be missed"
    )


def backtest(
    history: History,
    objectives: Mapping[str, Replayed],
    incidents: Sequence[LabelledIncident] = (),
) -> Report:
    """Replay a history; `objectives` has every objective of it."""
    episodes: list[Episode] = []
    for slo in sorted({key[0] for key in history.keys}):
        episodes += objectives[slo].episodes(history.of_objective(slo))
    episodes.sort(key=lambda episode: (episode.started, episode.key, episode.alert))
    return Report(
        series=len(history.keys),
        steps=len(history.times),
        step_seconds=history.step,
        start=float(history.times[0] - history.step),
        end=float(history.times[-1]),
        unknown=_unknown_share(history),
        data_from={
            slo: data_from(history.of_objective(slo)) for slo in sorted({key[0] for key in history.keys})
        },
        incidents=len(incidents),
        episodes=tuple(episodes),
        score=score(episodes, incidents, float(history.times[-1])),
    )


def _unknown_share(history: History) -> float:
    known = ~np.isnan(history.total)
    steps = (known.shape[1] - known.argmax(axis=1))[known.any(axis=1)].sum()
    return float(1 - known.sum() / steps) if steps else 1.0

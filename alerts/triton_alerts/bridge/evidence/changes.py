"""Latest change of a model: loads, unloads, versions and failed reloads, read from the exporter's series."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise

from triton_alerts.bridge.evidence.alert_queries import matchers_of
from triton_alerts.bridge.evidence.enrich import Source
from triton_alerts.bridge.incidents.incident import LAST_CHANGE, Incident, SourceFacts
from triton_alerts.bridge.incidents.notification import Member
from triton_exporter.catalogue import state
from triton_exporter.common.duration import DAY, in_words
from triton_slo.prometheus.client import Prometheus, Series

RANGES = ((6 * 3600.0, 15.0), (7.0 * DAY, 900.0))
"""How far back to search, and the step (seconds); the second pair is used if the first finds no change."""
SHOWN = 3

_PASSING = frozenset({"loading", "unloading"})
_WORDS = {
    "ready": "loaded",
    "loading": "is loading",
    "unloading": "is unloading",
    "unloaded": "unloaded",
    "not_loaded": "unloaded",
    "unavailable": "failed to load",
    "missing": "is missing from Triton's index",
}
"""State -> what happened to a version that came into it; `unknown` shows nothing about the model."""

Timeline = dict[float, str]


@dataclass(frozen=True, slots=True)
class ModelChange:
    """A change of a version (empty: any) on a server, at a Unix time."""

    at: float
    version: str
    what: str
    instance: str


def source(prometheus: Prometheus, clock: Callable[[], float]) -> Source:
    """Return the source of the newest changes of the incident's model, before or after the alert."""

    def ask(incident: Incident) -> SourceFacts:
        member = incident.lead
        if not member.labels.get("model"):
            return SourceFacts()
        now = clock()
        for reach, step in RANGES:
            start = max(0.0, min(incident.since, now) - reach)
            series = prometheus.range(_states_query(member), start, now, step)
            if recent := changes(series):
                return SourceFacts(facts=((LAST_CHANGE, _worded(recent, incident.since)),))
        return SourceFacts()

    return ask


def _states_query(member: Member) -> str:
    """Return the states the model's versions are in, and its failed reloads."""
    where = matchers_of(member, "instance", "model")
    return f"{state.MODEL_STATE}{where} == 1 or {state.MODEL_RELOAD_FAILURES}{where}"


def changes(series: Iterable[Series]) -> list[ModelChange]:
    """Return every change that the series show, the newest first."""
    states: dict[str, dict[str, Timeline]] = {}
    ordered: list[ModelChange] = []
    for record in series:
        labels = record.labels
        instance = labels.get("instance", "")
        if "state" not in labels:
            ordered += _failed_reloads(instance, labels.get("reason", ""), record)
        elif labels["state"] in _WORDS:
            timeline = states.setdefault(instance, {}).setdefault(labels.get("version", ""), {})
            timeline.update((at, labels["state"]) for at in record.times)
    for instance, versions in states.items():
        seen = sorted({at for timeline in versions.values() for at in timeline})
        for version, timeline in versions.items():
            ordered += _of_version(instance, version, timeline, seen)
    return sorted(ordered, key=lambda change: (-change.at, change.version, change.instance))


def _worded(recent: list[ModelChange], since: float) -> str:
    """Return the newest changes, a line each; what happened to several servers alike is one line."""
    lines: dict[tuple[str, str], list[ModelChange]] = {}
    for change in recent:
        lines.setdefault((change.version, change.what), []).append(change)
    return "\n".join(_change_text(alike, since) for alike in list(lines.values())[:SHOWN])


def _change_text(alike: list[ModelChange], since: float) -> str:
    last = alike[0]
    name = f"version {last.version} {last.what}" if last.version else last.what
    servers = len({change.instance for change in alike})
    where = f" on {servers} servers" if servers > 1 else ""
    # A duration, not a time: other times in the message are in the reader's time zone, which only Slack knows.
    order = "before" if last.at <= since else "after"
    return f"{name}{where} {in_words(abs(since - last.at))} {order} the first alert"


def _failed_reloads(instance: str, reason: str, reloads: Series) -> list[ModelChange]:
    return [
        ModelChange(at, "", f"a reload failed ({reason})", instance)
        for (_, before), (at, after) in pairwise(zip(reloads.times, reloads.values, strict=True))
        if after > before
    ]


def _of_version(instance: str, version: str, timeline: Timeline, seen: list[float]) -> list[ModelChange]:
    changed = []
    times = sorted(timeline)
    if seen[0] < times[0]:
        changed.append(ModelChange(times[0], version, f"first seen, {timeline[times[0]]}", instance))
    for before, at in pairwise(times):
        settled = timeline[at] not in _PASSING or at == times[-1]
        if timeline[at] != timeline[before] and settled:
            changed.append(ModelChange(at, version, _WORDS[timeline[at]], instance))
    # Other versions are still listed: if none were, the exporter itself may have failed.
    if later := [at for at in seen if at > times[-1]]:
        changed.append(ModelChange(later[0], version, "no longer listed by Triton", instance))
    return changed

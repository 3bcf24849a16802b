"""Matchers of a silence: the alerts of one incident, and no others on the same server or of the same model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product

from pydantic import BaseModel

from triton_exporter.family import escape
from triton_slo.names import SEVERITY, SLO
from triton_slo.promql import regex_of

Labels = Mapping[str, str]

MAX_SILENCES = 8
"""Silences of one incident; more are needed only if rules of other projects have many sets of labels."""


class Matcher(BaseModel, frozen=True):
    """One label and the values that it may have; the empty value is that of a label that is not there."""

    name: str
    values: frozenset[str]

    @property
    def is_regex(self) -> bool:
        return len(self.values) > 1

    @property
    def value(self) -> str:
        """The value, or an alternation of several: Alertmanager anchors it at both ends."""
        return regex_of(sorted(self.values)) if self.is_regex else next(iter(self.values))

    def wire(self) -> dict[str, str | bool]:
        """Return the matcher as Alertmanager's API has it."""
        return {"name": self.name, "value": self.value, "isRegex": self.is_regex, "isEqual": True}

    def matches(self, labels: Labels) -> bool:
        return labels.get(self.name, "") in self.values

    def __str__(self) -> str:
        return f'{self.name}{"=~" if self.is_regex else "="}"{escape(self.value)}"'


def sets_of_alerts(group_by: Sequence[str], alerts: Sequence[Labels]) -> list[tuple[Matcher, ...]]:
    """Return sets of matchers, one for each silence, that together match these alerts and no others."""
    sets: list[tuple[Matcher, ...]] = []
    left = list(alerts)
    while left and len(sets) < MAX_SILENCES:
        sets.append(of_alerts(group_by, left))
        left = [labels for labels in left if not all(matcher.matches(labels) for matcher in sets[-1])]
    return sets


def worded(sets: Sequence[Sequence[Matcher]]) -> str:
    """Return what several silences match, in words."""
    return "; ".join(", ".join(map(str, matchers)) for matchers in sets)


def of_alerts(group_by: Sequence[str], alerts: Sequence[Labels]) -> tuple[Matcher, ...]:
    """Return matchers of the groups, names, severities, subjects and servers of alerts; they match the first alert.

    Each matcher applies on its own: `alertname=~"A|B", version=~"1|2"` would also match B of version 1. An alert is
    left out if the matchers would then match a combination that is not among the alerts.
    """
    subjects = [name for labels in alerts for name in subject_names(labels)]
    names = tuple(dict.fromkeys((*group_by, "cluster", "alertname", SEVERITY, SLO, *subjects, "instance")))
    return tuple(
        Matcher(name=name, values=values)
        for name, values in zip(names, _together(names, alerts), strict=True)
        if values != {""}
    )


def _together(names: Sequence[str], alerts: Sequence[Labels]) -> list[frozenset[str]]:
    """Return values of each label such that every combination of them is one of the alerts."""
    combinations = dict.fromkeys(tuple(labels.get(name, "") for name in names) for labels in alerts)
    chosen: list[set[str]] = [set() for _ in names]
    for combination in combinations:
        added = [at for at, value in enumerate(combination) if value not in chosen[at]]
        for at in added:
            chosen[at].add(combination[at])
        # More combinations than alerts cannot all be alerts; only those with a new value are still to be checked.
        if math.prod(map(len, chosen)) > len(combinations) or not all(
            together in combinations
            for at in added
            for together in product(*chosen[:at], {combination[at]}, *chosen[at + 1 :])
        ):
            for at in added:
                chosen[at].remove(combination[at])
    return [frozenset(values or {""}) for values in chosen]


def subject_names(labels: Labels) -> tuple[str, ...]:
    """Return the labels that name an alert's subject: model and version, else a GPU and its place, or a server."""
    names = (
        ("model", "version") if labels.get("model") else ("gpu", "gpu_uuid", "Hostname", "instance", "job")
    )
    return tuple(name for name in names if labels.get(name))

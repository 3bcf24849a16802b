"""Which alerts a silence matches: those of one incident, and no others on the same server or of the same model."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from pydantic import BaseModel, ConfigDict

from triton_slo.conventions import SEVERITY, SLO

Labels = Mapping[str, str]


class Matcher(BaseModel):
    """One label and the values that it may have; the empty value is that of a label that is not there."""

    model_config = ConfigDict(frozen=True)

    name: str
    values: tuple[str, ...]

    @property
    def is_regex(self) -> bool:
        return len(self.values) > 1

    @property
    def value(self) -> str:
        """The value, or an alternation of several: Alertmanager anchors it at both ends."""
        return "|".join(map(re.escape, self.values)) if self.is_regex else self.values[0]

    def matches(self, labels: Labels) -> bool:
        return labels.get(self.name, "") in self.values

    def __str__(self) -> str:
        escaped = self.value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'{self.name}{"=~" if self.is_regex else "="}"{escaped}"'


def of_alerts(group: Labels, alerts: Sequence[Labels]) -> tuple[Matcher, ...]:
    """Match the alerts' names, severities, subjects and servers within their group."""
    subjects = [name for labels in alerts for name in subject_names(labels)]
    names = ["alertname", SEVERITY, SLO, *subjects, "instance"]
    found = {name: Matcher(name=name, values=(value,)) for name, value in sorted(group.items()) if value}
    for name in names:
        values = tuple(sorted({labels.get(name, "") for labels in alerts}))
        if values != ("",):
            found.setdefault(name, Matcher(name=name, values=values))
    return tuple(found.values())


def subject_names(labels: Labels) -> tuple[str, ...]:
    """The labels that say what an alert is about: model and version, else a GPU and where it is, or a server."""
    names = (
        ("model", "version") if labels.get("model") else ("gpu", "gpu_uuid", "Hostname", "instance", "job")
    )
    return tuple(name for name in names if labels.get(name))

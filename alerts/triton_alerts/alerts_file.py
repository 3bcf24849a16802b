"""alerts.yaml: how an installation changes the alerts of the catalogue, each mistake with its file and line.

First the file, then the settings of one alert: those that this alert, or any alert, cannot have.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, MutableMapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from typing import Any

import yaml
from pydantic import ValidationError

from triton_alerts.catalogue import ALERTS
from triton_exporter.common.problem import Problem, nearest
from triton_slo import problem_words
from triton_slo.alert_settings import OF_OBJECTIVES, AlertSetting, Setting, Tunable, Tuning
from triton_slo.indicators import BURN_ALERTS
from triton_slo.yaml_text import content, documents, line_of

_TUNABLE: dict[str, Tunable] = {alert.name: alert for alert in (*ALERTS, *OF_OBJECTIVES)}
_FORM = "write a mapping such as {alerts: {TritonQueueNearFull: {threshold: 90%}}}"


@dataclass(frozen=True, slots=True)
class AlertsFile:
    """The settings in the file, and its mistakes."""

    tuning: Tuning = field(default_factory=Tuning)
    problems: tuple[Problem, ...] = ()
    file: str = ""
    node: yaml.Node = field(default_factory=lambda: yaml.ScalarNode("", ""))

    def findings(self, models: Collection[str] | None) -> Iterator[Problem]:
        """Yield the overrides that can match no model; `models` are those of Prometheus, None if unknown."""
        for name, setting in self.tuning.alerts.items():
            taken: set[str] = set()
            for index, override in enumerate(setting.overrides):
                where = self._at("alerts", name, "overrides", index, "models")
                names = set(override.models.names or ())
                if (names and names <= taken) or any(
                    earlier.models.everything for earlier in setting.overrides[:index]
                ):
                    yield Problem(
                        where,
                        f"{name}: earlier overrides already choose all of {override.models}",
                        "remove it",
                    )
                elif models is not None and not any(override.models.includes(model) for model in models):
                    fix = next(
                        filter(None, (problem_words.nearest_as_fix(wanted, models) for wanted in names)), ""
                    )
                    yield Problem(
                        where, f"{name}: {override.models} matches no model that Prometheus knows", fix
                    )
                taken |= names

    def notes(self) -> Iterator[Problem]:
        """Yield the settings that are allowed but may be mistakes: pages that no longer reach anybody."""
        for name in self.tuning.alerts:
            alert = _TUNABLE[name]
            for part in self.tuning.parts(name):
                of = f" for models {part.models}" if part.models else ""
                silent = part.setting.enabled is False
                if name == WATCHDOG and silent:
                    reason = "is disabled: nothing shows any more that notifications are delivered"
                elif alert.severity == "critical" and silent:
                    reason = f"pages by default and is disabled{of}"
                elif alert.severity == "critical" and part.setting.severity == "info":
                    reason = f"pages by default and reaches nobody with the severity info{of}"
                else:
                    continue
                yield Problem(self._at("alerts", name), f"{name} {reason}")

    def _at(self, *steps: str | int) -> str:
        return f"{self.file}:{line_of(self.node, steps)}"


def is_alerts_file(text: str) -> bool:
    """Return whether a file contains alert settings: its only key is `alerts`, or nearly that."""
    keys = [
        [str(key.value).lower() for key, _ in node.value]
        for node in documents("", text)
        if isinstance(node, yaml.MappingNode)
    ]
    return any(len(path) == 1 and get_close_matches(path[0], ["alerts"], 1, 0.8) for path in keys)


def read(file: str, text: str) -> AlertsFile:
    """Parse a file and check it against the catalogue; finds all mistakes."""
    nodes = list(documents(file, text))
    if not nodes:
        return AlertsFile(file=file)
    node, *more = nodes
    if isinstance(node, Problem):
        return AlertsFile(problems=(node,), file=file)
    data, problems = content(file, node)
    if more:
        problems.append(Problem(file, "contains several documents", "put all alerts into one"))
    place = f"{file}:{node.start_mark.line + 1}"
    given_alerts = data["alerts"] if isinstance(data, dict) and set(data) == {"alerts"} else ()
    given_alerts = {} if given_alerts is None else given_alerts
    if not problems and not isinstance(given_alerts, dict):
        problems.append(Problem(place, "is not a file of alert settings", _FORM))
    if problems or not isinstance(given_alerts, dict):
        return AlertsFile(problems=tuple(problems), file=file)
    alerts: dict[str, AlertSetting] = {}
    for name, given in given_alerts.items():
        problem = partial(_problem, file, node, str(name))
        if name not in _TUNABLE:
            problems.append(problem((), *_unknown_name(str(name))))
            continue
        outcome = _checked_setting(_TUNABLE[name], given)
        if isinstance(outcome, AlertSetting):
            alerts[name] = outcome
        else:
            problems += [problem(*mistaken) for mistaken in outcome]
    problems.sort(key=lambda problem: int(problem.place.rpartition(":")[2]))
    return AlertsFile(Tuning(alerts), tuple(problems), file, node)


def _problem(
    file: str, node: yaml.Node, name: str, path: tuple[str | int, ...], reason: str, fix: str = ""
) -> Problem:
    line = line_of(node, ("alerts", name, *path))
    reason, fix = problem_words.with_fix(reason, fix)
    return Problem(f"{file}:{line}", f"{'.'.join(map(str, (name, *path)))}: {reason}", fix)


def _unknown_name(name: str) -> tuple[str, str]:
    if name in BURN_ALERTS.values():
        return "each objective has tiers of its own", "tune it in the objectives file, under `alerting`"
    near = nearest(name, _TUNABLE)
    return (
        "no alert has this name",
        f"did you mean {' or '.join(near)}?" if near else "docs/alerts.md lists all",
    )


WATCHDOG = "Watchdog"
_FIXES = {
    "extra_forbidden": f"use {AlertSetting.field_words()}",
    "missing": "add it",
    "model_type": "write a mapping such as {threshold: 90%, for: 10m}",
    "literal_error": "use critical, warning or info",
    "bool_parsing": "write `enabled: false`, or leave it out",
    "tuple_type": "write a list of {models: [...], threshold: ...}",
}

_Content = MutableMapping[str, Any]
_FieldMistake = tuple[tuple[str | int, ...], str, str]
"""Path of a field within an alert, what is wrong with it, fix."""


def _checked_setting(alert: Tunable, given: Any) -> AlertSetting | list[_FieldMistake]:
    """Return the settings of one alert, or all mistakes in them."""
    content, mistakes = _checked(alert, given) if isinstance(given, dict) else (given, [])
    try:
        setting = AlertSetting.model_validate(content)
    except ValidationError as error:
        for detail in problem_words.without_consequences(error.errors()):
            path = tuple(step for step in detail["loc"] if step != "[key]")
            mistakes.append((path, problem_words.reason(detail), _FIXES.get(detail["type"], "")))
        return mistakes
    return mistakes or setting


def _checked(alert: Tunable, given: _Content) -> tuple[_Content, list[_FieldMistake]]:
    """Return the settings with thresholds as numbers, and the mistakes for this alert."""
    content, mistakes = _checked_fields(alert, given, ())
    if alert.name == WATCHDOG and set(given) - {"enabled"}:
        mistakes.append(((), "always fires, and its route relies on that", "change nothing but `enabled`"))
    overrides = given.get("overrides")
    if overrides is not None and "model" not in alert.labels:
        of = ", ".join(alert.labels) or "the whole stack"
        mistakes.append((("overrides",), f"the alert is not about one model but about {of}", "remove them"))
    if isinstance(overrides, list):
        content["overrides"] = list(overrides)
        for index, override in enumerate(overrides):
            if not isinstance(override, dict):
                continue
            path = ("overrides", index)
            if set(override) <= {"models"}:
                fix = f"add {Setting.field_words()}"
                mistakes.append((path, "changes nothing", fix))
            content["overrides"][index], more = _checked_fields(alert, override, path)
            mistakes += more
    return content, mistakes


def _checked_fields(
    alert: Tunable, given: _Content, path: tuple[str | int, ...]
) -> tuple[_Content, list[_FieldMistake]]:
    """Return an alert's fields, or those of an override, with the threshold as a number, and their mistakes."""
    content, mistakes = dict(given), list[_FieldMistake]()
    if "threshold" not in given:
        return content, mistakes
    written, place = content.pop("threshold"), (*path, "threshold")
    if alert.threshold is None:
        fix = "docs/alerts.md lists those that do"
        mistakes.append((place, "this alert compares with no threshold", fix))
        return content, mistakes
    try:
        content["threshold"] = alert.threshold.read(written)
    except ValueError as error:
        fix = f"give the {alert.threshold.of}, such as {alert.threshold.words}"
        mistakes.append((place, str(error), fix))
    return content, mistakes

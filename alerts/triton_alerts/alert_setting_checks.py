"""Check the settings of one alert in alerts.yaml: those that this alert, or any alert, cannot have."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from pydantic import ValidationError

from triton_slo import problem_words
from triton_slo.alert_settings.tunable import Tunable
from triton_slo.alert_settings.tuning import AlertSetting, Setting

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
FieldMistake = tuple[tuple[str | int, ...], str, str]
"""Path of a field within an alert, what is wrong with it, fix."""


def checked_setting(alert: Tunable, given: Any) -> AlertSetting | list[FieldMistake]:
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


def _checked(alert: Tunable, given: _Content) -> tuple[_Content, list[FieldMistake]]:
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
) -> tuple[_Content, list[FieldMistake]]:
    """Return an alert's fields, or those of an override, with the threshold as a number, and their mistakes."""
    content, mistakes = dict(given), list[FieldMistake]()
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

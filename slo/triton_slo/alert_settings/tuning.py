"""Settings by which an installation changes alerts of the catalogue: by alert, and by models within an alert.

`alerts_file` has checked the values against the catalogue; a threshold is a number in the alert's own unit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from triton_slo.fields import Choice, Selection, Value, valid_duration


def _duration_or_empty(value: Any) -> str:
    return "" if value in ("0s", "0m") else valid_duration(value)


class Setting(Value):
    """Settings of an alert; None keeps the alert's own value."""

    enabled: bool | None = None
    threshold: float | None = None
    for_: Annotated[str, BeforeValidator(_duration_or_empty)] | None = Field(None, alias="for")
    keep_firing_for: Annotated[str, BeforeValidator(_duration_or_empty)] | None = None
    severity: Literal["critical", "warning", "info"] | None = None

    @classmethod
    def field_words(cls) -> str:
        """Return the names of the fields in a file: `enabled, threshold, ... or severity`."""
        *names, last = (field.alias or name for name, field in cls.model_fields.items())
        return f"{', '.join(names)} or {last}"

    def over(self, general: Setting) -> Setting:
        """Return this setting, completed by the general one."""
        return general.model_copy(
            update=self.model_dump(include=set(Setting.model_fields), exclude_none=True)
        )


class ModelOverride(Setting):
    """Other values for some models."""

    models: Selection


class AlertSetting(Setting):
    """The settings of one alert. Of the overrides, the first that chooses a model is in force for it."""

    overrides: tuple[ModelOverride, ...] = ()


_NOTHING = AlertSetting.model_validate({})


@dataclass(frozen=True, slots=True)
class TunedPart:
    """One setting and the models it is for: those that `models` chooses (None: all) and none of `not_models`."""

    setting: Setting
    models: Choice | None = None
    not_models: tuple[Choice, ...] = ()


@dataclass(frozen=True, slots=True)
class Tuning:
    """The settings by alert; without any, every alert is as the catalogue has it."""

    alerts: Mapping[str, AlertSetting] = field(default_factory=dict, hash=False)

    def parts(self, alert: str) -> Iterator[TunedPart]:
        """Yield disjoint parts of an alert that are all models together, the general one last."""
        general = self.alerts.get(alert, _NOTHING)
        earlier: tuple[Choice, ...] = ()
        for override in general.overrides:
            yield TunedPart(override.over(general), override.models, earlier)
            earlier = (*earlier, override.models)
        yield TunedPart(general, not_models=earlier)

    def without_overrides(self, alert: str) -> Tuning:
        """Return the general setting of one alert alone: its overrides and all other alerts are left out."""
        return Tuning({alert: self.alerts.get(alert, _NOTHING).model_copy(update={"overrides": ()})})

    def of_model(self, alert: str, model: str) -> Setting:
        """Return the setting in force for one model; without a name, the general one."""
        *parts, general = self.parts(alert)
        chosen = (
            exception
            for exception in parts
            if model and exception.models and exception.models.includes(model)
        )
        return next(chosen, general).setting

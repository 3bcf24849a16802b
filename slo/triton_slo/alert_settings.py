"""What an installation can change of an alert: its settings, the number that it compares with, and the result.

`alerts_file` has checked the values against the catalogue; a threshold is a number in the alert's own unit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field

from triton_exporter.common.duration import DAY, duration_text, parse_seconds, time_text
from triton_slo import names, problem_words
from triton_slo.fields import Choice, Selection, Value, read_ratio, valid_duration
from triton_slo.promql import Matchers, number


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


@dataclass(frozen=True, slots=True)
class AlertThreshold:
    """The number that an alert compares with.

    A `share` is a part of 1. `seconds` are a time that requests take; an `age` is one that a time scale shortens
    as it does windows.
    """

    value: float
    unit: Literal["share", "seconds", "age", "number"]
    of: str
    """Name of the quantity that is compared with `value`."""
    why: str
    """Reason why the default is this number."""
    below: bool = False
    """The alert fires below it, not above it."""
    least: float = 0.0
    """A number must be above this."""

    @property
    def promql(self) -> str:
        """The number in PromQL; an age as a duration."""
        return duration_text(self.value) if self.unit == "age" else number(self.value)

    @property
    def words(self) -> str:
        """The number with its unit."""
        match self.unit:
            case "share":
                return f"{round(100 * self.value, 9):g}%"
            case "seconds" | "age":
                return time_text(self.value)
        return number(self.value)

    @property
    def condition(self) -> str:
        """Condition on which the alert fires: `above 90%`."""
        return f"{'below' if self.below else 'above'} {self.words}"

    def read(self, value: object) -> float:
        """Return the number that a user writes in place of this one. Raises ValueError, which names the unit."""
        match self.unit:
            case "share":
                share = read_ratio(value)
                if not 0 < share < 1:
                    raise ValueError(f"a share is above 0% and below 100%; write for example {self.words}")
                return share
            case "number":
                if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                    raise ValueError(
                        f"must be a number such as {self.words}, and is {problem_words.as_written(value)}"
                    )
                if value <= self.least:
                    raise ValueError(f"must be above {self.least:g}, and is {value:g}")
                return float(value)
        return parse_seconds(valid_duration(value))

    def tuned(self, setting: Setting) -> AlertThreshold:
        """Return this threshold with the value of a setting, if it has one."""
        return self if setting.threshold is None else replace(self, value=setting.threshold)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tunable:
    """The properties of an alert that alerts.yaml can change."""

    name: str
    severity: names.Severity
    labels: tuple[str, ...]
    """The labels that identify an alert of this name."""
    for_: str = ""
    """Nominal `for`: how long the condition must last."""
    keep_firing_for: str = ""
    """Nominal `keep_firing_for`: how long the alert outlives the condition, against flaps and scrape gaps."""
    threshold: AlertThreshold | None = None
    models: Matchers = Matchers()  # noqa: RUF009 # frozen
    """Matchers of the models that the alert is for; none: all models."""

    def tuned(self, tuning: Tuning) -> Iterator[Self]:
        """Yield the alert as it is in force: once for each group of models with settings of their own."""
        for part in tuning.parts(self.name):
            if part.setting.enabled is False:
                continue
            models = Matchers()
            if part.models is not None:
                models = models.choosing("model", part.models)
            for earlier in part.not_models:
                models = models.outside("model", earlier)
            yield replace(self._with(part.setting), models=models)

    def _with(self, setting: Setting) -> Self:
        return replace(
            self,
            threshold=self.threshold and self.threshold.tuned(setting),
            **setting.model_dump(
                include=set(Setting.model_fields) - {"enabled", "threshold"}, exclude_none=True
            ),
        )


UNMEASURED = Tunable(
    name=names.UNMEASURED_ALERT,
    severity="warning",
    labels=names.GROUPING,
    # A restart of the exporter ends a wrong setting within a minute.
    for_="10m",
)
NEARLY_SPENT = Tunable(
    name=names.NEARLY_SPENT_ALERT,
    severity="warning",
    labels=names.GROUPING,
    for_="1h",
    keep_firing_for="6h",
    threshold=AlertThreshold(
        3.0 * DAY,
        "age",
        "how long the rest of an error budget lasts at its recent pace",
        "Three days are a weekend and a working day on which somebody can still stop what spends the budget.",
        below=True,
    ),
)
SPENT = Tunable(
    name=names.SPENT_ALERT,
    severity="warning",
    labels=names.GROUPING,
    # A burn alert that needs hours of evidence comes before a ticket about a spent budget.
    for_="6h",
    keep_firing_for="6h",
)
OF_OBJECTIVES = (UNMEASURED, NEARLY_SPENT, SPENT)

"""The number with which an alert compares, its unit and the reason for its default."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from triton_exporter.common.duration import duration_text, parse_seconds, time_text
from triton_slo import problem_words
from triton_slo.alert_settings.tuning import Setting
from triton_slo.fields import read_ratio, valid_duration
from triton_slo.promql import number


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

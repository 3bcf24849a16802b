"""Windows of objectives, over which a budget lasts: rolling, or a period of the calendar."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, Discriminator, Tag, model_validator

from triton_exporter.common.duration import DAY, parse_seconds
from triton_slo.fields import Duration, Value
from triton_slo.objective.exclusion import TimeZone

Calendar = Literal["week", "month", "quarter"]


class Rolling(Value):
    """The last so many days, at every moment."""

    rolling: Duration

    @property
    def seconds(self) -> float:
        """Length of the window."""
        return parse_seconds(self.rolling)

    @property
    def nominal(self) -> str:
        """Name of the window in recorded series."""
        return f"{round(self.seconds / DAY)}d"

    @property
    def words(self) -> str:
        """The window as people read it."""
        return self.nominal

    @property
    def in_sentence(self) -> str:
        """The window after a preposition: `for 30d`."""
        return self.nominal

    @property
    def history_seconds(self) -> float:
        """Age of the oldest samples that the rules read."""
        return self.seconds

    def real_seconds(self, time_scale: float) -> float:
        """Return the length of the window when a time scale multiplies it."""
        return self.seconds * time_scale

    @model_validator(mode="after")
    def _whole_days(self) -> Self:
        if self.seconds % DAY or not 7 * DAY <= self.seconds <= 90 * DAY:
            raise ValueError(
                "a rolling window has 7 to 90 whole days, such as 30d; else write week, month or quarter"
            )
        return self


class CalendarWindow(Value):
    """A calendar week (from Monday), month or quarter in a time zone; the budget starts again with each."""

    calendar: Calendar
    timezone: TimeZone = "UTC"

    @property
    def seconds(self) -> float:
        """Nominal length (7, 30 or 90 days), which burn factors are worked out from."""
        return {"week": 7, "month": 30, "quarter": 90}[self.calendar] * DAY

    @property
    def nominal(self) -> str:
        """Name of the window in recorded series."""
        return self.calendar

    @property
    def words(self) -> str:
        """The window as people read it."""
        return f"{self.calendar}, {self.timezone}"

    @property
    def in_sentence(self) -> str:
        """The window after a preposition: `for the month`."""
        return f"the {self.calendar}"

    @property
    def history_seconds(self) -> float:
        """Age of the oldest samples that the rules read; a period's events are added up from hour to hour."""
        return 3 * DAY

    def real_seconds(self, time_scale: float) -> float:
        """Return the length of the longest such period, to the day; a time scale does not change a calendar."""
        return {"week": 7, "month": 31, "quarter": 92}[self.calendar] * DAY


def calendar_window(words: str) -> CalendarWindow | None:
    """Return the calendar window that has these words (`month, Europe/Berlin`), if they are of one."""
    calendar, _, timezone = words.partition(", ")
    try:
        return CalendarWindow.model_validate({"calendar": calendar, "timezone": timezone or "UTC"})
    except ValueError:
        return None


def _in_full(value: Any) -> Any:
    if isinstance(value, str):
        return {"calendar": value} if value in ("week", "month", "quarter") else {"rolling": value}
    if isinstance(value, dict):
        if "calendar" not in value and "rolling" not in value:
            raise ValueError("has neither a length (rolling) nor a period (calendar)")
        if "calendar" in value and "rolling" in value:
            raise ValueError("a window is rolling or of the calendar, not both")
        if "rolling" in value and "timezone" in value:
            raise ValueError("a rolling window has no time zone: it ends now, everywhere")
    return value


def _window_form(value: Any) -> str:
    keys = value if isinstance(value, dict) else vars(value) if isinstance(value, BaseModel) else ()
    return "calendar" if "calendar" in keys else "rolling"


PeriodWindow = Annotated[
    Annotated[CalendarWindow, Tag("calendar")] | Annotated[Rolling, Tag("rolling")],
    Discriminator(_window_form),
    BeforeValidator(_in_full, json_schema_input_type=str | CalendarWindow | Rolling),
]

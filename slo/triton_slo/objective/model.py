"""Objectives and their windows: one is valid once it exists.

The YAML form and the value are one frozen pydantic model; parsing once at the edge is `reading`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, Discriminator, Field, Tag, model_validator

from triton_exporter.common.duration import DAY, parse_seconds
from triton_exporter.common.moments import time_zone
from triton_slo import names
from triton_slo.fields import (
    Choice,
    Duration,
    LabelName,
    Ratio,
    Selection,
    Target,
    Text,
    Threshold,
    Value,
    refuse,
)
from triton_slo.indicators import KINDS, AnyIndicator
from triton_slo.objective.exclusion import Exclusion

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
    timezone: Annotated[str, AfterValidator(lambda zone: str(time_zone(zone)))] = "UTC"

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


@dataclass(frozen=True, slots=True)
class Period:
    """A calendar period: Unix seconds of its first moment, and of the first moment after it."""

    start: float
    end: float


def period_at(window: CalendarWindow, at: float) -> Period:
    """Return the period that contains Unix time `at`."""
    now = datetime.fromtimestamp(at, time_zone(window.timezone))
    # Where clocks are set back at midnight, there are two midnights: the period begins at the first.
    first = now.replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
    match window.calendar:
        case "week":
            first -= timedelta(days=now.weekday())
            following = first + timedelta(days=7)
        case "month":
            first = first.replace(day=1)
            following = _months_later(first, 1)
        case "quarter":
            first = first.replace(month=(now.month - 1) // 3 * 3 + 1, day=1)
            following = _months_later(first, 3)
    # Subtracting two times of one zone ignores changes of its offset in between; Unix time does not.
    return Period(first.timestamp(), following.timestamp())


def _months_later(first: datetime, months: int) -> datetime:
    month = first.month - 1 + months
    return first.replace(year=first.year + month // 12, month=month % 12 + 1)


SUSTAINABLE = 1.0
"""The burn rate that uses up a budget exactly by the end of its period."""


class Override(Value):
    """Another target or threshold for some models; where two overrides match, the first applies."""

    models: Selection = Choice()
    versions: Selection = Choice()
    target: Target | None = None
    threshold: Threshold | None = None

    @model_validator(mode="after")
    def _changes_something(self) -> Self:
        if self.target is None and self.threshold is None:
            raise ValueError("an override needs a target or a threshold")
        if self.models.everything and self.versions.everything:
            raise ValueError("an override of everything is the objective itself; name models or versions")
        return self

    @property
    def threshold_seconds(self) -> float | None:
        """The threshold in seconds, or None where it is the objective's."""
        return None if self.threshold is None else parse_seconds(self.threshold)


class Tier(Value):
    """One pair of windows: alert when budget burns `factor` times too fast over both of them."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,40}$")]
    severity: names.Severity
    long: Duration
    short: Duration
    budget: Ratio | None = None
    burn: Annotated[float, Field(gt=0, le=1_000_000)] | None = None

    @model_validator(mode="after")
    def _refuse_mistakes(self) -> Self:
        refuse(self._mistakes())
        return self

    def _mistakes(self) -> Iterator[str]:
        if (self.budget is None) == (self.burn is None):
            yield "a tier has either budget (share spent in the long window) or burn (factor)"
        if parse_seconds(self.short) >= parse_seconds(self.long):
            yield "the short window must be shorter than the long one"
        for window in (self.long, self.short):
            if parse_seconds(window) < 60 or parse_seconds(window) > 90 * DAY:
                yield f"{window}: a burn window has at least 1m and at most 90d"

    def factor(self, period_seconds: float) -> float:
        """Return the burn rate at which the tier fires: `budget * period / long`, at least 1 (SRE Workbook, ch. 5).

        Under 1 a budget is not used up by the end of the period, so no alert is needed.
        """
        if self.burn is not None:
            return self.burn
        assert self.budget is not None
        return max(SUSTAINABLE, round(self.budget * period_seconds / parse_seconds(self.long), 9))


WORKBOOK_TIERS: tuple[Tier, ...] = (
    Tier(name="page_fast", severity="critical", long="1h", short="5m", budget=0.02),
    Tier(name="page_slow", severity="critical", long="6h", short="5m", budget=0.05),
    Tier(name="ticket_fast", severity="warning", long="1d", short="6h", budget=0.1),
    Tier(name="ticket_slow", severity="warning", long="3d", short="6h", budget=0.1),
)
"""Long windows and shares of https://sre.google/workbook/alerting-on-slos/ (table 5-8). The short windows are
fewer:
5m ends a page soon, with six minutes in which it keeps firing instead of 30m; 6h for tickets, which 2h would raise
again and again at twice the budget's pace."""


class Alerting(Value):
    """Alert settings of an objective; `alerting: off` is short for `enabled: false`.

    `min_failures` events must have failed within a tier's long window, so that one failure at night pages nobody. A
    ticket at the pace that just spends the budget also needs to exceed it with `confidence`. `name`, `labels` and
    `annotations` (by tier, beside those of the objective) keep the routes of alerts that were there before.
    """

    enabled: bool = True
    name: Annotated[str, Field(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]{0,127}$")] | None = None
    tiers: tuple[Tier, ...] = Field(default=WORKBOOK_TIERS, min_length=1)
    severities: dict[str, names.Severity] = Field(default_factory=dict)
    labels: dict[str, dict[LabelName, Text]] = Field(default_factory=dict)
    annotations: dict[str, dict[LabelName, Text]] = Field(default_factory=dict)
    min_failures: Annotated[int, Field(ge=0, le=1_000_000)] = 5
    confidence: Annotated[Ratio, Field(ge=0.5, lt=1)] = 0.95

    @model_validator(mode="after")
    def _refuse_mistakes(self) -> Self:
        refuse(self._mistakes())
        return self

    def _mistakes(self) -> Iterator[str]:
        tiers = [tier.name for tier in self.tiers]
        if len(set(tiers)) != len(tiers):
            yield "two tiers have the same name"
        for field in ("severities", "labels", "annotations"):
            if unknown := sorted(set(getattr(self, field)) - set(tiers)):
                yield f"{field} name tiers that do not exist: {', '.join(unknown)}"


def _alerting(value: Any) -> Any:
    # YAML 1.2 and JSON have no boolean `off`: there it is text.
    value = {"on": True, "off": False}.get(value, value) if isinstance(value, str) else value
    return {"enabled": value} if isinstance(value, bool) else value


def _indicator(value: Any) -> Any:
    if isinstance(value, str):
        return {"kind": value}
    if isinstance(value, dict) and "kind" not in value:
        *kinds, last = KINDS
        raise ValueError(f"say which `kind`: {', '.join(kinds)} or {last}")
    return value


RESERVED_LABELS = frozenset(
    {
        names.SLO,
        names.INDICATOR,
        names.SEVERITY,
        names.TIER,
        names.URGENCY,
        names.SEEN_BY,
        names.COMPONENT,
        names.OWNER,
        names.STACK,
        names.EVENT,
        names.REASON,
        names.THRESHOLD,
        "alertname",
        "model",
        "version",
        "le",
    }
)
"""Labels that the rules set themselves."""


class Objective(Value):
    """A promise about an indicator over a window, for every model it selects."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]
    description: Text = ""
    owner: Annotated[str, Field(max_length=200)] = ""
    target: Target
    window: PeriodWindow = Rolling(rolling="30d")
    indicator: Annotated[AnyIndicator, BeforeValidator(_indicator, json_schema_input_type=str | AnyIndicator)]
    models: Selection = Choice()
    versions: Selection = Choice()
    group_by: tuple[LabelName, ...] = names.GROUPING
    overrides: tuple[Override, ...] = ()
    labels: dict[LabelName, Text] = Field(default_factory=dict)
    annotations: dict[LabelName, Text] = Field(default_factory=dict)
    alerting: Annotated[
        Alerting, BeforeValidator(_alerting, json_schema_input_type=bool | Literal["on", "off"] | Alerting)
    ] = Alerting()
    exclusions: tuple[Exclusion, ...] = ()

    @model_validator(mode="after")
    def _choose_grouping(self) -> Self:
        if "group_by" not in self.model_fields_set:
            self.__dict__["group_by"] = self.indicator.grouping
        return self

    @model_validator(mode="after")
    def _refuse_contradictions(self) -> Self:
        refuse(
            (
                *self._unsupported_settings(),
                *self._label_conflicts(),
                *self._override_conflicts(),
            )
        )
        return self

    def _unsupported_settings(self) -> Iterator[str]:
        """Yield settings that the rules cannot honour: one that silently did nothing would be worse."""
        if "version" not in self.indicator.grouping and (
            "version" in self.group_by or not self.versions.everything
        ):
            which = (
                "readiness is of models"
                if self.indicator.counts_time
                else "this source knows no versions of a model"
            )
            yield f"{which}: leave version out of group_by, and versions"
        if self.alerting.name is not None and not self.indicator.names_alerts:
            yield (
                f"only custom objectives name their alerts; {self.indicator.burn_alert} is what runbooks and "
                "inhibitions of this kind name"
            )

    def _label_conflicts(self) -> Iterator[str]:
        recorded = (RESERVED_LABELS | names.NOT_OF_GROUP) - set(names.GROUPING)
        if taken := sorted(recorded & set(self.group_by)):
            yield f"group_by contains labels that the rules set themselves: {', '.join(taken)}"
        labels = set(self.labels).union(*self.alerting.labels.values())
        if taken := sorted((RESERVED_LABELS | set(self.group_by)) & labels):
            yield f"labels the rules set themselves: {', '.join(taken)}"

    def _override_conflicts(self) -> Iterator[str]:
        if any(override.threshold for override in self.overrides) and self.threshold_seconds is None:
            yield f"indicator {self.indicator.kind} has no threshold to override"
        if self.overrides and "model" not in self.group_by:
            yield "overrides choose by model, which group_by leaves out"
        if "version" not in self.group_by and any(
            not override.versions.everything for override in self.overrides
        ):
            yield "overrides choose by version, which group_by leaves out"

    def resolve(self, model: str, version: str) -> tuple[float, float | None] | None:
        """Return target and threshold (seconds) for a model version; None if the objective does not cover it.

        A group of several versions has no version: only its model decides.
        """
        if not (self.models.includes(model) and (not version or self.versions.includes(version))):
            return None
        for override in self.overrides:
            if override.models.includes(model) and override.versions.includes(version):
                return self.limits(override)
        return self.limits()

    def limits(self, override: Override | None = None) -> tuple[float, float | None]:
        """Return target and threshold (seconds), with an override those that it changes."""
        if override is None:
            return self.target, self.threshold_seconds
        return override.target or self.target, override.threshold_seconds or self.threshold_seconds

    @cached_property
    def threshold_seconds(self) -> float | None:
        """The threshold of the indicator; None for a kind without one."""
        return self.indicator.threshold_seconds

    @cached_property
    def threshold_text(self) -> str:
        """The threshold as written, and those of overrides; empty for a kind without one."""
        others = [
            f"{override.models}: {override.threshold}" for override in self.overrides if override.threshold
        ]
        return "; ".join((self.indicator.threshold_text, *others)) if self.indicator.threshold_text else ""

    @property
    def burn_alert(self) -> str:
        return self.alerting.name or self.indicator.burn_alert

    @property
    def calendar(self) -> CalendarWindow | None:
        """The window where it is of the calendar; None where it is rolling."""
        return self.window if isinstance(self.window, CalendarWindow) else None

"""Hours of the week, as Alertmanager's time intervals have them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from triton_exporter.common.moments import time_zone

EXAMPLE = "monday:friday 08:00-18:00 Europe/Berlin"
WORKING = "monday:friday 09:00-17:00 UTC"
"""Working hours where none are given."""
_FORM = re.compile(r"(?P<days>[a-z:, ]+?)\s+(?P<start>\d\d:\d\d)-(?P<end>\d\d:\d\d)(?:\s+(?P<place>\S+))?")
_TIME = re.compile(r"([01]\d|2[0-3]):[0-5]\d|24:00")
_DAYS = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
"""Days in the order of Alertmanager, whose ranges do not go beyond the end of the week."""


@dataclass(frozen=True, slots=True)
class Hours:
    """Days of the week (`monday:friday`, `sunday`), a start and an end (HH:MM), in the zone `place` or UTC."""

    days: tuple[str, ...]
    start: str
    end: str
    place: str = ""

    def __str__(self) -> str:
        return f"{','.join(self.days)} {self.start}-{self.end} {self.place or 'UTC'}"

    @property
    def zone(self) -> ZoneInfo:
        return time_zone(self.place or "UTC")

    def contain(self, at: float) -> bool:
        """Return whether a Unix time is within these hours."""
        local = datetime.fromtimestamp(at, self.zone)
        return _weekday(local) in self._weekdays() and self.start <= f"{local:%H:%M}" < self.end

    def _weekdays(self) -> list[int]:
        spans = [[_DAYS.index(day) for day in span.split(":")] for span in self.days]
        return [day for span in spans for day in range(span[0], span[-1] + 1)]


def parse(text: str) -> Hours:
    """Read hours such as EXAMPLE. Raises ValueError."""
    match = _FORM.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"hours {text!r} are not in the form {EXAMPLE!r}")
    days = tuple(day.strip() for day in match["days"].split(","))
    for span in days:
        places = [_DAYS.index(day) if day in _DAYS else -1 for day in span.split(":")]
        if -1 in places or len(places) > 2 or places != sorted(places):
            raise ValueError(
                f"hours {text!r}: {span!r} is not a day from sunday to saturday, nor a range of them in "
                "this order, such as monday:friday; separate several by commas"
            )
    if not (
        _TIME.fullmatch(match["start"]) and _TIME.fullmatch(match["end"]) and match["start"] < match["end"]
    ):
        raise ValueError(f"hours {text!r}: write two times from 00:00 to 24:00, the earlier one first")
    if match["place"]:
        time_zone(match["place"])
    return Hours(days, match["start"], match["end"], match["place"] or "")


def _weekday(moment: datetime) -> int:
    return moment.isoweekday() % 7

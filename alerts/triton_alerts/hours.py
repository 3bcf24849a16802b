"""Hours of the week, as Alertmanager's time intervals have them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from triton_exporter.common.moments import time_zone

EXAMPLE = "monday:friday 08:00-18:00 Europe/Berlin"
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

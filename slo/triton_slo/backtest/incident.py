"""Labelled incidents: what a person recorded, to score alerts against."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from triton_slo.backtest.replay import Severity

COLUMNS = ("start", "end", "slo", "model", "version", "severity")
"""Header of an incident file; start and end are Unix seconds or ISO 8601 (UTC where no zone is given)."""


class IncidentError(Exception):
    """An incident file that cannot be used; the message is one line with the place."""


@dataclass(frozen=True, slots=True)
class LabelledIncident:
    """A failure that should have raised a page (or a ticket) from `start` to `end`, Unix seconds.

    An empty `slo`, `model` or `version` matches any.
    """

    start: float
    end: float
    slo: str = ""
    model: str = ""
    version: str = ""
    severity: Severity = "page"

    def covers(self, key: tuple[str, str, str]) -> bool:
        """Return whether it is about this (slo, model, version); an alert about no model is about all of them."""
        pairs = zip((self.slo, self.model, self.version), key, strict=True)
        return all("" in pair or pair[0] == pair[1] for pair in pairs)


def from_csv(text: str) -> tuple[LabelledIncident, ...]:
    """Read incidents with the header `COLUMNS`. Raises IncidentError."""
    return tuple(_incident_rows(text))


def _incident_rows(text: str) -> Iterator[LabelledIncident]:
    reader = csv.reader(io.StringIO(text))
    if tuple(next(reader, ())) != COLUMNS:
        raise IncidentError(f"line 1: the header must be {','.join(COLUMNS)}")
    for line in reader:
        where = f"line {reader.line_num}"
        if len(line) != len(COLUMNS):
            raise IncidentError(f"{where}: {len(COLUMNS)} values are needed, there are {len(line)}")
        start, end = (_moment(text, where) for text in line[:2])
        severity = line[5] or "page"
        if severity not in ("page", "ticket"):
            raise IncidentError(f"{where}: severity is page or ticket, not {severity!r}")
        if not start < end:
            raise IncidentError(f"{where}: the incident ends before it starts")
        yield LabelledIncident(
            start, end, line[2], line[3], line[4], "page" if severity == "page" else "ticket"
        )


def _moment(text: str, where: str) -> float:
    try:
        return float(text)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise IncidentError(
            f"{where}: {text!r} is not a time; write 2026-05-01T09:30Z or Unix seconds"
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()

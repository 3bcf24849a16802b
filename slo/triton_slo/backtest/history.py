"""What happened: good and bad events of many series, step by step."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float64]

COLUMNS = ("time", "slo", "model", "version", "bad", "total")
"""Header of a history in CSV: Unix time in seconds at the end of the step, then events in that step."""


class HistoryError(Exception):
    """A history that cannot be replayed; the message is one line with the place."""


@dataclass(frozen=True, slots=True)
class History:
    """Events per step: rows are series (one objective for one model version), columns are steps.

    `times[i]` (Unix seconds) ends step i. NaN in `total` means that nothing is known about that step; 0 that
    nothing happened.
    """

    keys: tuple[tuple[str, str, str], ...]
    times: Matrix
    bad: Matrix
    total: Matrix
    step: float = field(init=False)

    def __post_init__(self) -> None:
        if len(self.times) < 2:
            raise HistoryError("a history needs at least two steps")
        gaps = np.diff(self.times)
        if not (gaps > 0).all() or not np.allclose(gaps, gaps[0]):
            raise HistoryError("a history needs times at even steps, in order")
        if self.bad.shape != (len(self.keys), len(self.times)) or self.bad.shape != self.total.shape:
            raise HistoryError("a history needs as many bad and total events as it has series and times")
        object.__setattr__(self, "step", float(gaps[0]))


def from_csv(text: str) -> History:
    """Read a history with header `COLUMNS`; steps that a series lacks are unknown. Raises HistoryError."""
    rows = list(_rows(text))
    times = sorted({at for at, *_ in rows})
    keys = sorted({key for _, key, _, _ in rows})
    column, row = {at: i for i, at in enumerate(times)}, {key: i for i, key in enumerate(keys)}
    bad, total = (np.full((len(keys), len(times)), np.nan) for _ in range(2))
    for at, key, failures, events in rows:
        bad[row[key], column[at]], total[row[key], column[at]] = failures, events
    return History(tuple(keys), np.array(times), bad, total)


def _rows(text: str) -> Iterable[tuple[float, tuple[str, str, str], float, float]]:
    reader = csv.reader(io.StringIO(text))
    if tuple(next(reader, ())) != COLUMNS:
        raise HistoryError(f"line 1: the header must be {','.join(COLUMNS)}")
    for line in reader:
        try:
            at, slo, model, version, bad, total = line
            numbers = float(at), float(bad), float(total)
        except ValueError:
            raise HistoryError(f"line {reader.line_num}: six values are needed, numbers where due") from None
        if not 0 <= numbers[1] <= numbers[2] < float("inf"):
            raise HistoryError(f"line {reader.line_num}: bad must be from 0 to total")
        yield numbers[0], (slo, model, version), numbers[1], numbers[2]


def to_csv(history: History) -> str:
    """Write a history as `from_csv` reads it; unknown steps are left out."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for key, bad, total in zip(history.keys, history.bad, history.total, strict=True):
        for at, failures, events in zip(history.times, bad, total, strict=True):
            if not np.isnan(events):
                writer.writerow([f"{at:.15g}", *key, f"{failures:.15g}", f"{events:.15g}"])
    return out.getvalue()


def from_points(
    points: Mapping[tuple[str, str, str], tuple[Mapping[float, float], Mapping[float, float]]],
    times: Sequence[float],
) -> History:
    """Lay (bad, total) values by time onto the grid of `times`; what is missing or NaN is unknown."""
    shape = (len(points), len(times))
    bad, total = np.full(shape, np.nan), np.full(shape, np.nan)
    for row, (failures, events) in enumerate(points.values()):
        total[row] = [events.get(at, np.nan) for at in times]
        bad[row] = [failures.get(at, 0.0) for at in times]
    # Extrapolation may give a little more failures than events.
    bad = np.where(np.isnan(total), np.nan, np.clip(np.nan_to_num(bad), 0, np.nan_to_num(total)))
    return History(tuple(points), np.array(times, dtype=float), bad, total)

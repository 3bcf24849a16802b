"""History of many series: their good and bad events, step by step."""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Column = Literal["bad", "total", "error"]

COLUMNS = ("time", "slo", "model", "version", "bad", "total")
"""Header of a history in CSV: Unix time in seconds at the end of the step, then events in that step."""
STATED_ERROR = "stated_error"
"""A last column where shares were estimated; empty where no error was stated."""


class HistoryError(Exception):
    """A history that cannot be replayed; the message is one line with the place."""


class NoSeriesError(HistoryError):
    """A history without any series."""


@dataclass(frozen=True, slots=True)
class History:
    """Events per step: rows are series (one objective for one model version), columns are steps.

    `times[i]` (Unix seconds) ends step i. NaN in `total` means that nothing is known about that step; 0 that
    nothing happened. `error` is the stated error of estimated shares at each step; NaN where none was stated.
    """

    keys: tuple[tuple[str, str, str], ...]
    times: Matrix
    bad: Matrix
    total: Matrix
    error: Matrix | None = None
    step: float = field(init=False)

    def __post_init__(self) -> None:
        if len(self.times) < 2:
            raise HistoryError("a history needs at least two steps")
        gaps = np.diff(self.times)
        if not (gaps > 0).all() or not np.allclose(gaps, gaps[0], rtol=0.01):
            raise HistoryError("a history needs times at even steps, in order")
        if self.bad.shape != (len(self.keys), len(self.times)) or self.bad.shape != self.total.shape:
            raise HistoryError("a history needs as many bad and total events as it has series and times")
        object.__setattr__(self, "step", float(gaps[0]))

    def of_objective(self, slo: str) -> History:
        """Return the series of one objective."""
        rows = [row for row, key in enumerate(self.keys) if key[0] == slo]
        if len(rows) == len(self.keys):
            return self
        keys = tuple(self.keys[row] for row in rows)
        error = None if self.error is None else self.error[rows]
        return History(keys, self.times, self.bad[rows], self.total[rows], error)


def from_csv(text: str) -> History:
    """Read a history with header `COLUMNS`; steps that a series lacks are unknown. Raises HistoryError."""
    rows = list(_history_rows(text))
    times = sorted({at for at, *_ in rows})
    keys = sorted({key for _, key, *_ in rows})
    column, row = {at: i for i, at in enumerate(times)}, {key: i for i, key in enumerate(keys)}
    bad, total, error = (np.full((len(keys), len(times)), np.nan) for _ in range(3))
    for at, key, *values in rows:
        for matrix, value in zip((bad, total, error), values, strict=True):
            matrix[row[key], column[at]] = value
    return History(tuple(keys), np.array(times), bad, total, None if np.isnan(error).all() else error)


def _history_rows(text: str) -> Iterable[tuple[float, tuple[str, str, str], float, float, float]]:
    reader = csv.reader(io.StringIO(text))
    header = tuple(next(reader, ()))
    if header not in (COLUMNS, (*COLUMNS, STATED_ERROR)):
        raise HistoryError(f"line 1: the header must be {','.join(COLUMNS)}")
    for line in reader:
        try:
            at, slo, model, version, bad, total, *stated = line
            if len(line) != len(header):
                raise ValueError
            numbers = float(at), float(bad), float(total), float(*stated or ("nan",))
        except ValueError:
            raise HistoryError(
                f"line {reader.line_num}: {len(header)} values are needed, numbers where due"
            ) from None
        if not 0 <= numbers[1] <= numbers[2] < float("inf"):
            raise HistoryError(f"line {reader.line_num}: bad must be from 0 to total")
        yield numbers[0], (slo, model, version), *numbers[1:]


def to_csv(history: History) -> str:
    """Write a history as `from_csv` reads it; unknown steps are left out."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    stated = history.error is not None
    writer.writerow((*COLUMNS, STATED_ERROR) if stated else COLUMNS)
    columns = [history.bad, history.total, *([history.error] if history.error is not None else [])]
    for row, key in enumerate(history.keys):
        for at, *values in zip(history.times, *(column[row] for column in columns), strict=True):
            if not np.isnan(values[1]):
                writer.writerow([f"{at:.15g}", *key, *(f"{value:.15g}" for value in values)])
    return out.getvalue()


def from_npz(data: bytes) -> History:
    """Read what `to_npz` wrote. Raises HistoryError."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            keys = tuple((str(slo), str(model), str(version)) for slo, model, version in file["keys"])
            names = ("times", "bad", "total", *(["error"] if "error" in file else []))
            return History(keys, *(file[name].astype(np.float64) for name in names))
    except (OSError, EOFError, KeyError, ValueError, TypeError, zipfile.BadZipFile) as error:
        raise HistoryError(
            "is not a history as `tritonwatch backtest --save` writes it (.csv, else .npz)"
        ) from error


def to_npz(history: History) -> bytes:
    """Write a history compactly: a month of minutes of a thousand series is some tens of megabytes."""
    out = io.BytesIO()
    arrays = {"keys": np.array(history.keys), "times": history.times}
    if history.error is not None:
        arrays["error"] = history.error
    np.savez_compressed(out, bad=history.bad, total=history.total, **arrays)
    return out.getvalue()


class Grid:
    """Collects points of many series onto even steps; what is never set is unknown."""

    def __init__(self, start: float, end: float, step: float) -> None:
        self._start, self._step = start, step
        self._times = start + step * np.arange(int((end - start) / step + 1e-9) + 1)
        self._rows: dict[tuple[str, str, str], dict[Column, Matrix]] = {}

    def put(self, key: tuple[str, str, str], column: Column, times: Sequence[float], values: Matrix) -> None:
        """Set values of one series at these times (Unix seconds); NaN stays unknown."""
        row = self._rows.setdefault(key, {})
        into = row.setdefault(column, np.full(len(self._times), np.nan))
        into[np.rint((np.asarray(times) - self._start) / self._step).astype(int)] = values

    def history(self) -> History:
        """Return all that was put, as a history. Raises NoSeriesError, and HistoryError without two steps."""
        # An error may be stated while there are no requests.
        rows = {key: row for key, row in self._rows.items() if row.keys() - {"error"}}
        if not rows:
            raise NoSeriesError("no series to replay")
        nothing = np.full(len(self._times), np.nan)
        bad, total, error = (
            np.array([row.get(name, nothing) for row in rows.values()]) for name in ("bad", "total", "error")
        )
        # No failures seen is none; extrapolation may give a little more failures than events.
        clipped = np.clip(np.nan_to_num(bad), 0, np.nan_to_num(total))
        return History(
            tuple(rows),
            self._times,
            np.where(np.isnan(total), np.nan, clipped),
            total,
            None if np.isnan(error).all() else error,
        )

"""History of many series: their good and bad events, step by step, from files or from a Prometheus.

From a Prometheus it is the growth of counters from step to step, and the excluded time.
"""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from triton_exporter.common.duration import duration_text
from triton_slo import names
from triton_slo.objective.exclusion import Exclusion, Span, clipped, merged
from triton_slo.objective.model import Objective
from triton_slo.plan import Plan, chosen_matchers
from triton_slo.prometheus import MAX_STEPS, Prometheus, query_ranges

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


class Grid:
    """Collects points of many series onto even steps; what is never set is unknown."""

    def __init__(self, start: float, end: float, step: float) -> None:
        self._start, self._step = start, step
        self._times = start + step * np.arange(int((end - start) / step + 1e-9) + 1)
        self._rows: dict[tuple[str, str, str], dict[Column, Matrix]] = {}

    def add(self, key: tuple[str, str, str], column: Column, times: Matrix, values: Matrix) -> None:
        """Add values to those of one series at these times (Unix seconds); of stated errors the worst counts."""
        row = self._rows.setdefault(key, {})
        into = row.setdefault(column, np.full(len(self._times), np.nan))
        at = np.rint((times - self._start) / self._step).astype(int)
        combined = np.maximum if column == "error" else np.add
        into[at] = combined(np.nan_to_num(into[at]), values)

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


_EXCLUSION_STEP_SECONDS = 60.0
"""Resolution at which exclusions in PromQL are read."""
_STEPS_APART = 60
"""Steps between two moments at which records are searched for."""
_EVENTS: Mapping[str, Column] = {names.ERROR: "bad", names.TOTAL: "total"}


def records_from(
    prometheus: Prometheus, plans: Sequence[Plan], start: float, end: float, step: float
) -> float:
    """Return the Unix time from which to read a history: `start`, or later if nothing was recorded before.

    Records are searched at few moments, so that decades without any cost little; a history that one query can read
    begins at `start`. Raises PrometheusError.
    """
    if end - start <= step * MAX_STEPS:
        return start
    apart = step * _STEPS_APART
    first = end
    for plan in plans:
        anything = f"count({plan.measure.total})\nor\ncount({_recorded(plan, names.TOTAL)})"
        for begin, until in query_ranges(start, first, apart):
            if records := prometheus.range(anything, begin, until, apart):
                first = min(at for series in records for at in series.times)
                break
    # No moment had a record, but there may be some after the last one: read as much as one query can.
    first = first if first < end else end - step * MAX_STEPS
    return max(start, first - apart)


def fetch(
    prometheus: Prometheus,
    plans: Sequence[Plan],
    start: float,
    end: float,
    step: float,
    *,
    recorded: bool = True,
) -> History:
    """Return the events of every group of these objectives and the stated errors of estimated shares, by step.

    `recorded` allows reading the counters that the rules of the objectives recorded: not for an objective that
    measures something else than its namesake in Prometheus. Raises PrometheusError and HistoryError.
    """
    grid = Grid(start + step, end, step)
    for plan in plans:
        usable = recorded and prometheus.instant(f"count({_recorded(plan, names.TOTAL)})", start + step)
        for event, column in _EVENTS.items():
            if usable:
                grown = _growth(prometheus, _recorded(plan, event), start, end, step)
            elif plan.objective.indicator.counts_time:
                grown = _seconds(prometheus, plan, event, start, end, step)
            else:
                counter = plan.measure.error if event == names.ERROR else plan.measure.total
                grown = _growth(prometheus, counter, start, end, step)
            _put(grid, plan, column, grown, start, step)
        if plan.measure.stated_error is not None:
            stated = plan.measure.stated_error(duration_text(step))
            for labels, times, values in _read(prometheus, stated, start + step, end, step):
                grid.add(_history_key(plan.objective, labels), "error", times, values)
    return grid.history()


def _recorded(plan: Plan, event: str) -> str:
    groups = chosen_matchers(plan.objective).within(plan.objective.group_by)
    return f"{names.COUNTER}{plan.own.also(*groups.parts).equal(names.EVENT, event)}"


Growth = Iterator[tuple[Mapping[str, str], Matrix, Matrix]]
"""Labels of a series, times and what it grew by until then."""


def _read(
    prometheus: Prometheus, query: str, start: float, end: float, step: float
) -> Iterator[tuple[Mapping[str, str], Matrix, Matrix]]:
    """Yield each series as a whole, however many queries its steps take."""
    parts: dict[tuple[tuple[str, str], ...], list[tuple[Matrix, Matrix]]] = defaultdict(list)
    for first, last in query_ranges(start, end, step):
        for series in prometheus.range(query, first, last, step):
            parts[tuple(sorted(series.labels.items()))].append(
                (np.array(series.times), np.array(series.values))
            )
    for labels, read in parts.items():
        times, values = (np.concatenate(column) for column in zip(*read, strict=True))
        yield dict(labels), times, values


def _growth(prometheus: Prometheus, query: str, start: float, end: float, step: float) -> Growth:
    """Yield what each counter grew by from step to step, as the rules count it: one that fell began again at 0.

    A counter that is seen first adds nothing, unless its server was known before: a first failure, for example.
    """
    series = list(_read(prometheus, query, start, end, step))
    known: dict[tuple[str, ...], float] = {}
    for labels, times, _ in series:
        server = _server(labels)
        known[server] = min(known.get(server, np.inf), float(times[0]))
    for labels, times, values in series:
        grown = np.diff(values, prepend=0.0 if known[_server(labels)] < times[0] else values[0])
        yield labels, times, np.where(grown < 0, values, grown)


def _server(labels: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(labels.get(label, "") for label in ("job", "instance", "model", "version"))


def _seconds(prometheus: Prometheus, plan: Plan, event: str, start: float, end: float, step: float) -> Growth:
    """Yield the seconds of servers that fail, or of all: those that there are at the end of a step count for
    all of it."""
    query = plan.measure.error
    if event == names.TOTAL:
        query = f"sum {plan.scope.by} (\n({query}) or {plan.measure.total}\n)"
    for labels, times, values in _read(prometheus, query, start, end, step):
        yield labels, times, values * step


def _put(grid: Grid, plan: Plan, column: Column, grown: Growth, start: float, step: float) -> None:
    """Add up the servers of each group; a step in which none was seen is unknown."""
    for labels, times, values in grown:
        seen = (times > start + step / 2) & ~np.isnan(values)
        grid.add(_history_key(plan.objective, labels), column, times[seen], values[seen])


def _history_key(objective: Objective, labels: Mapping[str, str]) -> tuple[str, str, str]:
    return objective.name, labels.get("model", ""), labels.get("version", "")


def excluded_spans(
    exclusions: Sequence[Exclusion], start: float, end: float, prometheus: Prometheus | None = None
) -> list[Span]:
    """Return the excluded time between two Unix times, in order, none twice. Raises PrometheusError.

    Raises LookupError for an exclusion in PromQL where there is no Prometheus to ask.
    """
    return merged([span for exclusion in exclusions for span in _spans(exclusion, start, end, prometheus)])


def _spans(exclusion: Exclusion, start: float, end: float, prometheus: Prometheus | None) -> Iterator[Span]:
    if exclusion.promql is None:
        yield from exclusion.spans(start, end)
        return
    if prometheus is None:
        raise LookupError(f"the exclusion {exclusion.reason!r} is PromQL, which only Prometheus can answer")
    step = max(_EXCLUSION_STEP_SECONDS, (end - start) / MAX_STEPS)
    for series in prometheus.range(f"group ((\n{exclusion.promql}\n))", start, end, step):
        # The exclusion may begin or end anywhere between two evaluations: a step on each side is left out, too.
        yield from clipped([(at - step, at + step) for at in series.times], start, end)

"""Arrays with a row for each series and a column for each step: running sums, and when an alert fires."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from triton_slo.backtest.history import Flags, History, Matrix


def after_pending(true: Flags, seconds: float, step: float) -> Flags:
    """Return for each step whether it has been true for `seconds` (Prometheus' `for`)."""
    steps = math.ceil(seconds / step - 1e-9)
    if not steps or not true.any():
        return true
    fires: Flags = last(running(true), steps + 1) >= steps + 1
    return fires


def with_keep_firing(firing: Flags, seconds: float, step: float) -> Flags:
    """Return for each step whether it was true at most `seconds` ago (Prometheus' keep_firing_for)."""
    steps = math.ceil(seconds / step - 1e-9)
    if not steps or not firing.any():
        return firing
    fires: Flags = last(running(firing), steps + 1) > 0
    return fires


def running(values: Matrix | Flags) -> Matrix:
    """Return sums from the start, with a column of zeros before; unknown adds nothing."""
    sums = np.zeros((values.shape[0], values.shape[1] + 1))
    np.cumsum(np.nan_to_num(values) if values.dtype != np.bool_ else values, axis=1, out=sums[:, 1:])
    return sums


def last(sums: Matrix, steps: int) -> Matrix:
    """Return sums over the last `steps` steps, fewer where the history begins."""
    window = sums[:, 1:].copy()
    if steps < window.shape[1]:
        window[:, steps:] -= sums[:, 1:-steps]
    return window


def falls(values: Matrix) -> Flags:
    """Return True at each step at which a 0 follows a 1, idle steps (NaN) between them or not."""
    known = ~np.isnan(values)
    # The column of the last known value up to each step; column 0 where there is none yet.
    last_known = np.maximum.accumulate(np.where(known, np.arange(values.shape[1]), 0), axis=1)
    filled = np.take_along_axis(values, last_known, axis=1)
    fell: Flags = np.zeros(values.shape, dtype=bool)
    fell[:, 1:] = (filled[:, :-1] == 1) & (filled[:, 1:] == 0)
    return fell


def runs_of_true(history: History, firing: Flags) -> Iterator[tuple[int, float, float | None, int]]:
    """Yield row, first moment, end (None: not yet) and first column of each run of true."""
    for row in np.flatnonzero(firing.any(axis=1)):
        edges = np.diff(firing[row].astype(np.int8), prepend=0, append=0)
        starts, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
        for start, end in zip(starts, ends, strict=True):
            ended = float(history.times[end]) if end < len(history.times) else None
            yield int(row), float(history.times[start]), ended, int(start)

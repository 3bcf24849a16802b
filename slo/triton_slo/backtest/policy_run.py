"""Run of an alert policy over a history: the alerts, their times, durations and budget spent.

All series of a chunk are worked on at once; a window's sum is the difference of two running sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import assert_never

import numpy as np

from triton_exporter.common.duration import DAY
from triton_slo.backtest.firing import after_pending, falls, last, running, runs_of_true, with_keep_firing
from triton_slo.backtest.history import Flags, History, Matrix
from triton_slo.backtest.policy import Missing, Policy, PolicyAlert, PolicySeverity
from triton_slo.backtest.view import counted, quiet
from triton_slo.burn.condition_tree import (
    OPERATORS,
    All,
    Burn,
    BurnBeyondError,
    BurnWindow,
    Compare,
    Condition,
    Either,
    Expected,
    Failures,
    Named,
    Quantity,
    Recent,
    Recurs,
    RedundancyGone,
    Relative,
    Retired,
    Significance,
    Unless,
)
from triton_slo.rules.periods import Basis

BasisAt = Callable[[float], Basis]

_MONTH = Basis(30 * DAY, 30 * DAY)
_CHUNK = 32
"""Series worked on at once: 30 days of minutes of them fit the processor's cache better than all do."""
_NOTHING = 1e-6
"""Fewer events than this are rounding left over from differences of running sums."""


@dataclass(frozen=True, slots=True)
class Episode:
    """One alert of one series from its first to its last moment of firing (Unix seconds).

    `ended` is None when it still fires where the history ends. `budget_left` is that of the objective when
    it began to fire (1 unspent, negative overspent), None for alerts on missing data.
    """

    key: tuple[str, str, str]
    alert: str
    severity: PolicySeverity
    started: float
    ended: float | None
    budget_left: float | None


def run_policy(
    history: History, policy: Policy, targets: Sequence[float], basis_at: BasisAt = lambda at: _MONTH
) -> tuple[Episode, ...]:
    """Run the policy over every series of the history; `targets` has one ratio for each series.

    `basis_at` returns what the budget is a share of at a Unix time; it is 30 days by default.
    """
    seen = counted(history, policy)
    return tuple(
        episode
        for first in range(0, len(history.keys), _CHUNK)
        for episode in _run_on_chunk(history, seen, policy, targets, basis_at, slice(first, first + _CHUNK))
    )


def budgets(
    history: History,
    policy: Policy,
    targets: Sequence[float],
    columns: Sequence[int],
    basis_at: BasisAt = lambda at: _MONTH,
) -> Matrix:
    """Return the budget left of every series at some steps; NaN where it had no event by then."""
    seen = counted(history, policy)
    left = np.full((len(history.keys), len(columns)), np.nan)
    bases = [basis_at(float(history.times[column])) for column in columns]
    for first in range(0, len(history.keys), _CHUNK):
        rows = slice(first, first + _CHUNK)
        chunk = _Chunk(history, seen, np.asarray(targets[rows], dtype=float), rows)
        for index, (column, basis) in enumerate(zip(columns, bases, strict=True)):
            left[rows, index] = chunk.budget_left(column, basis)
    return left


def _run_on_chunk(
    history: History,
    seen: History,
    policy: Policy,
    targets: Sequence[float],
    basis_at: BasisAt,
    rows: slice,
) -> Iterator[Episode]:
    chunk = _Chunk(history, seen, np.asarray(targets[rows], dtype=float), rows)
    excluded_steps = quiet(history, policy)
    inhibited: Flags = np.zeros(chunk.shape, dtype=bool)
    for alert in policy.alerts:
        firing = chunk.firing(alert) & ~excluded_steps
        for row, started, ended, column in runs_of_true(history, firing & ~inhibited):
            left = None if alert.on_missing_data else float(chunk.budget_left(column, basis_at(started))[row])
            key = history.keys[rows.start + row]
            # A calendar period that has just begun has no event, and so all of its budget.
            left = 1.0 if left is not None and math.isnan(left) else left
            yield Episode(key, alert.name, alert.severity, started, ended, left)
        # Unknown time that burns its budget is also burning: Alertmanager puts both into one notification.
        if policy.inhibits and not (alert.on_missing_data and policy.unknown):
            inhibited |= firing


class _Chunk:
    """Running sums of some series, and the questions asked of them."""

    def __init__(self, history: History, seen: History, targets: Matrix, rows: slice) -> None:
        self._step = history.step
        self._budget = (1 - targets)[:, None]
        self._bad = running(seen.bad[rows])
        self._total = running(seen.total[rows])
        self._known = ~np.isnan(history.total[rows])
        self._error = None if history.error is None else history.error[rows]
        self.shape = history.bad[rows].shape

    def firing(self, alert: PolicyAlert) -> Flags:
        """Return for each step whether the alert fires."""
        if isinstance(alert.condition, Missing):
            # Before its first data, a series is not missing.
            true: Flags = ~self._known & np.logical_or.accumulate(self._known, axis=1)
        else:
            true = self._evaluate(alert.condition)
        pending = after_pending(true, alert.pending, self._step)
        return with_keep_firing(pending, alert.keep_firing, self._step)

    def budget_left(self, column: int, basis: Basis) -> Matrix:
        """Return budgets left at one step, over the time passed by then (or what the history has of it)."""
        first = max(0, column + 1 - self._steps(basis.passed_seconds))
        spent = _error_ratio(*(sums[:, column + 1] - sums[:, first] for sums in (self._bad, self._total)))
        left: Matrix = 1 - spent / self._budget[:, 0] * basis.share
        return left

    def _evaluate(self, condition: Condition) -> Flags:
        match condition:
            case Named(_, inner):
                return self._evaluate(inner)
            case All(parts):
                return self._all(parts)
            case Either(parts):
                return reduce(np.logical_or, map(self._evaluate, parts))
            case Unless(inner, but):
                holds = self._evaluate(inner)
                return holds & ~self._evaluate(but) if holds.any() else holds
            case Recent(part, window):
                holds = self._evaluate(part)
                return last(running(holds), self._steps(window.seconds)) > 0 if holds.any() else holds
            case Recurs(window, within, times):
                bad, total = self._sums(window)
                burning = np.where(total > _NOTHING, bad > self._budget * total, np.nan)
                ended = last(running(falls(burning)), self._steps(within.seconds))
                return ended >= times
            case Retired():
                return np.zeros(self.shape, dtype=bool)  # a history of events does not show it
            case RedundancyGone():
                return np.ones(self.shape, dtype=bool)  # of any server: a history of events names none
            case Compare(quantity, sign, limit):
                return self._compare(quantity, OPERATORS[sign], limit)
            case _:
                assert_never(condition)

    def _all(self, parts: Sequence[Condition]) -> Flags:
        holds = self._evaluate(parts[0])
        for part in parts[1:]:
            # Nearly every series is healthy nearly always: its costlier parts need no evaluation.
            holds = holds & self._evaluate(part) if holds.any() else holds
        return holds

    def _compare(
        self, quantity: Quantity, compare: Callable[[Matrix, Matrix | float], Flags], limit: float
    ) -> Flags:
        """Compare without dividing by what may be nothing: no events, no burn, no NaN."""
        bad, total = self._sums(quantity.window)
        some: Flags = total > _NOTHING
        match quantity:
            case Burn():
                return compare(bad, limit * self._budget * total) & some
            case BurnBeyondError(_, short, stated):
                if self._error is None:
                    return np.zeros(self.shape, dtype=bool)
                steps = self._steps(stated.seconds)
                times = last(running(~np.isnan(self._error)), steps)
                error = last(running(self._error), steps) / np.maximum(times, 1)
                short_bad, short_total = self._sums(short)
                larger = np.fmax(_error_ratio(bad, total), _error_ratio(short_bad, short_total))
                return compare(larger - error, limit * self._budget) & some & (times > 0)
            case Failures():
                return compare(bad, limit)
            case Significance():
                scale = np.sqrt(total / (self._budget * (1 - self._budget)))
                return compare((bad - self._budget * total) * scale, limit * total) & some
            case Expected(_, like):
                like_bad, like_total = self._sums(like)
                return compare(like_bad * total, limit * like_total) & some & (like_total > _NOTHING)
            case Relative(_, like):
                like_bad, like_total = self._sums(like)
                return compare(bad * like_total, limit * like_bad * total) & some & (like_bad > _NOTHING)

    def _sums(self, window: BurnWindow) -> tuple[Matrix, Matrix]:
        """Return failed and all events of the last window, at each step."""
        steps = self._steps(window.seconds)
        return last(self._bad, steps), last(self._total, steps)

    def _steps(self, seconds: float) -> int:
        return max(1, round(seconds / self._step))


def _error_ratio(bad: Matrix, total: Matrix) -> Matrix:
    """Return the ratio of failed to all events; NaN where there were no events."""
    return np.divide(bad, total, out=np.full(bad.shape, np.nan), where=total > _NOTHING)

"""Replay of an objective's alerts over a history: which of them would have fired, and what was left of the budget.

What an alert asks is one value for both, `rules.Condition`; a test plays rules and replay on the same random series.
Prometheus cannot be asked instead: a history may be a file, and a target or threshold that was never in force, or a
time before the rules were loaded, has no recorded series.
A window's events are the difference of two running sums.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from triton_slo import rules
from triton_slo.amounts import LEAST_RECORDED
from triton_slo.artifact import Options
from triton_slo.backtest.history import Flags, History, Matrix
from triton_slo.objective.exclusion import Span
from triton_slo.objective.model import Objective, period_at
from triton_slo.plan import Plan

Severity = Literal["page", "ticket"]
_NOTHING = 1e-6
"""Fewer events than this are rounding left over from differences of running sums."""


@dataclass(frozen=True, slots=True)
class Episode:
    """One alert of one series from its first to its last moment of firing (Unix seconds).

    `ended` is None when it still fires where the history ends. `budget_left` is that of the objective when it began
    to fire (1 unspent, negative overspent); None where too little of its period is in the history.
    """

    key: tuple[str, str, str]
    alert: str
    severity: Severity
    started: float
    ended: float | None
    budget_left: float | None


@dataclass(frozen=True)
class Replayed:
    """An objective to replay; in the spans of `excluded` (Unix seconds) nothing counts and nothing fires."""

    objective: Objective
    options: Options = Options()  # noqa: RUF009 # frozen
    excluded: Sequence[Span] = ()
    inhibits: bool = True
    """Of the alerts of a series only the most urgent is sent."""

    @cached_property
    def plan(self) -> Plan:
        """The objective under the options."""
        return Plan(self.objective, self.options)

    def target_of(self, model: str, version: str) -> float:
        """Return the target of a model version; that of models without an override where there is none."""
        resolved = self.objective.resolve(model, version) if model else None
        return self.objective.target if resolved is None else resolved[0]

    def passed_seconds(self, at: float) -> float:
        """Return the time that the budget is a share of at a Unix time: the window, or the calendar period so
        far."""
        if self.objective.calendar is None:
            return self.plan.period_seconds
        return max(1.0, at - period_at(self.objective.calendar, at).start)

    def episodes(self, history: History) -> Iterator[Episode]:
        """Yield what fires and is sent."""
        quiet = self._excluded_steps(history)
        begin = data_from(history)
        tiers = sorted(rules.tiers(self.plan), key=lambda tier: rules.urgency(self.plan, tier))
        asked = [(tier, rules.condition(self.plan, tier)) for tier in tiers]
        for key, series in zip(history.keys, self._series(history), strict=True):
            inhibited: Flags = np.zeros(len(history.times), dtype=bool)
            for tier, condition in asked:
                firing = self._firing(series, condition)
                if firing is None:
                    continue
                firing &= ~quiet
                for started, ended, column in _runs_of_true(history, firing, firing & ~inhibited):
                    passed = self.passed_seconds(started)
                    [left] = series.budget_left([column], [passed])
                    known = started - begin >= min(passed, LEAST_RECORDED * self.plan.period_seconds)
                    yield Episode(
                        key,
                        tier.name,
                        "page" if self.plan.pages(tier) else "ticket",
                        started,
                        ended,
                        # A calendar period that has just begun has no event, and so all of its budget.
                        (1.0 if math.isnan(left) else float(left)) if known else None,
                    )
                if self.inhibits:
                    inhibited |= firing

    def budgets(self, history: History, columns: Sequence[int]) -> Matrix:
        """Return the budget left of every series at some steps; NaN where it had no event by then."""
        passed = [self.passed_seconds(float(history.times[column])) for column in columns]
        return np.array([series.budget_left(columns, passed) for series in self._series(history)])

    def _series(self, history: History) -> Iterator[_Series]:
        """Yield one series after the other: its sums fit the processor's cache, and most never burn."""
        out = self._excluded_steps(history)
        for row, (_, model, version) in enumerate(history.keys):
            bad, total = history.bad[row], history.total[row]
            if out.any():
                bad, total = np.where(out, 0.0, bad), np.where(out, 0.0, total)
            error = None if history.error is None else history.error[row]
            yield _Series(history.step, bad, total, error, 1 - self.target_of(model, version))

    def _excluded_steps(self, history: History) -> Flags:
        inside: Flags = np.zeros(len(history.times), dtype=bool)
        for low, high in self.excluded:
            inside |= (history.times > low) & (history.times - history.step < high)
        return inside

    def _firing(self, series: _Series, asked: rules.Condition) -> Flags | None:
        """Return for each step whether an alert fires; None where it never does."""
        clock = self.plan.clock
        longest, *others = map(clock.real, asked.windows)
        excess = series.excess(asked.factor)
        burning: Flags = np.ones(series.bad.shape, dtype=bool)
        for window in reversed(others):  # a short window seldom burns
            burning &= series.burns(excess, window)
        if not burning.any():
            return None
        burning &= series.burns(excess, longest, asked.z) & (series.failures(longest) > asked.failures)
        if asked.most_servers_now:
            burning &= series.mostly_failing()
        if asked.beyond_stated_error:
            burning &= ~series.within_error(excess, longest)
        if not burning.any():
            return None
        if asked.for_:
            pending = series.steps(clock.real(asked.for_, 1)) + 1
            burning = last(running(burning), pending) >= pending
        keep = series.steps(clock.real(asked.keep_firing_for, 1))
        kept: Flags = last(running(burning), keep + 1) > 0
        return kept


class _Series:
    """Events of a series with their running sums, and the questions asked of them."""

    def __init__(self, step: float, bad: Matrix, total: Matrix, error: Matrix | None, budget: float) -> None:
        self._step, self.bad, self.total, self._error, self._budget = step, bad, total, error, budget
        self._bad, self._total = running(bad), running(total)

    def steps(self, seconds: float) -> int:
        return max(1, round(seconds / self._step))

    def failures(self, seconds: float) -> Matrix:
        return last(self._bad, self.steps(seconds))

    def excess(self, factor: float) -> Matrix:
        """Return running sums of what failed beyond this many times what the budget allows."""
        return self._bad - factor * self._budget * self._total

    def burns(self, excess: Matrix, seconds: float, z: float = 0.0) -> Flags:
        """Return where a window burns the budget so fast, by more than chance explains."""
        steps = self.steps(seconds)
        beyond = last(excess, steps)
        if z:
            beyond -= z * np.sqrt(self._budget * np.maximum(last(self._total, steps), 0.0))
        burning: Flags = beyond > _NOTHING
        return burning

    def mostly_failing(self) -> Flags:
        failing: Flags = np.nan_to_num(self.bad) > 0.5 * np.nan_to_num(self.total)
        return failing

    def within_error(self, excess: Matrix, seconds: float) -> Flags:
        """Return where the share burns so fast only if the estimate is not wrong by its stated error."""
        if self._error is None:
            return np.zeros(self.bad.shape, dtype=bool)
        steps = self.steps(seconds)
        times = last(running(~np.isnan(self._error)), steps)
        error = last(running(self._error), steps) / np.maximum(times, 1)
        within: Flags = (last(excess, steps) <= error * last(self._total, steps)) & (times > 0)
        return within

    def budget_left(self, columns: Sequence[int], passed_seconds: Sequence[float]) -> Matrix:
        """Return the budget left at some steps, over the time passed by then (or what the history has of it)."""
        ends = np.array(columns) + 1
        firsts = np.maximum(0, ends - [self.steps(seconds) for seconds in passed_seconds])
        bad, total = (sums[ends] - sums[firsts] for sums in (self._bad, self._total))
        spent = np.divide(bad, total, out=np.full(bad.shape, np.nan), where=total > _NOTHING)
        left: Matrix = 1 - spent / self._budget
        return left


def data_from(history: History) -> float:
    """Return the Unix time at which the data of any series begin."""
    known = (~np.isnan(history.total)).any(axis=0)
    return float(history.times[known.argmax() if known.any() else -1] - history.step)


def running(values: Matrix | Flags) -> Matrix:
    """Return sums from the start, with a zero before; unknown adds nothing."""
    sums = np.zeros(len(values) + 1)
    np.nancumsum(values, out=sums[1:])
    return sums


def last(sums: Matrix, steps: int) -> Matrix:
    """Return sums over the last `steps` steps, fewer where the history begins."""
    window = sums[1:].copy()
    window[steps:] -= sums[1:-steps]
    return window


def _runs_of_true(history: History, firing: Flags, sent: Flags) -> Iterator[tuple[float, float | None, int]]:
    """Yield first moment, end (None: not yet) and first column of each time of firing that is sent at all."""
    edges = np.diff(firing.astype(np.int8), prepend=0, append=0)
    for start, end in zip(np.flatnonzero(edges == 1), np.flatnonzero(edges == -1), strict=True):
        if sent[start:end].any():
            ended = float(history.times[end]) if end < len(history.times) else None
            yield float(history.times[start]), ended, int(start)

"""A history as a policy counts it: no events in excluded time, and failed events in unknown time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from triton_slo.backtest.history import Flags, History
from triton_slo.backtest.policy import Policy, UnknownSteps


def excluded(history: History, policy: Policy) -> Flags:
    """Return the steps that reach into an excluded span."""
    return _steps_inside(history, policy, 0)


def quiet(history: History, policy: Policy) -> Flags:
    """Return the steps at whose end nothing fires: windows still reach into an excluded span."""
    return _steps_inside(history, policy, max(0.0, policy.lag - history.step))


def _steps_inside(history: History, policy: Policy, lag: float) -> Flags:
    inside: Flags = np.zeros(len(history.times), dtype=bool)
    for low, high in policy.excluded:
        inside |= (history.times > low) & (history.times - history.step < high + lag)
    return inside


def counted(history: History, policy: Policy) -> History:
    """Return the events that the policy counts."""
    seen = history if policy.unknown is None else _failed(history, policy.unknown)
    left_out = excluded(history, policy)
    if not left_out.any():
        return seen
    return replace(seen, bad=np.where(left_out, 0.0, seen.bad), total=np.where(left_out, 0.0, seen.total))


def _failed(history: History, unknown: UnknownSteps) -> History:
    bad, total = history.bad.copy(), history.total.copy()
    after, memory = (round(seconds / history.step) for seconds in (unknown.after, unknown.memory))
    for row, missing in enumerate(np.isnan(history.total)):
        edges = np.diff(missing.astype(np.int8), prepend=0, append=0)
        for start, end in zip(np.flatnonzero(edges == 1), np.flatnonzero(edges == -1), strict=True):
            if start == 0 or end - start <= after:
                continue  # before its first data, a series is not unknown
            before = total[row, max(0, start - memory) : start]
            pace = float(np.nanmedian(before))
            pace = pace if pace > 0 else unknown.otherwise * history.step
            bad[row, start + after : end] = total[row, start + after : end] = pace
    return replace(history, bad=bad, total=total)

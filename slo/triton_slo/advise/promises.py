"""The objectives that advice is about, on waits and on latency, and how far they were met."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from triton_slo.advise.advice import Promise
from triton_slo.advise.measured import Measured
from triton_slo.artifact import Options
from triton_slo.backtest.history import History, NoSeriesError, fetch
from triton_slo.indicators import Latency, Queue
from triton_slo.objective.model import Objective
from triton_slo.plan import Plan
from triton_slo.prometheus import Prometheus

Promises = Mapping[tuple[str, str], Sequence[Promise]]
"""Those of each model and version."""


def read_promises(
    prometheus: Prometheus,
    objectives: Iterable[Objective],
    models: Sequence[Measured],
    start: float,
    end: float,
    step: float,
) -> Promises:
    """Return the objectives of each model version on Triton's own waits and latency. Raises PrometheusError.

    The share of good requests is that under the present configuration.
    """
    promises: dict[tuple[str, str], list[Promise]] = defaultdict(list)
    for objective in objectives:
        indicator = objective.indicator
        if not isinstance(indicator, Latency | Queue) or (
            isinstance(indicator, Latency) and indicator.gateway
        ):
            continue
        try:
            plan = Plan(objective, Options(scrape_interval_seconds=step))
            history = fetch(prometheus, [plan], start, end, step, recorded=False)
        except NoSeriesError:
            history = None
        for measured in models:
            target, threshold = objective.resolve(measured.model, measured.version) or (0.0, None)
            if threshold is not None:
                good = None if history is None else _good(history, objective.name, measured)
                promises[measured.model, measured.version].append(
                    Promise(objective.name, indicator.kind, target, threshold, good)
                )
    return promises


def _good(history: History, slo: str, measured: Measured) -> float | None:
    key = slo, measured.model, measured.version
    if key not in history.keys or not measured.steps:
        return None
    row, since = history.keys.index(key), min(step.at for step in measured.steps)
    counted = (history.times >= since) & (history.total[row] > 0)
    events = float(np.sum(history.total[row][counted]))
    return 1 - float(np.sum(history.bad[row][counted])) / events if events else None

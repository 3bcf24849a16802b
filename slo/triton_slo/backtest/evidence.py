"""Data of an objective's groups in Prometheus, read once: the same for every target, window and tier."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from triton_slo.artifact import Options
from triton_slo.backtest.fetch import excluded_spans, fetch, records_from
from triton_slo.backtest.history import History, HistoryError
from triton_slo.estimate import Unmeasured, fed_groups, unmeasured
from triton_slo.group_status import GroupStatus
from triton_slo.names import GROUPING
from triton_slo.objective.exclusion import Span
from triton_slo.objective.model import Objective
from triton_slo.objective.writing import plain
from triton_slo.plan import Plan
from triton_slo.prometheus import Prometheus

_MAX_VALUES = 5_000_000
"""Groups times steps that are read at once: more would take tens of seconds and hundreds of megabytes."""
_JUDGED_BY = (
    "name",
    "description",
    "owner",
    "target",
    "window",
    "labels",
    "annotations",
    "alerting",
)
"""Fields that change what is made of the events, not the events."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """A history, and what limits it.

    `excluded` is the time that does not count, `fed` the sources of groups that may be estimated, and `bounds` the
    thresholds (seconds) at which a bucket ends, each with the number of groups that have it.
    """

    history: History
    excluded: tuple[Span, ...]
    fed: tuple[GroupStatus, ...]
    unmeasured: tuple[Unmeasured, ...]
    bounds: tuple[tuple[float, int], ...]


def events_key(objective: Objective) -> str:
    """Return what decides an objective's events, as text; objectives that have the same share what is read."""
    parts = {field: value for field, value in plain(objective).items() if field not in _JUDGED_BY}
    parts["overrides"] = [
        {**override, "target": ""}
        for override in parts.get("overrides", [])
        if override.get("threshold") is not None
    ]
    return json.dumps(parts, sort_keys=True)


def is_part_of(objective: Objective, loaded: Objective) -> bool:
    """Return whether the events of an objective are among those recorded of `loaded`."""
    same = objective.model_copy(update={"models": loaded.models})
    wanted, have = objective.models, loaded.models
    fewer = have.everything or wanted == have or set(wanted.names or ("",)) <= set(have.names or ())
    return objective.name == loaded.name and fewer and events_key(same) == events_key(loaded)


def grouped_by_version(objective: Objective) -> Objective:
    """Return the objective with no other groups than models and versions, as a history has them."""
    group_by = tuple(label for label in objective.group_by if label in GROUPING)
    return objective.model_copy(update={"group_by": group_by})


def read_evidence(
    prometheus: Prometheus,
    objective: Objective,
    options: Options,
    end: float,
    length: float,
    step: float,
    *,
    recorded: bool,
) -> Evidence:
    """Read `length` seconds of an objective's events up to a Unix time, and what limits them.

    `recorded` allows reading what Prometheus recorded of the objective. Raises PrometheusError and HistoryError.
    """
    plan = Plan(grouped_by_version(objective), options)
    end = end // step * step
    start = records_from(prometheus, [plan], end - length // step * step, end, step)
    _refuse_too_many(prometheus, plan, end, (end - start) / step)
    history = _since_data(fetch(prometheus, [plan], start, end, step, recorded=recorded))
    excluded = excluded_spans(objective.exclusions, start, end, prometheus)
    return Evidence(
        history,
        tuple(excluded),
        tuple(fed_groups(prometheus, plan, end)),
        tuple(unmeasured(prometheus, plan, end)),
        tuple(_bounds(prometheus, plan, end)),
    )


def _since_data(history: History) -> History:
    """Leave out the steps before any group had data: no policy could have raised anything then."""
    known = (~np.isnan(history.total)).any(axis=0)
    first = min(int(known.argmax()), len(history.times) - 2)
    error = None if history.error is None else history.error[:, first:]
    return History(
        history.keys, history.times[first:], history.bad[:, first:], history.total[:, first:], error
    )


def _refuse_too_many(prometheus: Prometheus, plan: Plan, at: float, steps: float) -> None:
    groups = sum(
        sample.value
        for sample in prometheus.instant(f"count(group {plan.scope.by} ({plan.measure.total}))", at)
    )
    if groups * steps > _MAX_VALUES:
        raise HistoryError(
            f"{groups:.0f} groups over {steps:.0f} steps are too many to replay at once; choose fewer models, or a "
            "shorter history"
        )


def _bounds(prometheus: Prometheus, plan: Plan, at: float) -> Iterator[tuple[float, int]]:
    query, unit = plan.objective.indicator.buckets(plan.scope)
    counted: dict[float, int] = defaultdict(int)
    for sample in prometheus.instant(f"count by (le) (\n{query}\n)", at) if query else ():
        edge = float(sample.labels.get("le", "+Inf"))
        # Written as 1 and as 1.0 by two versions of a server: the same bucket.
        counted[round(edge * unit, 9)] += int(sample.value)
    yield from ((edge, groups) for edge, groups in sorted(counted.items()) if 0 < edge < float("inf"))

"""What another objective would have made of a history: budgets, pages and tickets, and the limitations of the result.

The data of an objective's groups are read once: they are the same for every target, window and tier.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from triton_exporter.common.duration import in_words
from triton_exporter.common.printable import listed
from triton_slo.artifact import Options
from triton_slo.backtest.history import History, HistoryError, excluded_spans, fetch, records_from
from triton_slo.backtest.replay import Replayed
from triton_slo.backtest.report import Report, backtest, resolution
from triton_slo.estimate import Unmeasured, bucket_bounds, fed_groups, uncertainties, unmeasured
from triton_slo.fields import Choice, error_budget
from triton_slo.group_status import GroupStatus, group_name, points, version_name
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
    counted = prometheus.instant(f"count(group {plan.scope.by} ({plan.measure.total}))", end)
    groups, steps = sum(sample.value for sample in counted), (end - start) / step
    if groups * steps > _MAX_VALUES:
        raise HistoryError(
            f"{groups:.0f} groups over {steps:.0f} steps are too many to replay at once; choose fewer models, or a "
            "shorter history"
        )
    history = _since_data(fetch(prometheus, [plan], start, end, step, recorded=recorded))
    excluded = excluded_spans(objective.exclusions, start, end, prometheus)
    return Evidence(
        history,
        tuple(excluded),
        tuple(fed_groups(prometheus, plan, end)),
        tuple(unmeasured(prometheus, plan, end)),
        tuple(bucket_bounds(prometheus, plan, end)),
    )


def _since_data(history: History) -> History:
    """Leave out the steps before any group had data: no policy could have raised anything then."""
    known = (~np.isnan(history.total)).any(axis=0)
    first = min(int(known.argmax()), len(history.times) - 2)
    error = None if history.error is None else history.error[:, first:]
    return History(
        history.keys, history.times[first:], history.bad[:, first:], history.total[:, first:], error
    )


_POINTS = 120
"""Moments at which the budgets are worked out."""
_MAX_NAMED = 5
"""Groups that a limitation names."""


@dataclass(frozen=True, slots=True)
class Limitation:
    """Reason why a result may be wrong: what is uncertain, the groups concerned, and the fix."""

    what: str
    groups: tuple[str, ...] = ()
    fix: str = ""

    @property
    def whose(self) -> str:
        """The groups, the first few by name."""
        return listed(self.groups, _MAX_NAMED)


@dataclass(frozen=True, slots=True)
class GroupOutcome:
    """One model version: its events over the last window of the history, and the budget left at its end.

    `budget_left` is None without an event; `lowest` and `highest` are the budget if an estimate is wrong by its
    stated error. `unknown` is the share of steps without data (0 to 1).
    """

    model: str
    version: str
    target: float
    threshold: float | None
    failed: float
    events: float
    budget_left: float | None
    lowest: float | None
    highest: float | None
    unknown: float
    pages: int
    tickets: int


@dataclass(frozen=True, slots=True)
class WhatIf:
    """An objective over a history: groups with the least budget first, and budgets (None: no event) over time."""

    objective: Objective
    report: Report
    groups: tuple[GroupOutcome, ...]
    times: tuple[float, ...]
    curves: tuple[tuple[float | None, ...], ...]
    limitations: tuple[Limitation, ...]


def what_if(evidence: Evidence, objective: Objective, options: Options | None = None) -> WhatIf:
    """Replay an objective over what was read; it must measure what the evidence was read for."""
    # Prometheus has chosen the groups. A pattern from a form is not matched here, where it could take for ever.
    chosen_already = grouped_by_version(objective).model_copy(
        update={"models": Choice(), "versions": Choice()}
    )
    plan = Plan(chosen_already, options or Options())
    keys = tuple((objective.name, model, version) for _, model, version in evidence.history.keys)
    history = replace(evidence.history, keys=keys)
    judged = Replayed(plan.objective, plan.options, evidence.excluded)
    report = backtest(history, {objective.name: judged})
    targets = [judged.target_of(model, version) for _, model, version in keys]
    columns = np.unique(np.linspace(0, len(history.times) - 1, _POINTS).astype(int)).tolist()
    left = judged.budgets(history, columns)
    window = judged.passed_seconds(float(history.times[-1]))
    first = max(0, len(history.times) - max(1, round(window / history.step)))
    errors = _stated_errors(evidence, history, first)
    groups = [
        _group_outcome(plan, history, report, row, first, targets[row], float(left[row, -1]), errors[row])
        for row in range(len(keys))
    ]
    # The least budget first, groups without an event last.
    order = sorted(
        range(len(keys)),
        key=lambda row: (groups[row].budget_left is None, groups[row].budget_left or 0.0, keys[row]),
    )
    curves = [
        tuple(None if np.isnan(value) else round(float(value), 6) for value in left[row]) for row in order
    ]
    return WhatIf(
        objective,
        report,
        tuple(groups[row] for row in order),
        tuple(float(history.times[column]) for column in columns),
        tuple(curves),
        tuple(_limitations(evidence, objective, judged, report, groups)),
    )


def _stated_errors(evidence: Evidence, history: History, first: int) -> list[float | None]:
    """Return how far each share may be off: the mean of what was stated, else the error of the last hour."""
    stated: dict[tuple[str, str], float | None] = {
        (status.model, status.version): status.estimate_error for status in evidence.fed
    }
    stated_errors: list[float | None] = []
    for row, (_, model, version) in enumerate(history.keys):
        errors = np.array([]) if history.error is None else history.error[row, first:]
        known = errors[~np.isnan(errors)]
        stated_errors.append(float(known.mean()) if known.size else stated.get((model, version)))
    return stated_errors


def _group_outcome(
    plan: Plan,
    history: History,
    report: Report,
    row: int,
    first: int,
    target: float,
    left: float,
    error: float | None,
) -> GroupOutcome:
    key = history.keys[row]
    _, model, version = key
    total = history.total[row]
    known = ~np.isnan(total)
    since = int(known.argmax()) if known.any() else 0
    resolved = plan.objective.resolve(model, version) if model else None
    off = None if error is None or np.isnan(left) else error / error_budget(target)
    alerts = Counter(episode.severity for episode in report.episodes if episode.key == key)
    return GroupOutcome(
        model=model,
        version=version,
        target=target,
        threshold=resolved[1] if resolved else plan.objective.threshold_seconds,
        failed=float(np.nansum(history.bad[row, first:])),
        events=float(np.nansum(total[first:])),
        budget_left=None if np.isnan(left) else left,
        lowest=None if off is None else left - off,
        highest=None if off is None else min(1.0, left + off),
        unknown=1 - float(known[since:].mean()),
        pages=alerts["page"],
        tickets=alerts["ticket"],
    )


def _limitations(
    evidence: Evidence, objective: Objective, judged: Replayed, report: Report, groups: Sequence[GroupOutcome]
) -> Iterator[Limitation]:
    have = report.end - report.data_from.get(objective.name, report.start)
    wanted = judged.passed_seconds(report.end)
    if have < wanted - 2 * report.step_seconds:
        yield Limitation(
            f"there is data of {in_words(have)}, and the window has {in_words(wanted)}: the budget is what would "
            "be left if all of the window were like it",
            fix="choose a longer history, if Prometheus keeps one",
        )
    for gap in evidence.unmeasured:
        yield Limitation(f"not measured: {gap.reason}", gap.groups, gap.fix)
    fed = [
        replace(row, slo=objective.name, target=judged.target_of(row.model, row.version))
        for row in evidence.fed
    ]
    for what, caveat in uncertainties(fed, lambda row: group_name(row.group)):
        off = [row.estimate_error for row in fed if row.estimate_error is not None]
        by = f" (up to +-{points(max(off))} in the last hour)" if off else ""
        yield Limitation(f"{what}{by}: {caveat.short}", fix=caveat.settled_by)
    gaps = [group for group in groups if group.unknown > 0]
    if gaps:
        worst = max(group.unknown for group in gaps)
        yield Limitation(
            f"there is no data for up to {worst:.1%} of the time, in which failures were not seen",
            tuple(version_name(group.model, group.version) for group in gaps),
        )
    if silent := [group for group in groups if group.budget_left is None]:
        yield Limitation(
            "there was no event in the window, so nothing is known",
            tuple(version_name(group.model, group.version) for group in silent),
        )
    if set(objective.group_by) - set(GROUPING):
        others = ", ".join(label for label in objective.group_by if label not in GROUPING)
        yield Limitation(
            f"groups by {others} are replayed together: each of them has its own budget and alerts"
        )
    if judged.options.time_scale != 1:
        faster = f"{1 / judged.options.time_scale:g} times faster"
        yield Limitation(f"time is played {faster} here")
    yield Limitation(resolution(report.step_seconds))

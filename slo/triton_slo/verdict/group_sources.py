"""Ask a Prometheus what feeds an objective, from source series alone: its rules need not be loaded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from triton_exporter.catalogue import triton
from triton_slo import names
from triton_slo.indicators.common.sources import CAVEATS, HIDING
from triton_slo.plan import Plan
from triton_slo.prometheus.client import Prometheus
from triton_slo.verdict.group_names import group_name
from triton_slo.verdict.group_status import GroupStatus


@dataclass(frozen=True, slots=True)
class Unmeasured:
    """A wrong setting because of which nothing is known of some groups, and what to change."""

    reason: str
    fix: str
    groups: tuple[str, ...]


def unmeasured(prometheus: Prometheus, plan: Plan, at: float | None = None) -> Iterator[Unmeasured]:
    """Yield the wrong settings of which an objective has groups, now or at a Unix time. Raises PrometheusError."""
    groups_by_fix: dict[tuple[str, str], list[str]] = defaultdict(list)
    for setting in plan.measure.wrong_settings:
        groups = [group_name(sample.labels) for sample in prometheus.instant(setting.expr, at)]
        groups_by_fix[setting.words, setting.fix] += groups
    for (words, fix), groups_of_fix in groups_by_fix.items():
        if groups_of_fix:
            yield Unmeasured(words, fix, tuple(sorted(groups_of_fix)))


def fed_groups(prometheus: Prometheus, plan: Plan, at: float | None = None) -> Iterator[GroupStatus]:
    """Yield each group of an objective that may be estimated: its sources, target, error, and if it is idle.

    Now, or at a Unix time. Raises PrometheusError.
    """
    measure = plan.measure
    if not measure.possible_sources & (CAVEATS.keys() - HIDING):
        return
    sources: dict[names.GroupLabels, set[str]] = defaultdict(set)
    for expr, fixed in measure.sources:
        for sample in () if fixed in HIDING else prometheus.instant(expr, at):
            labels = dict(sample.labels)
            source = labels.pop(names.SOURCE, fixed)
            sources[tuple(sorted(labels.items()))].add(source)
    estimated = measure.estimate_error
    asked = prometheus.instant(estimated(plan.clock.text("1h")), at) if estimated else ()
    errors = {tuple(sorted(sample.labels.items())): sample.value for sample in asked}
    requests = plan.scope.rate(triton.REQUEST_SUCCESS, plan.clock.text("1h"))
    busy = {tuple(sorted(sample.labels.items())) for sample in prometheus.instant(f"{requests} > 0", at)}
    for group, of_group in sources.items():
        labels = dict(group)
        resolved = plan.objective.resolve(labels.get("model", ""), labels.get("version", ""))
        yield GroupStatus(
            plan.objective.name,
            plan.objective.indicator.kind,
            labels,
            target=plan.objective.target if resolved is None else resolved[0],
            sources=tuple(sorted(of_group)),
            estimate_error=errors.get(group),
            idle=group not in busy,
        )

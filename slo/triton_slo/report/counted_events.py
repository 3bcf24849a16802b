"""Events of groups over a period: what their counter grew by, from when, and against which target."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from triton_slo import names
from triton_slo.objective.periods import Period
from triton_slo.prometheus import Prometheus
from triton_slo.promql import Matchers

STEP_SECONDS = 300
"""Step in which recorded time is counted: Prometheus' lookback for a sample."""


@dataclass(frozen=True, slots=True)
class RecordedGroup:
    """One model version (or other group) of an objective over a period.

    `since` is when its counter began, or, where that is later, the start of the period or the objective's first
    record in it.
    """

    group: Mapping[str, str]
    target: float | None
    error: float
    total: float
    since: float
    target_before: float | None = None
    unknown_seconds: float = 0.0
    sources: tuple[str, ...] = ()
    estimate_error: float | None = None


class CountedEvents:
    """Answers about the counters of several objectives, by objective and group."""

    def __init__(self, prometheus: Prometheus, period: Period, matchers: Matchers) -> None:
        """Ask for the growth of every counter in the period. Raises PrometheusError."""
        window = f"[{max(1, round(period.end - period.start))}s]"
        self._period = period
        self._values: dict[tuple[str, names.GroupLabels], dict[str, float]] = defaultdict(dict)
        target = f"{names.OBJECTIVE_RATIO}{matchers}{window}"
        for key, query in {
            "": f"increase({names.COPY}{matchers}{window})",
            "since": f"min_over_time({names.COUNTER_SINCE}{matchers}{window})",
            "target": f"last_over_time({target})",
            "least": f"min_over_time({target})",
            "most": f"max_over_time({target})",
        }.items():
            for sample in prometheus.instant(query, period.end):
                group = (sample.labels.get(names.SLO, ""), names.group_of(sample.labels))
                event = key or sample.labels.get(names.EVENT, "")
                # Two counters of a group are those of two thresholds, one after the other.
                counted = self._values[group].get(event, 0.0) if not key else 0.0
                self._values[group][event] = counted + sample.value

    def of(
        self, slo: str, fixed: set[tuple[str, str]], pauses: Sequence[Period]
    ) -> Iterator[tuple[names.GroupLabels, RecordedGroup]]:
        """Yield each group of an objective that had a counter, with its events in the period."""
        for (name, group), values in self._values.items():
            if name == slo and fixed <= set(group) and "since" in values:
                total, target = values.get(names.TOTAL, 0.0), values.get("target")
                others = [values[key] for key in ("least", "most") if key in values and values[key] != target]
                yield (
                    group,
                    RecordedGroup(
                        dict(group),
                        target,
                        min(values.get(names.ERROR, 0.0), total),
                        total,
                        self._since(values["since"], pauses),
                        next(iter(others), None),
                    ),
                )

    def _since(self, began: float, pauses: Sequence[Period]) -> float:
        """Return from when events are counted: not before the first record of the period."""
        start = self._period.start
        late = (pause.end for pause in pauses if pause.start == start < began < pause.end)
        return next(late, max(start, began))

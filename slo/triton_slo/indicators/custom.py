"""Custom: the user's own PromQL, summed by group; `{{window}}` becomes each recorded window."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal, Self

from pydantic import model_validator

from triton_slo import expression
from triton_slo.fields import refuse
from triton_slo.indicators.common.measure import CounterQuery, Events, Measure, Scope
from triton_slo.indicators.common.sources import CLIENTS
from triton_slo.indicators.indicator import FieldFinding, Indicator

WINDOW = "{{window}}"
"""Placeholder of the range in custom PromQL."""
_QUERIES = ("good", "errors", "total", "error_ratio")


class Custom(Indicator):
    """Any PromQL with `{{window}}` for the range: `good` and `total` events, or one `error_ratio`.

    `counts_failures`: whether its events are requests as clients or a gateway saw them, and that each failed one
    counts: it sees failures that a backend hides from Triton's own counters.
    """

    kind: Literal["custom"] = "custom"
    good: str | None = None
    errors: str | None = None
    total: str | None = None
    error_ratio: str | None = None
    counts_failures: bool = False
    burn_alert: ClassVar = "TritonCustomBudgetBurn"
    names_alerts: ClassVar = True
    caused_by: ClassVar = ""

    @model_validator(mode="after")
    def _refuse_mistakes(self) -> Self:
        refuse(self._mistakes())
        return self

    def _mistakes(self) -> Iterator[str]:
        given = dict(self._queries())
        if set(given) not in ({"good", "total"}, {"errors", "total"}, {"error_ratio"}):
            yield "custom needs good and total, or errors and total, or error_ratio alone"
        for key, query in sorted(given.items()):
            if WINDOW not in query:
                yield f"{key} must hold {{{{window}}}} where the range goes, as in rate(x[{{{{window}}}}])"
            try:
                expression.check(query.replace(WINDOW, "5m"), key)
            except ValueError as error:
                yield str(error)

    def _queries(self) -> Iterator[tuple[str, str]]:
        for key in _QUERIES:
            if (query := getattr(self, key)) is not None:
                yield key, query

    def measure(self, threshold: float | None, scope: Scope) -> Measure:
        """Measure good or failed events over all events, or a ratio in which every second weighs the same."""

        def summed(query: str, window: str) -> str:
            return f"sum {scope.by} (\n{scope.restricted(query.strip().replace(WINDOW, window))}\n)"

        def events_over(window: str) -> Events:
            if (query := self.ratio_query(window)) is not None:
                ratio = f"avg {scope.by} (\n{scope.restricted(query)}\n)"
                # A ratio of nothing is NaN, and NaN compares with nothing: such a second is not an event.
                return Events(error=f"({ratio}) >= 0", total=f"(({ratio}) >= 0) * 0 + 1")
            assert self.total is not None
            total = summed(self.total, window)
            if self.errors is not None:
                failed = f"({summed(self.errors, window)} or {scope.on} 0 * {total})"
                return Events(error=f"{failed} and {scope.on} {total} >= 0", total=f"{total} >= 0")
            assert self.good is not None
            good = f"({summed(self.good, window)} or {scope.on} 0 * {total})"
            return Events(error=f"clamp_min({total} - {scope.on} {good}, 0) >= 0", total=f"{total} >= 0")

        presence = f"group {scope.by} (\n{events_over(scope.slice_window).total}\n)"
        source = CLIENTS if self.counts_failures else "custom"
        return Measure(presence, CounterQuery(events_over, scope.group_by), sources=((presence, source),))

    @property
    def sees_independent_events(self) -> bool:
        """False for a ratio: it has no events, every second weighs the same."""
        return self.error_ratio is None

    def findings(self, group_by: Sequence[str], chosen: Sequence[str]) -> Iterator[FieldFinding]:
        """Yield operations whose sides never match, and results that are without a label of the group."""
        if ignored := [label for label in chosen if label not in group_by]:
            yield (
                f"{ignored[0]}s",
                f"group_by has no {ignored[0]}, so that this does not restrict the query",
                f"add {ignored[0]} to group_by, or write the matcher into the query",
            )
        for field, query in self._queries():
            try:
                mismatched = expression.mismatches(query.replace(WINDOW, "5m"))
            except RecursionError:
                yield f"indicator.{field}", "nested too deeply to be checked", "record a part of it by a rule"
                continue
            for left, right in mismatched:
                yield (
                    f"indicator.{field}",
                    f"sides with labels ({left}) and ({right}) never match: the result is always empty",
                    "aggregate both sides by the same labels, or say on (...) which count",
                )
            if mismatched:
                continue
            known = expression.result_labels(query.replace(WINDOW, "5m"))
            if known is not None and (lost := [label for label in group_by if label not in known]):
                reason = f"its results have no label {' and '.join(lost)}, by which the objective groups"
                yield (
                    f"indicator.{field}",
                    f"{reason}: what fails cannot be attributed",
                    f"aggregate by ({', '.join(group_by)}), or write group_by: [{', '.join(sorted(known))}]",
                )

    def ratio_query(self, window: str) -> str | None:
        """Return the ratio of a window, where it is one."""
        return None if self.error_ratio is None else self.error_ratio.strip().replace(WINDOW, window)

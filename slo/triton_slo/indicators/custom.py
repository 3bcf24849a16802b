"""Custom: counters of the user's own, kept for each server and summed by group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal, Self

from pydantic import model_validator

from triton_slo import expression
from triton_slo.fields import refuse
from triton_slo.indicators.indicator import FieldFinding, Indicator, Measure, Scope
from triton_slo.promql import by
from triton_slo.sources import CLIENTS


class Custom(Indicator):
    """Any counters: those of failed events (`error`), and those of all events (`total`).

    `counts_failures`: whether its events are requests as clients or a gateway saw them, and that each failed one
    counts: it sees failures that a backend hides from Triton's own counters.
    """

    kind: Literal["custom"] = "custom"
    error: str
    total: str
    counts_failures: bool = False
    burn_alert: ClassVar = "TritonCustomBudgetBurn"
    failed_words: ClassVar = "events of {} failed"
    names_alerts: ClassVar = True

    @model_validator(mode="after")
    def _refuse_mistakes(self) -> Self:
        refuse(self._mistakes())
        return self

    def _mistakes(self) -> Iterator[str]:
        for field, query in self._queries():
            if "{{" in query:
                yield f"{field} has a window: {expression.WRITE_A_COUNTER}"
                continue
            try:
                expression.check(query, field)
                expression.check_counter(query, field)
            except ValueError as error:
                yield str(error)

    def _queries(self) -> tuple[tuple[str, str], ...]:
        return (("error", self.error), ("total", self.total))

    def measure(self, threshold: float | None, scope: Scope) -> Measure:
        """Count failed and all events; a server without a counter of failures has none so far."""
        error, total = (scope.restricted(query.strip()) for _, query in self._queries())
        # Errors of the same labels have no zero: `or` prefers them.
        zero = f"0 * sum {by(scope.server_labels)} (\n{total}\n)"
        presence = f"group {scope.by} (\n{total}\n)"
        source = CLIENTS if self.counts_failures else "custom"
        return Measure(f"{error}\nor {zero}", total, sources=((presence, source),))

    def findings(self, group_by: Sequence[str], chosen: Sequence[str]) -> Iterator[FieldFinding]:
        """Yield operations whose sides never match, and results that are without a label of the group."""
        if ignored := [label for label in chosen if label not in group_by]:
            yield (
                f"{ignored[0]}s",
                f"group_by has no {ignored[0]}, so that this does not restrict the query",
                f"add {ignored[0]} to group_by, or write the matcher into the query",
            )

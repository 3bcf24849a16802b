"""Find when an objective's exclusions applied: from the calendar, or from Prometheus for those in PromQL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from triton_slo.objective.exclusion import Exclusion, Span, clipped, merged
from triton_slo.prometheus import Prometheus

_STEP_SECONDS = 60.0
_MOST_POINTS = 10_000


def excluded_spans(
    exclusions: Sequence[Exclusion], start: float, end: float, prometheus: Prometheus | None = None
) -> list[Span]:
    """Excluded time between two Unix times, in order, none twice. Raises PrometheusError.

    Raises LookupError for an exclusion in PromQL where there is no Prometheus to ask.
    """
    return merged([span for exclusion in exclusions for span in _spans(exclusion, start, end, prometheus)])


def _spans(exclusion: Exclusion, start: float, end: float, prometheus: Prometheus | None) -> Iterator[Span]:
    if exclusion.promql is None:
        yield from exclusion.spans(start, end)
        return
    if prometheus is None:
        raise LookupError(f"the exclusion {exclusion.reason!r} is PromQL, which only Prometheus can answer")
    step = max(_STEP_SECONDS, (end - start) / _MOST_POINTS)
    for series in prometheus.range(f"group ((\n{exclusion.promql}\n))", start, end, step):
        # The exclusion may begin or end anywhere between two evaluations: a step on each side is left out, too.
        yield from clipped([(at - step, at + step) for at in series.times], start, end)

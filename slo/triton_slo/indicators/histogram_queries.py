"""Queries of histograms: events over a bucket's edge, the error of an estimated share, and shares of time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from triton_exporter.catalogue import Metric, state, triton
from triton_slo import names
from triton_slo.indicators.common.measure import Scope
from triton_slo.indicators.common.sources import ESTIMATING_SOURCES
from triton_slo.indicators.gateways.gateway_indicator import GatewayRequests
from triton_slo.promql import Matchers, by, indent, le_matcher, on, paren, quote, regex_of


def in_buckets(metric: Metric, edge: float, scope: Scope | GatewayRequests) -> tuple[str, str]:
    """Return the requests over a bucket's edge, and all of the servers that have the bucket.

    The count and the buckets of a histogram are of one moment, never shrink, and begin again together: their
    difference is a counter.
    """
    count, bucket = scope.series(metric.count), scope.series(metric.bucket, le_matcher(edge))
    if isinstance(scope, GatewayRequests):
        return scope.named(f"{count} - ignoring (le) {bucket}"), scope.named(
            f"{count} and ignoring (le) {bucket}"
        )
    return f"{count} - ignoring (le) {bucket}", f"{count} and ignoring (le) {bucket}"


def by_bucket(scope: Scope) -> Scope:
    """Return the scope that keeps the buckets of a histogram apart."""
    return replace(scope, group_by=(*scope.group_by, "le"))


_STATES_NO_ERROR = [source for source in ESTIMATING_SOURCES if source != "decomposed"]


def stated_error(signal: str, threshold: float, scope: Scope, *labels: str) -> Callable[[str], str]:
    """Return PromQL for the error that the exporter states, averaged over a window: the worst of the servers."""
    within = scope.matchers.equal("signal", signal).also(le_matcher(threshold))
    group = by((*scope.group_by, *labels))
    return lambda window: f"max {group} (avg_over_time({state.DISTRIBUTION_ERROR}{within}[{window}]))"


def estimate_error(signal: str, histogram: Metric, threshold: float, scope: Scope) -> Callable[[str], str]:
    """Return PromQL for the error of an estimated share: the stated one or the width of the bounds if less."""
    own = scope.matchers.equal("signal", signal)
    within = own.also(le_matcher(threshold))
    # The label le keeps the two apart until the lesser is chosen.
    stated_over = stated_error(signal, threshold, scope, "le")

    def fed_by(sources: Sequence[str]) -> str:
        return f"({state.DISTRIBUTION_SOURCE}{own.also(f'source=~{quote(regex_of(sources))}')} == 1)"

    def error(window: str) -> str:
        # Where one of several servers states no error, the error of the others is not the error of all.
        stated = f"{stated_over(window)}\nunless {scope.on} {fed_by(_STATES_NO_ERROR)}"
        most, least = (
            f"sum {scope.by} (rate({state.REQUESTS_WITHIN}{within.equal('bound', bound)}[{window}]))"
            for bound in ("most", "least")
        )
        every = f"sum {scope.by} (rate({histogram.count}{scope.matchers}[{window}]))"
        width = f"clamp_max(({most} - {least}) / ({every} > 0), 1)"
        either = f"{paren(stated)}\nor {width}"
        lesser = f"min {scope.by} (\n{indent(either)}\n)"
        return f"{lesser}\nand {scope.on} {fed_by(ESTIMATING_SOURCES)}"

    return error


def share_of_time(metric: Metric, selector: Matchers, window: str) -> str:
    """Return the share of the requests' time; a batch counts its time for each request, so it is capped at 1."""
    part, whole = (
        f"sum {by(names.GROUPING)} (rate({m}{selector}[{window}]))"
        for m in (metric, triton.REQUEST_DURATION_US)
    )
    return f"clamp_max({part} / {on(names.GROUPING)} ({whole} > 0), 1)"

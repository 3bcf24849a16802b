"""PromQL for panels: selectors that follow the variables, rates and ratios, then the traffic of models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from triton_exporter.catalogue import Metric, state, triton
from triton_slo import signals
from triton_slo.indicators.errors import CANCELED
from triton_slo.names import COUNTED_TWICE, server_traffic, step_traffic
from triton_slo.promql import quote

RATE = "$__rate_interval"
"""Grafana's window: at least four scrapes, and never shorter than a step of the graph."""
NO_SHARE = 2
"""Value of a share that is not known: above every share, so that its row comes last in ascending order."""


@dataclass(frozen=True, slots=True)
class BoardScope:
    """The matchers that every selector of a dashboard carries: its variables and the fleet's own selector."""

    matchers: tuple[str, ...]

    def __call__(self, metric: Metric | str, *more: str) -> str:
        """Select a series within this scope."""
        return f"{metric}{{{', '.join((*self.matchers, *more))}}}"

    def rate(self, metric: Metric | str, *more: str, offset: str = "") -> str:
        """Return the per-second increase of a counter over Grafana's own window, now or as it was."""
        return f"rate({self(metric, *more)}[{RATE}]{f' offset {offset}' if offset else ''})"

    def events(self, metric: Metric | str, *by: str) -> str:
        """Return the number of events within Grafana's own window by some labels, without zeros."""
        return f"{total(f'increase({self(metric)}[{RATE}])', *by)} > 0"


def summed(within: BoardScope, recorded: str, each: Callable[[BoardScope], str], *variables: str) -> str:
    """Return the recorded sum while all variables are All, otherwise `each` of the chosen series.

    Exactly one of the two has series. The recorded sum lacks the labels of the variables, so only All (.*) matches.
    No series has a label `chosen`, so with All its matcher excludes every series of `each`, and none is read.
    """
    chosen = 'chosen!~"' + "".join(f"${name}" for name in variables) + '"'
    return f"{within(recorded)} or {each(BoardScope((*within.matchers, chosen)))}"


def quote_for_grafana(text: str) -> str:
    """Quote a value in which Grafana must not see a variable: it replaces `$name` and `[[name]]` in any query."""
    return quote(text).replace("$", r"\x24").replace("[[", r"\x5b[")


def scope(selector: str, *variables: str) -> BoardScope:
    """Make the scope of a dashboard from names of its variables and extra matchers (`region="eu"`)."""
    matchers = [f'{name}=~"${name}"' for name in variables]
    return BoardScope((*matchers, *([selector] if selector else [])))


def total(expr: str, *by: str) -> str:
    """Return a sum by some labels."""
    return f"sum by ({', '.join(by)}) ({expr})" if by else f"sum({expr})"


def ratio(part: str, whole: str) -> str:
    """Return the part of a whole that is not zero: no value, rather than NaN, where nothing happened."""
    return f"{part} / ({whole} > 0)"


def or_zero(expr: str, alive: str) -> str:
    """Return an expression, or zero where it has no series but the thing that would make them answers.

    Never a bare vector(0): with every exporter gone that would draw a healthy zero.
    """
    return f"{expr} or 0 * {alive}"


def or_last(share: str, every: str) -> str:
    """Return a share, and NO_SHARE for the other series of `every`: empty cells would be sorted first."""
    return f"{share} or {NO_SHARE} + 0 * {every}"


def worst(expr: str, every: str = "10m") -> str:
    """Return the ten series with the highest maximum in the time range, the same at every point of the graph.

    A plain topk selects again at each point, and draws many more lines. Steps of `every` keep the query cheap; a
    time range that is shorter than one step uses the last minute.
    """
    long, short = (f"max_over_time(({expr})[{span}] @ end())" for span in (f"$__range:{every}", "1m:10s"))
    return f"({expr}) and topk(10, {long} or {short})"


def emptiest(expr: str) -> str:
    """Return the ten series with the lowest values at the end of the time range."""
    return f"({expr}) and bottomk(10, last_over_time(({expr})[1m:10s] @ end()))"


def quantile(level: float, buckets: str, *by: str) -> str:
    """Return a quantile estimated from histogram buckets.

    Without observations the quantile is NaN, which the comparison turns into no value.
    """
    return f"histogram_quantile({level:g}, {total(buckets, 'le', *by)}) >= 0"


NOT_CANCELED = f'reason!="{CANCELED}"'
"""Matcher without requests that the client cancelled: they neither failed nor succeeded."""

PHASES = tuple((name.replace("_", " "), metric) for name, metric in triton.PHASES.items())
"""Parts of a request in the order they happen."""

_QUANTILE = {state.REQUEST_DURATION: state.REQUEST_QUANTILE, state.QUEUE_DURATION: state.QUEUE_QUANTILE}

UNCOUNTED = (
    "Triton does not count as failures: requests that a full queue rejects, malformed requests and, "
    "since 24.06, requests that a Python model answers with an error response (docs/exporter.md#what-triton-cannot-count)."
)
"""Caveat of every number of failed requests."""
SHARE_FAILED = f"Share of requests that failed. {UNCOUNTED}"
"""Description of a panel with the share of failed requests."""


@dataclass(frozen=True, slots=True)
class RecordedTraffic:
    """Traffic as the generated rules record it; `name` is `model_traffic` or `server_traffic`."""

    scope: BoardScope
    name: Callable[[str], str]

    def __call__(self, what: str, *by: str) -> str:
        every = total(self.scope(self.name(what)), *by)
        if by or self.name is server_traffic:
            return every
        # Of the chosen models, what an ensemble and its step both report counts once.
        again = total(self.scope(step_traffic(what), 'step_model=~"$model"'))
        return f"({every} - {again} or {every})"

    def failed(self, *by: str) -> str:
        return ratio(self("failures", *by), self("requests", *by))

    def latency(self, *by: str) -> str:
        """Return the mean seconds of successful requests."""
        return ratio(self("request_seconds", *by), f"({self('requests', *by)} - {self('failures', *by)})")

    def queue_share(self, *by: str) -> str:
        return ratio(self("queue_seconds", *by), self("request_seconds", *by))

    def batch(self, *by: str) -> str:
        """Return the mean inferences in an execution."""
        return ratio(self("inferences", *by), self("executions", *by))


@dataclass(frozen=True, slots=True)
class RawTraffic:
    """Traffic of a few models from Triton's own counters, over the window of the graph."""

    scope: BoardScope

    def rate(self, metric: Metric, *by: str) -> str:
        """Return the summed per-second increase of a counter."""
        return total(self.scope.rate(metric), *by)

    def failures(self, *by: str) -> str:
        """Return the failed requests a second, without those that their clients canceled.

        Triton counts a failure of an ensemble twice.
        """
        counted_twice = self.scope(COUNTED_TWICE)
        return total(f"{self.scope.rate(triton.REQUEST_FAILURE, NOT_CANCELED)} or -{counted_twice}", *by)

    def requests(self, *by: str) -> str:
        return f"({self.rate(triton.REQUEST_SUCCESS, *by)} + {self.failures(*by)})"

    def failed(self, *by: str) -> str:
        return ratio(self.failures(*by), self.requests(*by))

    def per_request(self, metric: Metric, *by: str) -> str:
        """Return the mean of a duration over successful requests, in the unit of the counter."""
        return ratio(self.rate(metric, *by), self.rate(triton.REQUEST_SUCCESS, *by))

    def queued(self, *by: str) -> str:
        """Return the microseconds a second in queues: for an ensemble those of its steps, as it has none."""
        return f"(1e6 * {self.of_steps('queue_seconds', *by)} or {self.rate(triton.QUEUE_DURATION_US, *by)})"

    def of_steps(self, what: str, *by: str) -> str:
        """Return the part of the steps' traffic that the chosen ensemble causes; nothing for other models."""
        return total(self.scope(step_traffic(what)), *by)

    def queue_share(self, *by: str) -> str:
        """Return the share of request time spent waiting: for an ensemble in the queues of its steps."""
        steps = ratio(
            f"1e6 * {self.of_steps('queue_seconds', *by)}", self.rate(triton.REQUEST_DURATION_US, *by)
        )
        return f"{steps} or {signals.QUEUE_SHARE.expr(lambda metric: self.rate(metric, *by))}"

    def instances_busy(self, *by: str) -> str:
        """Return the share of the instances' time spent executing."""
        return signals.INSTANCES_BUSY.expr(
            lambda metric: self.rate(metric, *by), lambda metric: total(self.scope(metric), *by)
        )

    def batch(self, *by: str) -> str:
        """Return the mean inferences in an execution."""
        return ratio(self.rate(triton.INFERENCE_COUNT, *by), self.rate(triton.EXEC_COUNT, *by))

    def buckets(self, metric: Metric) -> str:
        """Return the rates of a histogram's buckets."""
        return self.scope.rate(metric.bucket)

    def histogram(self, metric: Metric) -> str:
        """Return the rates of a histogram: its buckets, or the native one that a Prometheus 3 has made of them."""
        return f"{self.buckets(metric)} or ignoring (le) {self.scope.rate(metric)}"

    def quantile(
        self, level: float, *by: str, metric: Metric = state.REQUEST_DURATION, offset: str = ""
    ) -> str:
        """Return a quantile of all requests of all servers, in seconds.

        A histogram does not show where it is between two bounds of its buckets. Each exporter estimates it more
        finely for its own server; that of all requests is neither below the lowest nor above the highest of these.
        """
        of_all = quantile(level, self.scope.rate(metric.bucket, offset=offset), *by)
        window = f"[{RATE}]{f' offset {offset}' if offset else ''}"
        of_each = self.scope(_QUANTILE[metric], f'quantile="{level:g}"')
        grouped = f" by ({', '.join(by)})" if by else ""
        lowest, highest = (f"{end}{grouped} ({end}_over_time({of_each}{window}))" for end in ("min", "max"))
        if by:
            # The median of the three; without observations there are none.
            three = " or ".join(
                f'label_replace({expr}, "of", "{name}", "", "")'
                for name, expr in (("all", of_all), ("lowest", lowest), ("highest", highest))
            )
            observed = total(self.scope.rate(metric.bucket, 'le="+Inf"', offset=offset), *by)
            return f"quantile{grouped} (0.5, {three}) and {observed} > 0"
        # The same for one value, which reads the buckets once.
        return f"clamp({of_all}, scalar({lowest} or vector(-Inf)), scalar({highest} or vector(Inf)))"

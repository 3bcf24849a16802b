"""Model: is this model healthy, and if not, where does the time go and what limits it?

First the view of one model: the series that the variables of its dashboard select. Then the rows that only some models
have (ensembles, language models, caches), those of all, and the dashboard.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar
from urllib.parse import quote

from triton_dashboards import displays, shared
from triton_dashboards.objectives import Objectives
from triton_dashboards.query import (
    PHASES,
    SHARE_FAILED,
    UNCOUNTED,
    BoardScope,
    RawTraffic,
    or_zero,
    quantile,
    quote_for_grafana,
    ratio,
    scope,
    total,
)
from triton_dashboards.values import (
    Annotation,
    Column,
    Dashboard,
    Display,
    LabelColumn,
    Link,
    Panel,
    Query,
    Row,
    Stat,
    StateTimeline,
    Style,
    Table,
    Threshold,
    TimeSeries,
    fires,
)
from triton_exporter.catalogue import Metric, gpu, llm, models, state, triton
from triton_exporter.catalogue.external import headroom
from triton_exporter.catalogue.state import QUANTILES
from triton_slo import links, signals
from triton_slo.alert_settings import Tuning
from triton_slo.artifact import Options
from triton_slo.indicators import Errors, Indicator, Latency, Queue
from triton_slo.names import COUNTED_TWICE, SLO, step_traffic
from triton_slo.signals import Signal, Tail

S = TypeVar("S", bound=Signal)
_SERVERS = ("cluster", "job", "instance")


@dataclass(frozen=True, slots=True)
class View:
    """Series of one model: of all its versions (`model`), or of those that the variables choose (`chosen`)."""

    model: BoardScope
    chosen: BoardScope
    objectives: Objectives
    servers: BoardScope
    name: str = ""
    """The model's name; empty in the template, where it is a variable."""
    limits: Mapping[str, float] = field(default_factory=dict)
    """Limits that the objectives of this model promise, by kind of indicator; empty in the template."""
    tuning: Tuning = field(default_factory=Tuning)

    def signal(self, signal: S) -> S:
        """Return a signal with the threshold that applies to this model."""
        return signal.tuned(self.tuning, self.name)

    def limit(self, indicator: type[Indicator]) -> float | None:
        """Return what this model's objective promises, in the unit of the indicator's graphs; None if unknown."""
        return self.limits.get(indicator.name())

    @property
    def raw(self) -> RawTraffic:
        return RawTraffic(self.chosen)


def template_view(options: Options) -> View:
    """Return the view of the template, whose model is a variable.

    Its value is compared as it is, so that a model's dots and brackets are not a regular expression.
    """
    one = 'model="$model"'
    servers, selector = scope("", *_SERVERS).matchers, [options.selector] if options.selector else []
    return View(
        model=BoardScope((*servers, one, *selector)),
        chosen=BoardScope((*servers, one, 'version=~"$version"', *selector)),
        objectives=Objectives(BoardScope((one,)), options.time_scale),
        servers=scope(options.selector, *_SERVERS),
        tuning=options.tuning,
    )


def model_view(name: str, options: Options) -> View:
    """Return the view of one model by name, for a dashboard of its own."""
    matcher = f"model={quote_for_grafana(name)}"
    extra = ", ".join(part for part in (matcher, options.selector) if part)
    return View(
        model=scope(extra, *_SERVERS),
        chosen=scope(extra, *_SERVERS, "version"),
        objectives=Objectives(BoardScope((matcher,)), options.time_scale),
        servers=scope(options.selector, *_SERVERS),
        name=name,
        tuning=options.tuning,
    )


def quantiles(raw: RawTraffic, metric: Metric) -> tuple[Query, ...]:
    """Return the usual quantiles of a duration, with its exemplars once: they belong to no quantile."""
    return tuple(
        Query(raw.quantile(level, metric=metric), f"p{level * 100:g}", exemplar=level == QUANTILES[-1])
        for level in QUANTILES
    )


def with_limit(display: Display, limit: float | None) -> Display:
    """Return a display with the objective's own limit in red, if it is known."""
    if limit is None:
        return display
    return replace(display, thresholds=(display.thresholds[0], Threshold("red", limit)))


def with_limit_line(display: Display) -> Display:
    """Return a display for a graph with the series of `limit_queries`."""
    return replace(display, styles=(*display.styles, displays.DASHED_LIMIT))


def limit_queries(view: View, indicator: type[Indicator]) -> tuple[Query, ...]:
    """Return the limit of the model's objectives as a series of its own, in the indicator's unit.

    Grafana's axis contains every series, but no threshold that is far from them.
    """
    if view.name:
        limit = view.limit(indicator)
        return () if limit is None else (Query(f"vector({limit:g})", "limit"),)
    return (Query(view.objectives.promised(indicator), f"limit of {{{{{SLO}}}}}"),)


def ensemble(view: View) -> tuple[Panel, ...]:
    """Return panels of the steps of an ensemble, from what is recorded of the requests that it sends to them."""
    requests = view.raw.of_steps("requests", "step_model")

    traced = state.TRACED_STEP_SECONDS
    parts = total(view.raw.scope.rate(traced, 'part!="request"'), "step_model", "part")
    whole = total(view.raw.scope.rate(traced, 'part="request"'))

    def per_request(what: str) -> str:
        return ratio(view.raw.of_steps(what, "step_model"), requests)

    return (
        TimeSeries(
            "Latency of the steps",
            "Mean duration of a request to each step, in its queue and in compute.",
            {"{{step_model}}": per_request("request_seconds")},
            displays.SECONDS.when_empty("No ensemble"),
            stacked=True,
            width=8,
        ),
        TimeSeries(
            "Queue of the steps",
            "Mean time of a request in the queue of each step: an ensemble has no queue of its own.",
            {"{{step_model}}": per_request("queue_seconds")},
            displays.SECONDS.when_empty("No ensemble"),
            stacked=True,
            width=8,
        ),
        TimeSeries(
            "Failures of the steps",
            f"Share of the ensemble's requests to each step that failed: shows which step causes failures of the "
            f"ensemble. {UNCOUNTED}",
            {"{{step_model}}": per_request("failures")},
            displays.FAILED_BY.when_empty("No step failed"),
            width=8,
        ),
        TimeSeries(
            "Time by model called",
            "From traces, also of a Python model that calls others (BLS) and passes its trace on: the part of a "
            "request's time in the queue and in compute of each model called, and of the model itself.",
            {
                "{{part}} of {{step_model}}": f"{parts} / ignoring (step_model, part) group_left () ({whole} > 0)"
            },
            displays.SHARE.when_empty("No trace of a call"),
            stacked=True,
            width=24,
        ),
    )


def language(view: View) -> tuple[Panel, ...]:
    """Return panels of a language model: how long its users wait, and what fills its engine."""
    none = "No series of a language model"

    def tail(title: str, lead: str, metric: Metric, signal: Tail | None = None) -> Panel:
        queries = [Query(quantile(q, view.raw.histogram(metric)), f"p{q * 100:g}") for q in QUANTILES]
        display = displays.SECONDS.when_empty(none)
        if signal is None:
            return TimeSeries(title, lead, queries, display)
        signal = view.signal(signal)
        described = f"{lead} For the p{signal.level * 100:g}, {fires(signal)}"
        return TimeSeries(title, described, queries, displays.warned(display, signal), limit_line=True)

    kv_cache = view.signal(signals.KV_CACHE)
    return (
        tail(
            "Time to first token",
            "Time until the first token of a response.",
            llm.FIRST_TOKEN,
            signals.FIRST_TOKEN,
        ),
        tail("Inter-token latency", "Time between two output tokens.", llm.INTER_TOKEN, signals.OUTPUT_TOKEN),
        tail("End to end", "Time until the last token of a response.", llm.E2E),
        TimeSeries(
            "Tokens",
            "Prompt tokens and generated tokens per second.",
            {
                "generated": view.raw.rate(llm.GENERATION_TOKENS),
                "prompt": view.raw.rate(llm.PROMPT_TOKENS),
            },
            Display("count:tok/s", minimum=0, no_value=none),
            reads=(llm.PROMPT_TOKENS, llm.GENERATION_TOKENS),
        ),
        TimeSeries(
            "Requests in the engine",
            "Running, waiting and paused requests. Preempted: requests a second that the engine takes out of "
            "execution because its KV cache is full.",
            {
                "{{state}}": total(view.chosen(llm.REQUESTS), "state"),
                "preempted/s": view.raw.rate(llm.PREEMPTIONS),
            },
            Display("short", minimum=0, no_value=none),
            legend="right",
            calcs=("lastNotNull",),
        ),
        TimeSeries(
            "KV cache used",
            "Share of the KV cache in use; at 1, new requests must wait. While requests wait, "
            + fires(kv_cache),
            {"{{instance}}": f"max by (instance) ({kv_cache.expr(view.chosen)})"},
            displays.warned(displays.SHARE.when_empty(none), kv_cache),
            limit_line=True,
        ),
    )


def first_screen(view: View) -> tuple[Panel, ...]:
    """Return what matters first of a language model, whichever engine serves it; requests say little about it."""
    kv_cache = view.signal(signals.KV_CACHE)

    def stat(title: str, text: str, expr: str, display: Display) -> Panel:
        return Stat(title, text, expr, replace(display, no_value="–"), width=6, height=3)

    def tail(signal: Tail) -> tuple[str, Display]:
        judged = displays.judged(displays.SECONDS, view.signal(signal))
        return quantile(signal.level, view.raw.histogram(signal.metric)), judged

    return (
        stat("First token, p95", "95 % of the responses began sooner.", *tail(signals.FIRST_TOKEN)),
        stat("Further tokens, p95", "95 % of the further tokens took less.", *tail(signals.OUTPUT_TOKEN)),
        stat(
            "Tokens per second",
            "Tokens generated per second.",
            view.raw.rate(llm.GENERATION_TOKENS),
            Display("count:tok/s", minimum=0),
        ),
        stat(
            "KV cache",
            "Share of the KV cache in use, on the fullest server; at 1, new requests must wait.",
            f"max({kv_cache.expr(view.chosen)})",
            displays.judged(displays.SHARE, kv_cache),
        ),
    )


def cache(view: View) -> tuple[Panel, ...]:
    """Return panels of the hits and savings of the response cache."""
    hits, misses = view.raw.rate(triton.CACHE_HITS_PER_MODEL), view.raw.rate(triton.CACHE_MISSES_PER_MODEL)
    return (
        TimeSeries(
            "Cache hits",
            "Share of requests answered from the cache.",
            {"hits": ratio(hits, f"({hits} + {misses})")},
            displays.SHARE.when_empty("No response cache"),
        ),
    )


def first_response(view: View) -> tuple[Panel, ...]:
    buckets = view.raw.buckets(triton.FIRST_RESPONSE_MS)
    return (
        TimeSeries(
            "Time to first response",
            "Quantiles over all servers.",
            [Query(quantile(level, buckets), f"p{level * 100:g}") for level in QUANTILES],
            Display("ms", minimum=0, no_value="Needs histogram_latencies"),
        ),
    )


EXTRAS: Mapping[str, tuple[str, Callable[[View], tuple[Panel, ...]]]] = {
    "ensemble": ("Ensemble steps", ensemble),
    "language": ("Language model", language),
    "cache": ("Response cache", cache),
    "histogram": ("First response (needs histogram_latencies)", first_response),
}
"""Key -> heading and panels of a row that only some models have."""


def dashboard(options: Options) -> Dashboard:
    """Make the template that serves any model."""
    view = template_view(options)
    return Dashboard(
        uid=links.MODEL,
        title="Triton / Model",
        description="Is this model healthy, and if not, where do requests spend their time and what "
        "limits the model? The rows show symptoms, then causes, then details. Compare queue and compute "
        "time first: if the queue dominates, add instances or servers; if compute dominates and the GPU "
        "is idle, increase batching; if the GPU is busy, its capacity is exhausted.",
        tags=shared.tags("model"),
        variables=(*shared.variables("cluster", "job", "instance"), shared.ONE_MODEL, shared.VERSION),
        annotations=marks(view),
        links=shared.links(options),
        rows=rows(view),
    )


def marks(view: View) -> tuple[Annotation, ...]:
    """Return marks of the model's events, and of alerts of it and of its servers."""
    # Not a regular expression: Grafana does not escape a variable with one value.
    [objectives] = view.objectives.scope.matchers
    here = shared.OF_SERVER
    return shared.event_annotations(
        BoardScope((*view.servers.matchers, objectives)), (objectives, here), ('model=""', here)
    )


def rows(view: View, name: str = "$model", extras: Sequence[str] = tuple(EXTRAS)) -> tuple[Row, ...]:
    """Return the rows of a model, `extras` among those that only some models have."""
    speaks = "language" in extras
    first = ["language"] if speaks and view.name else []
    return (
        Row(
            f"Is {name} healthy?",
            (*availability(view), *service(view), *(first_screen(view) if speaks else ())),
        ),
        *(Row(title, make(view)) for title, make in map(EXTRAS.__getitem__, first)),
        Row("Symptoms", symptoms(view)),
        Row("Where does the time go?", phases(view)),
        Row("What limits it?", limits(view)),
        Row("Versions side by side", versions(view)),
        Row("Readiness and loads", lifecycle(view), collapsed=True),
        *(
            Row(title, make(view), collapsed=True)
            for key, (title, make) in EXTRAS.items()
            if key in extras and key not in first
        ),
    )


def availability(view: View) -> tuple[Panel, ...]:
    return (
        Stat(
            "Serving",
            "Versions of this model that are ready, counted on each server.",
            f"sum({view.chosen(state.MODEL_READY)})",
            Display(decimals=0, thresholds=(Threshold("red"), Threshold("green", 1)), no_value="Unknown"),
        ),
        Stat(
            "Not ready",
            "Expected versions that are not ready, counted per server.",
            or_zero(f"count({view.chosen(state.MODEL_NOT_READY_SINCE)})", f"max({view.servers(state.UP)})"),
            displays.FAULTS.when_empty("No exporter"),
            reads=state.MODEL_NOT_READY_SINCE,
        ),
        Stat(
            "Budget left",
            f"The smallest error budget left of this model's objectives. {displays.MATURE}",
            f"min({view.objectives.budget_left()})",
            replace(displays.BUDGET, links=(_to_objectives(view),)),
            width=4,
        ),
    )


def service(view: View) -> tuple[Panel, ...]:
    raw = view.raw
    return (
        Stat(
            "Requests/s",
            "Rate of successful and failed requests, without requests that clients cancelled.",
            raw.requests(),
            displays.REQUESTS,
            width=4,
        ),
        Stat(
            "Failed",
            SHARE_FAILED,
            raw.failed(),
            with_limit(displays.FAILED, view.limit(Errors)),
            reads=triton.REQUEST_FAILURE,
        ),
        Stat(
            "p99 latency",
            "99 % of the successful requests were faster.",
            raw.quantile(0.99),
            with_limit(displays.SECONDS, view.limit(Latency)),
            width=4,
        ),
        Stat(
            "Time in queue",
            "Share of the request time that is spent in the queue: the best indicator of saturation that "
            "a stock Triton has. " + fires(view.signal(signals.QUEUE_SHARE)),
            raw.queue_share(),
            displays.queue_share(view.tuning, view.name),
            reads=triton.QUEUE_DURATION_US,
        ),
    )


def _to_objectives(view: View) -> Link:
    if view.name:
        return shared.to(links.SLO, "Objectives", model=quote(view.name, safe=""))
    return shared.to(links.SLO, "Objectives", "model")


def symptoms(view: View) -> tuple[Panel, ...]:
    raw = view.raw
    by_reason = total(
        f"{view.chosen.rate(triton.REQUEST_FAILURE)} or -{view.chosen(COUNTED_TWICE)}", "reason"
    )
    return (
        TimeSeries(
            "Requests by version",
            "Rate of successful requests, by version; shows rollouts. Gray: all versions one week ago.",
            {
                "version {{version}}": raw.rate(triton.REQUEST_SUCCESS, "version"),
                WEEK_AGO: total(view.chosen.rate(triton.REQUEST_SUCCESS, offset="7d")),
            },
            replace(displays.REQUESTS, styles=(_AS_BEFORE,)),
            width=8,
        ),
        TimeSeries(
            "Failures by reason",
            "BACKEND: the model failed. REJECTED: the request waited longer than the queue timeout. "
            f"CANCELED: the client cancelled (not a server failure). OTHER: a step of an ensemble "
            f"failed. {UNCOUNTED}",
            {"{{reason}}": f"{by_reason} > 0"},
            replace(displays.REQUESTS, no_value="No failures", styles=_BY_REASON),
            width=8,
        ),
        TimeSeries(
            "Latency",
            "Latency quantiles of successful requests inside Triton; for a client, network and "
            "serialisation time are added. Dashed: threshold of the objective. Gray: p99 one week ago.",
            [
                *quantiles(raw, state.REQUEST_DURATION),
                *limit_queries(view, Latency),
                Query(raw.quantile(0.99, offset="7d"), WEEK_AGO),
            ],
            with_limit_line(replace(displays.SECONDS, styles=(_AS_BEFORE,))),
            reads=(state.REQUEST_DURATION, state.DISTRIBUTION_SOURCE),
            log=True,
            width=8,
        ),
    )


_GPU = ("instance", "gpu_uuid")
WEEK_AGO = "a week ago"
_AS_BEFORE = Style(WEEK_AGO, "gray", "reference")

_BY_REASON = (
    Style("BACKEND", "red"),
    Style("REJECTED", "orange"),
    Style("CANCELED", "gray"),
    Style("OTHER", "purple"),
)

_BY_PHASE = (
    Style("queue", "orange"),
    Style("compute", "blue"),
    Style("compute infer", "blue"),
    Style("compute input", "semi-dark-blue"),
    Style("compute output", "purple"),
    Style("other", "gray"),
)
"""Time in the queue has another colour than time of work."""


def phases(view: View) -> tuple[Panel, ...]:
    raw = view.raw
    step_pending = view.chosen(step_traffic("pending"))
    (queue, _), *compute = PHASES
    spent = {queue: raw.queued(), **{name: raw.rate(metric) for name, metric in compute}}
    other = " - ".join((raw.rate(triton.REQUEST_DURATION_US), *spent.values()))
    answered = raw.rate(triton.REQUEST_SUCCESS)
    return (
        TimeSeries(
            "Request time by phase",
            "Mean time of a successful request, split into its phases; they add up to the mean "
            "latency. For an ensemble: the sum over its steps.",
            [
                *(Query(ratio(expr, answered), name) for name, expr in spent.items()),
                Query(ratio(f"clamp_min({other}, 0)", answered), "other"),
            ],
            replace(displays.MICROSECONDS, styles=_BY_PHASE),
            reads=(*(metric for _, metric in PHASES),),
            stacked=True,
            legend="right",
            calcs=("lastNotNull",),
        ),
        TimeSeries(
            "Queue and compute time",
            "Shares of the request time. If the queue dominates: scale out, or reduce concurrency. If "
            "compute dominates and the GPU is idle: increase batching or add instances.",
            {
                "queue": raw.queue_share(),
                "compute": ratio(
                    f"({' + '.join(raw.rate(metric) for _, metric in PHASES[1:])})",
                    raw.rate(triton.REQUEST_DURATION_US),
                ),
            },
            replace(displays.SHARE, no_value="No traffic", styles=_BY_PHASE),
            reads=(triton.QUEUE_DURATION_US, triton.COMPUTE_INFER_DURATION_US),
            calcs=("mean", "max", "lastNotNull"),
        ),
        TimeSeries(
            "Wait in the queue",
            "Quantiles of the queue time. Dashed: threshold of the objective. An ensemble has no queue: see "
            "its steps.",
            [*quantiles(raw, state.QUEUE_DURATION), *limit_queries(view, Queue)],
            with_limit_line(displays.SECONDS.when_empty("No traffic, or an ensemble")),
            reads=state.QUEUE_DURATION,
            log=True,
        ),
        TimeSeries(
            "Waiting requests by server",
            "Requests in the queue, not yet handed to the backend; for an ensemble, in the queues of its steps.",
            {"{{instance}}": total(f"{view.chosen(triton.PENDING_REQUESTS)} or {step_pending}", "instance")},
            displays.COUNT.when_empty("Not loaded"),
        ),
    )


def limits(view: View) -> tuple[Panel, ...]:
    raw = view.raw
    busy = view.signal(signals.INSTANCES_BUSY)
    on_gpu = total(view.model(gpu.MODEL_GPU_INFO), *_GPU)
    # Those who computed it have neither the job nor the server of the model.
    advised = BoardScope((*view.objectives.scope.matchers, 'version=~"$version"'))

    def load(bound: str) -> str:
        matcher = f'bound="{bound}"'
        return f"max by ({SLO}) (1 / ({advised(headroom.RATIO, matcher)} > 0))"

    busy_gpus = f"max by ({', '.join(_GPU)}) ({view.servers(gpu.UTILIZATION)})"
    return (
        TimeSeries(
            "Mean batch size and limit",
            "Inferences per execution. If this is far below the dashed limit under load, configure a "
            "queue delay.",
            {
                "version {{version}}": raw.batch("version"),
                "limit": f"max({view.chosen(models.MAX_BATCH_SIZE)}) > 0",
            },
            replace(displays.BATCH, styles=(displays.DASHED_LIMIT,)),
            width=8,
        ),
        TimeSeries(
            "Instances busy",
            "Share of time in which the instances are executing, by version; near 1, requests must wait. "
            + fires(busy),
            {"version {{version}}": raw.instances_busy("version")},
            displays.warned(replace(displays.SHARE, maximum=None, no_value="No instances known"), busy),
            limit_line=True,
            width=8,
        ),
        TimeSeries(
            "Traffic over break rate",
            "Traffic over the rate at which an objective breaks: at 100 % it breaks by the estimate; at worst, by the "
            "lower end of the interval.",
            {f"{{{{{SLO}}}}}": load("estimate"), f"{{{{{SLO}}}}} at worst": load("least")},
            replace(displays.SHARE, maximum=None, no_value="Needs tritonwatch advise --watch"),
            width=8,
        ),
        TimeSeries(
            "Utilisation of its GPUs",
            "Utilisation of the GPUs that this model runs on: by all processes, and the estimated part that "
            "this model caused.",
            {
                "this model, {{instance}} {{gpu_uuid}}": total(view.chosen(gpu.MODEL_UTILIZATION), *_GPU),
                "all, {{instance}} {{gpu_uuid}}": f"{busy_gpus} and on ({', '.join(_GPU)}) {on_gpu}",
            },
            displays.SHARE.when_empty("No GPU known"),
            width=24,
        ),
    )


def versions(view: View) -> tuple[Panel, ...]:
    everything = RawTraffic(view.model)
    p99 = everything.quantile(0.99, "version")
    shown = (
        Column("Ready on", f"sum by (version) ({view.model(state.MODEL_READY)})", displays.COUNT),
        Column("Requests/s", everything.requests("version"), displays.REQUESTS),
        Column("Failed", everything.failed("version"), displays.calm(displays.FAILED), colored=True),
        Column(
            "Mean latency",
            everything.per_request(triton.REQUEST_DURATION_US, "version"),
            displays.MICROSECONDS,
        ),
        Column("p99 latency", p99, displays.SECONDS),
        Column(
            "Time in queue",
            everything.queue_share("version"),
            displays.calm(displays.queue_share(view.tuning, view.name)),
            colored=True,
        ),
        Column(
            "Compute",
            everything.per_request(triton.COMPUTE_INFER_DURATION_US, "version"),
            displays.MICROSECONDS,
        ),
        Column("Mean batch", everything.batch("version"), displays.BATCH),
    )
    return (
        Table(
            "Versions",
            f"All versions over the same time, independent of the selected version. Failed: {UNCOUNTED}",
            [LabelColumn("version")],
            shown,
            reads=(state.MODEL_READY, triton.REQUEST_SUCCESS, state.REQUEST_DURATION),
            height=6,
            sort_by="Version",
            descending=False,
        ),
        TimeSeries(
            "p99 latency by version",
            "p99 latency of each version.",
            [Query(p99, "version {{version}}", exemplar=True)],
            displays.SECONDS,
        ),
        TimeSeries(
            "Failed by version",
            f"Share of requests that failed, by version. Dashed: share that the objective allows. {UNCOUNTED}",
            [Query(everything.failed("version"), "version {{version}}"), *limit_queries(view, Errors)],
            with_limit_line(displays.FAILED_BY),
            reads=triton.REQUEST_FAILURE,
        ),
    )


def lifecycle(view: View) -> tuple[Panel, ...]:
    current = view.chosen(state.MODEL_READY)
    load_time = " or ".join(
        f"max by (version, instance) ({seconds})"
        for seconds in (
            f"{view.chosen(triton.MODEL_LOAD_DURATION_SECS)} > 0",  # Triton reports 0 for ensembles
            view.chosen(state.MODEL_LOAD_DURATION_ESTIMATED),
        )
    )
    return (
        StateTimeline(
            "Ready",
            "Readiness of each version on each server.",
            {"version {{version}} on {{instance}}": f"min by (version, instance) ({current})"},
            displays.YES_BANDS,
            height=7,
        ),
        TimeSeries(
            "Failed loads",
            "Failed load attempts, by class of reason; Triton's error message is in the exporter's /state.",
            {
                "{{reason}} on {{instance}}": view.model.events(
                    state.MODEL_LOAD_FAILURES, "reason", "instance"
                )
            },
            displays.FAILURES.when_empty("No load failed"),
            bars=True,
        ),
        TimeSeries(
            "Load time",
            "Duration of the last successful load: Triton's own value or, if Triton does not export it, "
            "an estimate from the states that the exporter polled.",
            {"version {{version}} on {{instance}}": load_time},
            displays.SECONDS.when_empty("No load was seen"),
        ),
    )

"""Model: is this model healthy, and if not, where does the time go and what limits it?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from triton_dashboards import reading, shared
from triton_dashboards.about import about
from triton_dashboards.grafana.panels import heatmap, stat, state_timeline, timeseries
from triton_dashboards.grafana.values import Dashboard, Display, Panel, Query, Row, Threshold
from triton_dashboards.query import Scope, or_zero, quantile, ratio, scope, total
from triton_dashboards.tables import Column, columns
from triton_dashboards.traffic import PHASES, Raw
from triton_exporter.catalogue import Metric, gpu, state, triton
from triton_slo.artifact import Options
from triton_slo.conventions import CURRENT_BURN_RATE, INDICATOR, PERIOD_BUDGET_REMAINING, SLO

QUANTILES = (0.5, 0.95, 0.99)


@dataclass(frozen=True, slots=True)
class View:
    """One model as the variables narrow it: all its versions (`model`) or the chosen ones (`chosen`)."""

    model: Scope
    chosen: Scope
    objectives: Scope
    servers: Scope

    @property
    def raw(self) -> Raw:
        return Raw(self.chosen)


def view(options: Options) -> View:
    """The view of the template, whose model is a variable."""
    servers = ("cluster", "job", "instance")
    return View(
        model=scope(options.selector, *servers, "model="),
        chosen=scope(options.selector, *servers, "model=", "version"),
        objectives=scope("", "model="),
        servers=scope(options.selector, *servers),
    )


def dashboard(options: Options) -> Dashboard:
    """Make the template that serves any model."""
    seen = view(options)
    return Dashboard(
        uid=shared.MODEL,
        title="Triton / Model",
        description="Is this model healthy, and if not, where does the time go and what limits it? Reads top "
        "to bottom: symptoms, causes, details. Queue against compute first: when the queue dominates, add "
        "instances or servers; when compute dominates and the GPU is idle, batch more; when the GPU is busy, "
        "it is full.",
        tags=shared.tags("model"),
        variables=(*shared.variables("cluster", "job", "instance"), shared.ONE_MODEL, shared.VERSION),
        annotations=shared.event_annotations(seen.servers, model=True),
        links=shared.links(options.runbook_url),
        rows=rows(seen),
    )


def rows(seen: View) -> tuple[Row, ...]:
    """The rows that any model has."""
    return (
        Row("Is $model healthy?", glance(seen)),
        Row("Symptoms", symptoms(seen)),
        Row("Where does the time go?", phases(seen)),
        Row("What limits it?", limits(seen)),
        Row("Versions side by side", versions(seen)),
        Row("Readiness and loads", lifecycle(seen), collapsed=True),
        Row("First response (needs histogram_latencies)", first_response(seen), collapsed=True),
        Row("Triton's own quantiles (needs summary_latencies)", summaries(seen), collapsed=True),
    )


def glance(seen: View) -> tuple[Panel, ...]:
    raw = seen.raw
    return (
        stat(
            "Serving",
            about("Versions of this model that are ready, counted on each server.", state.MODEL_READY),
            [Query(f"sum({seen.chosen(state.MODEL_READY)})")],
            Display(decimals=0, thresholds=(Threshold("red"), Threshold("green", 1)), no_value="Not known"),
        ),
        stat(
            "Not ready",
            about(
                "Versions that should serve and do not, counted on each server.", state.MODEL_NOT_READY_SINCE
            ),
            [
                Query(
                    or_zero(
                        f"count({seen.chosen(state.MODEL_NOT_READY_SINCE)})", f"max({seen.servers(state.UP)})"
                    )
                )
            ],
            replace(reading.FAULTS, no_value="No exporter"),
        ),
        stat(
            "Budget left",
            about("The smallest error budget left of this model's objectives.", PERIOD_BUDGET_REMAINING),
            [Query(f"min({seen.objectives(PERIOD_BUDGET_REMAINING)})")],
            replace(reading.BUDGET, links=(shared.to(shared.SLO, "Objectives", "model"),)),
        ),
        stat(
            "Requests/s",
            about(
                "Requests answered or failed, without those that clients gave up.",
                triton.REQUEST_SUCCESS,
                triton.REQUEST_FAILURE,
            ),
            [Query(raw.requests())],
            reading.REQUESTS,
        ),
        stat(
            "Failed",
            about("Share of requests that failed.", triton.REQUEST_FAILURE),
            [Query(raw.failed())],
            reading.FAILED,
        ),
        stat(
            "p99 latency",
            about("99 of 100 successful requests were quicker.", state.REQUEST_DURATION),
            [Query(quantile(0.99, raw.buckets()))],
            reading.SECONDS,
        ),
        stat(
            "Time in queue",
            about(
                "Share of request time spent waiting: the best stock sign of saturation.",
                triton.QUEUE_DURATION_US,
            ),
            [Query(raw.queue_share())],
            reading.QUEUE_SHARE,
        ),
        stat(
            "Mean batch",
            about(
                "Inferences in one execution: how well dynamic batching works.",
                triton.INFERENCE_COUNT,
                triton.EXEC_COUNT,
            ),
            [Query(raw.batch())],
            reading.BATCH,
        ),
    )


def symptoms(seen: View) -> tuple[Panel, ...]:
    raw = seen.raw
    by_reason = total(seen.chosen.rate(triton.REQUEST_FAILURE), "reason")
    return (
        timeseries(
            "Requests by version",
            about("Requests answered, by version: roll-outs show here.", triton.REQUEST_SUCCESS),
            [Query(raw.rate(triton.REQUEST_SUCCESS, "version"), "version {{version}}")],
            reading.REQUESTS,
            width=8,
        ),
        timeseries(
            "Failures by reason",
            about(
                "BACKEND: the model raised. REJECTED: waited too long in the queue. CANCELED: the "
                "client gave up (no failure of ours). OTHER: an ensemble's step, or a bad request.",
                triton.REQUEST_FAILURE,
            ),
            [Query(f"{by_reason} > 0", "{{reason}}")],
            Display("reqps", minimum=0, no_value="No failures"),
            width=8,
        ),
        timeseries(
            "Latency",
            about(
                "Quantiles of successful requests inside Triton; a client sees network and "
                "serialisation too.",
                state.REQUEST_DURATION,
                state.DISTRIBUTION_SOURCE,
            ),
            [Query(quantile(level, raw.buckets()), f"p{level * 100:g}") for level in QUANTILES],
            reading.SECONDS,
            width=8,
        ),
    )


def phases(seen: View) -> tuple[Panel, ...]:
    raw = seen.raw
    whole = raw.per_request(triton.REQUEST_DURATION_US)
    known = " - ".join((whole, *(raw.per_request(metric) for _, metric in PHASES)))
    return (
        timeseries(
            "A request's time, by phase",
            about(
                "Mean time of a successful request, split into its phases; they add up to the mean "
                "latency. For an ensemble: the sum over its steps.",
                *(metric for _, metric in PHASES),
            ),
            [
                *(Query(raw.per_request(metric), name) for name, metric in PHASES),
                Query(f"clamp_min({known}, 0)", "other"),
            ],
            reading.MICROSECONDS,
            stacked=True,
            calcs=("mean", "lastNotNull"),
        ),
        timeseries(
            "Queue against compute",
            about(
                "Shares of request time. Queue on top: scale out, or reduce concurrency. Compute on "
                "top with an idle GPU: batch more or add instances.",
                triton.QUEUE_DURATION_US,
                triton.COMPUTE_INFER_DURATION_US,
            ),
            [
                Query(raw.queue_share(), "queue"),
                Query(
                    ratio(
                        f"({' + '.join(raw.rate(metric) for _, metric in PHASES[1:])})",
                        raw.rate(triton.REQUEST_DURATION_US),
                    ),
                    "compute",
                ),
            ],
            replace(reading.SHARE, no_value="No traffic"),
            calcs=("mean", "max", "lastNotNull"),
        ),
        timeseries(
            "Time in queue",
            about("Quantiles of the time requests waited.", state.QUEUE_DURATION),
            [
                Query(quantile(level, raw.buckets(state.QUEUE_DURATION)), f"p{level * 100:g}")
                for level in QUANTILES
            ],
            reading.SECONDS,
        ),
        timeseries(
            "Waiting requests by server",
            about("Requests in the queue, not yet handed to the backend.", triton.PENDING_REQUESTS),
            [Query(total(seen.chosen(triton.PENDING_REQUESTS), "instance"), "{{instance}}")],
            reading.COUNT,
        ),
    )


def limits(seen: View) -> tuple[Panel, ...]:
    raw = seen.raw
    mine = total(seen.model(gpu.MODEL_GPU_INFO), "gpu_uuid", "instance")
    return (
        timeseries(
            "Mean batch",
            about("Inferences in one execution, by version.", triton.INFERENCE_COUNT, triton.EXEC_COUNT),
            [Query(raw.batch("version"), "version {{version}}")],
            reading.BATCH,
            width=8,
        ),
        timeseries(
            "Requests in flight",
            about(
                "Mean number of requests inside Triton at a time, by Little's law (rate times "
                "duration); of completed requests, so it lags a stall.",
                triton.REQUEST_DURATION_US,
            ),
            [Query(f"{raw.rate(triton.REQUEST_DURATION_US, 'instance')} / 1e6", "{{instance}}")],
            Display("short", 1, 0, no_value="No traffic"),
            width=8,
        ),
        timeseries(
            "Busy GPUs of this model",
            about(
                "Utilisation of the GPUs this model runs on, whoever uses them.",
                gpu.UTILIZATION,
                gpu.MODEL_GPU_INFO,
            ),
            [
                Query(
                    f"max by (instance, gpu_uuid) ({seen.servers(gpu.UTILIZATION)}) and on (instance, "
                    f"gpu_uuid) {mine}",
                    "{{instance}} {{gpu_uuid}}",
                )
            ],
            replace(reading.SHARE, no_value="No GPU known"),
            width=8,
        ),
    )


def versions(seen: View) -> tuple[Panel, ...]:
    everything = Raw(seen.model)
    p99 = quantile(0.99, everything.buckets(), "version")
    shown = (
        Column("Ready on", f"sum by (version) ({seen.model(state.MODEL_READY)})", reading.COUNT),
        Column("Requests/s", everything.requests("version"), reading.REQUESTS),
        Column("Failed", everything.failed("version"), reading.calm(reading.FAILED), colored=True),
        Column(
            "Mean latency",
            everything.per_request(triton.REQUEST_DURATION_US, "version"),
            reading.MICROSECONDS,
        ),
        Column("p99 latency", p99, reading.SECONDS),
        Column(
            "Time in queue",
            everything.queue_share("version"),
            reading.calm(reading.QUEUE_SHARE),
            colored=True,
        ),
        Column(
            "Compute",
            everything.per_request(triton.COMPUTE_INFER_DURATION_US, "version"),
            reading.MICROSECONDS,
        ),
        Column("Mean batch", everything.batch("version"), reading.BATCH),
    )
    return (
        columns(
            "Versions",
            about(
                "All versions over the same time, whatever is chosen above.",
                state.MODEL_READY,
                triton.REQUEST_SUCCESS,
                state.REQUEST_DURATION,
            ),
            "version",
            shown,
            height=6,
            sort_by="Version",
            descending=False,
        ),
        timeseries(
            "p99 latency by version",
            about("The slowest of a hundred requests, by version.", state.REQUEST_DURATION),
            [Query(p99, "version {{version}}")],
            reading.SECONDS,
        ),
        timeseries(
            "Failed by version",
            about("Share of requests that failed, by version.", triton.REQUEST_FAILURE),
            [Query(everything.failed("version"), "version {{version}}")],
            reading.FAILED,
        ),
    )


def lifecycle(seen: View) -> tuple[Panel, ...]:
    failures = total(seen.model.increase(state.MODEL_LOAD_FAILURES), "reason", "instance")
    current = seen.chosen(state.MODEL_READY)
    return (
        state_timeline(
            "Ready",
            about("Whether each version is ready, on each server.", state.MODEL_READY),
            [Query(f"min by (version, instance) ({current})", "version {{version}} on {{instance}}")],
            reading.YES,
            height=7,
        ),
        timeseries(
            "Failed loads",
            about(
                "Load attempts that failed, by class of reason; Triton's own words are on the "
                "exporter's /state page.",
                state.MODEL_LOAD_FAILURES,
            ),
            [Query(f"{failures} > 0", "{{reason}} on {{instance}}")],
            Display("short", 0, 0, no_value="No load failed"),
            bars=True,
        ),
        timeseries(
            "Load time",
            about("How long the last successful load took.", triton.MODEL_LOAD_DURATION_SECS),
            [
                Query(
                    f"max by (version, instance) ({seen.chosen(triton.MODEL_LOAD_DURATION_SECS)})",
                    "version {{version}} on {{instance}}",
                )
            ],
            replace(reading.SECONDS, no_value="Needs Triton 24.11"),
        ),
    )


def first_response(seen: View) -> tuple[Panel, ...]:
    buckets = seen.raw.buckets(triton.FIRST_RESPONSE_MS)
    return (
        timeseries(
            "Time to first response",
            about("Quantiles over all servers.", triton.FIRST_RESPONSE_MS),
            [Query(quantile(level, buckets), f"p{level * 100:g}") for level in QUANTILES],
            Display("ms", minimum=0, no_value="Needs histogram_latencies"),
        ),
        heatmap(
            "First responses",
            about("How many first responses took how long.", triton.FIRST_RESPONSE_MS),
            [Query(total(seen.chosen.increase(triton.FIRST_RESPONSE_MS.bucket), "le"))],
            Display("ms", no_value="Needs histogram_latencies"),
        ),
    )


def summaries(seen: View) -> tuple[Panel, ...]:
    def panel(title: str, metric: Metric) -> Panel:
        return timeseries(
            title,
            about("The worst server's quantiles; Triton's cannot be added up over servers.", metric),
            [Query(f"max by (quantile) ({seen.chosen(metric)})", "q{{quantile}}")],
            replace(reading.MICROSECONDS, no_value="Needs summary_latencies"),
        )

    return (panel("Request time", triton.REQUEST_SUMMARY_US), panel("Queue time", triton.QUEUE_SUMMARY_US))


def burn(seen: View) -> Sequence[Column]:
    """Columns of an objective of this model."""
    return (
        Column(
            "Budget left",
            f"min by ({SLO}, {INDICATOR}) ({seen.objectives(PERIOD_BUDGET_REMAINING)})",
            reading.BUDGET,
            colored=True,
        ),
        Column(
            "Burn",
            f"max by ({SLO}, {INDICATOR}) ({seen.objectives(CURRENT_BURN_RATE)})",
            reading.BURN,
            colored=True,
        ),
    )

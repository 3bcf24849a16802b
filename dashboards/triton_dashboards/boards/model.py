"""Model: is this model healthy, and if not, where does the time go and what limits it?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from urllib.parse import quote

from triton_dashboards import reading, shared
from triton_dashboards.about import about, fires
from triton_dashboards.boards.extras import EXTRAS
from triton_dashboards.grafana.panels import stat, state_timeline, timeseries
from triton_dashboards.grafana.values import Dashboard, Display, Link, Panel, Query, Row, Threshold
from triton_dashboards.query import or_zero, quantile, ratio, total
from triton_dashboards.tables import Column, columns
from triton_dashboards.traffic import PHASES, SHARE_FAILED, Raw
from triton_dashboards.view import View, limited, lined, promised, quantiles, view
from triton_exporter.catalogue import gpu, state, triton
from triton_exporter.catalogue import model as config
from triton_slo import signals
from triton_slo.artifact import Options
from triton_slo.conventions import OURS, PERIOD_BUDGET_REMAINING
from triton_slo.indicators import Errors, Latency, Queue


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


def rows(seen: View, name: str = "$model", extras: Sequence[str] = tuple(EXTRAS)) -> tuple[Row, ...]:
    """The rows of a model, `extras` among those that only some models have."""
    return (
        Row(f"Is {name} healthy?", glance(seen)),
        Row("Symptoms", symptoms(seen)),
        Row("Where does the time go?", phases(seen)),
        Row("What limits it?", limits(seen)),
        Row("Versions side by side", versions(seen)),
        Row("Readiness and loads", lifecycle(seen), collapsed=True),
        *(Row(title, make(seen), collapsed=True) for key, (title, make) in EXTRAS.items() if key in extras),
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
            [Query(f"min({seen.objectives(PERIOD_BUDGET_REMAINING, OURS)})")],
            replace(reading.BUDGET, links=(_to_objectives(seen),)),
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
            about(SHARE_FAILED, triton.REQUEST_FAILURE),
            [Query(raw.failed())],
            limited(reading.FAILED, seen.limit(Errors)),
        ),
        stat(
            "p99 latency",
            about("99 of 100 successful requests were quicker.", state.REQUEST_DURATION),
            [Query(quantile(0.99, raw.buckets()))],
            limited(reading.SECONDS, seen.limit(Latency)),
        ),
        stat(
            "Time in queue",
            about(
                "Share of request time spent waiting: the best stock sign of saturation. "
                + fires(signals.QUEUE_SHARE),
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


def _to_objectives(seen: View) -> Link:
    if seen.name:
        return shared.to(shared.SLO, "Objectives", model=quote(seen.name, safe=""))
    return shared.to(shared.SLO, "Objectives", "model")


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
            replace(reading.REQUESTS, no_value="No failures", overrides=_BY_REASON),
            width=8,
        ),
        timeseries(
            "Latency",
            about(
                "Quantiles of successful requests inside Triton; a client sees network and "
                "serialisation too. Dashed: what the objective allows.",
                state.REQUEST_DURATION,
                state.DISTRIBUTION_SOURCE,
            ),
            [
                *quantiles(raw.buckets()),
                *promised(seen, Latency),
            ],
            lined(reading.SECONDS, seen.limit(Latency)),
            limit_line=seen.limit(Latency) is not None,
            log=True,
            width=8,
        ),
    )


_BY_REASON = (
    reading.colored("BACKEND", "red"),
    reading.colored("REJECTED", "orange"),
    reading.colored("CANCELED", "gray"),
    reading.colored("OTHER", "purple"),
)


_BY_PHASE = (
    reading.colored("queue", "orange"),
    reading.colored("compute", "blue"),
    reading.colored("compute infer", "blue"),
    reading.colored("compute input", "semi-dark-blue"),
    reading.colored("compute output", "purple"),
    reading.colored("other", "gray"),
)
"""Waiting stands out from working."""


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
            replace(reading.MICROSECONDS, overrides=_BY_PHASE),
            stacked=True,
            legend="right",
            calcs=("lastNotNull",),
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
            replace(reading.SHARE, no_value="No traffic", overrides=_BY_PHASE),
            calcs=("mean", "max", "lastNotNull"),
        ),
        timeseries(
            "Wait in the queue",
            about(
                "Quantiles of the time requests waited. Dashed: what the objective allows.",
                state.QUEUE_DURATION,
            ),
            [
                *quantiles(raw.buckets(state.QUEUE_DURATION)),
                *promised(seen, Queue),
            ],
            lined(reading.SECONDS, seen.limit(Queue)),
            limit_line=seen.limit(Queue) is not None,
            log=True,
        ),
        timeseries(
            "Waiting requests by server",
            about("Requests in the queue, not yet handed to the backend.", triton.PENDING_REQUESTS),
            [Query(total(seen.chosen(triton.PENDING_REQUESTS), "instance"), "{{instance}}")],
            replace(reading.COUNT, no_value="Not loaded"),
        ),
    )


def limits(seen: View) -> tuple[Panel, ...]:
    raw = seen.raw
    on_gpu = total(seen.model(gpu.MODEL_GPU_INFO), "gpu_uuid", "instance")
    busy_gpus = f"max by (instance, gpu_uuid) ({seen.servers(gpu.UTILIZATION)})"
    return (
        timeseries(
            "Mean batch against its limit",
            about(
                "Inferences in one execution. Far below the dashed limit under load: allow a queue delay.",
                triton.INFERENCE_COUNT,
                triton.EXEC_COUNT,
                config.MAX_BATCH_SIZE,
            ),
            [
                Query(raw.batch("version"), "version {{version}}"),
                Query(f"max({seen.chosen(config.MAX_BATCH_SIZE)}) > 0", "limit"),
            ],
            replace(reading.BATCH, overrides=(reading.DASHED_LIMIT,)),
        ),
        timeseries(
            "Instances busy",
            about(
                "Share of the instances' time spent executing, by version; near 1 requests must wait. "
                + fires(signals.INSTANCES_BUSY),
                config.BUSY_SECONDS,
                config.INSTANCES,
            ),
            [Query(raw.instances_busy("version"), "version {{version}}")],
            reading.warned(
                replace(reading.SHARE, maximum=None, no_value="No instances known"), signals.INSTANCES_BUSY
            ),
            limit_line=True,
        ),
        timeseries(
            "Busy GPUs of this model",
            about(
                "Utilisation of the GPUs this model runs on, whoever uses them.",
                gpu.UTILIZATION,
                gpu.MODEL_GPU_INFO,
            ),
            [Query(f"{busy_gpus} and on (instance, gpu_uuid) {on_gpu}", "{{instance}} {{gpu_uuid}}")],
            replace(reading.SHARE, no_value="No GPU known"),
        ),
        timeseries(
            "Requests in flight",
            about(
                "Mean number of requests inside Triton at a time, by Little's law (rate times duration); of "
                "completed requests, so it lags a stall.",
                triton.REQUEST_DURATION_US,
            ),
            [Query(f"{raw.rate(triton.REQUEST_DURATION_US, 'instance')} / 1e6", "{{instance}}")],
            Display("short", 1, 0, no_value="No traffic"),
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
            [Query(p99, "version {{version}}", exemplar=True)],
            reading.SECONDS,
        ),
        timeseries(
            "Failed by version",
            about(
                "Share of requests that failed, by version. Dashed: what the objective allows.",
                triton.REQUEST_FAILURE,
            ),
            [
                Query(everything.failed("version"), "version {{version}}"),
                *promised(seen, Errors),
            ],
            lined(reading.FAILED, seen.limit(Errors)),
            limit_line=seen.limit(Errors) is not None,
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
            replace(reading.FAILURES, no_value="No load failed"),
            bars=True,
        ),
        timeseries(
            "Load time",
            about(
                "How long the last successful load took: Triton's own word, or where it has none an estimate "
                "from the states the exporter saw.",
                triton.MODEL_LOAD_DURATION_SECS,
                state.MODEL_LOAD_DURATION_ESTIMATED,
            ),
            [
                Query(
                    # Triton says 0 for ensembles.
                    f"max by (version, instance) ({seen.chosen(triton.MODEL_LOAD_DURATION_SECS)} > 0) "
                    f"or max by (version, instance) ({seen.chosen(state.MODEL_LOAD_DURATION_ESTIMATED)})",
                    "version {{version}} on {{instance}}",
                )
            ],
            replace(reading.SECONDS, no_value="No load was seen"),
        ),
    )

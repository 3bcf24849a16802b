"""Server and exporter: does this server answer, are its models ready, and can what we see be trusted?"""

from __future__ import annotations

from dataclasses import replace

from triton_dashboards import reading, shared
from triton_dashboards.about import about, fires
from triton_dashboards.grafana.panels import stat, state_timeline, timeseries
from triton_dashboards.grafana.values import Dashboard, Display, Override, Panel, Query, Row, Threshold
from triton_dashboards.query import Scope, or_zero, ratio, scope, total
from triton_dashboards.tables import Column, columns
from triton_dashboards.traffic import SHARE_FAILED, Recorded
from triton_exporter.catalogue import gpu, own, state, triton
from triton_slo import signals
from triton_slo.artifact import Options
from triton_slo.conventions import server_traffic

_LEGEND = "{{instance}}"
_NO_GPU = 'source="none"'


def dashboard(options: Options) -> Dashboard:
    """Make the dashboard."""
    within = scope(options.selector, "cluster", "job", "instance")
    return Dashboard(
        uid=shared.SERVER,
        title="Triton / Servers and exporters",
        description="Does this server answer, are its models ready, and can what we see of it be trusted? A "
        "server that is live need not be ready: with strict readiness one failed model makes the whole "
        "server "
        "not ready.",
        tags=shared.tags("server"),
        variables=shared.variables("cluster", "job", "instance"),
        annotations=shared.event_annotations(within),
        links=shared.links(options.runbook_url),
        rows=(
            Row("Does it answer?", (*_glance(within), _states(within))),
            Row("Which models are not ready?", _models(within)),
            Row("What does it serve?", _traffic(within)),
            Row("Can what we see be trusted?", _exporter(within)),
            Row("Memory and cache", _resources(within), collapsed=True),
        ),
    )


def _glance(within: Scope) -> tuple[Panel, ...]:
    up = f"max({within(state.UP)})"
    scraped = f"max({within('up')})"
    failures = f"sum(increase({within(state.MODEL_LOAD_FAILURES)}[$__range]))"
    no_exporter = replace(reading.FAULTS, no_value="No exporter")
    return (
        stat(
            "Not live",
            about("Servers whose health endpoint does not answer.", state.SERVER_LIVE),
            [Query(or_zero(f"count({within(state.SERVER_LIVE)} == 0)", up))],
            no_exporter,
        ),
        stat(
            "Not ready",
            about("Servers that say they are not ready.", state.SERVER_READY),
            [Query(or_zero(f"count({within(state.SERVER_READY)} == 0)", up))],
            no_exporter,
        ),
        stat(
            "Metrics down",
            about("Servers whose metrics endpoint did not answer the exporter.", state.UP),
            [Query(or_zero(f"count({within(state.UP)} == 0)", up))],
            no_exporter,
        ),
        stat(
            "Exporters down",
            "Exporters that Prometheus cannot scrape: nothing is known of their servers. Metric: `up`.",
            [Query(or_zero(f"count({within('up')} == 0)", scraped))],
            replace(no_exporter, no_value="No target"),
        ),
        stat(
            "Models ready",
            about("Model versions that are ready, counted on each server.", state.MODEL_READY),
            [Query(f"sum({within(state.MODEL_READY)})")],
            replace(reading.COUNT, no_value="No model"),
        ),
        stat(
            "Models down",
            about("Model versions that should serve and do not.", state.MODEL_NOT_READY_SINCE),
            [Query(or_zero(f"count({within(state.MODEL_NOT_READY_SINCE)})", up))],
            no_exporter,
        ),
        stat(
            "Loads failed",
            about("Load attempts that failed in the time range.", state.MODEL_LOAD_FAILURES),
            [Query(failures, instant=True)],
            replace(no_exporter, no_value="No model"),
            sparkline=False,
        ),
        stat(
            "Oldest look",
            about(
                "Time since the last complete look of the least lucky exporter at its Triton. "
                + fires(signals.EXPORTER_AGE),
                own.LAST_SUCCESS,
            ),
            [Query(f"max({signals.EXPORTER_AGE.expr(within)})")],
            reading.aged(signals.EXPORTER_AGE, "No exporter"),
        ),
    )


def _states(within: Scope) -> Panel:
    live, ready = (
        f"min by (instance) ({within(metric)})" for metric in (state.SERVER_LIVE, state.SERVER_READY)
    )
    # 0 down, 1 live, 2 ready; live and ready are told apart because they call for different people.
    return state_timeline(
        "Servers",
        about(
            "Down: it does not answer. Live: it answers, but not every model is ready. Ready: it serves.",
            state.SERVER_LIVE,
            state.SERVER_READY,
            state.UP,
        ),
        [Query(f"{live} + {live} * {ready}", _LEGEND)],
        Display(
            words={0: ("Down", "red"), 1: ("Live, not ready", "orange"), 2: ("Ready", "green")},
            no_value="No exporter",
        ),
        height=6,
    )


def _models(within: Scope) -> tuple[Panel, ...]:
    keys = ("model", "version", "instance")
    by = f"by ({', '.join(keys)})"
    missing = f"max {by} ({within(state.MODEL_NOT_READY_SINCE)})"
    one = f"max by (model, version, instance, state) ({within(state.MODEL_STATE)} == 1)"
    # A product, so that the state names the line and the moment fills it.
    current = f"{one} * on ({', '.join(keys)}) group_left () {missing}"
    link = shared.to(
        shared.MODEL,
        "Model dashboard",
        "cluster",
        "job",
        model=shared.field("Model"),
        instance=shared.field("Server"),
    )
    return (
        columns(
            "Not ready now",
            about(
                "Model versions that should serve and do not. Triton's own reason is on the exporter's "
                "/state page and in the alert.",
                state.MODEL_NOT_READY_SINCE,
                state.MODEL_STATE,
            ),
            (*keys, "state"),
            (Column("Since", f"{current} * 1000", Display("dateTimeFromNow")),),
            headings={"instance": "Server"},
            key_override=Override("Model", {"links": [link.to_json_data()]}),
            width=12,
            height=7,
            no_value="Every model is ready",
        ),
        state_timeline(
            "Since when",
            about("Not-ready episodes: a failed retry does not end one.", state.MODEL_NOT_READY_SINCE),
            [Query(f"{missing} > bool 0", "{{model}} {{version}} on {{instance}}")],
            Display(
                words={1: ("Not ready", "red")},
                thresholds=(Threshold("red"),),
                no_value="Every model was ready",
            ),
            width=12,
            height=7,
        ),
        timeseries(
            "Models by state",
            about("How many model versions are in which state.", state.MODEL_STATE),
            [Query(f"sum by (state) ({within(state.MODEL_STATE)}) > 0", "{{state}}")],
            replace(reading.COUNT, overrides=_BY_STATE),
            stacked=True,
            step=True,
        ),
        timeseries(
            "Failed loads",
            about("Load attempts that failed, by model and class of reason.", state.MODEL_LOAD_FAILURES),
            [
                Query(
                    f"sum by (model, reason) ({within.increase(state.MODEL_LOAD_FAILURES)}) > 0",
                    "{{model}}: {{reason}}",
                )
            ],
            replace(reading.FAILURES, no_value="No load failed"),
            bars=True,
        ),
    )


_BY_STATE = (
    reading.colored("ready", "green"),
    reading.colored("loading", "blue"),
    reading.colored("unloading", "gray"),
    reading.colored("unavailable", "red"),
)


def _traffic(within: Scope) -> tuple[Panel, ...]:
    traffic = Recorded(within, server_traffic)
    by = "instance"
    return (
        timeseries(
            "Requests",
            about(
                "Requests answered or failed; uneven lines mean uneven balancing.", server_traffic("requests")
            ),
            [Query(traffic("requests", by), _LEGEND)],
            reading.REQUESTS,
        ),
        timeseries(
            "Failed",
            about(SHARE_FAILED, server_traffic("failures")),
            [Query(traffic.failed(by), _LEGEND)],
            reading.FAILED,
        ),
        timeseries(
            "Mean latency",
            about("Mean time of successful requests.", server_traffic("request_seconds")),
            [Query(traffic.latency(by), _LEGEND)],
            reading.SECONDS,
        ),
        timeseries(
            "Waiting requests",
            about("Requests in queues.", server_traffic("pending")),
            [Query(traffic("pending", by), _LEGEND)],
            reading.COUNT,
        ),
    )


def _fed(within: Scope, sources: str) -> str:
    """How many model versions have their latency histogram fed by these sources."""
    fed = within(state.DISTRIBUTION_SOURCE, 'signal="request"', f'source=~"{sources}"')
    return f"count by (instance) ({fed} == 1)"


def _exporter(within: Scope) -> tuple[Panel, ...]:
    return (
        timeseries(
            "Failed requests to Triton",
            about("What the exporter asked Triton and did not get.", own.SCRAPE_FAILURES),
            [
                Query(
                    f"sum by (instance, endpoint, reason) ({within.increase(own.SCRAPE_FAILURES)}) > 0",
                    "{{endpoint}}: {{reason}} ({{instance}})",
                )
            ],
            replace(reading.FAILURES, no_value="None failed"),
            bars=True,
            width=8,
        ),
        timeseries(
            "Time of a look",
            about(
                "How long the exporter takes to look at Triton, and Prometheus to scrape the exporter. "
                "Prometheus' own `scrape_duration_seconds`.",
                own.SCRAPE_DURATION,
            ),
            [
                Query(f"max by (instance) ({within(own.SCRAPE_DURATION)})", "look, {{instance}}"),
                Query(f"max by (instance) ({within('scrape_duration_seconds')})", "scrape, {{instance}}"),
            ],
            reading.SECONDS,
            width=8,
        ),
        timeseries(
            "Samples of a scrape",
            "How many samples Prometheus takes from each exporter: the cost of many models. Metric: "
            "`scrape_samples_scraped`.",
            [Query(f"max by (instance) ({within('scrape_samples_scraped')})", _LEGEND)],
            replace(reading.COUNT, decimals=None, no_value="No target"),
            width=8,
        ),
        columns(
            "Exporters",
            about(
                "What feeds each exporter's histograms; those from summaries and sampled means are estimates.",
                state.DISTRIBUTION_SOURCE,
                gpu.SOURCE,
            ),
            "instance",
            (
                Column(
                    "Models with traces or histograms",
                    _fed(within, "trace|histogram"),
                    reading.COUNT,
                ),
                Column(
                    "Models estimated",
                    _fed(within, "summary|sampled_mean"),
                    reading.COUNT,
                ),
                Column(
                    "GPU data",
                    # An exporter that was told to look for none has no such series.
                    or_zero(
                        f"1 - max by (instance) ({within(gpu.SOURCE, _NO_GPU)})",
                        f"max by (instance) ({within(state.UP)})",
                    ),
                    Display(words={0: ("none", "text"), 1: ("yes", "green")}),
                    colored=True,
                ),
                Column(
                    "Data age", f"time() - max by (instance) ({within(own.LAST_SUCCESS)})", Display("s", 0)
                ),
            ),
            key_name="Server",
            height=6,
        ),
    )


def _resources(within: Scope) -> tuple[Panel, ...]:
    hits = total(within.rate(triton.CACHE_HITS_PER_MODEL), "model")
    misses = total(within.rate(triton.CACHE_MISSES_PER_MODEL), "model")
    pinned = signals.PINNED_MEMORY.expr(lambda metric: total(within(metric), "instance"))
    return (
        timeseries(
            "Pinned memory used",
            about(
                "Share of the pinned memory pool in use. " + fires(signals.PINNED_MEMORY),
                triton.PINNED_POOL_USED_BYTES,
                triton.PINNED_POOL_TOTAL_BYTES,
            ),
            [Query(pinned, _LEGEND)],
            reading.warned(replace(reading.SHARE, no_value="Needs Triton 24.01"), signals.PINNED_MEMORY),
            limit_line=True,
            width=8,
        ),
        timeseries(
            "Response cache hits",
            about(
                "Share of requests answered from the response cache, by model.",
                triton.CACHE_HITS_PER_MODEL,
                triton.CACHE_MISSES_PER_MODEL,
            ),
            [Query(ratio(hits, f"({hits} + {misses})"), "{{model}}")],
            replace(reading.SHARE, no_value="No response cache"),
            width=8,
        ),
        timeseries(
            "Response cache used",
            about("Share of the cache in use.", triton.CACHE_UTIL),
            [Query(f"max by (instance) ({within(triton.CACHE_UTIL)})", _LEGEND)],
            replace(reading.SHARE, no_value="No response cache"),
            width=8,
        ),
    )

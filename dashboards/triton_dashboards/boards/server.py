"""Server and exporter: does this server answer, are its models ready, and can these data be trusted?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from triton_dashboards import displays, shared
from triton_dashboards.query import SHARE_FAILED, BoardScope, RecordedTraffic, or_zero, scope, total
from triton_dashboards.recording import window
from triton_dashboards.values import (
    Column,
    Dashboard,
    Display,
    LabelColumn,
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
from triton_exporter.catalogue import gpu, own, processes, state, triton
from triton_slo import links, signals
from triton_slo.alert_settings import Tuning
from triton_slo.artifact import Options
from triton_slo.names import FAILED_LOADS, MODELS_IN_STATE, server_traffic
from triton_slo.sources import ESTIMATING_SOURCES, EXACT_SOURCES

_LEGEND = "{{instance}}"
_NO_GPU = 'source="none"'
_NO_EXPORTER = displays.FAULTS.when_empty("No exporter")


def dashboard(options: Options) -> Dashboard:
    within = scope(options.selector, "cluster", "job", "instance")
    return Dashboard(
        uid=links.SERVER,
        title="Triton / Servers and exporters",
        description="Does this server respond, are its models ready, and is the data about it reliable? "
        "A live server may be not ready: with strict readiness, one failed model makes the whole server "
        "not ready.",
        tags=shared.tags("server"),
        variables=shared.variables("cluster", "job", "instance"),
        annotations=shared.event_annotations(within, (shared.OF_SERVER,)),
        links=shared.links(options),
        rows=(
            Row(
                "Does the server respond?",
                (
                    *_servers_down(within),
                    *_model_counts(within, options),
                    _oldest_reading(within, options.tuning),
                    _server_states(within),
                ),
            ),
            Row("Which models are not ready?", (*_not_ready(within), *_loads(within, window(options)))),
            Row("Which traffic does it serve?", _traffic(within)),
            Row("Is the data reliable?", (*_readings(within), _exporters(within))),
            Row("Memory and cache", _resources(within, options.tuning), collapsed=True),
        ),
    )


def _servers_down(within: BoardScope) -> tuple[Panel, ...]:
    up = f"max({within(state.UP)})"
    scraped = f"max({within('up')})"
    return (
        *(
            Stat(title, lead, or_zero(f"count({within(metric)} == 0)", up), _NO_EXPORTER, reads=metric)
            for title, lead, metric in (
                ("Not live", "Servers whose health endpoint does not answer.", state.SERVER_LIVE),
                ("Not ready", "Servers that report that they are not ready.", state.SERVER_READY),
                ("Metrics down", "Servers whose metrics endpoint did not answer the exporter.", state.UP),
            )
        ),
        Stat(
            "Exporters down",
            "Exporters that Prometheus cannot scrape; the state of their servers is unknown. Metric: `up`.",
            or_zero(f"count({within('up')} == 0)", scraped),
            _NO_EXPORTER.when_empty("No target"),
        ),
    )


def _model_counts(within: BoardScope, options: Options) -> tuple[Panel, ...]:
    up = f"max({within(state.UP)})"
    # One sample of each recorded window: without the range, a sample would be counted again for five minutes.
    failed = f"last_over_time({within(FAILED_LOADS)}[{window(options, 0.5)}])"
    failures = f"sum(sum_over_time(({failed})[$__range:{window(options)}]))"
    return (
        Stat(
            "Models ready",
            "Model versions that are ready, counted on each server.",
            [Query(f"sum({within(state.MODEL_READY)})", instant=True)],
            displays.COUNT.when_empty("No model"),
            sparkline=False,
        ),
        Stat(
            "Models not ready",
            "Expected model versions that are not ready.",
            or_zero(f"count({within(state.MODEL_NOT_READY_SINCE)})", up),
            _NO_EXPORTER,
            reads=state.MODEL_NOT_READY_SINCE,
        ),
        Stat(
            "Loads failed",
            "Load attempts that failed in the time range.",
            [Query(or_zero(failures, up), instant=True)],
            _NO_EXPORTER,
            reads=FAILED_LOADS,
            sparkline=False,
        ),
    )


def _oldest_reading(within: BoardScope, tuning: Tuning) -> Panel:
    age = signals.EXPORTER_AGE.tuned(tuning)
    return Stat(
        "Oldest reading",
        "Time since an exporter last read the metrics of its Triton (with several exporters, the longest). "
        + fires(age),
        f"max({age.expr(within)})",
        displays.aged(age, "No exporter"),
    )


def _server_states(within: BoardScope) -> Panel:
    live, ready = (
        f"min by (instance) ({within(metric)})" for metric in (state.SERVER_LIVE, state.SERVER_READY)
    )
    # 0 down, 1 live, 2 ready.
    return StateTimeline(
        "Servers",
        "Down: the server does not respond. Live: the server responds, but not every model is ready. "
        "Ready: all models are ready.",
        {_LEGEND: f"{live} + {live} * {ready}"},
        Display(
            words={0: ("Down", "dark-red"), 1: ("Live, not ready", "orange"), 2: ("Ready", "light-green")},
            no_value="No exporter",
        ),
        reads=(state.SERVER_LIVE, state.SERVER_READY, state.UP),
        height=6,
    )


def _not_ready(within: BoardScope) -> tuple[Panel, ...]:
    keys = ("model", "version", "instance")
    by = f"by ({', '.join(keys)})"
    missing = f"max {by} ({within(state.MODEL_NOT_READY_SINCE)})"
    states = f"max by (model, version, instance, state) ({within(state.MODEL_STATE)} == 1)"
    # A product: the labels are those of the state, the value is the time since when.
    current = f"{states} * on ({', '.join(keys)}) group_left () {missing}"
    model, server = shared.field("Model"), shared.field("Server")
    link = shared.to(links.MODEL, "Model dashboard", "cluster", "job", model=model, instance=server)
    return (
        Table(
            "Not ready now",
            "Expected model versions that are not ready. Triton's own reason is on the exporter's "
            "/state page and in the alert.",
            (
                LabelColumn("model", link=link),
                LabelColumn("version"),
                LabelColumn("instance", "Server"),
                LabelColumn("state"),
            ),
            (Column("Since", f"{current} * 1000", Display("dateTimeFromNow")),),
            reads=(state.MODEL_NOT_READY_SINCE, state.MODEL_STATE),
            width=12,
            height=7,
            no_value="Every model is ready",
        ),
        StateTimeline(
            "Since when",
            "Time since each version is not ready; failed retries do not reset it.",
            {"{{model}} {{version}} on {{instance}}": f"{missing} > bool 0"},
            Display(
                words={1: ("Not ready", "red")},
                thresholds=(Threshold("red"),),
                no_value="Every model was ready",
            ),
            width=12,
            height=7,
        ),
    )


def _loads(within: BoardScope, every: str) -> tuple[Panel, ...]:
    failed = f"max_over_time({within(FAILED_LOADS)}[$__interval])"
    return (
        TimeSeries(
            "Models by state",
            "How many model versions are in which state.",
            {"{{state}}": f"{total(within(MODELS_IN_STATE), 'state')} > 0"},
            replace(displays.COUNT, styles=_BY_STATE),
            stacked=True,
            step=True,
            calcs=("mean", "max"),
        ),
        TimeSeries(
            "Failed loads",
            "Load attempts that failed, by model and class of reason; over long time ranges, the maximum "
            "of two minutes.",
            {"{{model}}: {{reason}}": total(failed, "model", "reason")},
            displays.FAILURES.when_empty("No load failed"),
            bars=True,
            every=every,
        ),
    )


_BY_STATE = (
    Style("ready", "light-green"),
    Style("loading", "blue"),
    Style("unloading", "gray"),
    Style("unavailable", "dark-red"),
)


def _traffic(within: BoardScope) -> tuple[Panel, ...]:
    traffic = RecordedTraffic(within, server_traffic)
    by = "instance"
    return (
        TimeSeries(
            "Requests",
            "Rate of successful and failed requests; different values per server mean uneven load balancing. A request "
            "to an ensemble counts once, without its steps; calls of a Python model (BLS) to other models count, too.",
            {_LEGEND: traffic("requests", by)},
            displays.REQUESTS,
        ),
        TimeSeries(
            "Failed",
            SHARE_FAILED,
            {_LEGEND: traffic.failed(by)},
            displays.FAILED_BY,
            reads=server_traffic("failures"),
        ),
        TimeSeries(
            "Mean latency",
            "Mean time of successful requests. What ensembles cause at a step that clients call, too, is taken off at the "
            "step's mean time.",
            {_LEGEND: traffic.latency(by)},
            displays.SECONDS,
            reads=server_traffic("request_seconds"),
        ),
        TimeSeries(
            "Waiting requests",
            "Requests in queues.",
            {_LEGEND: traffic("pending", by)},
            displays.COUNT,
        ),
    )


def _fed(within: BoardScope, sources: Iterable[str]) -> str:
    """Return the number of model versions whose latency histogram comes from these sources."""
    source = "|".join(sources)
    fed = within(state.DISTRIBUTION_SOURCE, 'signal="request"', f'source=~"{source}"')
    return f"count by (instance) ({fed} == 1)"


def _readings(within: BoardScope) -> tuple[Panel, ...]:
    return (
        TimeSeries(
            "Failed requests to Triton",
            "Failed requests of the exporter to Triton.",
            {
                "{{endpoint}}: {{reason}} ({{instance}})": within.events(
                    own.SCRAPE_FAILURES, "instance", "endpoint", "reason"
                )
            },
            displays.FAILURES.when_empty("None failed"),
            bars=True,
        ),
        TimeSeries(
            "Poll and scrape time",
            "How long the exporter takes to read Triton's metrics, and Prometheus to scrape the exporter. "
            "Prometheus' own `scrape_duration_seconds`.",
            {
                "poll, {{instance}}": f"max by (instance) ({within(own.SCRAPE_DURATION)})",
                "scrape, {{instance}}": f"max by (instance) ({within('scrape_duration_seconds')})",
            },
            displays.SECONDS,
        ),
    )


def _exporters(within: BoardScope) -> Panel:
    return Table(
        "Exporters",
        "Source of each exporter's histograms; histograms from summaries, sums and sampled means are "
        "estimates.",
        [LabelColumn("instance", "Server")],
        (
            Column("Models with traces or histograms", _fed(within, EXACT_SOURCES), displays.COUNT),
            Column("Models estimated", _fed(within, ESTIMATING_SOURCES), displays.COUNT),
            Column(
                "GPU data",
                # An exporter with --gpu none has no such series.
                or_zero(
                    f"1 - max by (instance) ({within(gpu.SOURCE, _NO_GPU)})",
                    f"max by (instance) ({within(state.UP)})",
                ),
                Display(words={0: ("none", "text"), 1: ("yes", "green")}),
                colored=True,
            ),
            Column("Data age", f"time() - max by (instance) ({within(own.LAST_SUCCESS)})", Display("s", 0)),
        ),
        reads=(state.DISTRIBUTION_SOURCE, gpu.SOURCE),
        height=6,
    )


def _resources(within: BoardScope, tuning: Tuning) -> tuple[Panel, ...]:
    pinned = signals.PINNED_MEMORY.tuned(tuning)
    return (
        TimeSeries(
            "Pinned memory used",
            "Share of the pinned memory pool in use. " + fires(pinned),
            {_LEGEND: pinned.expr(lambda metric: total(within(metric), "instance"))},
            displays.warned(displays.SHARE.when_empty("Needs Triton 24.01"), pinned),
            limit_line=True,
        ),
        TimeSeries(
            "Response cache used",
            "Share of the cache in use.",
            {_LEGEND: f"max by (instance) ({within(triton.CACHE_UTIL)})"},
            displays.SHARE.when_empty("No response cache"),
        ),
        *_processes(within),
    )


def _processes(within: BoardScope) -> tuple[Panel, ...]:
    shown = displays.BYTES.when_empty("Processes not visible")
    pss, rss = (
        total(within(metric), "model", "version") for metric in (processes.MODEL_PSS, processes.MODEL_RSS)
    )
    server = f"sum({within(processes.SERVER_PSS)}) or sum({within(processes.SERVER_RSS)})"
    return (
        TimeSeries(
            "Memory by model",
            "Memory (PSS, or RSS where PSS may not be read) of the Python processes of each model version, and of "
            "Triton's own process, in which models of all other backends are.",
            {"{{model}} {{version}}": f"{pss} or {rss}", "Triton and other backends": server},
            shown,
            stacked=True,
        ),
        TimeSeries(
            "Shared memory (/dev/shm)",
            "Shared memory in use, its size, and what belongs to no running process.",
            {
                "used, {{instance}}": f"max by (instance) ({within(processes.SHM_USED)})",
                "left behind, {{instance}}": f"max by (instance) ({within(processes.SHM_ORPHANED)})",
                "limit of {{instance}}": f"max by (instance) ({within(processes.SHM_SIZE)})",
            },
            replace(shown, styles=(displays.DASHED_LIMIT,)),
        ),
        TimeSeries(
            "Memory left by the last reload",
            "Memory after the last reload of each model less that after the load before, by part: growth at each "
            "reload is a leak.",
            {"{{model}}: {{part}}": total(within(processes.RELOAD_GROWTH), "model", "part")},
            replace(displays.BYTES, minimum=None).when_empty("No reload seen"),
            step=True,
        ),
    )

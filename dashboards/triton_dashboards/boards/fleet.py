"""Fleet: which models are in trouble now, and where?"""

from __future__ import annotations

from dataclasses import dataclass, replace

from triton_dashboards import displays, shared
from triton_dashboards.objectives import Objectives
from triton_dashboards.query import (
    SHARE_FAILED,
    UNCOUNTED,
    BoardScope,
    RecordedTraffic,
    or_last,
    or_zero,
    scope,
    worst,
)
from triton_dashboards.recording import window
from triton_dashboards.values import (
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
    Table,
    Threshold,
    TimeSeries,
)
from triton_exporter.catalogue import own, state
from triton_exporter.catalogue.external import stack
from triton_slo import links, signals
from triton_slo.alert_settings import Tuning
from triton_slo.artifact import Options
from triton_slo.names import (
    COMPONENT,
    model_traffic,
    server_traffic,
)


@dataclass(frozen=True, slots=True)
class _Fleet:
    """Expressions of the fleet, over servers (`servers`) and over models (`models`)."""

    servers: BoardScope
    models: BoardScope
    objectives: Objectives
    tuning: Tuning
    every: str
    """The window of what is recorded, and the shortest step of its graphs."""

    @property
    def traffic_by_server(self) -> RecordedTraffic:
        return RecordedTraffic(self.servers, server_traffic)

    @property
    def traffic_by_model(self) -> RecordedTraffic:
        return RecordedTraffic(self.models, model_traffic)

    def alive(self) -> str:
        return f"max({self.servers(state.UP)})"

    def not_ready(self, *by: str) -> str:
        selected = self.models(state.MODEL_NOT_READY_SINCE)
        return f"count by ({', '.join(by)}) ({selected})" if by else f"count({selected})"

    def down(self) -> str:
        silent = self.servers(stack.UP)
        return f"count(({self.servers(state.SERVER_LIVE)} == 0) or ({silent} == 0))"


def dashboard(options: Options) -> Dashboard:
    fleet = _Fleet(
        servers=scope(options.selector, "cluster", "job"),
        models=scope(options.selector, "cluster", "job", "model"),
        objectives=Objectives(scope("", "model"), options.time_scale),
        tuning=options.tuning,
        every=window(options),
    )
    return Dashboard(
        uid=links.FLEET,
        title="Triton / Fleet",
        description="Which models have problems now, and on which servers? Start here; click a model or "
        "a server for details. Needs the exporter and the generated recording rules: traffic is recorded "
        "by model and by server, so that the dashboard stays fast with thousands of models.",
        tags=shared.tags("fleet"),
        variables=shared.variables("cluster", "job", "model"),
        annotations=shared.event_annotations(fleet.models, (shared.OF_MODEL,)),
        links=shared.links(options),
        rows=(
            Row("Is anything broken now?", _summary_panels(fleet)),
            Row("Which models?", (_model_table(fleet),)),
            Row("Since when?", _history_panels(fleet)),
            Row("Which servers?", (_servers(fleet),)),
        ),
    )


def _summary_panels(fleet: _Fleet) -> tuple[Panel, ...]:
    to_servers = (shared.to(links.SERVER, "Servers and exporters", "cluster", "job"),)
    to_objectives = (shared.to(links.SLO, "Objectives", "model"),)
    return (
        *_broken(fleet, to_servers),
        Stat(
            "Least budget left",
            f"The smallest error budget left of any objective, as a share of the budget of its period. {displays.MATURE}",
            [Query(f"min({fleet.objectives.budget_left()})", instant=True)],
            replace(displays.BUDGET, links=to_objectives),
            sparkline=False,
        ),
        Stat(
            "Requests/s",
            "Rate of successful and failed requests, without requests that clients cancelled.",
            fleet.traffic_by_model("requests"),
            replace(displays.REQUESTS, links=to_servers),
        ),
        Stat(
            "Failed",
            SHARE_FAILED,
            fleet.traffic_by_model.failed(),
            replace(displays.FAILED, links=to_objectives),
        ),
        Stat(
            "Waiting requests",
            "Requests in the queues of all models.",
            fleet.traffic_by_model("pending"),
            replace(displays.COUNT, no_value="No traffic", links=to_servers),
        ),
        Stat(
            "Time in queue",
            "Share of the request time that is spent in the queue: the best indicator of saturation that "
            "a stock Triton has.",
            fleet.traffic_by_model.queue_share(),
            replace(displays.queue_share(fleet.tuning), links=to_objectives),
            reads=model_traffic("queue_seconds"),
        ),
    )


def _broken(fleet: _Fleet, to_servers: tuple[Link, ...]) -> tuple[Panel, ...]:
    alerts = BoardScope((f'{COMPONENT}!=""',))
    firing = f"{shared.pages(alerts)} or {shared.tickets(alerts)}"
    return (
        Stat(
            "Servers down",
            "Servers that do not respond, and exporters that Prometheus cannot scrape.",
            or_zero(fleet.down(), f"max({fleet.servers('up')})"),
            replace(displays.FAULTS, no_value="No exporter", links=to_servers),
        ),
        Stat(
            "Not ready",
            "Expected model versions that are not ready, counted per server.",
            or_zero(fleet.not_ready(), fleet.alive()),
            replace(displays.FAULTS, no_value="No exporter", links=to_servers),
            reads=state.MODEL_NOT_READY_SINCE,
        ),
        Stat(
            "Alerts firing",
            "Pages and tickets of this stack, over all models; the tiers of a budget are one. Metric: `ALERTS`.",
            or_zero(f"count({firing})", fleet.alive()),
            Display(
                thresholds=(Threshold("green"), Threshold("orange", 1)),
                decimals=0,
                no_value="No exporter",
                links=(shared.to(links.ON_CALL, "On call"),),
            ),
            reads=(),
        ),
    )


def _model_table(fleet: _Fleet) -> Panel:
    left = f"min by (model) ({fleet.objectives.budget_left()})"
    budget = or_last(left, fleet.traffic_by_model("requests", "model"))
    shown = (
        Column("Not ready", fleet.not_ready("model"), displays.calm(displays.FAULTS), colored=True),
        Column("Budget left", budget, displays.BUDGET_CELL, colored=True),
        Column("Requests/s", fleet.traffic_by_model("requests", "model"), displays.REQUESTS),
        Column(
            "Failed", fleet.traffic_by_model.failed("model"), displays.calm(displays.FAILED), colored=True
        ),
        Column("Mean latency", fleet.traffic_by_model.latency("model"), displays.SECONDS),
        Column(
            "Time in queue",
            fleet.traffic_by_model.queue_share("model"),
            displays.calm(displays.queue_share(fleet.tuning)),
            colored=True,
        ),
        Column("Mean batch", fleet.traffic_by_model.batch("model"), displays.BATCH),
        Column("Pending", fleet.traffic_by_model("pending", "model"), displays.COUNT),
    )
    link = shared.to(links.MODEL, "Model dashboard", "cluster", "job", model=shared.field("Model"))
    return Table(
        "Models",
        "One row per model: the smallest budget left first, models without a budget last. An empty cell "
        f"means no traffic, no objective, or no version that is not ready. Failed: {UNCOUNTED}",
        [LabelColumn("model", link=link, width=260)],
        shown,
        reads=(state.MODEL_NOT_READY_SINCE, model_traffic("requests")),
        sort_by="Budget left",
        descending=False,
        height=10,
    )


def _history_panels(fleet: _Fleet) -> tuple[Panel, ...]:
    return (
        StateTimeline(
            "Models not ready",
            "Expected models that are not ready: number of versions, over all servers.",
            {"{{model}}": fleet.not_ready("model")},
            Display(thresholds=(Threshold("red"),), no_value="All models were ready"),
            height=5,
        ),
        TimeSeries(
            "Traffic by model",
            "The ten models with the most requests in the time range.",
            {"{{model}}": worst(fleet.traffic_by_model("requests", "model"))},
            displays.REQUESTS,
            every=fleet.every,
        ),
        TimeSeries(
            "Failed by model",
            f"The ten models with the most failed requests at any time in the time range. {UNCOUNTED}",
            {"{{model}}": worst(f"{fleet.traffic_by_model.failed('model')} > 0")},
            displays.FAILED_BY.when_empty("No failures"),
            reads=model_traffic("failures"),
            every=fleet.every,
        ),
        TimeSeries(
            "Mean latency by model",
            "The ten slowest models in the time range; mean duration of successful requests.",
            {"{{model}}": worst(fleet.traffic_by_model.latency("model"))},
            displays.SECONDS,
            reads=model_traffic("request_seconds"),
            log=True,
            every=fleet.every,
        ),
        TimeSeries(
            "Time in queue by model",
            "Share of the request time that is spent in the queue; the ten highest values in the time range.",
            {"{{model}}": worst(fleet.traffic_by_model.queue_share("model"))},
            displays.queue_share(fleet.tuning),
            reads=model_traffic("queue_seconds"),
            every=fleet.every,
        ),
    )


def _servers(fleet: _Fleet) -> Panel:
    shown = (
        Column("Live", f"min by (instance) ({fleet.servers(state.SERVER_LIVE)})", displays.YES, colored=True),
        Column(
            "Ready", f"min by (instance) ({fleet.servers(state.SERVER_READY)})", displays.YES, colored=True
        ),
        Column(
            "Not ready",
            f"count by (instance) ({fleet.servers(state.MODEL_NOT_READY_SINCE)})",
            displays.calm(displays.FAULTS),
            colored=True,
        ),
        Column("Requests/s", fleet.traffic_by_server("requests", "instance"), displays.REQUESTS),
        Column("Failed", fleet.traffic_by_server.failed("instance"), displays.calm(displays.FAILED)),
        Column("Mean latency", fleet.traffic_by_server.latency("instance"), displays.SECONDS),
        Column(
            "Time in queue",
            fleet.traffic_by_server.queue_share("instance"),
            displays.calm(displays.queue_share(fleet.tuning)),
        ),
        Column("Pending", fleet.traffic_by_server("pending", "instance"), displays.COUNT),
        Column(
            "Data age",
            f"time() - max by (instance) ({fleet.servers(own.LAST_SUCCESS)})",
            displays.calm(displays.aged(signals.EXPORTER_AGE.tuned(fleet.tuning), "–")),
            colored=True,
        ),
    )
    link = shared.to(links.SERVER, "Server dashboard", "cluster", "job", instance=shared.field("Server"))
    return Table(
        "Servers",
        "One row per server. A server can be live but not ready: with strict readiness, one failed model "
        f"makes it not ready. Failed: {UNCOUNTED}",
        [LabelColumn("instance", "Server", link, 260)],
        shown,
        reads=(state.SERVER_LIVE, state.SERVER_READY, server_traffic("requests"), own.LAST_SUCCESS),
        sort_by="Not ready",
        height=6,
    )

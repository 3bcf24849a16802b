"""Fleet: which models are in trouble now, and where?"""

from __future__ import annotations

from dataclasses import dataclass, replace

from triton_dashboards import reading, shared
from triton_dashboards.about import about
from triton_dashboards.grafana.panels import stat, state_timeline, timeseries
from triton_dashboards.grafana.values import (
    Dashboard,
    Display,
    Override,
    Panel,
    Query,
    Row,
    Threshold,
)
from triton_dashboards.query import Scope, or_zero, scope, worst
from triton_dashboards.tables import Column, columns
from triton_dashboards.traffic import SHARE_FAILED, Recorded
from triton_exporter.catalogue import own, state
from triton_slo import signals
from triton_slo.artifact import Options
from triton_slo.conventions import (
    COMPONENT,
    OURS,
    PERIOD_BUDGET_REMAINING,
    SEVERITY,
    model_traffic,
    server_traffic,
)


@dataclass(frozen=True, slots=True)
class _Fleet:
    """Expressions of the fleet, over servers (`servers`) and over models (`models`)."""

    servers: Scope
    models: Scope
    everything: Scope

    @property
    def server(self) -> Recorded:
        return Recorded(self.servers, server_traffic)

    @property
    def model(self) -> Recorded:
        return Recorded(self.models, model_traffic)

    def alive(self) -> str:
        return f"max({self.servers(state.UP)})"

    def not_ready(self, *by: str) -> str:
        selected = self.models(state.MODEL_NOT_READY_SINCE)
        return f"count by ({', '.join(by)}) ({selected})" if by else f"count({selected})"

    def down(self) -> str:
        silent = self.servers("up")
        return f"count(({self.servers(state.SERVER_LIVE)} == 0) or ({silent} == 0))"


def dashboard(options: Options) -> Dashboard:
    """Make the dashboard."""
    fleet = _Fleet(
        servers=scope(options.selector, "cluster", "job"),
        models=scope(options.selector, "cluster", "job", "model"),
        everything=scope("", "model"),
    )
    return Dashboard(
        uid=shared.FLEET,
        title="Triton / Fleet",
        description="Which models are in trouble now, and on which servers? Start here; click a model or a "
        "server to go on. Needs the exporter and the generated recording rules: traffic is recorded by model "
        "and by server, so that thousands of models stay quick to draw.",
        tags=shared.tags("fleet"),
        variables=shared.variables("cluster", "job", "model"),
        annotations=shared.event_annotations(fleet.servers),
        links=shared.links(options.runbook_url),
        rows=(
            Row("Is anything broken now?", _glance(fleet)),
            Row("Which models?", (_models(fleet),)),
            Row("Since when?", _history(fleet)),
            Row("Which servers?", (_servers(fleet),)),
        ),
    )


def _glance(fleet: _Fleet) -> tuple[Panel, ...]:
    firing = f'ALERTS{{alertstate="firing", {COMPONENT}!="", {SEVERITY}=~"critical|warning"}}'
    return (
        stat(
            "Servers down",
            about(
                "Servers that do not answer, and exporters that Prometheus cannot reach.", state.SERVER_LIVE
            ),
            [Query(or_zero(fleet.down(), f"max({fleet.servers('up')})"))],
            replace(reading.FAULTS, no_value="No exporter"),
        ),
        stat(
            "Not ready",
            about(
                "Model versions, counted on each server, that should serve and do not.",
                state.MODEL_NOT_READY_SINCE,
            ),
            [Query(or_zero(fleet.not_ready(), fleet.alive()))],
            replace(reading.FAULTS, no_value="No exporter"),
        ),
        stat(
            "Alerts firing",
            "Critical and warning alerts of this stack, over all models. Metric: `ALERTS`.",
            [Query(or_zero(f"count({firing})", fleet.alive()))],
            Display(
                thresholds=(Threshold("green"), Threshold("orange", 1)),
                decimals=0,
                no_value="No exporter",
                links=(shared.to(shared.ON_CALL, "On call"),),
            ),
        ),
        stat(
            "Worst budget",
            about(
                "The smallest error budget left of any objective, as a share of the budget of its period.",
                PERIOD_BUDGET_REMAINING,
            ),
            [Query(f"min({fleet.everything(PERIOD_BUDGET_REMAINING, OURS)})")],
            replace(reading.BUDGET, links=(shared.to(shared.SLO, "Objectives"),)),
        ),
        stat(
            "Requests/s",
            about(
                "Requests answered or failed, without those that clients gave up.", model_traffic("requests")
            ),
            [Query(fleet.model("requests"))],
            reading.REQUESTS,
        ),
        stat(
            "Failed",
            about(
                SHARE_FAILED,
                model_traffic("failures"),
                model_traffic("requests"),
            ),
            [Query(fleet.model.failed())],
            reading.FAILED,
        ),
        stat(
            "Mean latency",
            about("Mean time of successful requests inside Triton.", model_traffic("request_seconds")),
            [Query(fleet.model.latency())],
            reading.SECONDS,
        ),
        stat(
            "Time in queue",
            about(
                "Share of request time spent waiting: the best stock sign of saturation.",
                model_traffic("queue_seconds"),
            ),
            [Query(fleet.model.queue_share())],
            reading.QUEUE_SHARE,
        ),
    )


def _models(fleet: _Fleet) -> Panel:
    budget = f"min by (model) ({fleet.everything(PERIOD_BUDGET_REMAINING, OURS)})"
    shown = (
        Column(
            "Not ready",
            fleet.not_ready("model"),
            reading.calm(reading.FAULTS),
            colored=True,
        ),
        Column(
            "Budget left",
            budget,
            reading.BUDGET,
            colored=True,
        ),
        Column("Requests/s", fleet.model("requests", "model"), reading.REQUESTS),
        Column(
            "Failed",
            fleet.model.failed("model"),
            reading.calm(reading.FAILED),
            colored=True,
        ),
        Column("Mean latency", fleet.model.latency("model"), reading.SECONDS),
        Column(
            "Time in queue",
            fleet.model.queue_share("model"),
            reading.calm(reading.QUEUE_SHARE),
            colored=True,
        ),
        Column(
            "Mean batch",
            fleet.model.batch("model"),
            reading.BATCH,
        ),
        Column("Pending", fleet.model("pending", "model"), reading.COUNT),
    )
    model = Override(
        "Model",
        {
            "links": [
                shared.to(
                    shared.MODEL, "Model dashboard", "cluster", "job", model=shared.field("Model")
                ).to_json_data()
            ],
            "custom.width": 260,
        },
    )
    return columns(
        "Models",
        about(
            "One line a model, worst budget first. An empty cell: no traffic, or no objective, or "
            "nothing not ready.",
            state.MODEL_NOT_READY_SINCE,
            PERIOD_BUDGET_REMAINING,
            model_traffic("requests"),
        ),
        "model",
        shown,
        key_override=model,
        sort_by="Budget left",
        descending=False,
        height=10,
    )


def _history(fleet: _Fleet) -> tuple[Panel, ...]:
    return (
        state_timeline(
            "Models not ready",
            about(
                "Models that should serve and do not: how many of their versions, over all servers.",
                state.MODEL_NOT_READY_SINCE,
            ),
            [Query(fleet.not_ready("model"), "{{model}}")],
            Display(thresholds=(Threshold("red"),), no_value="Every model was ready"),
            height=5,
        ),
        timeseries(
            "Traffic by model",
            about("The ten busiest models in view.", model_traffic("requests")),
            [Query(worst(fleet.model("requests", "model")), "{{model}}")],
            reading.REQUESTS,
        ),
        timeseries(
            "Failed by model",
            about("The ten models that failed most, at any time in view.", model_traffic("failures")),
            [Query(worst(f"{fleet.model.failed('model')} > 0"), "{{model}}")],
            replace(reading.FAILED, no_value="No failures"),
        ),
        timeseries(
            "Mean latency by model",
            about(
                "The ten slowest models in view; mean of successful requests.",
                model_traffic("request_seconds"),
            ),
            [Query(worst(fleet.model.latency("model")), "{{model}}")],
            reading.SECONDS,
            log=True,
        ),
        timeseries(
            "Time in queue by model",
            about(
                "Share of request time spent waiting, the ten highest in view.",
                model_traffic("queue_seconds"),
            ),
            [Query(worst(fleet.model.queue_share("model")), "{{model}}")],
            reading.QUEUE_SHARE,
        ),
    )


def _servers(fleet: _Fleet) -> Panel:
    shown = (
        Column(
            "Live",
            f"min by (instance) ({fleet.servers(state.SERVER_LIVE)})",
            reading.YES,
            colored=True,
        ),
        Column(
            "Ready",
            f"min by (instance) ({fleet.servers(state.SERVER_READY)})",
            reading.YES,
            colored=True,
        ),
        Column(
            "Not ready",
            f"count by (instance) ({fleet.servers(state.MODEL_NOT_READY_SINCE)})",
            reading.calm(reading.FAULTS),
            colored=True,
        ),
        Column("Requests/s", fleet.server("requests", "instance"), reading.REQUESTS),
        Column("Failed", fleet.server.failed("instance"), reading.calm(reading.FAILED)),
        Column("Mean latency", fleet.server.latency("instance"), reading.SECONDS),
        Column("Time in queue", fleet.server.queue_share("instance"), reading.calm(reading.QUEUE_SHARE)),
        Column("Pending", fleet.server("pending", "instance"), reading.COUNT),
        Column(
            "Data age",
            f"time() - max by (instance) ({fleet.servers(own.LAST_SUCCESS)})",
            reading.calm(reading.aged(signals.EXPORTER_AGE, "–")),
            colored=True,
        ),
    )
    server = Override(
        "Server",
        {
            "links": [
                shared.to(
                    shared.SERVER, "Server dashboard", "cluster", "job", instance=shared.field("Server")
                ).to_json_data()
            ],
            "custom.width": 260,
        },
    )
    return columns(
        "Servers",
        about(
            "One line a server. A server can be live and not ready: with strict readiness one failed "
            "model is enough.",
            state.SERVER_LIVE,
            state.SERVER_READY,
            server_traffic("requests"),
            own.LAST_SUCCESS,
        ),
        "instance",
        shown,
        key_name="Server",
        key_override=server,
        sort_by="Not ready",
        height=6,
    )

"""Parts shared by every dashboard: variables, links, annotations, limits and colours."""

from __future__ import annotations

from triton_dashboards import objectives
from triton_dashboards.query import BoardScope
from triton_dashboards.values import Annotation, Link, Menu, Variable
from triton_exporter.catalogue import gpu, state, triton
from triton_slo import names
from triton_slo.artifact import Options

TAG = "triton"


def tags(area: str) -> tuple[str, ...]:
    """Return the tags of a dashboard; the first drives the menu between dashboards."""
    return (TAG, "generated", area)


def variables(*names: str) -> tuple[Variable, ...]:
    """Return the variables of a dashboard by name, each narrowed by those before it."""
    return tuple(_VARIABLES[name] for name in names)


_OF_JOB = BoardScope(('cluster=~"$cluster"', 'job=~"$job"'))
_OF_INSTANCE = BoardScope((*_OF_JOB.matchers, 'instance=~"$instance"'))

_VARIABLES = {
    variable.name: variable
    for variable in (
        Variable("cluster", "Cluster", state.UP.name),
        # No value of its own for All: up of every other job would match, so Grafana lists the jobs.
        Variable("job", "Job", f'{state.UP}{{cluster=~"$cluster"}}', all_value=""),
        Variable("instance", "Server", _OF_JOB(state.UP)),
        Variable("model", "Model", _OF_JOB(state.MODEL_STATE)),
    )
}

ONE_MODEL = Variable("model", "Model", _OF_INSTANCE(state.MODEL_STATE), multi=False)
GPU_UUID = Variable("gpu_uuid", "GPU", _OF_INSTANCE(gpu.INFO))
VERSION = Variable("version", "Version", _OF_INSTANCE(state.MODEL_STATE, 'model="$model"'))
OBJECTIVE = Variable("slo", "Objective", objectives.listed())
OBJECTIVE_MODEL = Variable("model", "Model", objectives.listed('slo=~"$slo"'))
OBJECTIVE_VERSION = Variable("version", "Version", objectives.listed('slo=~"$slo"', 'model=~"$model"'))
ON_CALL_VARIABLES = tuple(
    Variable(label, label.capitalize(), f'{names.ALERTS}{{{names.COMPONENT}!=""}}')
    for label in ("component", "owner", "model")
)


def links(options: Options) -> tuple[Menu | Link, ...]:
    """Return the menu of sibling dashboards, the way to the runbooks, and the operator's own links."""
    return (
        Menu("Triton dashboards", TAG),
        Link("Runbooks", options.runbook_url.split("{", maxsplit=1)[0].rstrip("/")),
        *(Link(title, url) for title, url in options.links),
    )


def to(uid: str, title: str, *carried: str, **chosen: str) -> Link:
    """Return a link to a dashboard with the same data source and time range.

    `carried` variables keep their values there; `chosen` ones are set, from `field` or a text.
    """
    parameters = [
        "${datasource:queryparam}",
        *(f"${{{name}:queryparam}}" for name in carried),
        *(f"var-{name}={value}" for name, value in chosen.items()),
        "${__url_time_range}",
    ]
    return Link(title, f"/d/{uid}?{'&'.join(parameters)}", outside=False)


def field(name: str) -> str:
    """Return the value of another column of the clicked row, made safe for a link."""
    return f"${{__data.fields.{name}:percentencode}}"


OF_MODEL, OF_SERVER = 'model=~"$model|"', 'instance=~"$instance|"'
"""Matchers of alerts of the chosen models or servers, and of alerts that name none."""
ONE_ALERT = ("alertname", "slo", "model", "version", "instance")
"""Labels that make one alert for a person: the tiers of a budget are one, at the urgency of the highest."""


def pages(alerts: BoardScope) -> str:
    """Return a query of firing pages, one for all tiers of a budget."""
    page = f'{names.SEVERITY}="critical"'
    return f"max by ({', '.join(ONE_ALERT)}) ({alerts(names.ALERTS, FIRING, page)})"


def tickets(alerts: BoardScope) -> str:
    """Return a query of firing tickets, without those whose alert pages."""
    ticket = alerts(names.ALERTS, FIRING, f'{names.SEVERITY}="warning"')
    return f"(max by ({', '.join(ONE_ALERT)}) ({ticket}) unless {pages(alerts)})"


FIRING = 'alertstate="firing"'


def alert_annotation(*chosen: tuple[str, ...]) -> Annotation:
    """Mark firing alerts on every graph: those that meet all matchers of one of these sets."""
    common = (FIRING, f'{names.COMPONENT}!=""', f'{names.SEVERITY}=~"critical|warning"')
    return Annotation(
        "Firing alerts",
        " or ".join(BoardScope((*common, *matchers))(names.ALERTS) for matchers in chosen),
        "red",
        "{{alertname}}",
        "{{severity}} {{model}} {{version}}",
        ("alertname", "severity"),
    )


def load_annotations(scope: BoardScope) -> tuple[Annotation, ...]:
    """Mark failed loads and new versions on every graph of a dashboard."""
    # The series exist only where something happened, so a maximum over each step misses no event and is fast.
    failed = f"max by (model, reason) (max_over_time({scope(names.FAILED_LOADS)}[$__interval]))"
    loaded = f"max by (model, version) (max_over_time({scope(names.BECAME_READY)}[$__interval]))"
    return (
        Annotation("Failed loads", failed, "dark-red", "Load failed: {{model}}", "{{reason}}", ("model",)),
        Annotation(
            "Loads and deploys",
            loaded,
            "blue",
            "Ready: {{model}} version {{version}}",
            "A version became ready.",
            ("model", "version"),
        ),
    )


def event_annotations(scope: BoardScope, *alerts: tuple[str, ...]) -> tuple[Annotation, ...]:
    """Mark firing alerts, loads and, where they are switched on, restarts on every graph of a dashboard."""
    reset = f"sum by (instance) (resets({scope(triton.REQUEST_SUCCESS)}[2m])) > 0"
    return (
        alert_annotation(*alerts),
        *load_annotations(scope),
        Annotation(
            "Restarts and reloads",
            reset,
            "purple",
            "Counters restarted on {{instance}}",
            "A server restarted or models were reloaded.",
            ("instance",),
            enabled=False,
        ),
    )

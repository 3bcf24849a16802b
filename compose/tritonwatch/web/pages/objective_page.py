"""One objective of one group: its budget, burn rates, causes and alert conditions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, dataclass
from functools import partial
from typing import NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from triton_exporter.common.duration import DAY, duration_text, parse_seconds
from triton_slo import links, names, rules
from triton_slo.estimate import settled_by
from triton_slo.group_status import GroupStatus, forecast
from triton_slo.indicators.sources import CAVEATS
from triton_slo.plan import Plan
from triton_slo.prometheus import WARNS
from tritonwatch.web import urls
from tritonwatch.web.drawing import POINTS, Chart, ChartAxis, Mark
from tritonwatch.web.pages.objective_charts import objective_charts
from tritonwatch.web.queries import group_history
from tritonwatch.web.queries.group_history import PastSeries
from tritonwatch.web.queries.objective_facts import ObjectiveInfo, SloAlert, objective_infos, slo_alerts
from tritonwatch.web.site import Site, banner_text, remarks_on
from tritonwatch.web.sources import CachedAnswer
from tritonwatch.web.urls import asked_choice, asked_time

MENU = None
LENGTHS = ("1h", "6h", "1d", "7d")
"""Lengths of time that the page offers, besides the objective's period."""
_PERIOD = "period"
_LENGTH = "1d"
_NOT_LABELS = frozenset({names.SLO, urls.TIME, urls.LAST})


def routes(site: Site) -> Sequence[Route]:
    """Return the page and the JSON of its charts."""
    return [Route("/objective", partial(_page, site)), Route("/api/objective", partial(_charts, site))]


def _charts(site: Site, request: Request) -> Response:
    values = _read_page(site, request)
    document = {
        "charts": [chart.as_json() for chart in values.charts()],
        "problem": banner_text(values.answers, site.sources.reader.now),
        **asdict(remarks_on(values.answers)),
    }
    return JSONResponse(document)


class _GroupAnswers(NamedTuple):
    """What Prometheus answered about one group."""

    status: CachedAnswer[tuple[GroupStatus, ...]]
    infos: CachedAnswer[Mapping[str, ObjectiveInfo]]
    alerts: CachedAnswer[tuple[SloAlert, ...]]
    budget: CachedAnswer[PastSeries]
    burn: CachedAnswer[PastSeries]
    states: CachedAnswer[PastSeries]
    causes: CachedAnswer[PastSeries]
    deployments: CachedAnswer[PastSeries]


@dataclass(frozen=True, slots=True)
class _ObjectivePage:
    """Values of the page for one request: the group, the length of time, and the answers of Prometheus."""

    site: Site
    at: float | None
    last: str
    row: GroupStatus
    answers: _GroupAnswers

    @property
    def about(self) -> ObjectiveInfo:
        """Owner, description and window of the objective."""
        return self.answers.infos.value.get(self.row.slo, ObjectiveInfo())

    @property
    def axis(self) -> ChartAxis:
        """Steps of the length of time that the address chooses."""
        return self.answers.burn.value.axis

    @property
    def plan(self) -> Plan | None:
        """The objective with the options of its rules; None without --objectives, or if it is not among them."""
        return self.site.sources.plans.get(self.row.slo)

    @property
    def marks(self) -> tuple[Mark, ...]:
        """Deployments and firing alerts, in the order of time."""
        events = (
            *group_history.deployments(self.answers.deployments.value),
            *self.answers.states.value.alerts(),
        )
        return tuple(sorted(events, key=lambda mark: mark.at))

    def charts(self) -> list[Chart]:
        """Return the charts of the page."""
        return objective_charts(
            self.row,
            self.plan,
            self.answers.budget.value,
            self.answers.burn.value,
            self.answers.states.value.bands(),
            self.marks,
        )


def _read_page(site: Site, request: Request) -> _ObjectivePage:
    """Ask Prometheus for the values of the page. Raises HTTPException where there is no such group."""
    at = asked_time(request)
    last = asked_choice(request, urls.LAST, (*LENGTHS, _PERIOD), _LENGTH)
    status, infos = site.status(at), objective_infos(site.sources, at)
    row = _asked_row(request, status)
    scale = site.sources.options.time_scale
    days = infos.value.get(row.slo, ObjectiveInfo()).period_days or 30
    # A calendar period is not scaled.
    period = days * DAY * (scale if row.period_ends_in_seconds is None else 1)
    # The moment of the status: viewers share the queries, and the past stays while Prometheus is down.
    end = float(round((status.read_at or site.sources.reader.now) if at is None else at))
    interval = site.sources.options.scrape_interval_seconds
    whole = ChartAxis.until(end, max(period, POINTS * interval))
    seconds = period if last == _PERIOD else parse_seconds(last) * scale
    axis = ChartAxis.until(end, max(seconds, 60 * interval))
    answers = _GroupAnswers(
        status,
        infos,
        slo_alerts(site.sources, at),
        group_history.past_budget(site.sources, row, whole),
        group_history.past_burn(site.sources, row, axis),
        group_history.past_states(site.sources, row, axis),
        group_history.past_causes(site.sources, row, axis),
        group_history.past_deployments(site.sources, row, axis),
    )
    return _ObjectivePage(site, at, last, row, answers)


def _asked_row(request: Request, status: CachedAnswer[tuple[GroupStatus, ...]]) -> GroupStatus:
    asked = {label: value for label, value in request.query_params.items() if label not in _NOT_LABELS}
    slo = request.query_params.get(names.SLO, "")
    for row in status.value:
        if row.slo == slo and dict(row.group) == asked:
            return row
    if status.read_at is None:
        raise HTTPException(503, f"{status.problem}. Nothing has been read yet.")
    if status.warnings:
        raise HTTPException(503, f"{WARNS}{status.warnings[0]}. This group may be among them.")
    raise HTTPException(404, "Prometheus records no such objective and group at that time.")


def _page(site: Site, request: Request) -> Response:
    values = _read_page(site, request)
    row, plan, states = values.row, values.plan, values.answers.states.value
    durations = group_history.distribution(site.sources, row, values.at)
    concerned = [alert for alert in values.answers.alerts.value if row.concerned_by(alert.labels)]
    firing = {alert.tier for alert in concerned if alert.state == "firing"}
    context = {
        "row": row,
        "about": values.about,
        "forecast": forecast(row, values.about.period_days),
        "alerts": concerned,
        "last": values.last,
        "charts": values.charts(),
        "bands": states.bands(),
        "marks": values.marks,
        "spent_by": group_history.spent_by_cause(values.answers.causes.value, values.answers.burn.value),
        "buckets": durations.value,
        "caveats": [(CAVEATS[source], settled_by(row, source)) for source in row.caveats],
        "tiers": _tiers(plan, firing) if plan else (),
        "timeline": _timeline(states),
        "axis": values.axis,
        **_page_links(values, request.query_params.get("at")),
    }
    return site.page(request, "objective.html", context, *values.answers, durations)


def _page_links(values: _ObjectivePage, at: str | None) -> Mapping[str, object]:
    """Return the addresses on the page: other lengths of time, the charts' values, Grafana, Prometheus, runbook."""
    row, plan, addresses = values.row, values.plan, values.site.sources.addresses
    parameters: Mapping[str, object] = {names.SLO: row.slo, **row.group, urls.TIME: at}
    of_board = {name: value for name, value in row.group.items() if name in names.GROUPING}
    return {
        "lengths": {
            length: urls.address("/objective", {**parameters, urls.LAST: length})
            for length in (*LENGTHS, _PERIOD)
        },
        "charts_url": urls.address("/api/objective", {**parameters, urls.LAST: values.last}),
        "grafana": urls.grafana_url(addresses.grafana, links.SLO, {names.SLO: row.slo, **of_board}),
        "prometheus": urls.prometheus_url(
            addresses.prometheus,
            f"{names.PERIOD_BUDGET_REMAINING}{group_history.own_matchers(row)}",
            duration_text(values.axis.end - values.axis.start),
        ),
        "runbook": links.runbook_url(values.site.sources.options, plan.objective.burn_alert) if plan else "",
    }


def _tiers(plan: Plan, firing: Set[str]) -> list[Mapping[str, object]]:
    """Return each alert of the objective: its windows, the burn rate above which it fires, its PromQL."""
    return [
        {
            "tier": tier.name,
            "severity": plan.severity(tier),
            "factor": plan.factor(tier),
            "long": tier.long,
            "short": tier.short,
            "firing": tier.name in firing,
            "promql": rules.burn_condition(plan, tier),
        }
        for tier in rules.tiers(plan)
    ]


def _timeline(states: PastSeries) -> list[tuple[str, list[tuple[float, float]]]]:
    """Return when the alert of each tier fired."""
    rows: dict[str, list[tuple[float, float]]] = {}
    for series in states.all_named(names.ALERTS):
        label = series.labels.get(names.TIER) or series.labels.get("alertname", "")
        rows.setdefault(label, []).extend(states.axis.stretches(series))
    return sorted(rows.items())

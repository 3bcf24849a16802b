"""One objective of one group: its budget, how fast it burns and why, and what its alerts wait for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from triton_exporter.common.duration import DAY, duration_text, parse_seconds
from triton_slo import links, names
from triton_slo.burn import amounts
from triton_slo.fields import error_budget
from triton_slo.indicators.common.sources import CAVEATS
from triton_slo.prometheus.remarks import WARNS
from triton_slo.rules.plan import Plan
from triton_slo.verdict.estimate import no_page_because, settled_by
from triton_slo.verdict.forecast import forecast
from triton_slo.verdict.group_status import GroupStatus
from tritonwatch.web import urls
from tritonwatch.web.drawing.charts import POINTS, Axis, Chart, Curve, Limit, Mark, Values, gap
from tritonwatch.web.drawing.condition_parts import Truth, tier_conditions
from tritonwatch.web.parameters import asked_choice, asked_time
from tritonwatch.web.queries import group_history
from tritonwatch.web.queries.group_history import Past
from tritonwatch.web.queries.objective_facts import ObjectiveInfo, objective_infos, slo_alerts
from tritonwatch.web.readers.prometheus_reader import Answer
from tritonwatch.web.site import Site, banner_text, remarks_on

MENU = None
LENGTHS = ("1h", "6h", "1d", "7d")
"""Lengths of time that the page offers, besides the objective's period."""
_PERIOD = "period"
_LENGTH = "1d"
_NOT_LABELS = frozenset({names.SLO, urls.TIME, urls.LAST})
_ERRORS = names.sli_error("")


def routes(site: Site) -> Sequence[Route]:
    """Return the page and the JSON of its charts."""

    def page(request: Request) -> Response:
        return _page(site, request)

    def charts(request: Request) -> Response:
        shown = _Shown(site, request)
        answers = shown.answers()
        return JSONResponse(
            {
                "charts": [chart.as_json() for chart in shown.charts()],
                "problem": banner_text(answers, site.sources.reader.now),
                **asdict(remarks_on(answers)),
            }
        )

    return [Route("/objective", page), Route("/api/objective", charts)]


class _Shown:
    """Content of the page for one request: the group, the length of time, and the answers of Prometheus."""

    def __init__(self, site: Site, request: Request) -> None:
        self.site = site
        self.at = asked_time(request)
        self.last = asked_choice(request, urls.LAST, (*LENGTHS, _PERIOD), _LENGTH)
        self.status = site.status(self.at)
        self.about_answer = objective_infos(site, self.at)
        self.row = self._row(request)
        self.about = self.about_answer.value.get(self.row.slo, ObjectiveInfo())
        self.alerts = slo_alerts(site, self.at)
        scale = site.sources.options.time_scale
        period = (
            (self.about.period_days or 30)
            * DAY
            * (1 if self.row.period_ends_in_seconds is not None else scale)
        )
        # The moment of the status: viewers share the queries, and the past stays while Prometheus is down.
        read_at = self.status.read_at or site.sources.reader.now
        end = float(round(read_at if self.at is None else self.at))
        interval = site.sources.options.scrape_interval_seconds
        self.whole = Axis.until(end, max(period, POINTS * interval))
        seconds = period if self.last == _PERIOD else parse_seconds(self.last) * scale
        self.axis = Axis.until(end, max(seconds, 60 * interval))
        self.budget = group_history.past_budget(site, self.row, self.whole)
        self.burn = group_history.past_burn(site, self.row, self.axis)
        self.states = group_history.past_states(site, self.row, self.axis)
        self.causes = group_history.past_causes(site, self.row, self.axis)
        self.deployments = group_history.past_deployments(site, self.row, self.axis)

    def _row(self, request: Request) -> GroupStatus:
        asked = {label: value for label, value in request.query_params.items() if label not in _NOT_LABELS}
        slo = request.query_params.get(names.SLO, "")
        for row in self.status.value:
            if row.slo == slo and dict(row.group) == asked:
                return row
        if self.status.read_at is None:
            raise HTTPException(503, f"{self.status.problem}. Nothing has been read yet.")
        if self.status.warnings:
            raise HTTPException(503, f"{WARNS}{self.status.warnings[0]}. This group may be among them.")
        raise HTTPException(404, "Prometheus records no such objective and group at that time.")

    @property
    def plan(self) -> Plan | None:
        """The objective with the options of its rules; None without --objectives, or if it is not among them."""
        return self.site.sources.plans.get(self.row.slo)

    @property
    def marks(self) -> tuple[Mark, ...]:
        """Deployments and firing alerts, in the order of time."""
        events = (*group_history.deployments(self.deployments.value), *self.states.value.alerts())
        return tuple(sorted(events, key=lambda mark: mark.at))

    def charts(self) -> list[Chart]:
        """Return the charts of the page."""
        bands, marks = self.states.value.bands(), self.marks
        return [
            self._budget(),
            Chart(
                "burn",
                "Burn rate by window",
                "times",
                self.axis.times,
                tuple(burn_curves(self.burn.value, self.axis, self.row.target)),
                tuple(self._limits()),
                bands,
                marks,
                log=True,
            ),
            Chart(
                "events",
                "Events per second",
                "per second",
                self.axis.times,
                tuple(
                    Curve(label, self.axis.values(self.burn.value.named(names.sli_events("5m"), event=event)))
                    for label, event in (("all", names.TOTAL), ("failed", names.ERROR))
                ),
                bands=bands,
                marks=marks,
            ),
        ]

    def _budget(self) -> Chart:
        axis, past = self.whole, self.budget.value
        left = axis.values(past.named(names.PERIOD_BUDGET_REMAINING))
        # The last point is the number on the page.
        curves = [Curve("budget left", (*left[:-1], self.row.budget_left))]
        even = _even_pace(axis, self.row)
        if self.row.period_ends_in_seconds is None:
            spent = _spent_since(axis, past, self.row)
            if any(value is not None for value in spent):
                curves.append(Curve("left, counted from the window's start", spent, dashed=True))
        curves.append(Curve("even pace", even, dashed=True))
        return Chart("budget", "Error budget over the period", "share", axis.times, tuple(curves))

    def _limits(self) -> list[Limit]:
        if self.plan is None:
            return []
        return [
            Limit(
                f"{tier.name} {amounts.burn_rate(self.plan.factor(tier))} ({tier.long} and {tier.short})",
                self.plan.factor(tier),
            )
            for tier in self.plan.objective.alerting.tiers
        ]

    def answers(self) -> tuple[Answer[Any], ...]:
        """Return everything that was asked."""
        return (
            self.status,
            self.about_answer,
            self.alerts,
            self.budget,
            self.burn,
            self.states,
            self.causes,
            self.deployments,
        )


def burn_curves(burn: Past, axis: Axis, target: float | None) -> list[Curve]:
    """Return the burn rate of each recorded window, the shortest first; nothing where the target is unknown."""
    if target is None:
        return []
    rates = {
        series.labels["__name__"].removeprefix(_ERRORS): axis.values(series)
        for series in burn.all_named(_ERRORS)
    }
    return [
        Curve(
            window, tuple(None if value is None else value / error_budget(target) for value in rates[window])
        )
        for window in sorted(rates, key=_length)
    ]


def _length(window: str) -> float:
    """Return the seconds of a window; a calendar period (`month`) is longer than any other."""
    return math.inf if window.isalpha() else parse_seconds(window)


def _even_pace(axis: Axis, row: GroupStatus) -> Values:
    """Return the budget that would be left if it were spent evenly over the period."""
    ends = axis.end + (row.period_ends_in_seconds or 0.0)
    length = ends - axis.start
    return tuple(1 - (at - axis.start) / length for at in axis.times)


def _spent_since(axis: Axis, past: Past, row: GroupStatus) -> Values:
    """Return what was left of the window's budget at each step, counted from the window's start.

    Its end is the budget left now: what failed before the step, of all that may fail in the window.
    """
    errors, totals = (
        axis.values(past.named(names.SLI_EVENTS_SUM, event=event)) for event in (names.ERROR, names.TOTAL)
    )
    first = next((i for i, value in enumerate(errors) if value is not None and totals[i] is not None), None)
    if first is None or row.target is None or row.budget_left is None:
        return (None,) * len(axis.times)
    start = errors[first] or 0.0
    failed = [None if value is None else max(0.0, value - start) for value in errors]
    last = next((value for value in reversed(failed) if value is not None), 0.0)
    spent = 1 - row.budget_left
    if last <= 0 or spent <= 0:
        return tuple(None if value is None else 1.0 for value in failed)
    return tuple(None if value is None else 1 - spent * value / last for value in failed)


def _page(site: Site, request: Request) -> Response:
    shown = _Shown(site, request)
    row, plan, states = shown.row, shown.plan, shown.states.value
    durations = group_history.distribution(site, row, shown.at)
    concerned = [alert for alert in shown.alerts.value if row.concerned_by(alert.labels)]
    firing = {alert.tier for alert in concerned if alert.state == "firing"}

    def recorded(tier: str, part: str) -> Truth:
        if shown.states.read_at is None:
            return None
        series = states.named(names.burn_part(part), tier=tier)
        return series is not None and not gap(series.times[-1], states.axis.end, states.axis.step)

    context = {
        "row": row,
        "about": shown.about,
        "forecast": forecast(row, shown.about.period_days),
        "alerts": concerned,
        "last": shown.last,
        "charts": shown.charts(),
        "bands": states.bands(),
        "marks": shown.marks,
        "spent_by": group_history.spent_by_cause(shown.causes.value, shown.burn.value),
        "buckets": durations.value,
        "caveats": [(CAVEATS[source], settled_by(row, source)) for source in row.caveats],
        "no_page": no_page_because(row),
        "tiers": tier_conditions(plan, row, recorded, firing.__contains__) if plan else (),
        "timeline": _timeline(states),
        "axis": shown.axis,
        **_page_links(shown, request.query_params.get("at")),
    }
    return site.page(request, "objective.html", context, *shown.answers(), durations)


def _page_links(shown: _Shown, at: str | None) -> Mapping[str, object]:
    """Return the addresses on the page: other lengths of time, the charts' values, Grafana, Prometheus, runbook."""
    row, plan, addresses = shown.row, shown.plan, shown.site.sources.addresses
    parameters: Mapping[str, object] = {names.SLO: row.slo, **row.group, urls.TIME: at}
    of_board = {name: value for name, value in row.group.items() if name in names.GROUPING}
    return {
        "lengths": {
            length: urls.address("/objective", {**parameters, urls.LAST: length})
            for length in (*LENGTHS, _PERIOD)
        },
        "charts_url": urls.address("/api/objective", {**parameters, urls.LAST: shown.last}),
        "grafana": urls.grafana_url(addresses.grafana, links.SLO, {names.SLO: row.slo, **of_board}),
        "prometheus": urls.prometheus_url(
            addresses.prometheus,
            f"{names.PERIOD_BUDGET_REMAINING}{group_history.own_matchers(row)}",
            duration_text(shown.axis.end - shown.axis.start),
        ),
        "runbook": links.runbook_url(shown.site.sources.options, plan.objective.burn_alert) if plan else "",
    }


def _timeline(states: Past) -> list[tuple[str, list[tuple[float, float]]]]:
    """Return when each named part of each tier was true, and when its alert fired."""
    rows: dict[str, list[tuple[float, float]]] = {}
    for series in states.series:
        part = names.part_of_burn(series.labels.get("__name__", ""))
        if part is None:
            continue
        rows[f"{series.labels.get(names.TIER, '')}: {part}"] = list(states.axis.stretches(series))
    for series in states.all_named(names.ALERTS):
        label = f"{series.labels.get(names.TIER) or series.labels.get('alertname', '')}: fires"
        rows.setdefault(label, []).extend(states.axis.stretches(series))
    return sorted(rows.items())

"""One objective of one group: its budget, burn rates, causes and alert conditions.

First the page and its charts, then the recorded history that they show.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, dataclass
from functools import partial
from typing import NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from triton_exporter.common.duration import DAY, duration_text, in_words, parse_seconds
from triton_slo import amounts, links, names, rules
from triton_slo.estimate import settled_by
from triton_slo.fields import error_budget
from triton_slo.group_status import GroupStatus, forecast
from triton_slo.indicators import indicator_class
from triton_slo.indicators.histograms import HistogramIndicator
from triton_slo.plan import Plan
from triton_slo.prometheus import WARNS, Prometheus, Series
from triton_slo.promql import Matchers, parse_selector
from triton_slo.sources import CAVEATS
from tritonwatch.web import urls
from tritonwatch.web.drawing import Band, Chart, ChartAxis, Curve, Limit, Mark, Values
from tritonwatch.web.site import ObjectiveInfo, Site, SloAlert, banner_text, remarks_on
from tritonwatch.web.sources import CachedAnswer, Sources
from tritonwatch.web.urls import asked_choice, asked_time

LENGTHS = ("1h", "6h", "1d", "7d", "30d")
"""Lengths of time that the page offers, besides the objective's period."""
_PERIOD = "period"
_LENGTH = "1d"
EVENTS = "events_per_second"
_ERRORS = names.sli_error("")
_FIRING = 'alertstate="firing"'
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
    period: float
    """Seconds."""
    plan: Plan | None
    """The objective with the options of its rules; None without --objectives, or if it is not among them."""
    answers: _GroupAnswers

    @property
    def axis(self) -> ChartAxis:
        """Steps of the length of time that the address chooses."""
        return self.answers.burn.value.axis

    @property
    def marks(self) -> tuple[Mark, ...]:
        """Deployments and firing alerts, in the order of time."""
        events = (*deployments(self.answers.deployments.value), *self.answers.states.value.alerts())
        return tuple(sorted(events, key=lambda mark: mark.at))

    def charts(self) -> list[Chart]:
        """Return the charts of the page; without a plan, those of burn rates have no limits."""
        row, plan, burn, axis = self.row, self.plan, self.answers.burn.value, self.axis
        budget = self.answers.budget.value
        scale = self.site.sources.options.time_scale
        left = budget.axis.values(budget.named(names.PERIOD_BUDGET_REMAINING))
        bands, marks = self.answers.states.value.bands(), self.marks
        unknown = row.budget_not_known_yet
        return [
            Chart(
                "budget",
                "Error budget over the period" + (f" ({unknown})" if unknown else ""),
                "share",
                budget.axis.times,
                (
                    # The last point is the number on the page.
                    Curve("budget left", (None,) * len(left) if unknown else (*left[:-1], row.budget_left)),
                    Curve("even pace", _even_pace(budget.axis, row, self.period), dashed=True),
                ),
            ),
            Chart(
                "burn",
                "Burn rate by window",
                "times",
                axis.times,
                tuple(burn_curves(burn, axis, row.target, row.history_seconds, scale)),
                tuple(
                    Limit(f"{tier.name} {amounts.burn_rate(factor)} ({tier.long} and {tier.short})", factor)
                    for tier in plan.objective.alerting.tiers
                    for factor in [plan.factor(tier)]
                )
                if plan
                else (),
                bands,
                marks,
                log=True,
            ),
            Chart(
                "events",
                "Events per second",
                "per second",
                axis.times,
                tuple(
                    Curve(label, axis.values(burn.named(EVENTS, event=event)))
                    for label, event in (("all", names.TOTAL), ("failed", names.ERROR))
                ),
                bands=bands,
                marks=marks,
            ),
        ]


def _read_page(site: Site, request: Request) -> _ObjectivePage:
    """Ask Prometheus for the values of the page. Raises HTTPException where there is no such group."""
    at = asked_time(request)
    last = asked_choice(request, urls.LAST, (*LENGTHS, _PERIOD), _LENGTH)
    status, infos = site.status(at), site.objective_infos(at)
    row = _asked_row(request, status)
    scale = site.sources.options.time_scale
    # A calendar period is not scaled.
    period = (row.period_days or 30) * DAY * (scale if row.period_ends_in_seconds is None else 1)
    # The moment of the status: viewers share the queries, and the past stays while Prometheus is down.
    end = float(round((status.read_at or site.sources.reader.now) if at is None else at))
    least = 60 * site.sources.options.scrape_interval_seconds
    # On the first days, the charts show the time for which there is data.
    recorded = period if row.history_seconds is None else row.history_seconds * scale
    seconds = period if last == _PERIOD else parse_seconds(last) * scale
    whole, axis = (ChartAxis.until(end, max(min(length, recorded), least)) for length in (period, seconds))
    answers = _GroupAnswers(
        status,
        infos,
        site.slo_alerts(at),
        _past(site.sources, whole, [f"{names.PERIOD_BUDGET_REMAINING}{own_matchers(row)}"]),
        past_burn(site.sources, row, axis),
        past_states(site.sources, row, axis),
        past_causes(site.sources, row, axis),
        past_deployments(site.sources, row, axis),
    )
    return _ObjectivePage(site, at, last, row, period, site.sources.plan(row.slo), answers)


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
    durations = distribution(site.sources, row, values.at)
    concerned = [alert for alert in values.answers.alerts.value if row.concerned_by(alert.labels)]
    firing = {alert.tier for alert in concerned if alert.state == "firing"}
    context = {
        "row": row,
        "about": values.answers.infos.value.get(row.slo, ObjectiveInfo()),
        "forecast": forecast(row),
        "alerts": concerned,
        "last": values.last,
        "charts": values.charts(),
        "bands": states.bands(),
        "marks": values.marks,
        "spent_by": spent_by_cause(values.answers.causes.value, values.answers.burn.value),
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
            f"{names.PERIOD_BUDGET_REMAINING}{own_matchers(row)}",
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


def burn_curves(
    burn: PastSeries,
    axis: ChartAxis,
    target: float | None,
    history_seconds: float | None,
    time_scale: float,
) -> list[Curve]:
    """Return the burn rate of each recorded window, the shortest first; none if the target is unknown.

    A window begins as soon as enough of it is recorded; the shortest is what burns now, and always known.
    """
    if target is None:
        return []
    rates = {
        series.labels["__name__"].removeprefix(_ERRORS): axis.values(series)
        for series in burn.all_named(_ERRORS)
    }
    since = -math.inf if history_seconds is None else axis.end - history_seconds * time_scale
    curves = []
    for index, window in enumerate(sorted(rates, key=parse_seconds)):
        days = parse_seconds(window) * time_scale / DAY
        values = (
            None
            if value is None or (index and amounts.not_known_yet(at - since, days))
            else value / error_budget(target)
            for at, value in zip(axis.times, rates[window], strict=True)
        )
        curves.append(Curve(window, tuple(values)))
    return curves


def _even_pace(axis: ChartAxis, row: GroupStatus, period: float) -> Values:
    """Return the budget that would be left if it were spent evenly over the period."""
    ends_in = row.period_ends_in_seconds
    length = period if ends_in is None else axis.end + ends_in - axis.start
    return tuple(1 - (at - axis.start) / length for at in axis.times)


@dataclass(frozen=True, slots=True)
class PastSeries:
    """Recorded series of one group at the steps of an axis."""

    axis: ChartAxis
    series: tuple[Series, ...] = ()

    def named(self, name: str, **labels: str) -> Series | None:
        """Return the first series of this name with these labels; None where there is none."""
        wanted = {"__name__": name, **labels}.items()
        return next((series for series in self.series if wanted <= series.labels.items()), None)

    def all_named(self, prefix: str) -> list[Series]:
        """Return the series whose names begin so."""
        return [series for series in self.series if series.labels.get("__name__", "").startswith(prefix)]

    def bands(self) -> tuple[Band, ...]:
        """Return when the group was excluded, with the reason."""
        return tuple(
            Band("excluded", start, end, f"excluded: {series.labels.get(names.REASON, '')}")
            for series in self.all_named(names.SLI_EXCLUDED)
            for start, end in self.axis.stretches(series)
        )

    def alerts(self) -> tuple[Mark, ...]:
        """Return when alerts of the group began to fire: in the step before each mark."""
        return tuple(
            Mark(
                start + self.axis.step,
                f"{series.labels.get(names.TIER) or series.labels['alertname']} fires for {in_words(end - start)}",
            )
            for series in self.all_named(names.ALERTS)
            for start, end in self.axis.stretches(series)
        )


def own_matchers(row: GroupStatus) -> Matchers:
    """Return the matchers of all series of an objective and group."""
    matchers = Matchers().equal(names.SLO, row.slo)
    for label, value in row.group.items():
        matchers = matchers.equal(label, value)
    return matchers


def _grouped(row: GroupStatus, matchers: Matchers) -> Matchers:
    """Add the matchers of those labels of a group that series of other than objectives have, too."""
    for label in names.GROUPING:
        if label in row.group:
            matchers = matchers.equal(label, row.group[label])
    return matchers


def recorded_name(pattern: str, matchers: Matchers) -> str:
    """Return a selector of series by a pattern of their names."""
    return str(Matchers((f'__name__=~"{pattern}"', *matchers.parts)))


def past_burn(sources: Sources, row: GroupStatus, axis: ChartAxis) -> CachedAnswer[PastSeries]:
    """Return the error ratios of all windows and the events per second, under the name `EVENTS`."""
    own = own_matchers(row)
    # The shortest that has two samples of each counter; before a whole one is counted, a rate would only rise.
    window = max(1, round(max(axis.step, 4 * sources.options.scrape_interval_seconds)))
    counter = f"{names.COUNTER}{own}"
    rate = f"rate({counter}[{window}s]) and {counter} offset {window}s"
    rate = f'label_replace({rate}, "__name__", "{EVENTS}", "", "")'
    return _past(sources, axis, [recorded_name(f"{_ERRORS}.+", own), rate])


def past_states(sources: Sources, row: GroupStatus, axis: ChartAxis) -> CachedAnswer[PastSeries]:
    """Return what exists only while it is true: alerts and excluded time."""
    window = _step_window(sources, axis)
    queries = [
        f"{names.ALERTS}{own_matchers(row).also(_FIRING)}",
        f"{names.SLI_EXCLUDED}{Matchers().equal(names.SLO, row.slo)}",
    ]
    if row.model:
        unknown = Matchers().equal("alertname", names.UNKNOWN_ALERT).equal("model", row.model)
        queries.append(f"{names.ALERTS}{unknown.also(_FIRING)}")
    # The last sample of each step, so that none is missed, however short it was; and what is true until the next
    # evaluation, which is four minutes later for the longest windows.
    return _past(sources, axis, [f"last_over_time({query}{window}) or {query}" for query in queries])


def _step_window(sources: Sources, axis: ChartAxis) -> str:
    """Return the time that a point stands for: its step, and no less than lies between two evaluations of a rule."""
    return f"[{max(1, round(max(axis.step, 2 * sources.options.scrape_interval_seconds)))}s]"


def past_causes(sources: Sources, row: GroupStatus, axis: ChartAxis) -> CachedAnswer[PastSeries]:
    kind = indicator_class(row.indicator).cause_split or row.indicator
    split = _grouped(row, Matchers().equal(names.INDICATOR, kind))
    return _past(sources, axis, [f"{names.CAUSE_SHARE}{split}"])


def past_deployments(sources: Sources, row: GroupStatus, axis: ChartAxis) -> CachedAnswer[PastSeries]:
    """Return when versions of the model became ready, and when loads failed."""
    window = _step_window(sources, axis)
    chosen = recorded_name(f"{names.BECAME_READY}|{names.FAILED_LOADS}", Matchers().equal("model", row.model))
    return _past(sources, axis, [f"last_over_time({chosen}{window})"])


def _past(sources: Sources, axis: ChartAxis, queries: Sequence[str]) -> CachedAnswer[PastSeries]:
    def read(prometheus: Prometheus) -> PastSeries:
        # One request: the series of the queries differ in name or labels.
        return PastSeries(axis, prometheus.range(" or ".join(queries), axis.start, axis.end, axis.step))

    return sources.reader.ask(("past", tuple(queries), axis), read, PastSeries(axis))


def deployments(past: PastSeries) -> tuple[Mark, ...]:
    """Return a mark for each moment at which a version became ready, or a load failed."""
    counts: dict[tuple[float, str], int] = defaultdict(int)
    for series in past.series:
        version, reason = series.labels.get("version", ""), series.labels.get(names.REASON, "")
        failed = series.labels.get("__name__") == names.FAILED_LOADS
        label = f"load failed: {reason}" if failed else f"version {version} became ready"
        for start, _ in past.axis.stretches(series):
            counts[start + past.axis.step, label] += 1
    return tuple(
        Mark(at, label if servers == 1 else f"{label} on {servers} servers")
        for (at, label), servers in sorted(counts.items())
    )


def spent_by_cause(causes: PastSeries, burn: PastSeries) -> list[tuple[str, float]]:
    """Return which share of the failed events each cause had, largest first.

    The causes of each step count as much as the events that failed in it.
    """
    errors = burn.axis.values(burn.named(EVENTS, event=names.ERROR))
    weights: dict[str, float] = defaultdict(float)
    for series in causes.series:
        shares = causes.axis.values(series)
        for share, failed in zip(shares, errors, strict=True):
            weights[series.labels.get(names.CAUSE, "")] += (share or 0.0) * (failed or 0.0)
    whole = sum(weights.values())
    split = [(cause, weight / whole) for cause, weight in weights.items() if weight > 0] if whole else []
    return sorted(split, key=lambda entry: -entry[1])


@dataclass(frozen=True, slots=True)
class Bucket:
    """Successful requests of the last hour between two durations (seconds), and the share up to the upper one."""

    above: float
    within: float
    requests: float
    share: float


def distribution(sources: Sources, row: GroupStatus, at: float | None) -> CachedAnswer[tuple[Bucket, ...]]:
    """Return the durations of the last hour; empty for indicators without a histogram of the exporter."""
    measured = indicator_class(row.indicator)
    if not issubclass(measured, HistogramIndicator):
        return CachedAnswer((), sources.reader.now)
    plan = sources.plan(row.slo)
    matchers = _grouped(row, Matchers(parse_selector(plan.options.selector)[0]) if plan else Matchers())
    window = max(60, round(3600 * sources.options.time_scale))
    query = f"sum by (le) (increase({measured.histogram.bucket}{matchers}[{window}s]))"

    def read(prometheus: Prometheus) -> tuple[Bucket, ...]:
        samples = prometheus.instant(query, at)
        edges = sorted((float(each.labels["le"]), each.value) for each in samples if "le" in each.labels)
        whole = edges[-1][1] if edges else 0.0
        points, above, below = [], 0.0, 0.0
        for within, count in edges if whole > 0 else ():
            points.append(Bucket(above, within, count - below, count / whole))
            above, below = within, count
        return tuple(points)

    return sources.reader.ask(("distribution", query, at), read, ())

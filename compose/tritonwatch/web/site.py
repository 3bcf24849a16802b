"""Shared parts of the pages: the sources, what several pages ask, the templates, the banner above outdated data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from triton_alerts.bridge.evidence import causes
from triton_alerts.broken import Broken, Fault, broken_now
from triton_exporter.common.duration import in_words, measured_text, time_text
from triton_exporter.common.moments import utc_text
from triton_slo import names
from triton_slo.amounts import budget_left, burn_rate, digits, percent, ratio
from triton_slo.fields import error_budget
from triton_slo.group_status import Forecast, GroupStatus
from triton_slo.indicators import Readiness, indicator_class
from triton_slo.prometheus import Prometheus, Remarks
from triton_slo.promql import Matchers
from triton_slo.status import read_status
from tritonwatch import status_table
from tritonwatch.web import urls
from tritonwatch.web.sources import CachedAnswer, Sources
from tritonwatch.web.urls import ParameterError, asked_time

T = TypeVar("T")
RowKey = tuple[str, names.GroupLabels]
"""Objective and labels: one row of the status."""
STATE_SYMBOLS: Mapping[str, str] = {
    "exhausted": "✖",
    "burning": "▲",
    "unknown": "?",
    "ok": "✓",
    "idle": "○",
    "excluded": "–",
}
"""State -> its symbol, which differs from the others without the colour, too."""
_INFO = f"{names.INFO}{{{names.RECORDED_HERE}}}"
_ALERTS = f'{names.ALERTS}{{{names.COMPONENT}="slo", alertstate=~"pending|firing"}}'


@dataclass(frozen=True, slots=True)
class ObjectiveInfo:
    """The owner, description and window in an objective's file, as Prometheus has recorded them."""

    owner: str = ""
    description: str = ""
    window: str = ""


@dataclass(frozen=True, slots=True)
class SloAlert:
    """An alert about an objective, which is firing or pending."""

    name: str
    state: str
    severity: str
    tier: str
    labels: Mapping[str, str]


@dataclass(frozen=True)
class Site:
    """The sources and templates of all pages; `menu` has the title and the path of each page in the menu."""

    sources: Sources
    menu: tuple[tuple[str, str], ...]

    def page(
        self, request: Request, template: str, context: Mapping[str, Any], *answers: CachedAnswer[Any]
    ) -> Response:
        """Return a page made of these answers; if one is outdated, a banner states the reason and the age."""
        shared_context = {
            "menu": self.menu,
            "path": request.url.path,
            "addresses": self.sources.addresses,
            "refresh_seconds": max(15.0, self.sources.options.scrape_interval_seconds),
            "banner": banner_text(answers, self.sources.reader.now),
            "remarks": [*remarks_on(answers).lines, *filter(None, [self.sources.files.latest()[1]])],
            "partial": any(answer.warnings for answer in answers),
            "read_at": max(
                (answer.read_at for answer in answers if answer.read_at is not None), default=None
            ),
            **_moment_of(request),
        }
        return HTMLResponse(_environment().get_template(template).render(shared_context | dict(context)))

    def checked(self, answer: CachedAnswer[T]) -> CachedAnswer[T]:
        """Return an answer that is cached for long, with the problem if Prometheus does not respond now."""
        alive = self.sources.reader.ask(
            "alive", lambda prometheus: bool(prometheus.instant("vector(1)")), False
        )
        return replace(answer, problem=answer.problem or alive.problem)

    def status(self, at: float | None) -> CachedAnswer[tuple[GroupStatus, ...]]:
        """Return the status of every objective, as `tritonwatch status` reads it, now or at Unix time `at`."""

        def read(prometheus: Prometheus) -> tuple[GroupStatus, ...]:
            return read_status(prometheus, at, self.sources.options.time_scale)

        return self.sources.reader.ask(("status", at), read, ())

    def broken(self, at: float | None) -> CachedAnswer[Broken]:
        """Return the servers that do not answer, and the models that are not ready or whose requests pile up."""
        return self.sources.reader.ask(
            ("broken", at), lambda prometheus: broken_now(prometheus, at), Broken()
        )

    def met(self, at: float | None) -> CachedAnswer[frozenset[RowKey]]:
        """Return which objectives and groups had events in the last minute or two, and failed no more than they may."""
        options = self.sources.options
        window = round(max(90 * options.time_scale, 4 * options.scrape_interval_seconds))
        error, total = (
            f"increase({names.COUNTER}{Matchers((names.RECORDED_HERE,)).equal(names.EVENT, event)}[{window}s])"
            for event in (names.ERROR, names.TOTAL)
        )
        budget = f"{names.ERROR_BUDGET_RATIO}{{{names.RECORDED_HERE}}}"
        query = f"{error} / ignoring ({names.EVENT}) ({total} > 0) <= {budget}"

        def read(prometheus: Prometheus) -> frozenset[RowKey]:
            return frozenset(
                (sample.labels.get(names.SLO, ""), names.group_of(sample.labels))
                for sample in prometheus.instant(query, at)
            )

        return self.sources.reader.ask(("met", at), read, frozenset())

    def problems(
        self, faults: Sequence[tuple[Fault, str]], rows: Iterable[GroupStatus], at: float | None, moment: str
    ) -> list[tuple[Fault, str]]:
        """Return what is broken, with links: these faults, and the objectives that are missed now; pages before tickets."""
        broken, met = self.broken(at).value, self.met(at).value
        # Whether a model is ready now is what its state says, not a mean of minutes.
        known = broken.models | broken.ready
        firing = [alert for alert in self.slo_alerts(at).value if alert.state == "firing" and alert.tier]
        missed = []
        for row in rows:
            explained = row.indicator == Readiness.name() and row.model in known
            if explained or row.retired or row.state == "unknown" or row_key(row) in met:
                continue
            severities = {alert.severity for alert in firing if row.concerned_by(alert.labels)}
            if severities and (words := _missed(row)):
                page = row.burn_now is not None and names.SEVERITIES[0] in severities
                missed.append((Fault(words, page), urls.objective_url(row, moment)))
        return sorted([*faults, *missed], key=lambda problem: not problem[0].urgent)

    def load_errors(self, broken: Broken, at: float | None) -> Mapping[str, tuple[str, str]]:
        """Return, of models that are not ready now, the first line of Triton's error message, and the name of the open
        incident that has it."""
        # Prometheus knows no more than the class of the error, and a bridge no error of the past.
        records = self.sources.incidents().value if broken.not_ready and at is None else []
        return {
            member.labels["model"]: (error.partition("\n")[0][:300], record.incident.name)
            for record in records
            if record.incident.open
            for member in record.incident.members.values()
            for error in causes.reasons(record.incident, member)[:1]
        }

    def objective_infos(self, at: float | None) -> CachedAnswer[Mapping[str, ObjectiveInfo]]:
        """Return the recorded owner, description and window of each objective, by its name."""

        def read(prometheus: Prometheus) -> Mapping[str, ObjectiveInfo]:
            infos = (sample.labels for sample in prometheus.instant(_INFO, at))
            return {
                labels.get(names.SLO, ""): ObjectiveInfo(
                    labels.get(names.OWNER, ""), labels.get("description", ""), labels.get("window", "")
                )
                for labels in infos
            }

        return self.sources.reader.ask(("objective infos", at), read, {})

    def slo_alerts(self, at: float | None) -> CachedAnswer[tuple[SloAlert, ...]]:
        """Return the alerts of all objectives, the most severe first."""

        def read(prometheus: Prometheus) -> tuple[SloAlert, ...]:
            alerts = [
                SloAlert(
                    labels.get("alertname", ""),
                    labels.get("alertstate", ""),
                    labels.get(names.SEVERITY, ""),
                    labels.get(names.TIER, ""),
                    labels,
                )
                for labels in (sample.labels for sample in prometheus.instant(_ALERTS, at))
            ]
            return tuple(
                sorted(alerts, key=lambda a: (a.state, names.severity_rank(a.severity), a.name, a.tier))
            )

        return self.sources.reader.ask(("slo alerts", at), read, ())


def row_key(row: GroupStatus) -> RowKey:
    """Return the objective and labels that a row of the status is about."""
    return row.slo, tuple(sorted(row.group.items()))


def _missed(row: GroupStatus) -> str:
    """Say how an objective is missed at the moment, and what may fail; nothing where it is met again."""
    indicator = indicator_class(row.indicator)
    limit = time_text(row.threshold_seconds) if row.threshold_seconds is not None else row.slo
    name = " version ".join(filter(None, (status_table.place(row), row.version)))
    failed = indicator.failed_words.format(limit)
    if row.target is None or row.burn_now is None:
        # Of servers without data, another line says so.
        return "" if indicator.counts_time else f"{name}: too many {failed}; no events in the last 5 min"
    if row.burn_now <= 1:
        return ""
    may = error_budget(row.target)
    return f"{name}: {percent(row.burn_now * may)} of {failed} in the last 5 min, at most {percent(may)} may"


def _moment_of(request: Request) -> Mapping[str, Any]:
    """Return the time in the address, also in words, and the address without it; no time if it cannot be read."""
    try:
        at = asked_time(request)
    except ParameterError:
        at = None
    other = {name: value for name, value in request.query_params.items() if name != urls.TIME}
    return {
        "at": "" if at is None else request.query_params[urls.TIME],
        "moment": "" if at is None else utc_text(at),
        # As a browser's picker has it, which knows no zone and no seconds.
        "moment_picked": "" if at is None else f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M}",
        "now_url": urls.address(request.url.path, other),
        "other_parameters": tuple(other.items()),
    }


def remarks_on(answers: Iterable[CachedAnswer[Any]]) -> Remarks:
    remarks = Remarks()
    for answer in answers:
        remarks.add(Remarks(list(answer.warnings), list(answer.infos)))
    return remarks


def banner_text(answers: Sequence[CachedAnswer[Any]], now: float) -> str:
    """Return why answers are outdated, and the age of the oldest; an empty text if none is outdated."""
    failed = [answer for answer in answers if answer.problem]
    if not failed:
        return ""
    reason = failed[0].problem
    read = [answer.read_at for answer in failed]
    oldest = min((at for at in read if at is not None), default=None)
    if oldest is None:
        return f"{reason}. Nothing has been read yet: what is missing below is unknown."
    missing = " Some of it has never been read." if None in read else ""
    age = in_words(max(0.0, now - oldest))
    return f"{reason}. What follows is the last known state, {age} old (of {utc_text(oldest)}).{missing}"


def forecast_text(forecast: Forecast | None) -> str:
    """Return when a budget will be spent, with the range of the estimate."""
    if forecast is None:
        return ""
    if math.isinf(forecast.soonest):
        return "not at this pace"
    if forecast.soonest == forecast.latest:
        return f"in {in_words(forecast.seconds)}"
    spent = (
        "not at the last hour's pace" if math.isinf(forecast.seconds) else f"in {in_words(forecast.seconds)}"
    )
    latest = "never" if math.isinf(forecast.latest) else in_words(forecast.latest)
    return f"{spent} ({in_words(forecast.soonest)} to {latest})"


def amount_text(value: float | None, unit: str) -> str:
    """Return a value of a chart with its unit; a dash where there was no data."""
    if value is None:
        return "-"
    return f"{value:.1%}" if unit == "share" else burn_rate(value) if unit == "times" else digits(value, 3)


def bytes_text(value: float) -> str:
    """Return a size in GiB, or in MiB below one."""
    return f"{digits(value / 2**30, 3)} GiB" if value >= 2**30 else f"{digits(value / 2**20, 3)} MiB"


def edge_text(seconds: float) -> str:
    """Return the upper edge of a bucket."""
    return "more" if math.isinf(seconds) else time_text(seconds)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("tritonwatch.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "amount": amount_text,
        "edge": edge_text,
        "budget": attrgetter("budget_words"),
        "budget_share": budget_left,
        "bytes": bytes_text,
        "causes": status_table.causes,
        "digits": digits,
        "duration": status_table.duration,
        "forecast": forecast_text,
        "limit": time_text,
        "moment": utc_text,
        "place": status_table.place,
        "rate": status_table.rate,
        "ratio": ratio,
        "seconds": measured_text,
        "state": status_table.state,
    }
    environment.globals |= {
        "symbols": STATE_SYMBOLS,
        "objective_url": urls.objective_url,
        "model_url": urls.model_url,
        "what_if_url": urls.what_if_url,
        "address": urls.address,
    }
    return environment

"""Overview: what is broken now, in words, and every objective of every model, the most urgent first."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from triton_exporter.common.duration import DAY
from triton_slo import names
from triton_slo.group_status import Forecast, GroupStatus, forecast
from triton_slo.prometheus import Prometheus, Series
from triton_slo.promql import Matchers, quote, regex_of
from tritonwatch import status_table
from tritonwatch.web.drawing import gap
from tritonwatch.web.site import (
    STATE_SYMBOLS,
    ObjectiveInfo,
    RowKey,
    Site,
    SloAlert,
    remarks_on,
    row_key,
)
from tritonwatch.web.sources import CachedAnswer, Sources
from tritonwatch.web.urls import (
    TIME,
    ParameterError,
    address,
    asked_choice,
    asked_time,
    model_url,
    refuse_others,
)

MENU = ("Overview", "/")
ROWS = 50
"""Rows that a page of the table has."""
_CAVEAT = "estimated"
"""Filter for groups whose numbers have a caveat, whatever their state."""
_ORDERS = ("up", "down")
_SPARKLINE_DAYS = 30
_MAX_PATTERN_CHARACTERS = 4000
"""Characters of names in a query; many proxies refuse addresses of twice that."""
_WIDTH, _HEIGHT = 90, 24
"""Size of a sparkline, as the template draws it."""


@dataclass(frozen=True, slots=True)
class OverviewLine:
    """One row of the table; `sparkline` is a path of SVG. The state of alerts that fire on for what is over is `over`."""

    row: GroupStatus
    about: ObjectiveInfo
    forecast: Forecast | None
    alerts: tuple[SloAlert, ...] = ()
    sparkline: str = ""


@dataclass(frozen=True, slots=True)
class OverviewChoice:
    """Rows that the address chooses: words to search for, filters, order, time, and the part of the table."""

    q: str = ""
    state: str = ""
    slo: str = ""
    owner: str = ""
    sort: str = "urgency"
    order: str = "up"
    page: str = "1"
    at: str = ""

    @classmethod
    def asked(cls, request: Request) -> OverviewChoice:
        """Read the address. What cannot be read is answered with 400."""
        given = {field.name: request.query_params.get(field.name, "").strip() for field in fields(cls)}
        chosen = cls(**{name: value for name, value in given.items() if value})
        asked_choice(request, "sort", tuple(_SORTS), _DEFAULTS["sort"])
        asked_choice(request, "order", _ORDERS, _DEFAULTS["order"])
        asked_choice(request, "state", (*STATE_SYMBOLS, _CAVEAT), _DEFAULTS["state"])
        if not re.fullmatch("[0-9]{1,6}", chosen.page):
            raise ParameterError(
                "page", f"{chosen.page[:40]!r} is not a number of a page; write for example page=2"
            )
        return chosen

    def address(self, **changes: str) -> str:
        """Return the address with these changes; it leads to the first rows unless `page` is among them."""
        chosen = asdict(replace(self, **{"page": "1", **changes}))
        return address("/", {name: value for name, value in chosen.items() if value != _DEFAULTS[name]})

    def sorted_by(self, column: str) -> str:
        """Return the address that sorts by a column, the other way round where it is sorted by it already."""
        down = self.sort == column and self.order == "up"
        return self.address(sort=column, order="down" if down else "up")

    def includes(self, line: OverviewLine) -> bool:
        """Return whether a row matches the words and filters."""
        row = line.row
        words = f"{row.slo} {status_table.place(row)} {row.version} {line.about.owner}".lower()
        return (
            all(word in words for word in self.q.lower().split())
            and self.state in ("", row.state, *([_CAVEAT] if row.caveats else []))
            and self.slo in ("", row.slo)
            and self.owner in ("", line.about.owner)
        )


_DEFAULTS = asdict(OverviewChoice())
_SORTS: Mapping[str, Callable[[OverviewLine], tuple[float | str, ...] | None]] = {
    "urgency": lambda line: (),
    "objective": lambda line: (line.row.slo,),
    "model": lambda line: (line.row.model, line.row.version),
    "state": lambda line: (list(STATE_SYMBOLS).index(line.row.state),),
    "budget": lambda line: _known(line.row.budget_left),
    "burn": lambda line: _known(line.row.burn_now),
    "forecast": lambda line: _known(line.forecast.seconds if line.forecast else None),
    "owner": lambda line: (line.about.owner,),
}
"""Column -> what it is sorted by; rows of which that is not known come last, in either order."""


def _known(value: float | None) -> tuple[float] | None:
    return None if value is None else (value,)


def routes(site: Site) -> Sequence[Route]:
    """Return the page, and the state as `tritonwatch status --json` writes it."""
    return [Route("/", partial(_page, site)), Route("/api/status", partial(_status, site))]


def _status(site: Site, request: Request) -> Response:
    refuse_others(request, TIME)
    at = asked_time(request)
    answer, broken = site.status(at), site.broken(at)
    if answer.problem or broken.problem or answer.read_at is None:
        # A script cannot see a banner: what is not new is not given to it.
        raise HTTPException(503, answer.problem or broken.problem)
    read_at = answer.read_at if at is None else at
    remarks = remarks_on([answer, broken])
    return JSONResponse(status_table.document(answer.value, read_at, remarks, broken.value.faults()))


def _page(site: Site, request: Request) -> Response:
    choice, at = OverviewChoice.asked(request), asked_time(request)
    status, about, alerts = site.status(at), site.objective_infos(at), site.slo_alerts(at)
    broken, met = site.broken(at), site.met(at)
    faults = [
        (fault, model_url(fault.model, choice.at) if fault.model else "") for fault in broken.value.faults()
    ]
    of_slo: dict[str, list[SloAlert]] = defaultdict(list)
    for alert in alerts.value:
        of_slo[alert.labels.get(names.SLO, "")].append(alert)
    everything = [
        OverviewLine(
            row,
            info,
            forecast(row),
            tuple(
                replace(alert, state="over") if is_met and alert.tier and alert.state == "firing" else alert
                for alert in of_slo[row.slo]
                if row.concerned_by(alert.labels)
            ),
        )
        for row in status.value
        for info in [about.value.get(row.slo, ObjectiveInfo())]
        for is_met in [row.state == "ok" or row_key(row) in met.value]
    ]
    lines = _ordered([line for line in everything if choice.includes(line)], choice)
    counts = Counter[str](line.row.state for line in everything)
    limited = sum(bool(line.row.caveats) for line in everything)
    pages = max(1, math.ceil(len(lines) / ROWS))
    number = min(max(1, int(choice.page)), pages)
    shown = lines[(number - 1) * ROWS : number * ROWS]
    past = _past_budgets(site.sources, [line.row for line in shown], at)
    return site.page(
        request,
        "overview.html",
        {
            "choice": choice,
            "problems": site.problems(faults, status.value, at, choice.at),
            "load_errors": site.load_errors(broken.value, at),
            "broken": broken.value,
            "firing": sum(
                any(alert.state != "pending" and alert.tier for alert in line.alerts) for line in everything
            ),
            "lines": [_with_sparkline(line, past.value.get(row_key(line.row))) for line in shown],
            "found": len(lines),
            "first": (number - 1) * ROWS + 1,
            "page": number,
            "pages": pages,
            "summary": [*((state, counts[state]) for state in STATE_SYMBOLS), (_CAVEAT, limited)],
            "total": len(everything),
            "slos": sorted({line.row.slo for line in everything}),
            "owners": sorted({line.about.owner for line in everything} - {""}),
            "not_loaded": site.sources.not_loaded(site.sources.objectives, status.value)
            if status.read_at is not None
            else "",
        },
        status,
        about,
        alerts,
        broken,
        met,
        past,
    )


def _past_budgets(
    sources: Sources, rows: Sequence[GroupStatus], at: float | None
) -> CachedAnswer[Mapping[RowKey, Series]]:
    """Return the budget left of these rows, one point a day of the last 30; the present is in the rows."""
    step = DAY * sources.options.time_scale
    # Whole days, so that viewers of the same rows share the answer.
    end = (sources.reader.now if at is None else at) // step * step
    slos = regex_of(sorted({row.slo for row in rows}))
    models = regex_of(sorted({row.model for row in rows}))
    own = Matchers((names.RECORDED_HERE, f"{names.SLO}=~{quote(slos)}"))
    if len(models) < _MAX_PATTERN_CHARACTERS:
        own = own.also(f"model=~{quote(models)}")
    query = f"{names.PERIOD_BUDGET_REMAINING}{own}"

    def read(prometheus: Prometheus) -> Mapping[RowKey, Series]:
        ranges = prometheus.range(query, end - (_SPARKLINE_DAYS - 1) * step, end, step) if rows else ()
        return {
            (series.labels.get(names.SLO, ""), names.group_of(series.labels)): series for series in ranges
        }

    return sources.reader.ask(("past budgets", query, end), read, {})


def _ordered(lines: Sequence[OverviewLine], choice: OverviewChoice) -> list[OverviewLine]:
    keys = [(_SORTS[choice.sort](line), line) for line in lines]
    known = [(key, line) for key, line in keys if key is not None]
    known.sort(key=lambda pair: pair[0], reverse=choice.order == "down")
    return [line for _, line in known] + [line for key, line in keys if key is None]


def _with_sparkline(line: OverviewLine, past: Series | None) -> OverviewLine:
    """Draw the past budget; its last point is the budget that the row shows."""
    points = [] if past is None else list(zip(past.times, past.values, strict=True))
    if not points or line.row.budget_left is None or line.row.budget_not_known_yet:
        return line
    first, last = points[0][0], points[-1][0]
    step = (last - first) / (len(points) - 1) if len(points) > 1 else 1.0
    begin, end = last - (_SPARKLINE_DAYS - 1) * step, last + step
    path, before = [], -math.inf
    for at, budget in [*points, (end, line.row.budget_left)]:
        x = (at - begin) / (end - begin) * _WIDTH
        y = _HEIGHT - 2 - (_HEIGHT - 4) * min(1.0, max(0.0, budget))
        # A gap stays a gap: nothing is drawn where nothing was known.
        path.append(f"{'M' if gap(before, at, step) else 'L'}{x:.1f} {y:.1f}")
        before = at
    return replace(line, sparkline="".join(path))

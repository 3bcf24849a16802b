"""Corrections: past time that does not count, with budgets before and after; written and undone with a token."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from triton_slo.correction.group_correction import GroupCorrection
from triton_slo.prometheus.client import PrometheusError
from triton_slo.rules.plan import Plan
from tritonwatch.arguments import moment
from tritonwatch.audited_corrections import planning, protocol
from tritonwatch.audited_corrections.planning import CorrectedTime
from tritonwatch.audited_corrections.stored_groups import change, stored_groups
from tritonwatch.audited_corrections.trail import Entry, Kind, Trail, locked
from tritonwatch.command_error import CommandError, UsageError
from tritonwatch.tables.correction_table import COLUMNS, ordered
from tritonwatch.web import urls
from tritonwatch.web.forms import has_token, posted
from tritonwatch.web.readers.prometheus_reader import CachedAnswer
from tritonwatch.web.site import Site
from tritonwatch.web.sources import CorrectionSource, CorrectionWriting

MENU = ("Corrections", "/corrections")
OPTION, TOKEN_OPTION = "--trail", "--corrections-token-file"
STATES: Mapping[str, str] = {
    "written": "ok",
    "undone": "idle",
    "incomplete": "exhausted",
    "undo incomplete": "exhausted",
}
"""State of a correction -> the state of a group that has its colour and its symbol."""
_MAX_GROUPS = 50
_TIME_FIELDS = ("from", "to", "objective", "model", "version")
HISTORY: Final = "history"
"""Field with the objective that gets its history, in place of a time that does not count."""
_FIELDS = (*_TIME_FIELDS, HISTORY)
_SIGNATURE = ("reason", "author")


@dataclass(frozen=True, slots=True)
class CorrectionLine:
    """A correction or undo as the pages show it."""

    entry: Entry
    state: str
    made_at: float
    url: str
    change: str


def routes(site: Site) -> Sequence[Route]:
    """Return the list with the form, and one correction; both also take forms that write."""

    def page(request: Request) -> Response:
        return _list_page(site, request, {name: request.query_params.get(name, "") for name in _FIELDS})

    def entry(request: Request) -> Response:
        return _correction(site, request, request.query_params.get("id", ""))

    async def apply(request: Request) -> Response:
        return await run_in_threadpool(_apply_page, site, request, await posted(request))

    async def change(request: Request) -> Response:
        return await run_in_threadpool(_change, site, request, await posted(request))

    return [
        Route(MENU[1], page, methods=["GET"]),
        Route(MENU[1], apply, methods=["POST"]),
        Route("/correction", entry, methods=["GET"]),
        Route("/correction", change, methods=["POST"]),
    ]


def _list_page(
    site: Site, request: Request, form: Mapping[str, str], problem: str = "", code: int = 200
) -> Response:
    source = site.sources.corrections
    trail = site.sources.trail()
    answers: list[CachedAnswer[Any]] = [trail] if trail.problem else []
    plan: tuple[GroupCorrection, ...] | None = None
    if any(form.get(name, "").strip() for name in _FIELDS):
        try:
            answer = _planned(site, form)
        except CommandError as error:
            problem, code = problem or _form_message(error), 400 if code == 200 else code
        else:
            answers.append(answer)
            plan = answer.value
    status = site.status(None)
    context = {
        "form": {name: form.get(name, "") for name in (*_FIELDS, *_SIGNATURE)},
        "objectives": sorted({row.slo for row in status.value}),
        "plans": sorted(site.sources.plans),
        "plan": None if plan is None else ordered(plan)[:_MAX_GROUPS],
        "more": max(0, len(plan or ()) - _MAX_GROUPS),
        "problem": problem,
        "lines": [_correction_line(trail.value, entry) for entry in reversed(trail.value.entries)]
        if trail.value
        else [],
    }
    response = site.page(request, "corrections.html", _shared(source) | context, *answers, status)
    response.status_code = code
    return response


def _correction(site: Site, request: Request, entry_id: str, problem: str = "", code: int = 200) -> Response:
    source = site.sources.corrections
    trail = site.sources.trail()
    if trail.value is None:
        raise HTTPException(404, trail.problem or "no audit trail is known here")
    entry = _entry_of(trail.value, entry_id)
    line = _correction_line(trail.value, entry)
    groups = ordered(stored_groups(entry))
    now = site.sources.reader.now
    loaded = site.sources.reader.ask(
        ("loaded samples", entry.id),
        lambda prometheus: planning.loaded_samples(prometheus, [entry], now).get(entry.id, 0),
        None,
    )
    context = {
        "line": line,
        "groups": groups[:_MAX_GROUPS],
        "more": max(0, len(groups) - _MAX_GROUPS),
        "place": next(iter(entry.place.values()), ""),
        "loaded": loaded.value,
        "next_step": _next_step(source, entry),
        "problem": problem,
        "undo": entry.kind != "undo" and line.state in ("written", "incomplete"),
        "resume": "incomplete" in line.state,
    }
    response = site.page(request, "correction.html", _shared(source) | context, loaded)
    response.status_code = code
    return response


def _next_step(source: CorrectionSource | None, entry: Entry) -> str:
    """Return what must happen until the budgets change, where this server can write the entry's samples."""
    if source is None or source.writing is None:
        return ""
    try:
        return source.writing.writer_of(entry).next_step()
    except CommandError:  # the form names the reason
        return ""


def _entry_of(trail: Trail, entry_id: str) -> Entry:
    """Return the entry with exactly this id. Raises HTTPException 404."""
    entry = next((entry for entry in trail.entries if entry.id == entry_id), None)
    if entry is None:
        raise HTTPException(404, f"there is no correction {entry_id[:80]!r}")
    return entry


def _shared(source: CorrectionSource | None) -> dict[str, object]:
    return {
        "at": "",  # the trail has no past
        "source": source,
        "option": OPTION,
        "token_option": TOKEN_OPTION,
        "columns": COLUMNS,
        "colours": STATES,
    }


def _apply_page(site: Site, request: Request, form: Mapping[str, str]) -> Response:
    kind: Kind
    try:
        source, writing = _writable(site, form)
        signed = protocol.signature(form.get("reason", ""), form.get("author", ""))
        writer, now, prometheus = writing.writer(), site.sources.reader.now, site.sources.reader.prometheus
        if form.get(HISTORY):
            corrections = planning.history(prometheus, [_plan(site, form)], now, writer.writable_until(now))
            kind, span, nothing = HISTORY, planning.history_span(corrections, now), planning.NO_HISTORY
        else:
            corrected = _corrected_time(form)
            planning.refuse_recent(corrected, writer, now)
            corrections = planning.planned(prometheus, corrected, now, site.sources.options.time_scale)
            kind, span, nothing = "exclude", corrected.span, planning.NO_EVENTS
        if not corrections:
            raise CommandError(nothing)
        made = protocol.apply_correction(kind, corrections, span, signed, source.trail, writer)
    except (CommandError, PrometheusError) as error:
        return _list_page(site, request, form, _form_message(error), _status_code(error))
    return RedirectResponse(_url(made), 303)


def _change(site: Site, request: Request, form: Mapping[str, str]) -> Response:
    entry_id = form.get("id", "")
    try:
        source, writing = _writable(site, form)
        with locked(source.trail) as trail:
            entry = _entry_of(trail, entry_id)
            if form.get("action") == "resume":
                entry = trail.interrupted(entry_id)
                protocol.resume(trail, entry, writing.writer_of(entry))
            else:
                signed = protocol.signature(form.get("reason", ""), form.get("author", ""))
                protocol.undo(trail, entry, signed, writing.writer_of(entry))
    except CommandError as error:
        return _correction(site, request, entry_id, _form_message(error), _status_code(error))
    return RedirectResponse(urls.address("/correction", {"id": entry_id}), 303)


class _RefusedError(CommandError):
    """The form has no right to write."""


def _writable(site: Site, form: Mapping[str, str]) -> tuple[CorrectionSource, CorrectionWriting]:
    source = site.sources.corrections
    if source is None or source.writing is None:
        raise HTTPException(403, f"this server only shows corrections; start it with {TOKEN_OPTION}")
    if not has_token(form, source.writing.token()):
        raise _RefusedError(f"the token is not that of {TOKEN_OPTION}; nothing was written")
    return source, source.writing


def _status_code(error: Exception) -> int:
    codes = ((_RefusedError, 403), (UsageError, 400), (PrometheusError, 503), (CommandError, 409))
    return next(code for kind, code in codes if isinstance(error, kind))


def _form_message(error: Exception) -> str:
    """Return a message with the fields of the form instead of the options of the command line."""
    return re.sub(rf"--({'|'.join((*_FIELDS, *_SIGNATURE))})\b", r"\1", str(error))


def _planned(site: Site, form: Mapping[str, str]) -> CachedAnswer[tuple[GroupCorrection, ...] | None]:
    now = site.sources.reader.now
    if form.get(HISTORY):
        plan = _plan(site, form)
        return site.sources.reader.ask(
            (HISTORY, plan.objective.name),
            lambda prometheus: planning.history(prometheus, [plan], now, now),
            None,
        )
    corrected, scale = _corrected_time(form), site.sources.options.time_scale
    return site.sources.reader.ask(
        ("correction", corrected),
        lambda prometheus: planning.planned(prometheus, corrected, now, scale),
        None,
    )


def _plan(site: Site, form: Mapping[str, str]) -> Plan:
    plan = site.sources.plans.get(form[HISTORY])
    if plan is None:
        raise UsageError(f"{HISTORY}: there is no objective {form[HISTORY][:80]!r} in --objectives")
    return plan


def _corrected_time(form: Mapping[str, str]) -> CorrectedTime:
    moments = []
    for name in ("from", "to"):
        try:
            moments.append(moment(form.get(name, "").strip()))
        except argparse.ArgumentTypeError as error:
            raise UsageError(f"{name}: {error}") from error
    objective, model, version = (form.get(name, "").strip() for name in ("objective", "model", "version"))
    return CorrectedTime(moments[0], moments[1], (objective,) if objective else (), model, version)


def _correction_line(trail: Trail, entry: Entry) -> CorrectionLine:
    made_at = datetime.fromisoformat(entry.at).timestamp()
    return CorrectionLine(entry, trail.state(entry), made_at, _url(entry), change(entry))


def _url(entry: Entry) -> str:
    return urls.address("/correction", {"id": entry.id})

"""The web application: its pages, files and errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Protocol

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from triton_exporter.common.printable import printable
from tritonwatch.web.pages import (
    incidents_page,
    model_page,
    objective_page,
    overview_page,
    report_page,
    what_if_page,
)
from tritonwatch.web.parameters import ParameterError
from tritonwatch.web.security import Secured
from tritonwatch.web.site import Site
from tritonwatch.web.sources import Sources
from tritonwatch.web.urls import is_api

_NOTHING: Mapping[str, str] = {}


class Page(Protocol):
    """A module of `tritonwatch.web.pages`; `MENU` is its title and path in the menu, if it is there."""

    @property
    def MENU(self) -> tuple[str, str] | None:  # noqa: N802 # a constant of the module
        """Return the title and the path."""

    def routes(self, site: Site) -> Sequence[Route]:
        """Return the routes of the page, its JSON endpoints among them."""


PAGES: tuple[Page, ...] = (
    overview_page,
    objective_page,
    model_page,
    incidents_page,
    report_page,
    what_if_page,
)


def create_app(sources: Sources) -> ASGIApp:
    """Return the ASGI application that serves all pages."""
    site = Site(sources, tuple(page.MENU for page in PAGES if page.MENU))

    def wrong(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        response = failure(request, error.status_code, printable(error.detail), _about(error))
        response.headers.update(error.headers or {})
        return response

    def failed(request: Request, _error: Exception) -> Response:
        # The server logs the error.
        return failure(
            request, 500, "This page could not be made. The log of `tritonwatch web` has the reason."
        )

    def failure(request: Request, status: int, reason: str, about: Mapping[str, str] = _NOTHING) -> Response:
        if is_api(request.url.path):
            return JSONResponse({"error": reason, **about}, status)
        response = site.page(request, "error.html", {"status": status, "reason": reason})
        response.status_code = status
        return response

    routes = [
        Route("/-/ready", _ready),
        Mount("/static", StaticFiles(directory=str(files("tritonwatch.web") / "static"))),
        *(route for page in PAGES for route in page.routes(site)),
    ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: wrong, Exception: failed})
    return Secured(app)


def _about(error: HTTPException) -> Mapping[str, str]:
    return {"parameter": error.name} if isinstance(error, ParameterError) else _NOTHING


def _ready(_request: Request) -> Response:
    return PlainTextResponse("ready\n")

"""The web application: its pages, files and errors, and the headers that every response has."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from triton_exporter.common.printable import printable
from tritonwatch.web.pages import (
    incidents_page,
    model_page,
    objective_page,
    overview_page,
    report_page,
    what_if_page,
)
from tritonwatch.web.site import Site
from tritonwatch.web.sources import Sources
from tritonwatch.web.urls import ParameterError, is_api

MENU = (overview_page.MENU, incidents_page.MENU, report_page.MENU, what_if_page.MENU)
ROUTES = (
    overview_page.routes,
    objective_page.routes,
    model_page.routes,
    incidents_page.routes,
    report_page.routes,
    what_if_page.routes,
)


def create_app(sources: Sources) -> ASGIApp:
    """Return the ASGI application that serves all pages."""
    site = Site(sources, MENU)

    def wrong(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        about = {"parameter": error.name} if isinstance(error, ParameterError) else {}
        response = failure(request, error.status_code, printable(error.detail), about)
        response.headers.update(error.headers or {})
        return response

    def failed(request: Request, _error: Exception) -> Response:
        # The server logs the error.
        return failure(
            request, 500, "This page could not be made. The log of `tritonwatch web` has the reason.", {}
        )

    def failure(request: Request, status: int, reason: str, about: Mapping[str, str]) -> Response:
        if is_api(request.url.path):
            return JSONResponse({"error": reason, **about}, status)
        response = site.page(request, "error.html", {"status": status, "reason": reason})
        response.status_code = status
        return response

    routes = [
        Route("/-/ready", lambda _request: PlainTextResponse("ready\n")),
        Mount("/static", StaticFiles(directory=str(files("tritonwatch.web") / "static"))),
        *(route for routes in ROUTES for route in routes(site)),
    ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: wrong, Exception: failed})
    return Secured(app)


POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
"""Content security policy: nothing from elsewhere, no script or style inside a page."""
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Secured:
    """An application whose every response has the headers."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        await self._app(scope, receive, with_headers)

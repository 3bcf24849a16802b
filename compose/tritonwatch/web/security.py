"""Headers that every response has, and the users of the web configuration file."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from triton_exporter.http.web_config import WebConfig
from tritonwatch.web.urls import is_api

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


class Protected:
    """An application behind the users and headers of a web configuration file."""

    def __init__(self, app: ASGIApp, web: WebConfig) -> None:
        self._app, self._web = app, web

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; 401 without the right password."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in {**HEADERS, **self._web.headers}.items():
                    headers[name] = value
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        # In a thread: checking a password takes long on purpose.
        authorization = Headers(scope=scope).get("authorization", "")
        admitted = not self._web.users or await run_in_threadpool(self._web.admits, authorization)
        app = self._app if admitted else _unauthorized(scope["path"])
        await app(scope, receive, with_headers)


def _unauthorized(path: str) -> Response:
    headers = {"WWW-Authenticate": 'Basic realm="tritonwatch"'}
    if is_api(path):
        return JSONResponse({"error": "unauthorized"}, 401, headers)
    return PlainTextResponse("unauthorized\n", 401, headers)

"""The web application behind the HTTP server of the whole project, with its limits, users and TLS."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from urllib.parse import unquote

from starlette.types import ASGIApp, Message

from triton_exporter.http.server import Connections, Request, Response, Server
from triton_exporter.http.web_config import WebConfig

_LOG = logging.getLogger(__name__)
_MAX_CONNECTIONS = 500
_MAX_PAGES = 256
"""Pages that are kept at most."""
_MAX_BODY_BYTES = 64 * 1024
"""Forms of the pages have a few fields."""


def http_server(
    app: ASGIApp, host: str, port: int, web: WebConfig | None = None, keep_seconds: float = 0.0
) -> Server:
    """Return a server that listens, and answers with the application once it serves. Raises OSError.

    A page is made once in `keep_seconds` for all viewers: nothing on it is newer than Prometheus' last scrape.
    """
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="web application", daemon=True).start()

    pages: dict[str, tuple[float, Response]] = {}

    def answer(request: Request) -> Response:
        until, page = pages.get(request.target, (0.0, None))
        if page is not None and request.method != "POST" and time.monotonic() < until:
            return page
        response = made(request)
        if request.method != "POST" and response.status == 200 and keep_seconds:
            if len(pages) >= _MAX_PAGES:
                pages.clear()
            pages[request.target] = time.monotonic() + keep_seconds, response
        return response

    def made(request: Request) -> Response:
        body = request.read(_MAX_BODY_BYTES) if request.method == "POST" else b""
        return asyncio.run_coroutine_threadsafe(_answer(app, request, body), loop).result()

    return Server(host, port, answer, web, Connections(_MAX_CONNECTIONS))


async def _answer(app: ASGIApp, request: Request, body: bytes) -> Response:
    path, _, query = request.target.partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "scheme": "http",
        # The server sends no body to HEAD; the application need not know.
        "method": request.method.replace("HEAD", "GET"),
        "path": unquote(path),
        "raw_path": path.encode("latin-1"),
        "query_string": query.encode("latin-1"),
        "headers": [
            (name.encode("latin-1"), text.encode("latin-1")) for name, text in request.headers.items()
        ],
        "client": (request.client, 0),
    }
    sent: list[Message] = []
    unread: list[Message] = [{"type": "http.request", "body": body}]

    async def receive() -> Message:
        if unread:
            return unread.pop()
        return await asyncio.Future()  # the application waits for a disconnection until it has answered

    async def send(message: Message) -> None:
        sent.append(message)

    try:
        await app(scope, receive, send)
    except Exception:
        # Starlette raises a defect again after its page about it is sent.
        if not sent:
            raise
        _LOG.exception("%s failed", path)
    start, *parts = sent
    headers = {name.decode("latin-1").title(): text.decode("latin-1") for name, text in start["headers"]}
    headers.pop("Content-Length", None)  # the server counts what it sends
    content_type = headers.pop("Content-Type", "text/plain; charset=utf-8")
    return Response(b"".join(part.get("body", b"") for part in parts), content_type, start["status"], headers)

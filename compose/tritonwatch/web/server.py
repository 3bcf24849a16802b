"""The HTTP server of the pages: uvicorn, with the TLS of the web configuration file."""

from __future__ import annotations

import ssl
from collections.abc import Callable

import uvicorn
from starlette.types import ASGIApp

from triton_exporter.http.certificates import ReloadedTls

_MAX_CONNECTIONS = 500


def http_server(app: ASGIApp, tls: ReloadedTls | None = None) -> uvicorn.Server:
    """Return a server, to be run on a listening socket."""
    factory = None if tls is None else _tls_of(tls)
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,  # addresses contain names of models
        server_header=False,
        lifespan="off",
        limit_concurrency=_MAX_CONNECTIONS,
        timeout_graceful_shutdown=5,
        ssl_context_factory=factory,
    )
    return uvicorn.Server(config)


def _tls_of(tls: ReloadedTls) -> Callable[[uvicorn.Config, Callable[[], ssl.SSLContext]], ssl.SSLContext]:
    def renew(connection: ssl.SSLObject, _name: str, _context: ssl.SSLContext) -> None:
        connection.context = tls()

    def first(_config: uvicorn.Config, _default: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:
        context = tls.files.context()
        # Called at each handshake: a renewed certificate is used from the next connection on.
        context.sni_callback = renew
        return context

    return first

"""Ask Triton over HTTP, reading only, never longer than a deadline and never more than a limit.

The standard library's client is used rather than requests because its deadline must be total: a server that
sends a byte a second keeps every per-read timeout alive for ever.
Paths of Triton's API: https://github.com/triton-inference-server/server/tree/main/docs/protocol
"""

from __future__ import annotations

import http.client
import math
import re
import socket
import ssl
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from triton_exporter.common.problem import ProblemsError

SERVER_PATH = "/v2"
LIVE_PATH, READY_PATH = "/v2/health/live", "/v2/health/ready"
INDEX_PATH = "/v2/repository/index"
STATISTICS_PATH = "/v2/models/stats"
LOGGING_PATH = "/v2/logging"
TRACE_SETTING_PATH = "/v2/trace/setting"


_ADDRESSABLE = re.compile("[!-.0->@-~]+")
"""Printable ASCII without the space, `/` and `?`, which end a name in a request line."""


def model_path(model: str, version: str = "") -> str:
    """Return the path under which a model, or one version of it, has its endpoints.

    Triton decodes no percent escapes: a name is sent as it is.
    """
    path = f"/v2/models/{model}"
    return f"{path}/versions/{version}" if version else path


_CHUNK = 256 * 1024


class FetchError(Exception):
    """Triton could not be asked; `reason` is one of the catalogue's DOWN_REASONS.

    `partial` is what had arrived when the answer broke off.
    """

    def __init__(self, reason: str, detail: str, partial: bytes = b"") -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.partial = partial


@dataclass(frozen=True, slots=True)
class Answer:
    """Status and body of one answer."""

    status: int
    body: bytes


MAX_BODY_BYTES = 64 * 1024 * 1024
"""Largest body that is read where nothing else is asked for."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one request: its whole duration, and the size of its response."""

    timeout_seconds: float = 5.0
    max_body_bytes: int = MAX_BODY_BYTES


@dataclass
class Client:
    """One keep-alive connection to one server, for one thread.

    It can send GET, and POST to the repository index only (Triton answers 405 to GET there): no request of
    this class can change the server.
    """

    base_url: str
    limits: Limits = Limits()
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    tls: Callable[[], ssl.SSLContext] = field(default=ssl.create_default_context, repr=False)
    until: float = field(default=math.inf, init=False)
    """Moment (`time.monotonic()`) by which every request ends, whatever its own limit."""
    _connection: _Connection | None = field(default=None, init=False, repr=False)

    def get(self, path: str) -> Answer:
        """Get one path below the base URL. Raises FetchError; any status is an answer."""
        return self._request("GET", path, None)

    def index(self) -> Answer:
        """Ask for the repository index. Raises FetchError."""
        return self._request("POST", INDEX_PATH, b"{}")

    @property
    def open_seconds(self) -> float:
        """Seconds for which the connection has been open; 0 without one."""
        return 0.0 if self._connection is None else time.monotonic() - self._connection.opened

    def can_ask(self, model: str, version: str) -> bool:
        """Return whether a path can have these names; Triton also loads models with names that none can have."""
        return _ADDRESSABLE.fullmatch(model + version) is not None

    def describe(self, path: str, status: int) -> str:
        """Name the request, and that this was the status of its answer."""
        return f"GET {path} answers HTTP {status}"

    def end_poll(self) -> None:
        """Close what must not stay open until the next poll.

        Triton would go on serving a connection after SIGTERM, which hides the drain, and would wait for its end for its
        whole exit timeout (30 s).
        """
        self.close()

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _request(self, method: str, path: str, body: bytes | None) -> Answer:
        deadline = min(time.monotonic() + self.limits.timeout_seconds, self.until)
        reused = self._connection is not None
        try:
            return self._request_once(method, path, body, deadline)
        except FetchError as error:
            # An idle connection that the server has closed shows so only when it is used again.
            if not (reused and error.reason in ("refused", "bad_response") and not error.partial):
                raise
        return self._request_once(method, path, body, deadline)

    def _request_once(self, method: str, path: str, body: bytes | None, deadline: float) -> Answer:
        connection = self._connection
        if connection is None:
            parts = urlsplit(self.base_url)
            secure = parts.scheme == "https"
            try:
                context = self.tls() if secure else None
            except ProblemsError as error:
                raise FetchError("tls", str(error)) from error
            port = parts.port or (443 if secure else 80)
            connection = self._connection = _Connection(parts.hostname or "", port, context)
        connection.deadline = deadline
        keep = False
        try:
            headers = {"User-Agent": "tritonwatch", "Accept-Encoding": "identity", **self.headers}
            connection.request(method, urlsplit(self.base_url).path + path, body, headers)
            # A connection that is not reused hands its socket to the response, which must be closed too: a
            # peer that keeps sending would else keep it open as long as the error is referenced.
            with connection.getresponse() as response:
                answer = Answer(response.status, _read_body(response, self.limits.max_body_bytes))
                keep = not response.will_close
        except TimeoutError as error:
            raise FetchError("timeout", "no answer in time") from error
        except ssl.SSLError as error:
            raise FetchError("tls", str(error)) from error
        except socket.gaierror as error:
            raise FetchError("dns", str(error)) from error
        except ConnectionRefusedError as error:
            raise FetchError("refused", str(error)) from error
        except ConnectionError as error:
            raise FetchError("bad_response", f"the connection ended: {error}") from error
        except OSError as error:
            raise FetchError("unreachable", str(error)) from error
        except (http.client.HTTPException, ValueError) as error:
            raise FetchError("bad_response", f"{type(error).__name__}: {error}") from error
        finally:
            if not keep:
                self.close()
        return answer


def _read_body(response: http.client.HTTPResponse, limit: int) -> bytes:
    encoding = (response.getheader("Content-Encoding") or "identity").lower()
    if encoding not in ("identity", "gzip", "deflate"):
        raise FetchError("bad_response", f"unknown content encoding {encoding[:40]!r}")
    unpack = None if encoding == "identity" else zlib.decompressobj(wbits=47)
    chunks: list[bytes] = []
    size = 0
    while True:
        try:
            chunk = response.read1(_CHUNK)
        except (http.client.HTTPException, ConnectionError) as error:
            raise FetchError("bad_response", "the answer broke off", b"".join(chunks)) from error
        if not chunk:
            break
        # Never inflate more than is still allowed: 10 MB of zeros pack into 10 kB.
        if unpack is not None:
            try:
                chunk = unpack.decompress(chunk, limit - size + 1)
            except zlib.error as error:
                raise FetchError("bad_response", f"broken compression: {error}") from error
        size += len(chunk)
        if size > limit:
            raise FetchError("too_large", f"more than {limit} bytes")
        chunks.append(chunk)
    # read1 does not complain about a body shorter than its Content-Length, nor zlib about one that has no end.
    if response.length or (unpack is not None and chunks and not unpack.eof):
        raise FetchError("bad_response", "the answer broke off", b"".join(chunks))
    return b"".join(chunks)


class _Deadline:
    """A socket whose every read shares one deadline."""

    deadline: float = 0.0

    def recv_into(self, *args: Any, **kwargs: Any) -> int:
        self.settimeout(_remaining(self.deadline))  # type: ignore[attr-defined]
        size: int = super().recv_into(*args, **kwargs)  # type: ignore[misc]
        return size


class _PlainSocket(_Deadline, socket.socket):
    pass


class _SecureSocket(_Deadline, ssl.SSLSocket):
    pass


class _Connection(http.client.HTTPConnection):
    deadline: float = 0.0

    def __init__(self, host: str, port: int, tls: ssl.SSLContext | None) -> None:
        super().__init__(host, port)
        self._tls = tls
        self.opened = time.monotonic()

    def request(self, *args: Any, **kwargs: Any) -> None:
        if self.sock is not None:
            self._arm()
        super().request(*args, **kwargs)

    def connect(self) -> None:
        plain = socket.create_connection((self.host, self.port), _remaining(self.deadline))
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._tls is None:
            self.sock = _PlainSocket(plain.family, plain.type, plain.proto, fileno=plain.detach())
        else:
            self._tls.sslsocket_class = _SecureSocket
            plain.settimeout(_remaining(self.deadline))
            try:
                self.sock = self._tls.wrap_socket(plain, server_hostname=self.host)
            except BaseException:
                plain.close()
                raise
        self._arm()

    def _arm(self) -> None:
        assert isinstance(self.sock, _PlainSocket | _SecureSocket)
        self.sock.deadline = self.deadline
        self.sock.settimeout(_remaining(self.deadline))


def _remaining(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("deadline passed")
    return left

"""Ask Triton over HTTP, reading only, never longer than a deadline and never more than a limit.

Its own reader of HTTP/1.1 rather than requests or http.client: the deadline must be total, for a server that sends a
byte a second keeps every per-read timeout alive for ever; and an idle exporter does little else than ask, each second,
which costs a third of what it costs with theirs.
Paths of Triton's API: https://github.com/triton-inference-server/server/tree/main/docs/protocol
"""

from __future__ import annotations

import math
import re
import socket
import ssl
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast
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
        keep = False
        try:
            connection = self._connection
            if connection is None:
                connection = self._connection = _Connection(self.base_url, self.headers, self.tls, deadline)
            answer, keep = connection.ask(method, path, body, deadline, self.limits.max_body_bytes)
        except ProblemsError as error:
            raise FetchError("tls", str(error)) from error
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
        except ValueError as error:
            raise FetchError("bad_response", str(error)) from error
        finally:
            if not keep:
                self.close()
        return answer


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


_STATUS = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: .*)?", re.DOTALL)
_MAX_LINE_BYTES, _MAX_HEADERS = 64 * 1024, 100
_BREAK, _BLANK = re.compile(r"[\r\n\0]"), re.compile(r"[\0-\x20\x7f]")


class _Connection:
    """An open connection: sends a request and reads its answer, as far as servers of Triton's API and proxies use HTTP/1.1.

    https://www.rfc-editor.org/rfc/rfc9112
    """

    def __init__(
        self, base_url: str, headers: Mapping[str, str], tls: Callable[[], ssl.SSLContext], deadline: float
    ) -> None:
        parts = urlsplit(base_url)
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        context = tls() if parts.scheme == "https" else None
        self._path = parts.path
        named = f"[{host}]" if ":" in host else host.encode("idna").decode()
        sent = {"host": named if parts.port is None else f"{named}:{port}", "user-agent": "tritonwatch"}
        sent |= {"accept-encoding": "identity", **{name.lower(): value for name, value in headers.items()}}
        if any(_BREAK.search(text) for header in sent.items() for text in header):
            raise ValueError("a header of the request contains a line break")
        self._headers = "".join([f"{name}: {value}\r\n" for name, value in sent.items()])
        plain = socket.create_connection((host, port), _remaining(deadline))
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket: _PlainSocket | _SecureSocket
        if context is None:
            self._socket = _PlainSocket(plain.family, plain.type, plain.proto, fileno=plain.detach())
        else:
            context.sslsocket_class = _SecureSocket
            plain.settimeout(_remaining(deadline))
            try:
                self._socket = cast(_SecureSocket, context.wrap_socket(plain, server_hostname=host))
            except BaseException:
                plain.close()
                raise
        self._file = self._socket.makefile("rb")
        self.opened = time.monotonic()

    def close(self) -> None:
        """Close it."""
        self._file.close()
        self._socket.close()

    def ask(
        self, method: str, path: str, body: bytes | None, deadline: float, limit: int
    ) -> tuple[Answer, bool]:
        """Send a request; return the answer, and whether the connection can be used again.

        Raises OSError, FetchError, and ValueError over what is not HTTP.
        """
        self._socket.deadline = deadline
        self._socket.settimeout(_remaining(deadline))
        target = self._path + path
        if _BLANK.search(target):
            raise ValueError(f"no request can have the path {target!r}")
        length = "" if body is None else f"content-length: {len(body)}\r\n"
        head = f"{method} {target} HTTP/1.1\r\n{self._headers}{length}\r\n"
        self._socket.sendall(head.encode("latin-1") + (body or b""))
        status, headers, keep = self._head()
        while status < 200:  # 1xx comes before the answer
            status, headers, keep = self._head()
        if status in (204, 304):
            pieces: Iterator[bytes] = iter(())
        elif headers.get("transfer-encoding", "identity").lower() == "chunked":
            pieces = self._chunks()
        elif (length := headers.get("content-length", "")).isascii() and length.isdigit():
            pieces = self._exactly(int(length[:18]))
        else:
            pieces, keep = self._until_end(), False
        return Answer(status, _body(pieces, headers.get("content-encoding", "identity").lower(), limit)), keep

    def _head(self) -> tuple[int, dict[str, str], bool]:
        """Read status and headers, and whether the connection stays open."""
        line = self._line(_MAX_LINE_BYTES)
        match = _STATUS.fullmatch(line)
        if match is None:
            raise ValueError(f"no HTTP: {line[:40]!r}")
        headers: dict[str, str] = {}
        left = _MAX_HEADERS
        while line := self._line(_MAX_LINE_BYTES):
            left -= 1
            if not left:
                raise ValueError("the answer has too many headers")
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.strip().lower()] = value.strip()
        keep = match[1] == b"1" and "close" not in headers.get("connection", "").lower()
        return int(match[2]), headers, keep

    def _line(self, limit: int) -> bytes:
        """Read a line, without its end."""
        line = self._file.readline(limit + 1)
        if len(line) > limit:
            raise ValueError("a header of the answer is too long")
        if not line.endswith(b"\n"):
            raise ConnectionResetError("the server closed it")
        return line.rstrip(b"\r\n")

    def _exactly(self, size: int) -> Iterator[bytes]:
        while size > 0:
            piece = self._file.read1(min(size, _CHUNK))
            if not piece:
                raise ConnectionResetError("the server closed it")
            size -= len(piece)
            yield piece

    def _until_end(self) -> Iterator[bytes]:
        while piece := self._file.read1(_CHUNK):
            yield piece

    def _chunks(self) -> Iterator[bytes]:
        while size := _chunk_size(self._line(_MAX_LINE_BYTES)):
            yield from self._exactly(size)
            if self._line(2):
                raise ValueError("a chunk of the answer is longer than it says")
        while self._line(_MAX_LINE_BYTES):
            pass  # trailers


def _chunk_size(line: bytes) -> int:
    text = line.decode("latin-1").partition(";")[0].strip()
    if not text.isalnum() or len(text) > 15:
        raise ValueError(f"{text[:40]!r} is no size of a chunk")
    return int(text, 16)


def _body(pieces: Iterator[bytes], encoding: str, limit: int) -> bytes:
    """Put the pieces of a body together, unpacked."""
    if encoding not in ("identity", "gzip", "deflate"):
        raise FetchError("bad_response", f"unknown content encoding {encoding[:40]!r}")
    unpack = None if encoding == "identity" else zlib.decompressobj(wbits=47)
    taken: list[bytes] = []
    size = 0
    try:
        for piece in pieces:
            # Never inflate more than is still allowed: 10 MB of zeros pack into 10 kB.
            plain = piece if unpack is None else unpack.decompress(piece, limit - size + 1)
            size += len(plain)
            if size > limit:
                raise FetchError("too_large", f"more than {limit} bytes")
            taken.append(plain)
    except zlib.error as error:
        raise FetchError("bad_response", f"broken compression: {error}") from error
    except (ValueError, ConnectionError) as error:
        raise FetchError("bad_response", "the answer broke off", b"".join(taken)) from error
    # zlib does not complain about a body that has no end.
    if unpack is not None and taken and not unpack.eof:
        raise FetchError("bad_response", "the answer broke off", b"".join(taken))
    return b"".join(taken)


def _remaining(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("deadline passed")
    return left

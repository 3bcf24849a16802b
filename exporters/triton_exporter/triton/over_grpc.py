"""Ask a Triton over gRPC what is else asked over HTTP: one that runs with --allow-http=false.

Each path of the HTTP API is sent as the method that means the same, and the answer is written as Triton's HTTP API
writes it: polls, doctor and trace settings read one kind of answer. Of the extra `exporter`, thus imported where needed.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

os.environ.setdefault(
    "GRPC_VERBOSITY", "NONE"
)  # read at the import: it writes a line for each failed connection

import grpc  # type: ignore[import-untyped]
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet
from tritonclient.grpc import service_pb2  # type: ignore[import-untyped]

from triton_exporter.common.options import grpc_address
from triton_exporter.common.problem import ProblemsError
from triton_exporter.http.certificates import Certificates
from triton_exporter.http.client import (
    INDEX_PATH,
    LIVE_PATH,
    LOGGING_PATH,
    READY_PATH,
    SERVER_PATH,
    STATISTICS_PATH,
    TRACE_SETTING_PATH,
    Answer,
    Client,
    FetchError,
)

_LOG = logging.getLogger(__name__)

TLS = "grpcs://"

_METHODS = {
    LIVE_PATH: "ServerLive",
    READY_PATH: "ServerReady",
    SERVER_PATH: "ServerMetadata",
    INDEX_PATH: "RepositoryIndex",
    STATISTICS_PATH: "ModelStatistics",
    # Both only read where, as here, no settings are sent.
    LOGGING_PATH: "LogSettings",
    TRACE_SETTING_PATH: "TraceSetting",
}
_OF_MODEL = re.compile(
    "/v2/models/(?P<model>[^/]+)(/versions/(?P<version>[^/]+))?/(?P<what>ready|config|trace/setting)",
    re.DOTALL,
)
_MODEL_METHODS = {"ready": "ModelReady", "config": "ModelConfig", "trace/setting": "TraceSetting"}

# Statuses of a proxy or of Triton, as its HTTP API has them; any other is 500.
_STATUSES = {
    "INVALID_ARGUMENT": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "UNIMPLEMENTED": 404,  # another server answers
    "RESOURCE_EXHAUSTED": 429,
    "UNAVAILABLE": 503,
}
_HTTP_STATUS = re.compile("Received http2 header with status: ([0-9]{3})")

_INDEX_ENTRY = service_pb2.RepositoryIndexResponse.ModelIndex.DESCRIPTOR

# gRPC has one status for all ways in which there was no answer, and tells them apart in text. First match wins.
_REASONS = {
    "timeout": "Connection timed out",
    "refused": "Connection refused|Server exiting",  # the second while Triton drains, when its HTTP port is closed
    "unreachable": "unreachable|No route to host",
    "dns": "errors resolving|DNS resolution failed",
    "tls": "handshake failed|SSL_ERROR",
    "too_large": "message larger than max",
    "bad_response": "failed to connect|Socket closed|Connection reset|Broken pipe|HTTP/2|GOAWAY|RST_STREAM|Stream removed",
}


class _Question(NamedTuple):
    method: str
    fields: Mapping[str, str]


@dataclass
class GrpcClient(Client):
    """One channel to one Triton, for one thread; it stays open until a call gets no answer."""

    certificates: Certificates = field(default_factory=Certificates)
    _channel: grpc.Channel | None = field(default=None, init=False, repr=False)
    _tls: grpc.ChannelCredentials | None = field(default=None, init=False, repr=False)
    _read: dict[str, tuple[bytes, Answer]] = field(default_factory=dict, init=False, repr=False)
    """The last index and statistics: to write them as JSON takes long, and mostly nothing has moved."""

    def get(self, path: str) -> Answer:
        """Ask what GET of this path asks. Raises FetchError; any status is an answer."""
        method, fields = _question(path)
        timeout = min(self.limits.timeout_seconds, self.until - time.monotonic())
        if timeout <= 0:
            raise FetchError("timeout", "no time is left")
        request = getattr(service_pb2, f"{method}Request")(**fields).SerializeToString()
        metadata = [
            ("user-agent", "tritonwatch"),
            *((name.lower(), value) for name, value in self.headers.items()),
        ]
        answered = False
        try:
            if self._channel is None:
                self._channel = self._open()
            call = self._channel.unary_unary(f"/inference.GRPCInferenceService/{method}")
            body = call(request, timeout=timeout, metadata=metadata)
            answer = (
                self._read[path][1] if self._read.get(path, (None,))[0] == body else _answer(method, body)
            )
            answered = True
        except ProblemsError as error:
            raise FetchError("tls", str(error)) from error
        except grpc.RpcError as error:
            answer = self._failure(error)
            answered = True
        except (DecodeError, ValueError, OSError) as error:
            raise FetchError("bad_response", str(error)) from error
        finally:
            if not answered:
                self.close()  # a new channel does not wait until gRPC tries to connect again
        if path in (INDEX_PATH, STATISTICS_PATH) and answer.status == 200:
            self._read[path] = body, answer
        return answer

    def index(self) -> Answer:
        """Ask for the repository index. Raises FetchError."""
        return self.get(INDEX_PATH)

    def can_ask(self, model: str, version: str) -> bool:
        """Return whether a model with these names can be asked for: over gRPC, all can."""
        return True

    def describe(self, path: str, status: int) -> str:
        """Name the question, and that this was its answer."""
        return f"gRPC {_question(path).method} is {'answered' if status == 200 else 'refused'}"

    def end_poll(self) -> None:
        """Keep the channel: Triton refuses its calls after SIGTERM, and does not wait for it."""

    def close(self) -> None:
        """Close the channel; the next call opens another."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _open(self) -> grpc.Channel:
        options = [
            ("grpc.max_receive_message_length", self.limits.max_body_bytes),
            (
                "grpc.compression_enabled_algorithms_bitset",
                1,
            ),  # none: a small message could inflate to a large one
            ("grpc.enable_http_proxy", 0),
            ("grpc.use_local_subchannel_pool", 1),
        ]
        target = grpc_address(self.base_url).removeprefix(TLS)
        if not self.base_url.startswith(TLS):
            return grpc.insecure_channel(target, options)
        try:
            self.certificates.check()
            files = self.certificates.ca, self.certificates.own_key, self.certificates.own
            self._tls = grpc.ssl_channel_credentials(*(file.read_bytes() if file else None for file in files))
        except ProblemsError as error:
            if self._tls is None:
                raise
            _LOG.error("the previous certificates stay in use: %s", error)
        return grpc.secure_channel(target, self._tls, options)

    def _failure(self, error: grpc.RpcError) -> Answer:
        """Return what Triton or a proxy refused; raises FetchError where nothing answered."""
        code, text = error.code().name, str(error.details())
        is_tls = self.base_url.startswith(TLS)
        if code == "DEADLINE_EXCEEDED":
            raise FetchError("timeout", text) from error
        if from_proxy := _HTTP_STATUS.search(text):
            return Answer(int(from_proxy[1]), b"")
        if "This protocol is restricted" in text:
            return Answer(403, _json({"error": text}))
        if code in ("UNAVAILABLE", "UNKNOWN", "INTERNAL", "RESOURCE_EXHAUSTED"):
            # A server that wants another certificate of ours closes the connection, with TLS 1.3 after the handshake.
            if is_tls and "failed to connect" in text and "Socket closed" in text:
                raise FetchError("tls", f"{text}; does it demand a certificate?") from error
            if not is_tls and "failed to connect" in text and "Socket closed" in text:
                raise FetchError("bad_response", f"{text}; does it want TLS ({TLS})?") from error
            for reason, words in _REASONS.items():
                if re.search(words, text):
                    raise FetchError(reason, text) from error
        return Answer(_STATUSES.get(code, 500), _json({"error": text}))


def _question(path: str) -> _Question:
    if path in _METHODS:
        return _Question(_METHODS[path], {})
    match = _OF_MODEL.fullmatch(path)
    if match is None:
        raise ValueError(f"{path!r} has no method in gRPC")
    model, version, what = match["model"], match["version"] or "", match["what"]
    if what == "trace/setting":
        return _Question("TraceSetting", {"model_name": model})
    return _Question(_MODEL_METHODS[what], {"name": model, "version": version})


def _answer(method: str, body: bytes) -> Answer:
    """Write the answer to a method as the HTTP API does. Raises DecodeError."""
    if method == "RepositoryIndex":
        return Answer(200, _json(_index(body)))
    message = getattr(service_pb2, f"{method}Response").FromString(body)
    if method in ("ServerLive", "ServerReady", "ModelReady"):
        return Answer(200 if (message.live if method == "ServerLive" else message.ready) else 400, b"")
    # A configuration with what has its default: the action at a timeout is REJECT, not none.
    content = MessageToDict(
        message,
        preserving_proto_field_name=True,
        always_print_fields_with_no_presence=method == "ModelConfig",
    )
    settings = content.get("settings", {})
    if method == "ModelConfig":
        content = content.get("config", {})
    elif method == "ModelStatistics":
        content = {"model_stats": [], **content}
    elif method == "LogSettings":
        content = {name: next(iter(value.values()), "") for name, value in settings.items()}
    elif method == "TraceSetting":
        values = {name: setting.get("value", []) for name, setting in settings.items()}
        one = {name: value[0] for name, value in values.items() if len(value) == 1 and name != "trace_level"}
        content = {**values, **one}
    return Answer(200, _json(content))


def _index(body: bytes) -> list[dict[str, str]]:
    """Read the repository index without its types: a folder's name can be any bytes, and one refuses the whole."""
    names = {number: each.name for number, each in _INDEX_ENTRY.fields_by_number.items()}
    return [
        {names[number]: text.decode("utf-8", "replace") for number, text in _fields(entry) if number in names}
        for _, entry in _fields(body)
    ]


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the texts and messages in a message, by their numbers."""
    for each in UnknownFieldSet(service_pb2.ServerLiveRequest.FromString(message)):  # type: ignore[attr-defined]
        if isinstance(each.data, bytes):
            yield each.field_number, each.data


def _json(content: Any) -> bytes:
    return json.dumps(content).encode()

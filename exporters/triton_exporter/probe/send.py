"""Send one probe with the official client and return its outcome."""

from __future__ import annotations

import os
import queue
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from math import prod
from typing import Any
from urllib.parse import unquote, urlsplit

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # as in `triton.over_grpc`, whichever is imported first

import numpy as np
import tritonclient.grpc as triton_grpc  # type: ignore[import-untyped]
import tritonclient.http as triton_http  # type: ignore[import-untyped]
from geventhttpclient.response import HTTPConnectionClosed
from tritonclient.utils import (  # type: ignore[import-untyped]
    InferenceServerException,
    triton_to_np_dtype,
)

from triton_exporter.common.options import is_grpc
from triton_exporter.common.problem import ProblemsError
from triton_exporter.http.certificates import Certificates
from triton_exporter.probe.payload import Tensor
from triton_exporter.probe.probe_settings import ProbeSettings
from triton_exporter.probe.prober import ProbeOutcome, Send
from triton_exporter.snapshot import ModelVersion

PROBE_HEADER = "x-tritonwatch-probe"
"""Header (and gRPC metadata) of every probe, so that proxies and logs can distinguish probes from users."""

GRPC_TLS = "grpcs://"
"""Prefix of a gRPC address that is used with TLS."""

REQUEST_ID = "tritonwatch-probe"

_HTTP_RESULTS = {"400": "bad_input", "404": "not_found", "503": "rejected", "499": "timeout"}
_GRPC_RESULTS = {
    "INVALID_ARGUMENT": "bad_input",
    "NOT_FOUND": "not_found",
    "DEADLINE_EXCEEDED": "timeout",
    "UNAVAILABLE": "rejected",
    "RESOURCE_EXHAUSTED": "rejected",
    "CANCELLED": "timeout",
}

_Answers = queue.Queue[tuple[Any, Exception | None]]
"""What the callback of a stream got, each a response or the error that ended the stream."""


def sender(
    triton_url: str, settings: ProbeSettings, headers: Mapping[str, str], certificates: Certificates
) -> Send:
    """Return a function that sends probes with these settings and the headers of restricted endpoints."""
    is_grpc_alone = is_grpc(triton_url)

    def send(target: ModelVersion, inputs: Sequence[Tensor], decoupled: bool) -> ProbeOutcome:
        try:
            certificates.check()  # the clients fail noisily over files that cannot be used
        except ProblemsError as error:
            return ProbeOutcome("unreachable", 0.0, str(error))
        if decoupled or is_grpc_alone:
            return send_grpc(
                settings.grpc_address, target, inputs, settings.timeout_seconds, headers, certificates
            )
        return send_http(triton_url, target, inputs, settings.timeout_seconds, headers, certificates)

    return send


class _HttpClient(triton_http.InferenceServerClient):  # type: ignore[misc]
    def _post(self, request_uri: str, *args: Any, **kwargs: Any) -> Any:
        # The client escapes the model's name, and Triton decodes no percent escapes (`http.client.model_path`).
        path = unquote(request_uri)
        uri = path if re.fullmatch("[!->@-~]+", path) else request_uri
        return super()._post(uri, *args, **kwargs)


def send_http(
    triton_url: str,
    target: ModelVersion,
    inputs: Sequence[Tensor],
    timeout_seconds: float,
    headers: Mapping[str, str],
    certificates: Certificates,
) -> ProbeOutcome:
    """Send one request over HTTP and return its outcome."""
    started = time.monotonic()
    parts = urlsplit(triton_url)
    try:
        client = _HttpClient(
            f"{parts.netloc}{parts.path}",
            connection_timeout=timeout_seconds,
            network_timeout=timeout_seconds,
            ssl=parts.scheme == "https",
            ssl_options=_http_tls(certificates),
        )
        with closing(client):
            client.infer(
                target.model,
                [_filled(triton_http.InferInput, tensor) for tensor in inputs],
                target.version,
                request_id=REQUEST_ID,
                headers={**headers, PROBE_HEADER: "1"},
            )
    except InferenceServerException as error:
        return ProbeOutcome(_http_result(error), time.monotonic() - started, str(error))
    except TimeoutError as error:
        return ProbeOutcome("timeout", time.monotonic() - started, str(error))
    except (OSError, HTTPConnectionClosed) as error:
        return ProbeOutcome("unreachable", time.monotonic() - started, str(error))
    except ValueError as error:  # an invalid answer
        return ProbeOutcome("failed", time.monotonic() - started, str(error))
    return ProbeOutcome("success", time.monotonic() - started)


def send_grpc(
    address: str,
    target: ModelVersion,
    inputs: Sequence[Tensor],
    timeout_seconds: float,
    headers: Mapping[str, str],
    certificates: Certificates,
) -> ProbeOutcome:
    """Send one request over a gRPC stream, as decoupled models want it; it works when its first response does."""
    started = time.monotonic()
    answers: _Answers = queue.Queue()
    first: float | None = None
    tls = _grpc_tls(certificates) if address.startswith(GRPC_TLS) else {}
    client = triton_grpc.InferenceServerClient(address.removeprefix(GRPC_TLS), **tls)
    try:
        client.start_stream(
            lambda result, error: answers.put((result, error)),
            stream_timeout=timeout_seconds,
            headers={**{name.lower(): value for name, value in headers.items()}, PROBE_HEADER: "1"},
        )
        _send_request(client, target, inputs, answers)
        while True:
            result, error = answers.get(timeout=max(0.01, timeout_seconds - (time.monotonic() - started)))
            if error is not None:
                raise error
            first = time.monotonic() - started if first is None else first
            if result.get_response().parameters["triton_final_response"].bool_param:
                return ProbeOutcome("success", first)
    except (queue.Empty, InferenceServerException) as error:
        took = time.monotonic() - started
        if first is not None and (isinstance(error, queue.Empty) or _grpc_result(error) == "timeout"):
            return ProbeOutcome("success", first)  # a stream that simply goes on
        if isinstance(error, queue.Empty):
            return ProbeOutcome("timeout", took, f"no response in {timeout_seconds:g} s")
        return ProbeOutcome(_grpc_result(error), took, str(error))
    finally:
        client.stop_stream(cancel_requests=True)
        client.close()


def _send_request(
    client: triton_grpc.InferenceServerClient,
    target: ModelVersion,
    inputs: Sequence[Tensor],
    answers: _Answers,
) -> None:
    """Send the request over the open stream; raises what the stream ended with if that came first."""
    try:
        client.async_stream_infer(
            target.model,
            [_filled(triton_grpc.InferInput, tensor) for tensor in inputs],
            target.version,
            request_id=REQUEST_ID,
            enable_empty_final_response=True,
        )
    except InferenceServerException as ended:
        raise _stream_error(answers, ended) from ended


def _stream_error(answers: _Answers, ended: Exception) -> Exception:
    """Return why a stream ended before the request was sent: its callback gets the error a moment later."""
    with suppress(queue.Empty):
        return answers.get(timeout=0.5)[1] or ended
    return ended


def _http_tls(certificates: Certificates) -> dict[str, str]:
    # Its own factory for contexts would trust the system's roots beside the given ones.
    files = {
        "ca_certs": certificates.ca,
        "certfile": certificates.own,
        "keyfile": certificates.own_key,
    }
    return {name: str(path) for name, path in files.items() if path is not None}


def _grpc_tls(certificates: Certificates) -> dict[str, Any]:
    files = {
        "root_certificates": certificates.ca,
        "certificate_chain": certificates.own,
        "private_key": certificates.own_key,
    }
    return {"ssl": True, **{name: str(path) for name, path in files.items() if path is not None}}


def _filled(input_type: Any, filled: Tensor) -> Any:
    tensor = input_type(filled.name, list(filled.shape), filled.datatype)
    kind = triton_to_np_dtype(filled.datatype)
    if filled.datatype == "BYTES":
        empty = [""] * prod(filled.shape)
        values = [value.encode() for value in (empty if filled.values is None else filled.values)]
        array = np.array(values, dtype=np.object_).reshape(filled.shape)
    elif filled.values is None:
        array = np.zeros(filled.shape, dtype=kind)
    else:
        array = np.array(filled.values, dtype=kind).reshape(filled.shape)
    tensor.set_data_from_numpy(array)
    return tensor


def _http_result(error: InferenceServerException) -> str:
    if _is_gone(error):
        return "not_found"
    return _HTTP_RESULTS.get(error.status() or "", "failed")


def _grpc_result(error: InferenceServerException) -> str:
    if _is_gone(error):
        return "not_found"
    if "failed to connect" in str(error).lower():
        return "unreachable"
    status = (error.status() or "").removeprefix("StatusCode.")
    return _GRPC_RESULTS.get(status, "failed")


def _is_gone(error: InferenceServerException) -> bool:
    # Triton answers 400 or 404 here, as the version has it; the text is the same.
    return "unknown model" in str(error) or "not at ready state" in str(error)

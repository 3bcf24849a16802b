"""Test Triton's API over gRPC: what a real Triton answers is what it answers over HTTP, and every failure has its reason."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]
import pytest
import requests
from tritonclient.grpc import service_pb2  # type: ignore[import-untyped]

from exporters.faults import Answer, body, drip, faulty, flood, hang, raw
from support.exporter import exporting
from support.loopback import free_ports
from support.repository import Repository, write
from support.triton import api_of, infer, live_triton
from support.waiting import eventually
from triton_exporter.app.settings import Settings
from triton_exporter.catalogue import models, own, probe, state
from triton_exporter.common.problem import ProblemsError
from triton_exporter.http.client import LIVE_PATH, LOGGING_PATH, Client, FetchError, Limits
from triton_exporter.http.server import Server
from triton_exporter.probe.probe_settings import ProbeSettings
from triton_exporter.snapshot import Snapshot
from triton_exporter.tracing.trace_setting import fetch_setting
from triton_exporter.triton.over_grpc import GrpcClient
from triton_exporter.triton.poll import ApiPoller
from tritonwatch.cli import main
from tritonwatch.local import TritonPorts, TritonServer

QUEUES = """
parameters { key: "a" value: { string_value: "b" } }
dynamic_batching {
  preferred_batch_size: [ 4 ]
  max_queue_delay_microseconds: 100
  default_queue_policy { max_queue_size: 4 default_timeout_microseconds: 9000000000 }
  priority_levels: 2 default_priority_level: 1
  priority_queue_policy { key: 1 value: { max_queue_size: 3 timeout_action: DELAY } }
}
"""
SEQUENCES = "sequence_batching { oldest { max_candidate_sequences: 4 max_queue_delay_microseconds: 7 } }"


def _write_models(repository: Repository) -> None:
    repository.model("queues", config=QUEUES)
    repository.model("sequences", config=SEQUENCES)
    repository.model("plain", "1", "2", config="version_policy { all {} }")
    repository.model("fails", **{"raise": "weights missing"})
    repository.ensemble("whole", "plain", "queues")
    write(repository.model("unread") / "config.pbtxt", "nonsense {")
    # A folder that cannot be loaded, with a name that is not UTF-8: the index lists it all the same.
    os.mkdir(os.fsencode(repository.path) + b"/\xff\xfe")


@contextmanager
def without_http(directory: Path, *arguments: str, auto_complete: bool = True) -> Iterator[TritonServer]:
    """Run a Triton that serves gRPC and metrics alone until the block ends."""
    repository = Repository(directory / "models")
    _write_models(repository)
    ports = TritonPorts(*free_ports(3))
    server = TritonServer(
        repository.path,
        directory,
        ports,
        "none",
        ["--allow-http=false", *arguments],
        auto_complete=auto_complete,
    )
    try:
        server.start()
        eventually(lambda: requests.get(server.metrics_url, timeout=2).ok, server.log.read_text)
        with pytest.raises(requests.ConnectionError):
            requests.get(f"{server.http_url}/v2", timeout=2)
        yield server
    finally:
        server.kill()


def snapshot_of(client: Client) -> Snapshot:
    """Poll until every configuration is known; no request may fail."""
    failures: list[tuple[str, str]] = []
    poller = ApiPoller(client, lambda: 1.0, lambda *failure: failures.append(failure))
    with closing(client):
        poller.poll()
        snapshot = poller.poll()
    assert [] == failures
    return snapshot


@pytest.mark.real
def test_both_transports_read_the_same(tmp_path: Path) -> None:
    """Health, index, statistics, configurations, readiness, log and trace settings; and what is refused."""
    repository = Repository(tmp_path / "models")
    _write_models(repository)
    with live_triton(repository.path, tmp_path, auto_complete=True) as server:
        for _ in range(3):
            infer(server, "whole")
        both = Client(server.http_url), GrpcClient(api_of(server, "grpc"))
        over_http, over_grpc = map(snapshot_of, both)
        settings = [
            (json.loads(client.get(LOGGING_PATH).body), fetch_setting(client), fetch_setting(client, "plain"))
            for client in both
        ]
        refused = [
            [
                client.get(f"/v2/models/{name}/versions/1/ready").status
                for name in ("fails", "nosuch", "unread")
            ]
            for client in both
        ]
        unknown = [client.get("/v2/models/nosuch/versions/1/config").status for client in both]
        for client in both:
            client.close()

    for each in fields(Snapshot):
        assert getattr(over_http, each.name) == getattr(over_grpc, each.name), each.name
    assert {"whole", "plain", "queues", "sequences"} == {key.model for key in over_grpc.configs}
    assert 3 == sum(each.success for each in over_grpc.statistics or () if each.model == "queues")
    assert "\ufffd\ufffd" in {entry.model for entry in over_grpc.index or ()}
    assert settings[0] == settings[1]
    assert settings[0][1] is not None
    assert refused == [[400] * 3] * 2
    assert [404, 404] == unknown


@pytest.mark.real
def test_a_triton_without_http_is_seen_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exporter, probes, doctor and init, from the command line's options on."""
    with without_http(tmp_path) as server:
        address = api_of(server, "grpc")
        probes = ProbeSettings(models=("plain", "whole"), interval_seconds=0.3)
        with exporting(
            address, server.metrics_url, probes=probes, expected={"plain": ()}, timeout=20.0
        ) as exporter:
            page = exporter.wait(
                lambda page: (
                    page.value(state.MODEL_LOAD_FAILURES, model="fails", reason="python_error")
                    and {"whole", "plain", "queues", "sequences"} == page.labels(models.INFO, "model")
                    and all(
                        page.value(probe.REQUESTS, model=model, version=version, result="success")
                        for model, version in (("plain", "1"), ("plain", "2"), ("whole", "1"))
                    )
                )
            )
            shown = exporter.get("/state").json()
            exporter.wait(lambda _: exporter.get("/ready").ok)  # the next poll takes in what the probes found
            ready = exporter.get("/ready")
        urls = ["--triton", address, "--triton-metrics", server.metrics_url]
        code = main(["doctor", *urls, "--gpu=none", "--watch=10ms", "--json"])
        findings = {finding["title"]: finding for finding in json.loads(capsys.readouterr().out)}
        assert 0 == main(["init", *urls, "--out", "-"])
        proposed = capsys.readouterr().out
        urls[1] = f"http://{server.address}:{server.ports.grpc}"
        assert 1 == main(["doctor", *urls, "--gpu=none", "--watch=10ms"])
        confused = " ".join(capsys.readouterr().out.split())

    assert 1 == page.value(state.SERVER_LIVE)
    assert 0 == page.value(state.SERVER_READY), "strict readiness, and a model that failed"
    assert 1 == page.value(state.MODEL_LOAD_FAILURES, model="fails", reason="python_error")
    assert not any(page.series(own.SCRAPE_FAILURES).values())
    assert ("serving", address, "2.51.0") == tuple(
        shown["triton"][name] for name in ("phase", "url", "version")
    )
    assert (200, "ready: 1 of 1 models\n") == (ready.status_code, ready.text)
    assert 1 == code
    assert ["Models failed to load", "The whole server is not ready"] == [
        title for title, finding in findings.items() if finding["grade"] == "problem"
    ]
    assert "--log-file" in findings["Failed hot reloads and broken configs are in the log only"]["do"]
    assert "curl" not in str(findings), "nothing answers curl here"
    assert "plain" in proposed
    assert "could not be read" not in proposed
    assert "or grpc://HOST:8001 (--grpc-port)" in confused


@pytest.mark.real
def test_a_restricted_triton_is_named_and_read_with_its_header(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The status and the header are those of gRPC; with the header all is read."""
    groups = "health,metadata,model-config,model-repository,statistics"
    restricted = f"--grpc-restricted-protocol={groups}:admin-key=secret"
    with without_http(tmp_path, restricted, auto_complete=False) as server:
        urls = api_of(server, "grpc"), server.metrics_url
        with exporting(*urls) as exporter:
            exporter.wait(lambda page: exporter.get("/-/ready").ok)
            shown = exporter.get("/state").json()["triton"]
        options = ["--triton", urls[0], "--triton-metrics", urls[1], "--gpu=none", "--watch=10ms"]
        assert 1 == main(["doctor", *options])
        printed = " ".join(capsys.readouterr().out.split())
        headers = {"Triton-Grpc-Protocol-Admin-Key": "secret"}
        with exporting(*urls, triton_headers_file=headers) as exporter:
            exporter.wait(lambda page: page.value(state.MODEL_READY, model="plain", version="1"))

    refused = "This protocol is restricted, expecting header 'triton-grpc-protocol-admin-key'"
    assert ("unknown", "http_error") == (shown["phase"], shown["api_failure"])
    assert f"gRPC ServerLive is refused: {refused}" == shown["api_failure_text"]
    assert refused in printed
    assert "--triton-headers-file" in printed


@contextmanager
def answering(answer: Callable[[Any], bytes], compression: Any = None) -> Iterator[str]:
    """Run a gRPC server that answers every method with these bytes until the block ends; yield its address."""

    class _Every(grpc.GenericRpcHandler):  # type: ignore[misc]
        def service(self, _details: object) -> Any:
            return grpc.unary_unary_rpc_method_handler(lambda _request, context: answer(context))

    server = grpc.server(ThreadPoolExecutor(2), handlers=[_Every()], compression=compression)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"grpc://127.0.0.1:{port}"
    finally:
        server.stop(0).wait()


def _abort(code: str) -> Callable[[Any], bytes]:
    def answer(context: Any) -> bytes:
        context.abort(grpc.StatusCode[code], "no, \x1b[31mthank you")
        return b""

    return answer


def _reason(client: Client, path: str = LIVE_PATH) -> str | int:
    with closing(client):
        try:
            return client.get(path).status
        except FetchError as error:
            return error.reason


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        pytest.param(hang, "timeout", id="hangs"),
        pytest.param(drip(b"\0\0\0\x04\0\0\0\0\0", 0.2), "timeout", id="drips"),
        pytest.param(raw(b""), "bad_response", id="hangs up"),
        pytest.param(raw(b"SSH-2.0-OpenSSH_9.2\r\n"), "bad_response", id="is not HTTP/2"),
        pytest.param(body(b"{}"), "bad_response", id="is HTTP/1"),
        pytest.param(flood(b"a" * 65536, 64), "bad_response", id="floods"),
    ],
)
def test_a_server_that_speaks_no_grpc_is_a_reason_in_time(answer: Answer, reason: str) -> None:
    """The same words as for HTTP, and never later than the timeout."""
    with faulty({"*": answer}) as target:
        started = time.monotonic()
        seen = _reason(GrpcClient(f"grpc://127.0.0.1:{target.port}", Limits(0.5)))

    assert reason == seen
    assert time.monotonic() - started < 2


def test_nothing_at_the_address_is_refused_or_unknown() -> None:
    """As over HTTP; a server that comes is found at the next poll, however long it was away."""
    (port,) = free_ports(1)
    client = GrpcClient(f"grpc://127.0.0.1:{port}", Limits(1.0))

    assert ["refused"] * 20 == [_reason(client) for _ in range(20)]
    assert "dns" == _reason(GrpcClient("grpc://nosuch.invalid:8001", Limits(5.0)))
    assert "timeout" == _reason_at_once(client)


def _reason_at_once(client: Client) -> str | int:
    client.until = time.monotonic()
    return _reason(client)


def _slow(_context: object) -> bytes:
    time.sleep(1.5)
    return b""


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        pytest.param(_slow, "timeout", id="slow"),
        pytest.param(lambda _: bytes(2_000_000), "too_large", id="huge"),
        pytest.param(lambda _: b"\xff\xff\xff", "bad_response", id="nonsense"),
        pytest.param(_abort("UNAUTHENTICATED"), 401, id="credentials"),
        pytest.param(_abort("PERMISSION_DENIED"), 403, id="denied"),
        pytest.param(_abort("UNIMPLEMENTED"), 404, id="another server"),
        pytest.param(_abort("RESOURCE_EXHAUSTED"), 429, id="limited"),
        pytest.param(_abort("UNAVAILABLE"), 503, id="unavailable"),
        pytest.param(_abort("INTERNAL"), 500, id="broken"),
    ],
)
def test_an_answer_of_grpc_has_the_status_or_the_reason_of_http(
    answer: Callable[[Any], bytes], reason: str | int
) -> None:
    """A status of Triton or a proxy is an answer; what is late, too large or nonsense is none."""
    with answering(answer) as address:
        assert reason == _reason(GrpcClient(address, Limits(1.0, max_body_bytes=1_000_000)))


def test_a_compressed_message_is_never_inflated() -> None:
    """50 MB of zeros in 50 kB from a server that ignores what is accepted."""
    with answering(lambda _: bytes(50_000_000), grpc.Compression.Gzip) as address:
        assert "bad_response" == _reason(GrpcClient(address, Limits(5.0, max_body_bytes=1_000_000)))


@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        (_abort("UNIMPLEMENTED"), "not_triton"),
        (_abort("UNAUTHENTICATED"), "http_error"),
        (lambda _: b"", "not_triton"),
    ],
)
def test_another_server_is_none_of_triton(answer: Callable[[Any], bytes], failure: str) -> None:
    """A poll that reaches another gRPC server, or a proxy that wants credentials, says so."""
    with answering(answer) as address, closing(GrpcClient(address, Limits(1.0))) as client:
        snapshot = ApiPoller(client, time.time, lambda _endpoint, _reason: None).poll()

    assert failure == snapshot.api_failure
    assert "ServerMetadata" in snapshot.api_failure_text or "ServerLive" in snapshot.api_failure_text


def test_the_channel_is_kept_between_polls_and_reopened_after_a_failure() -> None:
    """A poll costs no handshake, and one that failed does not wait for gRPC to try again."""
    live = service_pb2.ServerLiveResponse(live=True).SerializeToString()
    fail = threading.Event()
    peers = []

    def answer(context: Any) -> bytes:
        peers.append(context.peer())
        if fail.is_set():
            time.sleep(0.5)
        return bytes(live)

    with answering(answer) as address, closing(GrpcClient(address, Limits(0.3))) as client:
        for _ in range(3):
            assert 200 == client.get(LIVE_PATH).status
            client.end_poll()
        fail.set()
        with pytest.raises(FetchError, match="timeout"):
            client.get(LIVE_PATH)
        fail.clear()
        assert 200 == client.get(LIVE_PATH).status

    assert 1 == len(set(peers[:4]))
    assert peers[4] != peers[0]


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("grpc://localhost", "'grpc://localhost' is not grpc://HOST:PORT, such as grpc://127.0.0.1:8001"),
        ("grpc://:8001", "is not grpc://HOST:PORT"),
        ("grpcs://a:99999", "'a:99999' is not HOST:PORT"),
        ("grpcs://user@a:1", "is not grpcs://HOST:PORT"),
        ("grpc://a:8001/v2", "is not grpc://HOST:PORT"),
        ("gprc://a:8001", "'gprc://a:8001' is not a URL such as http://127.0.0.1:8000"),
    ],
)
def test_a_wrong_address_is_refused_with_the_right_form(text: str, printed: str) -> None:
    """On the command line, in a file and in a variable alike: one reader."""
    with pytest.raises(ProblemsError, match=r"HOST:PORT|URL") as caught:
        Settings.read({"triton": text}, {})

    assert printed in str(caught.value)
    assert 1 == len(caught.value.problems)


def test_addresses_are_kept_as_they_are_written() -> None:
    """The metrics are on their own port of the same host; an IPv6 address keeps its brackets."""
    settings = Settings(triton="grpcs://[::1]:8001/")

    assert ("grpcs://[::1]:8001", "http://[::1]:8002/metrics") == (settings.triton, settings.metrics_url)
    assert "grpcs://[::1]:8001" == settings.probes.grpc_address


@pytest.mark.parametrize("verb", ["exporter", "doctor", "init"])
def test_a_missing_client_is_named_with_its_extra(
    verb: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything starts."""
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "grpc" else found(name))

    assert 2 == main([verb, "--triton", "grpc://127.0.0.1:1"])
    assert (
        "--triton: needs Triton's client (fix: pip install 'tritonwatch[exporter]')"
        in capsys.readouterr().err
    )


def test_the_web_page_does_without_the_client(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The image of the compose stack has no client, and one address of Triton for all services."""
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "grpc" else found(name))
    examined: list[object] = []
    monkeypatch.setattr("tritonwatch.commands.web.DoctorReader", lambda *given: examined.append(given))
    monkeypatch.setattr(Server, "serve_until_signal", lambda _server: None)
    words = ["--prometheus", "http://127.0.0.1:1", "--triton", "grpc://127.0.0.1:1", "--gpu", "none"]

    assert 0 == main(["web", "--listen", "127.0.0.1:0", *words])
    assert [] == examined
    assert "no findings of the doctor without: pip install 'tritonwatch[exporter]'" in capsys.readouterr().err


def test_nothing_of_grpc_is_loaded_for_http() -> None:
    """It takes a tenth of a second of CPU time, and 20 MB."""
    program = """\
import sys
from triton_exporter.app.exporter import Exporter
from triton_exporter.app.settings import Settings
from tritonwatch.commands import doctor, exporter, init
Exporter(Settings(triton="http://127.0.0.1:1", gpu="none"))
print([name for name in sys.modules if name.startswith(("grpc", "google", "tritonclient"))])
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True
    )

    assert "[]\n" == ended.stdout

"""Test TLS to Triton: a proxy, or Triton's own gRPC, that demands a client certificate."""

from __future__ import annotations

import json
import logging
import os
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

import grpc  # type: ignore[import-untyped]
import pytest

from exporters.faults import body, faulty
from support.exporter import exporting
from support.loopback import free_ports
from support.repository import Repository, write
from support.tls import authority, certificate, tls_in_front_of
from support.triton import infer, live_triton
from triton_exporter.app.features import distribution_parts
from triton_exporter.app.settings import Settings
from triton_exporter.catalogue import own, probe, state, triton
from triton_exporter.common.problem import ProblemsError
from triton_exporter.http.certificates import Certificates, ReloadedTls
from triton_exporter.http.client import LIVE_PATH, Client, FetchError, Limits
from triton_exporter.probe.payload import Tensor
from triton_exporter.probe.probe_settings import ProbeSettings
from triton_exporter.probe.send import sender
from triton_exporter.snapshot import ModelVersion
from triton_exporter.tracing.otlp import TraceReceiver
from triton_exporter.tracing.trace_setting import TraceRate
from triton_exporter.triton.over_grpc import GrpcClient
from tritonwatch.cli import main
from tritonwatch.local import TritonPorts, TritonServer


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a CA, what it signed, an unsigned client, an encrypted key, and files that are none of these."""
    folder = tmp_path_factory.mktemp("pki")
    authority(folder)
    certificate(folder, "locked", "ca", password=b"1234")
    (folder / "both.pem").write_bytes(
        (folder / "client.key").read_bytes() + (folder / "client.pem").read_bytes()
    )
    (folder / "junk.pem").write_text("junk")
    return folder


def shown(pki: Path, name: str = "client") -> Certificates:
    return Certificates(pki / "ca.pem", pki / f"{name}.pem", pki / f"{name}.key")


@pytest.fixture
def page(pki: Path) -> Iterator[str]:
    """Yield the URL of a server behind a proxy that demands a certificate."""
    with faulty({"/": body(b"inside")}) as target, tls_in_front_of(target.port, pki) as port:
        yield f"https://127.0.0.1:{port}"


def _ask(url: str, certificates: Certificates) -> str:
    """Send one request; return its answer, or the reason why there is none."""
    with closing(Client(url, tls=ReloadedTls(certificates))) as client:
        try:
            return client.get("/").body.decode()
        except FetchError as error:
            return error.reason


def test_only_the_right_client_certificate_is_accepted(pki: Path, page: str) -> None:
    """With key apart or in the same file; an unsigned client, none, and a server of an unknown CA are all `tls`."""
    assert "inside" == _ask(page, shown(pki))
    assert "inside" == _ask(page, Certificates(pki / "ca.pem", pki / "both.pem"))
    assert "tls" == _ask(page, shown(pki, "unsigned"))
    assert "tls" == _ask(page, Certificates(pki / "ca.pem"))
    assert "tls" == _ask(page, Certificates(None, pki / "client.pem", pki / "client.key"))
    assert "tls" == _ask(page, Certificates(pki / "unsigned.pem", pki / "client.pem", pki / "client.key"))


def test_a_renewed_client_certificate_is_used_without_a_restart(
    pki: Path, page: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The next connection uses the files as they are now; broken files leave the last good ones in use."""
    for name in ("ca.pem", "client.pem", "client.key"):
        write(tmp_path / name, (pki / name.replace("client", "unsigned")).read_text())
    with closing(Client(page, tls=ReloadedTls(shown(tmp_path)))) as client:
        with pytest.raises(FetchError, match="tls"):
            client.get("/")
        write(tmp_path / "client.pem", (pki / "client.pem").read_text())
        with caplog.at_level(logging.ERROR), pytest.raises(FetchError, match="tls"):
            client.get("/")
        assert "client.key: is the key of another certificate" in caplog.text
        write(tmp_path / "client.key", (pki / "client.key").read_text())
        assert b"inside" == client.get("/").body
        client.close()
        os.remove(tmp_path / "client.key")
        assert b"inside" == client.get("/").body


def test_a_renewed_certificate_is_used_for_the_next_channel_of_grpc(
    pki: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As over HTTP: the next connection uses the files as they are now; broken ones leave the last good in use."""
    for name in ("ca.pem", "client.pem", "client.key"):
        write(tmp_path / name, (pki / name).read_text())
    server = grpc.server(ThreadPoolExecutor(1))  # without any method
    keys = [((pki / "server.key").read_bytes(), (pki / "server.pem").read_bytes())]
    credentials = grpc.ssl_server_credentials(keys, (pki / "ca.pem").read_bytes(), True)
    port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    client = GrpcClient(f"grpcs://127.0.0.1:{port}", certificates=shown(tmp_path))

    def asked() -> int | str:
        with closing(client):
            try:
                return client.get(LIVE_PATH).status
            except FetchError as error:
                return error.reason

    assert 404 == asked()
    write(tmp_path / "client.pem", (pki / "unsigned.pem").read_text())
    assert 404 == asked()
    assert "client.key: is the key of another certificate" in caplog.text
    write(tmp_path / "client.key", (pki / "unsigned.key").read_text())
    assert "tls" == asked()
    (tmp_path / "client.key").unlink()
    with pytest.raises(FetchError, match=r"tls: .*client\.key"):
        GrpcClient(f"grpcs://127.0.0.1:{port}", certificates=shown(tmp_path)).get(LIVE_PATH)
    server.stop(0).wait()


def _drips(connection: socket.socket, ended: threading.Event) -> None:
    """Begin a TLS record of 16 KiB, and send a byte of it now and then."""
    connection.sendall(b"\x16\x03\x03\x40\x00")
    while not ended.wait(0.05):
        connection.sendall(b"\x02")


@pytest.mark.parametrize(
    ("speak", "reason"),
    [
        pytest.param(lambda _connection, ended: ended.wait(), "timeout", id="silent"),
        pytest.param(_drips, "timeout", id="drips"),
        pytest.param(lambda it, _ended: it.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "tls", id="no TLS"),
    ],
)
def test_a_peer_that_spoils_the_handshake_is_a_reason_in_time(
    speak: Callable[[socket.socket, threading.Event], object], reason: str
) -> None:
    """The handshake is part of the one deadline of a request."""
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(60)  # on a busy machine the deadline can end before the client has connected

        def serve() -> None:
            with suppress(OSError):
                connection, _ = listener.accept()
                with connection:
                    connection.settimeout(None)
                    speak(connection, ended)

        thread = threading.Thread(target=serve)
        thread.start()
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        try:
            with (
                closing(Client(url, Limits(timeout_seconds=2))) as client,
                pytest.raises(FetchError) as caught,
            ):
                client.get("/")
        finally:
            ended.set()
            thread.join()

    assert reason == caught.value.reason


def test_files_that_vanish_before_the_first_connection_are_a_reading(pki: Path, page: str) -> None:
    """A certificate that is gone is a failure of TLS, not the end of the exporter's thread."""
    assert "tls" == _ask(page, shown(pki, "gone"))


@pytest.mark.parametrize(
    ("certificates", "printed"),
    [
        (("none.pem", None, None), ["none.pem: No such file or directory (fix: name a PEM file"]),
        (
            ("none.pem", "none.pem", "none.key"),
            ["none.pem: No such file", "none.pem: No such file", "none.key: No such file"],
        ),
        ((".", None, None), [": Is a directory"]),
        (
            ("junk.pem", "junk.pem", "client.key"),
            ["junk.pem: contains no cert", "junk.pem: contains no cert"],
        ),
        ((None, "client.pem", "junk.pem"), ["junk.pem: contains no private key"]),
        (
            (None, "client.pem", None),
            ["client.pem: contains no private key (fix: write it as PEM, or name its"],
        ),
        ((None, "client.pem", "server.key"), ["server.key: is the key of another certificate (fix: take"]),
        ((None, "locked.pem", "locked.key"), ["locked.key: is encrypted (fix: store the key without"]),
    ],
)
def test_unusable_files_are_reported_one_by_one(
    pki: Path, certificates: tuple[str | None, str | None, str | None], printed: list[str]
) -> None:
    """The message names the file, the mistake and the fix; there is no prompt for a pass phrase."""
    with pytest.raises(ProblemsError) as caught:
        Certificates(*(pki / name if name else None for name in certificates)).context()

    assert len(printed) == len(caught.value.problems)
    for text, problem in zip(printed, caught.value.problems, strict=True):
        assert text in str(problem)


def test_mistakes_with_certificates_end_the_start(
    pki: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the command line, the settings file and the environment, with place and fix, all at once."""

    def ended(*words: str) -> tuple[int, list[str]]:
        code = main(["exporter", *words])
        return code, capsys.readouterr().err.replace("tritonwatch exporter: ", "").splitlines()

    gone = str(pki / "gone.pem")
    config = tmp_path / "exporter.yml"
    config.write_text(
        f"triton: https://127.0.0.1:1\ntriton_ca_file: {gone}\ntriton_cert_file: {gone}\nlisten: x\n"
    )
    missing = f"{gone}: No such file or directory (fix: name a PEM file that we may read)"
    at_once = ended("--config", str(config))
    key = ("--triton-key-file", str(pki / "client.key"))

    assert (1, [missing, missing]) == (at_once[0], at_once[1][1:])
    assert (
        2,
        ["--triton-key-file: is a key without a certificate (fix: name it: --triton-cert-file)"],
    ) == ended("--triton", "https://127.0.0.1:1", *key)
    monkeypatch.setenv("TRITON_CA_FILE", gone)
    assert (1, [missing]) == ended("--triton", "https://127.0.0.1:1")
    monkeypatch.setenv("TRITON_CA_FILE", str(pki / "ca.pem"))
    assert (
        2,
        ["$TRITON_CA_FILE: would not be used: no URL is https (fix: --triton https://HOST:PORT)"],
    ) == ended("--triton", "http://127.0.0.1:1")


def test_what_reads_the_trace_rate_shows_the_certificate_and_the_headers(pki: Path) -> None:
    """The reader uses the restricted endpoints like all other requests, and leaves no connection open."""
    answers = {
        "/v2/trace/setting": body(b'{"trace_level": ["OFF"], "trace_rate": "50", "trace_count": "-1"}')
    }
    with faulty(answers) as target, tls_in_front_of(target.port, pki) as port:
        settings = Settings(
            triton=f"https://localhost:{port}",
            otlp_listen=("127.0.0.1", 0),
            triton_headers_file={"admin-key": "one"},
            triton_ca_file=pki / "ca.pem",
            triton_cert_file=pki / "client.pem",
            triton_key_file=pki / "client.key",
        )
        parts = distribution_parts(settings)
        rate = next(part for part in parts if isinstance(part, TraceRate))
        rate.poll(0)
        next(part for part in parts if isinstance(part, TraceReceiver)).close()

    assert 50.0 == rate._mailbox.rate
    assert "one" == target.requests[0][2]["admin-key"]


_STREAM = """\
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("Y", np.zeros((1, 1), np.float32))]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


@dataclass(frozen=True)
class Guarded:
    """A real Triton whose HTTP and metrics are behind proxies and whose gRPC is: all demand certificates."""

    url: str
    metrics_url: str
    grpc: str
    metrics_without_tls: str
    server: TritonServer


@pytest.fixture(scope="module")
def guarded(pki: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    directory = tmp_path_factory.mktemp("guarded")
    repository = Repository(directory / "models")
    repository.model("echo")
    stream = repository.model("stream", config="model_transaction_policy { decoupled: true }")
    write(stream / "1" / "model.py", _STREAM)
    ports = TritonPorts(*free_ports(3))
    tls = [
        "--grpc-use-ssl=true",
        "--grpc-use-ssl-mutual=true",
        f"--grpc-server-cert={pki / 'server.pem'}",
        f"--grpc-server-key={pki / 'server.key'}",
        f"--grpc-root-cert={pki / 'ca.pem'}",
    ]
    with (
        live_triton(repository.path, directory, arguments=tls, ports=ports) as server,
        tls_in_front_of(ports.http, pki) as http,
        tls_in_front_of(ports.metrics, pki) as metrics,
    ):
        yield Guarded(
            f"https://127.0.0.1:{http}",
            f"https://127.0.0.1:{metrics}/metrics",
            f"grpcs://127.0.0.1:{ports.grpc}",
            server.metrics_url,
            server,
        )


def _probing(guarded: Guarded) -> ProbeSettings:
    return ProbeSettings(models=("*",), interval_seconds=0.3, timeout_seconds=5, grpc_address=guarded.grpc)


@pytest.mark.real
@pytest.mark.parametrize("api", ["url", "grpc"])
def test_a_triton_behind_mutual_tls_is_seen_whole(pki: Path, guarded: Guarded, api: str) -> None:
    """Metrics, state, probes over HTTP and over Triton's own gRPC with TLS: all show the certificate."""
    with exporting(
        getattr(guarded, api), guarded.metrics_url, probes=_probing(guarded), certificates=shown(pki)
    ) as running:
        page = running.wait(
            lambda page: all(
                page.value(probe.REQUESTS, model=model, version="1", result="success")
                for model in ("echo", "stream")
            )
        )

    assert 1 == page.value(state.UP)
    assert 1 == page.value(state.MODEL_READY, model="echo", version="1")
    assert page.series(triton.REQUEST_SUCCESS)


@pytest.mark.real
@pytest.mark.parametrize("api", ["url", "grpc"])
def test_without_the_certificate_nothing_of_triton_is_seen(pki: Path, guarded: Guarded, api: str) -> None:
    """Metrics and state report `tls`, and the page is still served."""
    with exporting(
        getattr(guarded, api),
        guarded.metrics_url,
        probes=_probing(guarded),
        certificates=shown(pki, "unsigned"),
    ) as running:
        page = running.wait(
            lambda page: all(
                page.value(own.SCRAPE_FAILURES, endpoint=endpoint, reason="tls")
                for endpoint in ("live", "metrics")
            )
        )
        failed = running.get("/state").json()["triton"]

    assert 0 == page.value(state.UP)
    assert ("tls", "tls") == (failed["metrics_failure"], failed["api_failure"])
    assert "alert" in failed["metrics_failure_text"], (
        "the message of OpenSSL, for the person who has to fix it"
    )


@pytest.mark.real
@pytest.mark.parametrize(
    ("api", "tls", "reason", "hint"),
    [
        ("url", "https://", "tls", "alert"),
        ("grpc", "grpcs://", "tls", "does it demand a certificate?"),
        ("grpc", "grpc://", "bad_response", "does it want TLS (grpcs://)?"),
    ],
)
def test_an_api_that_fails_over_tls_takes_no_triton_down(
    pki: Path, guarded: Guarded, api: str, tls: str, reason: str, hint: str
) -> None:
    """Its metrics answer: it runs, in an unknown phase; `/state` has the hint."""
    _, _, place = getattr(guarded, api).partition("://")
    certificates = None if tls == "grpc://" else shown(pki, "unsigned")
    with exporting(tls + place, guarded.metrics_without_tls, certificates=certificates) as running:
        page = running.wait(
            lambda page: (
                page.value(state.UP) and page.value(own.SCRAPE_FAILURES, endpoint="live", reason=reason)
            )
        )
        triton_shown = running.get("/state").json()["triton"]

    assert {} == page.series(state.SERVER_LIVE)
    assert ("unknown", reason) == (triton_shown["phase"], triton_shown["api_failure"])
    assert hint in triton_shown["api_failure_text"]


@pytest.mark.real
def test_an_expired_certificate_takes_no_model_down(pki: Path, guarded: Guarded, tmp_path: Path) -> None:
    """Models that were ready serve on, as the metrics show, though the API cannot be read any more."""
    files = Certificates(pki / "ca.pem", tmp_path / "client.pem", tmp_path / "client.key")

    def show(name: str) -> None:
        for suffix in ("pem", "key"):
            shutil.copy(pki / f"{name}.{suffix}", tmp_path / f"client.{suffix}")

    show("client")
    with exporting(
        guarded.url, guarded.metrics_without_tls, {"echo": ()}, certificates=files, state_interval=0.5
    ) as running:
        running.wait(lambda page: page.value(state.MODEL_READY, model="echo", version="1"))
        show("unsigned")
        running.wait(lambda page: page.value(own.SCRAPE_FAILURES, endpoint="live", reason="tls"))
        assert 200 == infer(guarded.server, "echo")
        page = running.wait(
            lambda page: page.value(state.MODEL_STATE, model="echo", version="1", state="ready")
        )
        unused = page.value(state.MODEL_STATE, model="stream", version="1", state="unknown")
        show("client")
        back = running.wait(lambda page: page.value(state.MODEL_READY, model="stream", version="1"))

    assert {} == {**page.series(state.MODEL_READY), **page.series(state.MODEL_EXPECTED)}
    assert 1 == unused
    assert 1 == back.value(state.MODEL_EXPECTED, model="echo")


@pytest.mark.real
@pytest.mark.parametrize("name", ["unsigned", "gone"])
def test_a_probe_without_the_certificate_is_unreachable(pki: Path, guarded: Guarded, name: str) -> None:
    """Over HTTP and gRPC, with a wrong certificate and with one whose files are gone."""
    tensor = Tensor("X", "FP32", (1, 1), None)
    for decoupled, model in ((False, "echo"), (True, "stream")):
        send = sender(guarded.url, _probing(guarded), {}, shown(pki, name))

        outcome = send(ModelVersion(model, "1"), [tensor], decoupled)

        assert "unreachable" == outcome.result, outcome.text


FILES = ["--triton-ca-file", "ca.pem", "--triton-cert-file", "client.pem", "--triton-key-file", "client.key"]


@pytest.mark.real
def test_the_doctor_names_the_files_it_needs_and_uses_them(
    pki: Path, guarded: Guarded, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the certificates both ports are problems with the way in; with them neither is."""
    monkeypatch.chdir(pki)
    words = ["doctor", "--triton", guarded.url, "--triton-metrics", guarded.metrics_url]
    words += ["--watch", "0", "--json", "--gpu", "none"]

    def findings(*options: str) -> dict[str, str]:
        main([*words, *options])
        return {finding["title"]: finding["do"] for finding in json.loads(capsys.readouterr().out)}

    without = findings()
    for title in ("Triton's API does not answer", "Triton's metrics do not answer"):
        assert "--triton-ca-file FILE" in without[title]
    with_files = findings(*FILES)
    assert with_files
    assert not without.keys() & with_files.keys()


@pytest.mark.real
def test_objectives_are_proposed_for_a_triton_behind_mutual_tls(
    pki: Path, guarded: Guarded, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the same files `init` sees models and measurements; without, it reports that nothing answers."""
    monkeypatch.chdir(pki)
    words = ["init", "--triton", guarded.url, "--triton-metrics", guarded.metrics_url, "--out", "-"]

    assert 1 == main(words)
    assert f"Triton at {guarded.url}: does not answer" in capsys.readouterr().err
    assert 0 == main([*words, *FILES])
    proposed = capsys.readouterr()
    assert "" == proposed.err
    assert "could not be read" not in proposed.out

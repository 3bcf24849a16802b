"""Test how the exporter serves: formats, filters, compression, TLS, passwords, health."""

from __future__ import annotations

import base64
import gzip
import re
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, suppress
from pathlib import Path

import bcrypt
import pytest
import requests
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics_families,
)

from exporters.clock import Clock
from exporters.faults import body, faulty
from support.exporter import RunningExporter, exporting
from support.loopback import served
from support.tls import authority, certificate
from support.tools import promtools
from support.waiting import eventually
from triton_exporter.app.settings import Settings
from triton_exporter.catalogue import own, state, triton
from triton_exporter.common.problem import ProblemsError
from triton_exporter.http import web_config
from triton_exporter.http.server import (
    DROPS,
    MAX_CONNECTIONS,
    Connections,
    Handler,
    Request,
    Response,
    Server,
    routed,
)
from triton_exporter.http.web_config import WebConfig, load_web_config
from tritonwatch.cli import main

_METRICS = b"""\
# HELP nv_inference_count He said "many" \\\\ inferences
# TYPE nv_inference_count counter
nv_inference_count{model="a",version="1"} 7
# HELP odd Written with stray blanks
# TYPE odd gauge
odd{ a = "b" , } 1
# HELP requests_total Of a custom model
# TYPE requests_total counter
requests_total 3
# TYPE odd_seconds summary
odd_seconds{model="a",version="1",quantile="0.5"} Nan
odd_seconds_count{model="a",version="1"} 0
odd_seconds_sum{model="a",version="1"} 0
"""
_OPENMETRICS = {"Accept": "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"}


@pytest.fixture(scope="module")
def running() -> Iterator[RunningExporter]:
    index = b'[{"name":"a","version":"1","state":"READY"}]'
    with (
        faulty({"/metrics": body(_METRICS), "/v2/repository/index": body(index)}) as target,
        exporting(target.url, f"{target.url}/metrics") as running,
    ):
        running.wait(lambda page: page.value(state.MODEL_READY, model="a", version="1"))
        yield running


def test_text_is_served_unless_openmetrics_is_asked_for(running: RunningExporter) -> None:
    """The older format is what a plain client gets, with Triton's bytes unchanged."""
    plain = running.get()

    assert "text/plain; version=0.0.4; charset=utf-8" == plain.headers["Content-Type"]
    assert b"\n" + _METRICS in plain.content
    preferred = {"Accept": "text/plain,application/openmetrics-text;q=0.3"}
    assert running.get(headers=preferred).headers["Content-Type"].startswith("text/plain")


def test_openmetrics_has_the_same_series(running: RunningExporter) -> None:
    """A strict OpenMetrics reader takes the whole page; Triton's counters keep their names."""
    page = running.get(headers=_OPENMETRICS)
    families = {family.name: family for family in openmetrics_families(page.text)}

    assert page.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    assert page.text.endswith("# EOF\n")
    assert "unknown" == families[str(triton.INFERENCE_COUNT)].type
    assert [("nv_inference_count", 7)] == [
        (sample.name, sample.value) for sample in families[str(triton.INFERENCE_COUNT)].samples
    ]
    assert "counter" == families["requests"].type
    assert {"a": "b"} == families["odd"].samples[0].labels
    assert "counter" == families[str(state.MODEL_LOAD_FAILURES).removesuffix("_total")].type
    assert "histogram" == families[str(state.REQUEST_DURATION)].type


def test_name_filters_apply_to_both_formats(running: RunningExporter) -> None:
    """?name[]= keeps only the families that are asked for, Triton's and the exporter's."""
    query = f"/metrics?name[]={triton.INFERENCE_COUNT}&name[]={state.UP}"
    text = [line for line in running.get(query).text.splitlines() if not line.startswith("#")]
    families = [family.name for family in openmetrics_families(running.get(query, headers=_OPENMETRICS).text)]

    assert ['nv_inference_count{model="a",version="1"} 7', "triton_up 1"] == text
    assert [str(triton.INFERENCE_COUNT), str(state.UP)] == families


def test_gzip_is_used_only_when_it_is_taken(running: RunningExporter) -> None:
    """A peer that takes gzip gets the same page in it."""
    packed = running.get(headers={"Accept-Encoding": "br, gzip;q=0.5"}, stream=True)
    plain = running.get(headers={"Accept-Encoding": "gzip;q=0, identity"})

    assert "gzip" == packed.headers["Content-Encoding"]
    assert _METRICS in gzip.decompress(packed.raw.read())
    assert "Content-Encoding" not in plain.headers


def test_health_state_and_landing_pages(running: RunningExporter) -> None:
    """The exporter's own health does not depend on Triton's."""
    models = running.get("/state").json()["models"]

    assert (200, "healthy\n") == (running.get("/-/healthy").status_code, running.get("/-/healthy").text)
    assert 200 == running.get("/-/ready").status_code
    assert 404 == running.get("/nothing").status_code
    assert '<a href="/metrics">' in running.get("/").text
    assert [("a", "1", "ready", True, "index")] == [
        (model["model"], model["version"], model["state"], model["ready"], model["source"])
        for model in models
    ]


def test_head_and_other_methods(running: RunningExporter) -> None:
    """HEAD is answered without a body, anything that could change something is refused."""
    head = requests.head(f"{running.url}/-/healthy", timeout=5)

    assert (200, b"", "8") == (head.status_code, head.content, head.headers["Content-Length"])
    assert 405 == requests.post(f"{running.url}/metrics", timeout=5).status_code


def test_a_page_that_fails_is_an_answer_and_a_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """A bug in a page is reported to the client and in the log."""

    def broken(_: Request) -> Response:
        raise ZeroDivisionError("of all things")

    with _serving(WebConfig(), {"GET /": broken}) as server:
        answer = requests.get(server.url, timeout=5)

    assert (500, "this request failed; see the log\n") == (answer.status_code, answer.text)
    assert "of all things" in caplog.text


def test_the_longest_waiting_connection_is_closed_for_a_new_one() -> None:
    """Among three hundred peers that send half a request each, every scrape is answered."""
    with _serving(WebConfig()) as server, ExitStack() as peers:
        address = ("127.0.0.1", server.server_address[1])
        for _ in range(300):
            peer = peers.enter_context(socket.create_connection(address))
            peer.sendall(b"GET / HT")
        eventually(lambda: _dropped(server)["crowded"] >= 300 - MAX_CONNECTIONS, "not dropped")
        eventually(lambda: threading.active_count() <= MAX_CONNECTIONS + 20, "too many threads")

        assert ["inside"] * 5 == [requests.get(server.url, timeout=5).text for _ in range(5)]
        assert MAX_CONNECTIONS >= len(server.connections.open())
        assert 0 == _dropped(server)["refused"]


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_a_request_that_never_ends_is_dropped_in_time(certificates: Path, tls: bool) -> None:
    """A peer that sends a byte now and then, or stops in the TLS handshake, is dropped and counted."""
    web = _config(certificates, _TLS) if tls else WebConfig()
    with (
        _serving(web, request_seconds=0.5) as server,
        socket.create_connection(("127.0.0.1", server.server_address[1])) as peer,
    ):
        begun = time.monotonic()
        with suppress(OSError):
            # In TLS: the first bytes of a record of 512 bytes.
            peer.sendall(b"\x16\x03\x01\x02\x00" if tls else b"GET / HTTP/1.1\r\n")
            while time.monotonic() < begun + 30 and not _dropped(server)["slow_request"]:
                peer.sendall(b"x")
                time.sleep(0.05)
        eventually(lambda: not server.connections.open(), "a connection is open")

        assert 1 == _dropped(server)["slow_request"]


def test_a_new_connection_is_refused_only_while_all_others_are_being_answered() -> None:
    """Answers under way are not broken off for a new connection, unless they take too long."""
    clock = Clock()
    table = Connections(now=clock)
    pairs = [socket.socketpair() for _ in range(MAX_CONNECTIONS + 1)]
    (*held, extra), others = [first for first, _ in pairs], [two for _, two in pairs]
    for peer in held:
        connection = table.admit(peer)
        assert connection
        table.answer(connection)

    assert None is table.admit(extra)
    clock.now = 11
    assert None is not table.admit(extra)
    assert {"refused": 1, "crowded": 1, "slow_request": 0} == _reasons(table)
    assert b"" == others[0].recv(1)
    for peer in (*held, extra, *others):
        peer.close()


def test_a_connection_is_used_again_after_an_answer() -> None:
    """The deadline of a request does not end a connection that waits between two scrapes."""
    with _serving(WebConfig(), request_seconds=0.3) as server, requests.Session() as session:
        session.get(server.url, timeout=5)
        time.sleep(1.0)
        session.get(server.url, timeout=5)

        assert 1 == len(server.connections.open())
        assert 0 == sum(_dropped(server).values())


def test_dropped_connections_are_a_series(running: RunningExporter) -> None:
    """Each reason is on the page from the start."""
    page = running.scrape()

    assert [0, 0, 0] == [page.value(own.CONNECTIONS_DROPPED, reason=reason) for reason in DROPS]


def _dropped(server: Server) -> Mapping[str, float]:
    return _reasons(server.connections)


def _reasons(connections: Connections) -> Mapping[str, float]:
    (family,) = connections.families(0)
    return {reason: sample.value for reason, sample in zip(DROPS, family.samples, strict=True)}


# TLS and passwords


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    authority(folder)
    return folder


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", b"400"),
        (b"GET / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc", b"400"),
        (b"GET / HTTP/1.1\r\nHost: x\r\nno colon here\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n folded: line\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost : x\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nContent-Length: 3\r\ncontent-length: 3\r\n\r\nabc", b"200"),
        (b"GET / HTTP/1.1\nHost: x\n\n", b"200"),
        (b"GET /" + b"x" * 40_000 + b" HTTP/1.1\r\n\r\n", b"431"),
        (b"DELETE / HTTP/1.1\r\n\r\n", b"501"),
    ],
)
def test_a_head_that_can_be_read_in_two_ways_is_refused(head: bytes, status: bytes) -> None:
    """A proxy that reads it in the other way could pass on what nobody has checked."""
    with (
        _serving(WebConfig()) as server,
        socket.create_connection(("127.0.0.1", server.server_address[1]), timeout=10) as peer,
    ):
        peer.sendall(head)
        with suppress(TimeoutError):
            peer.settimeout(5 if status != b"200" else 0.5)
            answer = b"".join(iter(lambda: peer.recv(65536), b""))
            assert status == answer.split(b" ")[1]
            assert status == b"200" or b"Connection: close" in answer


def _serving(
    web: WebConfig, routes: Mapping[str, Handler] | None = None, request_seconds: float = 10.0
) -> AbstractContextManager[Server]:
    handler = routed(routes or {"GET /": lambda _: Response(b"inside")})
    return served(Server("127.0.0.1", 0, handler, web, Connections(request_seconds=request_seconds)))


def _config(folder: Path, text: str) -> WebConfig:
    path = folder / "web.yml"
    path.write_text(text)
    return load_web_config(path)


_TLS = "tls_server_config:\n  cert_file: server.pem\n  key_file: server.key\n"


def test_tls_is_served_and_a_peer_without_it_harms_nobody(certificates: Path) -> None:
    """TLS 1.2 and up, while a client that sends plain text, or nothing at all, gets nothing."""
    with _serving(_config(certificates, _TLS)) as server:
        port = server.server_address[1]
        with (
            socket.create_connection(("127.0.0.1", port)) as silent,
            socket.create_connection(("127.0.0.1", port)) as plain,
        ):
            plain.sendall(b"GET / HTTP/1.1\r\n\r\n")
            answer = requests.get(
                f"https://localhost:{port}/", verify=str(certificates / "ca.pem"), timeout=5
            )
            plain.settimeout(5)
            # A TLS alert or a reset, as the kernel has it; never a page.
            with suppress(ConnectionResetError):
                assert not plain.recv(100).startswith(b"HTTP")
            silent.close()
        assert "inside" == answer.text
        with pytest.raises(requests.exceptions.SSLError):
            requests.get(f"https://localhost:{port}/", timeout=5)


def test_mutual_tls_admits_only_certificates_of_its_ca(certificates: Path) -> None:
    """Without a certificate, or with one that the CA did not sign, there is no page."""
    text = f"{_TLS}  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.pem\n"
    with _serving(_config(certificates, text)) as server:
        url = f"https://localhost:{server.server_address[1]}/"

        def ask(name: str | None) -> str:
            pair = (str(certificates / f"{name}.pem"), str(certificates / f"{name}.key")) if name else None
            return requests.get(url, verify=str(certificates / "ca.pem"), cert=pair, timeout=5).text

        assert "inside" == ask("client")
        for nobody in (None, "unsigned"):
            with pytest.raises((requests.exceptions.SSLError, requests.exceptions.ConnectionError)):
                ask(nobody)


def test_passwords_are_checked_against_bcrypt_hashes(tmp_path: Path) -> None:
    """The right user and password are let in, every other header is refused."""
    stored = bcrypt.hashpw(b"correct horse", bcrypt.gensalt(4)).decode()
    web = _config(tmp_path, f"basic_auth_users:\n  me: {stored}\n")
    with _serving(web) as server:

        def ask(**options: object) -> int:
            return requests.get(server.url, timeout=5, **options).status_code  # type: ignore[arg-type]

        assert 401 == ask()
        assert 'Basic realm="tritonwatch"' == requests.get(server.url, timeout=5).headers["WWW-Authenticate"]
        assert 200 == ask(auth=("me", "correct horse"))
        assert 200 == ask(auth=("me", "correct horse"))
        assert 401 == ask(auth=("me", "wrong"))
        assert 401 == ask(auth=("you", "correct horse"))
        assert 401 == ask(auth=("me", "x" * 100))
        assert 401 == ask(headers={"Authorization": "Basic %%%"})
        assert 401 == ask(headers={"Authorization": "Basic " + base64.b64encode(b"\xff").decode()})
        assert 401 == ask(
            headers={"Authorization": "Bearer " + base64.b64encode(b"me:correct horse").decode()}
        )


def test_only_a_password_that_was_given_is_hashed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without credentials 401 costs no bcrypt; a wrong user costs as much as a wrong password."""
    hashed: list[str] = []

    def counted(password: str, stored: str) -> bool:
        hashed.append(stored)
        return bcrypt.checkpw(password.encode(), stored.encode())

    monkeypatch.setattr(web_config, "_matches", counted)
    stored = bcrypt.hashpw(b"correct horse", bcrypt.gensalt(5)).decode()
    web = _config(tmp_path, f"basic_auth_users:\n  me: {stored}\n")

    def admitted(scheme: str, credentials: bytes) -> bool:
        return web.admits(f"{scheme} {base64.b64encode(credentials).decode()}")

    assert not web.admits("")
    assert not web.admits("Basic %%%")
    assert not admitted("Bearer", b"me:correct horse")
    assert not admitted("Basic", b"\xff")
    assert not admitted("Basic", b"me")
    assert [] == hashed
    assert not admitted("Basic", b"me:wrong")
    assert not admitted("Basic", b"you:correct horse")
    assert not admitted("Basic", b":")
    assert [stored] * 3 == hashed
    assert admitted("Basic", b"me:correct horse")
    assert admitted("Basic", b"me:correct horse")
    assert 4 == len(hashed)


def test_a_renewed_server_certificate_is_served_without_a_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The next handshake shows the new certificate; a half-written one leaves the last good one in force."""
    authority(tmp_path)
    with _serving(_config(tmp_path, _TLS)) as server:
        address = ("localhost", server.server_address[1])

        def shown() -> str:
            return ssl.get_server_certificate(address, ca_certs=str(tmp_path / "ca.pem")).strip()

        def written() -> str:
            return (tmp_path / "server.pem").read_text().strip()

        first = written()
        assert first == shown()
        (tmp_path / "server.pem").write_text("half")
        assert first == shown()
        assert "the previous certificates stay in use" in caplog.text
        certificate(tmp_path, "server", "ca")
        assert first != written()
        assert written() == shown()


def test_prometheus_own_checker_takes_the_same_file(certificates: Path) -> None:
    """promtool agrees that this is a web config file."""
    stored = bcrypt.hashpw(b"correct horse", bcrypt.gensalt(10)).decode()
    client = (
        "  client_auth_type: RequireAndVerifyClientCert\n  client_ca_file: ca.pem\n  min_version: TLS13\n"
    )
    headers = "http_server_config:\n  headers:\n    X-Content-Type-Options: nosniff\n"
    web = _config(certificates, f"{_TLS}{client}{headers}basic_auth_users:\n  me: {stored}\n")

    assert web.tls is not None
    assert ssl.TLSVersion.TLSv1_3 == web.tls().minimum_version
    for promtool in promtools():
        command = [promtool, "check", "web-config", certificates / "web.yml"]
        assert 0 == subprocess.run(command, capture_output=True, timeout=30).returncode


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("tls_server_config: [", "while parsing"),
        ("tls_server_config: !!bool maybe", "a value that does not fit its tag"),
        ("tls_server_config: 2026-13-01", "month must be in 1..12"),
        ("- a", "the file: is not a mapping of settings"),
        ("tls_server_config: yes", "tls_server_config: is not a mapping of settings"),
        (
            "basic_auth_user: {}",
            "basic_auth_user: extra inputs are not permitted; known here: tls_server_config",
        ),
        ("tls_server_config: {cert_file: a}", "tls_server_config.key_file: field required"),
        ("tls_server_config: {cert_file: a, key_file: b}", "/a: No such file or directory"),
        ("basic_auth_users: {me: secret}", "basic_auth_users.me: is not a bcrypt hash"),
        (_TLS + "  cert_file: b\n", "line 4: the key 'cert_file' is written twice, first in line 2"),
        (_TLS + "  client_auth_type: RequireAndVerifyClientCert\n", "needs client_ca_file"),
        (_TLS + "  client_auth_type: RequestClientCert\n", "checks nothing"),
        (_TLS + "  client_ca_file: ca.pem\n", "admits everybody"),
    ],
)
def test_mistakes_in_the_web_config_are_reported(certificates: Path, text: str, printed: str) -> None:
    """Each mistake names the file, the field and what is wrong; no password is repeated."""
    with pytest.raises(ProblemsError) as caught:
        _config(certificates, text)

    assert printed in str(caught.value)
    assert str(certificates / "web.yml") in str(caught.value)
    assert "secret" not in str(caught.value)


# Options


def test_all_mistakes_in_a_settings_file_are_reported_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Place, reason and way out of each, exit code 1, nothing served."""
    path = tmp_path / "exporter.yml"
    path.write_text(
        "triton: http://127.0.0.1:1\nlisten: nowhere\ntimeout: soon\ncolour: red\nexpect: ['a:b']\ngpu: [x]\n"
    )
    code, printed = main(["exporter", "--config", str(path)]), capsys.readouterr().err
    lines = printed.splitlines()

    assert 1 == code
    assert 5 == len(lines)
    for key in ("listen", "timeout", "colour", "expect", "gpu"):
        assert any(
            re.match(rf"tritonwatch exporter: {path}:\d: {key}: ", line) and "(fix: " in line
            for line in lines
        ), key


@pytest.mark.parametrize(
    ("option", "text", "printed"),
    [
        # YAML reads null and true as other than text: models named None and True were expected.
        ("--config", "expect: [encoder, null]\n", "expect: None is not text"),
        ("--config", "expect: [encoder, true]\n", "expect: True is not text"),
        ("--config", "timeout: !!bool maybe\n", "{path}: it contains a value that does not fit its tag"),
        # YAML would let the last one win in silence.
        (
            "--config",
            "timeout: 5s\ntimeout: 9s\n",
            "{path}: line 2: the key 'timeout' is written twice, first in line 1",
        ),
        ("--triton-headers-file", "admin-key: one\ns3cret without a colon\n", "{path}:2: is not a header"),
    ],
)
def test_a_mistake_in_a_file_is_one_line(
    tmp_path: Path, option: str, text: str, printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What YAML's reader trips over is a mistake in the file, and no traceback; a secret is never repeated."""
    path = tmp_path / "file"
    path.write_text(text)
    code = main(["exporter", "--triton", "http://127.0.0.1:1", option, str(path)])
    [line] = capsys.readouterr().err.splitlines()

    assert 1 == code
    assert printed.format(path=path) in line
    assert "s3cret" not in line


def test_it_listens_on_loopback_by_default() -> None:
    """Without an address the exporter cannot be reached from other machines."""
    settings = Settings.read({"triton": "http://triton:8000"}, {})

    assert ("127.0.0.1", 9401) == settings.listen
    assert "0.0.0.0" == Settings.read({"triton": "t", "listen": "0.0.0.0:1"}, {}).listen[0]


def test_wrong_flags_are_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    """Flags that make no sense are reported all at once, exit code 2."""
    code, printed = main(["exporter", "--listen", "nowhere", "--timeout", "0"]), capsys.readouterr().err

    assert 2 == code
    assert ["--timeout", "--listen", "--triton"] == [line.split(": ")[1] for line in printed.splitlines()]

"""Test the receiver of notifications on real sockets and TLS: authentication, limits and responses."""

from __future__ import annotations

import http.client
import json
import socket
import sqlite3
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st

from support.bridge import body_of
from support.loopback import served
from triton_alerts.bridge.incidents.history import from_json
from triton_alerts.bridge.incidents.notification import Notification, parse
from triton_alerts.bridge.incidents.store import Store
from triton_alerts.bridge.receiver import (
    INCIDENTS_PATH,
    MAX_CONNECTIONS,
    PATH,
    REQUEST_SECONDS,
    Instruments,
    Webhook,
    listen,
)
from triton_alerts.bridge.settings import Secret
from triton_exporter.http.certificates import ServerCertificates
from triton_exporter.http.server import RefusedError, Server
from triton_slo.bridge_series import METRICS, RECEIVED
from tritonwatch.cli import main


@contextmanager
def started_receiver(
    folder: Path,
    token: Callable[[], str] | None = None,
    tls: ServerCertificates | None = None,
    largest: int = 100_000,
    request_seconds: float = REQUEST_SECONDS,
) -> Iterator[Server]:
    store = Store(folder / "bridge.sqlite", lambda _severity: "C0PAGES")
    instruments = Instruments(store, time.time)
    webhook = Webhook(store, instruments, time.time, lambda: None, token, max_body_bytes=largest)
    receiver = listen(("127.0.0.1", 0), webhook, tls, request_seconds)
    try:
        with served(receiver):
            yield receiver
    finally:
        store.close()


def url(receiver: Server, path: str = PATH, scheme: str = "http") -> str:
    return f"{scheme}://127.0.0.1:{receiver.server_address[1]}{path}"


BODY = body_of("g0", {"a": 100.0}, {})


def test_a_body_is_parsed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This also applies to a body that contradicts another Alertmanager and waits before it counts."""
    parsed: list[bytes] = []

    def counted(body: bytes, source: str = "") -> Notification:
        parsed.append(body)
        return parse(body, source)

    monkeypatch.setattr("triton_alerts.bridge.receiver.parse", counted)
    bodies = [BODY, body_of("g0", {}, {"a": (100.0, 110.0)}), BODY]
    with closing(Store(tmp_path / "bridge.sqlite", lambda _severity: "C0PAGES")) as store:
        webhook = Webhook(store, Instruments(store, time.time), time.time, lambda: None)
        sources = ("one", "one", "two")
        outcomes = [webhook.receive(*pair) for pair in zip(bodies, sources, strict=True)]
        store.merge_held(time.time() + 3600)

    assert ["opened", "changed", "held"] == outcomes
    assert bodies == parsed


def test_a_notification_is_on_disk_when_it_is_answered(tmp_path: Path) -> None:
    """200 means that another process can read it."""
    with started_receiver(tmp_path) as receiver:
        answer = requests.post(url(receiver), data=BODY, timeout=5)
        with sqlite3.connect(tmp_path / "bridge.sqlite") as other:
            count = other.execute("SELECT count(*) FROM incidents").fetchone()
        other.close()

    assert (200, (1,)) == (answer.status_code, count)


@pytest.mark.parametrize("shown", ["", "Bearer wrong", "Bearer", "Basic c2VjcmV0", "Bearer sécret", "secre"])
def test_a_notification_without_the_token_is_refused(tmp_path: Path, shown: str) -> None:
    """A wrong token is 401, which Alertmanager reports and does not retry."""
    with started_receiver(tmp_path, token=lambda: "secret") as receiver:
        refused = requests.post(
            url(receiver), data=BODY, headers={"Authorization": shown.encode()}, timeout=5
        )
        taken = requests.post(url(receiver), data=BODY, headers={"Authorization": "Bearer secret"}, timeout=5)

    assert (401, 200) == (refused.status_code, taken.status_code)


@pytest.mark.parametrize(
    ("start", "status"),
    [
        ("0001-01-01T00:00:00+10:00", 400),
        ("9999-12-31T23:59:59-00:01", 400),
        ("0001-01-01T00:00:00Z", 200),
        ("9999-12-31T23:59:59Z", 200),
    ],
)
@pytest.mark.parametrize("state", ["firing", "resolved"])
def test_any_time_is_refused_or_can_be_read_again(
    tmp_path: Path, start: str, status: int, state: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that its zone moves out of the years of a time would break every list of incidents."""
    alert = {"status": state, "labels": {"alertname": "A", "model": "m"}, "startsAt": start, "endsAt": start}
    odd = {"version": "4", "receiver": "r", "status": state, "groupKey": "g", "alerts": [alert]}
    headers = {"Authorization": "Bearer s"}
    with started_receiver(tmp_path, token=lambda: "s") as receiver:
        answers = [
            requests.post(url(receiver), data=body, headers=headers, timeout=5)
            for body in (json.dumps(odd).encode(), BODY)
        ]
        listed = requests.get(url(receiver, INCIDENTS_PATH), headers=headers, timeout=5)
    code = main(["incidents", "list", "--data", str(tmp_path), "--last", "3650d"])

    assert [status, 200] == [answer.status_code for answer in answers]
    assert status == 200 or "alerts.0.startsAt: " in answers[0].text
    assert 200 == listed.status_code
    assert (1 if status == 400 else 2) == len(from_json(listed.content))
    assert 0 == code, capsys.readouterr().err


def test_incidents_are_read_with_the_token_alone(tmp_path: Path) -> None:
    """Incidents have names of people and texts of errors: a bridge without a token returns none."""
    with started_receiver(tmp_path) as receiver:
        without = requests.get(url(receiver, INCIDENTS_PATH), timeout=5)
    with started_receiver(tmp_path, token=lambda: "secret") as receiver:
        answers = [
            requests.get(url(receiver, INCIDENTS_PATH), headers={"Authorization": shown}, timeout=5)
            for shown in ("", "Bearer wrong", "Bearer secret")
        ]

    assert [403, 401, 401, 200] == [answer.status_code for answer in (without, *answers)]
    assert [] == answers[-1].json()


@pytest.mark.parametrize("content", [None, "", "\xff"])
def test_a_token_file_in_the_middle_of_a_rotation_lets_nobody_in(tmp_path: Path, content: str | None) -> None:
    """Gone, empty or half written: 503, which Alertmanager tries again, and never open to all."""
    file = tmp_path / "token"
    with started_receiver(tmp_path, token=Secret(file)) as receiver:
        if content is not None:
            file.write_bytes(content.encode("latin-1"))
        answers = [
            requests.post(url(receiver), data=BODY, headers=headers, timeout=5).status_code
            for headers in ({}, {"Authorization": "Bearer "}, {"Authorization": "Bearer secret"})
        ]
        file.write_text("secret\n")
        taken = requests.post(url(receiver), data=BODY, headers={"Authorization": "Bearer secret"}, timeout=5)

    assert ([503, 503, 503], 200) == (answers, taken.status_code)


@pytest.mark.parametrize("length", ["0" * 12 + "200000", "9" * 5000, "0" * 5000 + "200000"])
def test_no_way_of_writing_a_length_gets_a_large_body_accepted(tmp_path: Path, length: str) -> None:
    """The limit applies to the number, not to its first digits."""
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n".encode()
    with started_receiver(tmp_path) as receiver, dial(receiver, None) as wire:
        wire.sendall(head)
        answer = wire.recv(4096)

    assert answer.startswith(b"HTTP/1.1 413")


def test_only_clients_of_the_ca_get_in(tmp_path: Path) -> None:
    """With a client CA a connection without its certificate is refused."""
    ca, ca_key = certificate(tmp_path, "ca")
    own, key = certificate(tmp_path, "bridge", signed_by=(ca, ca_key))
    client, client_key = certificate(tmp_path, "alertmanager", signed_by=(ca, ca_key))
    with started_receiver(tmp_path, tls=ServerCertificates(own, key, ca)) as receiver:
        address = url(receiver, scheme="https")
        with pytest.raises(requests.exceptions.ConnectionError):
            requests.post(address, data=BODY, verify=str(ca), timeout=5)
        taken = requests.post(
            address, data=BODY, verify=str(ca), cert=(str(client), str(client_key)), timeout=5
        )

    assert 200 == taken.status_code


@pytest.mark.parametrize(
    ("send", "status"),
    [
        (lambda c: c.request("POST", PATH, b"x" * 200_000), 413),
        (lambda c: c.request("POST", PATH, b"{"), 400),
        (lambda c: c.request("POST", PATH, b'{"version": "3"}'), 400),
        (lambda c: c.request("POST", PATH, b"[" * 50_000), 400),
        (lambda c: c.request("POST", PATH, b"\xff\xfe\x00"), 400),
        (lambda c: c.request("POST", PATH, iter([b"x"])), 411),
        (lambda c: c.request("POST", "/elsewhere", BODY), 404),
        (lambda c: c.request("GET", "/elsewhere"), 404),
        (lambda c: c.request("PUT", PATH, BODY), 501),
        (lambda c: c.request("GET", PATH), 405),
        (lambda c: c.request("GET", "/-/healthy"), 200),
        (lambda c: c.request("GET", "/-/ready"), 200),
    ],
)
def test_every_request_has_its_answer(tmp_path: Path, send: object, status: int) -> None:
    """Never 429, which Alertmanager does not retry; 4xx only for what no retry can fix."""
    with started_receiver(tmp_path) as receiver:
        address = ("127.0.0.1", receiver.server_address[1])
        with closing(http.client.HTTPConnection(*address, timeout=5)) as connection:
            send(connection)  # type: ignore[operator]
            with connection.getresponse() as answer:
                answer.read()

    assert status == answer.status


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_caller_that_is_refused_early_still_gets_the_reason(tmp_path: Path, scheme: str) -> None:
    """The answer reaches a caller that is still sending a body that the bridge does not read."""
    tls = ServerCertificates(*certificate(tmp_path, "bridge")) if scheme == "https" else None
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: 900000\r\n\r\n".encode()
    with started_receiver(tmp_path, tls=tls) as receiver, dial(receiver, tls) as wire:
        wire.sendall(head)
        for _ in range(9):
            time.sleep(0.02)  # by now the receiver has answered
            wire.sendall(b"x" * 100_000)
        answer = wire.recv(4096)

    assert answer.startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("length", [None, 50_000])
def test_a_slow_caller_of_the_bridge_is_dropped_in_time(
    tmp_path: Path, scheme: str, length: int | None
) -> None:
    """A client that sends single bytes, in head or body, occupies a connection for the time of one request only."""
    tls = ServerCertificates(*certificate(tmp_path, "bridge")) if scheme == "https" else None
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\n" + (
        f"Content-Length: {length}\r\n\r\n" if length else "X-A: "
    )
    with started_receiver(tmp_path, tls=tls, request_seconds=2.0) as receiver, dial(receiver, tls) as wire:
        wire.settimeout(0.05)
        wire.sendall(head.encode())
        left = False
        for _ in range(100):
            try:
                wire.sendall(b"x")
                received = wire.recv(4096)
                left = not received or received.startswith(b"HTTP/1.1 503")
            except TimeoutError:
                continue
            except OSError:
                left = True
            if left:
                break

    assert left


@contextmanager
def dial(receiver: Server, tls: ServerCertificates | None) -> Iterator[socket.socket]:
    """Yield a plain connection, or a TLS one that asks for no names."""
    with socket.create_connection(("127.0.0.1", receiver.server_address[1]), timeout=5) as wire:
        if tls is None:
            yield wire
            return
        context = ssl.create_default_context(cafile=tls.own)
        context.check_hostname = False
        with context.wrap_socket(wire) as wrapped:
            yield wrapped


def test_a_store_that_fails_is_503_so_that_alertmanager_comes_again(tmp_path: Path) -> None:
    """A notification that cannot be stored is not acknowledged."""
    with started_receiver(tmp_path) as receiver:
        blocker = sqlite3.connect(tmp_path / "bridge.sqlite", isolation_level=None)
        blocker.execute("DROP TABLE events")
        failed = requests.post(url(receiver), data=BODY, timeout=5)
        blocker.close()

    assert 503 == failed.status_code


def test_every_series_of_the_catalogue_is_exposed(tmp_path: Path) -> None:
    """Alerts are written against the catalogue's rows: each one that can be there is there."""
    with started_receiver(tmp_path) as receiver:
        requests.post(url(receiver), data=BODY, timeout=5)
        watchdog = BODY.replace(b'"critical"', b'"none"')
        requests.post(url(receiver), data=watchdog, timeout=5)
        page = requests.get(url(receiver, "/metrics"), timeout=5).text

    missing = [row.name for row in METRICS if f"# TYPE {row.name.removesuffix('_total')}" not in page]
    assert ["triton_alert_bridge_socket_connected"] == missing
    assert f'{RECEIVED}{{outcome="opened"}} 1.0' in page
    assert f'{RECEIVED}{{outcome="heartbeat"}} 1.0' in page


@given(noise=st.binary(max_size=300))
def test_the_receiver_survives_any_request(tmp_path: Path, noise: bytes) -> None:
    """Bytes that are not HTTP, and bodies that are not JSON, affect only their sender."""
    _FUZZED.setdefault("path", tmp_path)
    with socket.create_connection(("127.0.0.1", fuzzed(_FUZZED["path"])), timeout=5) as wire:
        wire.sendall(noise + b"\r\n\r\n")
        wire.shutdown(socket.SHUT_WR)
        while wire.recv(4096):
            pass
    head = b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (PATH.encode(), len(noise))
    with socket.create_connection(("127.0.0.1", fuzzed(_FUZZED["path"])), timeout=5) as wire:
        wire.sendall(head + noise)
        answer = wire.recv(4096)
    assert answer.startswith(b"HTTP/1.1 400")


_FUZZED: dict[str, Path] = {}
_RUNNING: list[object] = []


def fuzzed(folder: Path) -> int:
    """One receiver for all examples; ends with the module."""
    if not _RUNNING:
        context = started_receiver(folder)
        _RUNNING[:] = [context, context.__enter__()]
    receiver = _RUNNING[1]
    assert isinstance(receiver, Server)
    return int(receiver.server_address[1])


@pytest.fixture(scope="module", autouse=True)
def _end_fuzzed() -> Iterator[None]:
    yield
    if _RUNNING:
        _RUNNING[0].__exit__(None, None, None)  # type: ignore[attr-defined]


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@given(
    field=st.sampled_from(
        ("alerts", "status", "groupKey", "groupLabels", "version", "receiver", "truncatedAlerts")
    ),
    value=JSON,
)
def test_any_json_is_accepted_or_refused_never_a_crash(field: str, value: object) -> None:
    """Each field of the body may have any value: the response is 200 or 400, nothing else."""
    document = json.loads(BODY) | {field: value}
    wire = json.dumps(document).encode()
    store = Store(Path(":memory:"), lambda _severity: "C0PAGES")
    webhook = Webhook(store, Instruments(store, time.time), time.time, lambda: None)
    try:
        webhook.receive(wire, "fuzz")
        status = 200
    except RefusedError as refused:
        status = refused.status
    store.close()

    assert status in (200, 400)


def certificate(folder: Path, name: str, signed_by: tuple[Path, Path] | None = None) -> tuple[Path, Path]:
    """Make a certificate for 127.0.0.1 and its key with openssl."""
    path, key = folder / f"{name}.pem", folder / f"{name}.key"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
    ]
    command += ["-days", "2", "-subj", f"/CN={name}", "-keyout", str(key), "-out", str(path)]
    if signed_by is not None:
        command += ["-CA", str(signed_by[0]), "-CAkey", str(signed_by[1])]
        command += ["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"]
    subprocess.run(command, check=True, capture_output=True)
    assert ssl.PEM_cert_to_DER_cert(path.read_text())
    return path, key


@pytest.mark.parametrize(
    ("version", "header"), [("1.1", "Connection: close\r\n"), ("1.0", "")], ids=["close", "HTTP/1.0"]
)
def test_a_caller_that_wants_no_further_answer_frees_its_connection(
    tmp_path: Path, version: str, header: str
) -> None:
    """`Connection: close` and HTTP/1.0 end the connection with the answer, not at the next timeout."""
    head = f"POST {PATH} HTTP/{version}\r\nHost: x\r\n{header}Content-Length: {len(BODY)}\r\n\r\n"
    with started_receiver(tmp_path) as receiver, dial(receiver, None) as wire:
        wire.sendall(head.encode() + BODY)
        answer = b""
        while received := wire.recv(65536):
            answer += received

    assert answer.startswith(b"HTTP/1.1 200")


def test_idle_connections_do_not_shut_out_alertmanager(tmp_path: Path) -> None:
    """With every connection in use by a silent peer, a notification takes the place of the one idle longest."""
    with started_receiver(tmp_path) as receiver, ExitStack() as peers:
        for _ in range(MAX_CONNECTIONS):
            peers.enter_context(dial(receiver, None))
        answer = requests.post(url(receiver), data=BODY, timeout=5)

    assert 200 == answer.status_code


def test_a_renewed_certificate_is_used_without_a_restart(tmp_path: Path) -> None:
    """The next connection shows the certificate that is in the file now."""
    files = ServerCertificates(*certificate(tmp_path, "bridge"))
    with started_receiver(tmp_path, tls=files) as receiver:

        def shown() -> str:
            return ssl.get_server_certificate(receiver.server_address[:2]).strip()

        before = shown()
        certificate(tmp_path, "bridge")
        after = shown()

    assert before != after
    assert files.own.read_text().strip() == after


def test_a_notification_under_way_is_stored_and_answered_when_the_bridge_stops(tmp_path: Path) -> None:
    """Closing the server waits for the request that is being read, so that Alertmanager gets its 200."""
    head = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(BODY)}\r\n\r\n"
    with started_receiver(tmp_path) as receiver, dial(receiver, None) as wire:
        wire.sendall(head.encode() + BODY[:10])
        while not any(connection.answering for connection in receiver.connections.open()):
            time.sleep(0.01)
        receiver.shutdown()
        closing_thread = threading.Thread(target=receiver.server_close)
        closing_thread.start()
        wire.sendall(BODY[10:])
        answer = wire.recv(4096)
        closing_thread.join(10)

    assert answer.startswith(b"HTTP/1.1 200")

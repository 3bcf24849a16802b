"""Attack the three programs that listen, each in a process with the memory that compose gives it."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import bcrypt
import pytest
import requests

from support.stack.compose_policy import resolved
from support.waiting import eventually
from triton_exporter.http.server import MAX_HEAD_BYTES

pytestmark = pytest.mark.real

RIGHT = ("ops", "correct horse")
PROGRAMS = {
    "exporter": ("--web-config", "web.yml", "--triton", "http://127.0.0.1:1"),
    "web": ("--web-config", "web.yml", "--prometheus", "http://127.0.0.1:1"),
    "bridge": ("--dry-run", "--data", "data"),
}
PATHS = {"exporter": "/metrics", "bridge": "/metrics", "web": "/"}


@dataclass(frozen=True)
class Listener:
    """A program that listens, with a user and a password."""

    process: subprocess.Popen[str]
    port: int
    path: str
    memory_limit: int
    """Bytes that compose gives the program; more would kill it."""

    def ask(self, auth: tuple[str, str] | None = RIGHT) -> int:
        url = f"http://127.0.0.1:{self.port}{self.path}"
        return requests.get(url, auth=auth, timeout=30).status_code

    def counted(self, name: str) -> int:
        """Return a number of /proc/PID/status: VmHWM is the peak of memory in kB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(next(line.split()[1] for line in status.splitlines() if line.startswith(f"{name}:")))


def _listen(program: str, folder: Path) -> tuple[subprocess.Popen[str], int]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = ["--listen", f"127.0.0.1:{port}", *PROGRAMS[program]]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tritonwatch", program, *words],
            cwd=folder,
            stderr=log,
            stdout=log,
            text=True,
        )
    return process, port


@pytest.fixture(
    scope="module", params=["exporter", "bridge", pytest.param("web", marks=pytest.mark.thorough)]
)
def listener(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listener]:
    """Start one program; after all attacks it must still run."""
    folder = tmp_path_factory.mktemp("attacked")
    stored = bcrypt.hashpw(RIGHT[1].encode(), bcrypt.gensalt(10)).decode()
    (folder / "web.yml").write_text(f"basic_auth_users: {{ops: '{stored}'}}\n")
    process, port = _listen(request.param, folder)
    started = Listener(
        process, port, PATHS[request.param], int(resolved()["services"][request.param]["mem_limit"])
    )

    def answers() -> bool:
        with suppress(requests.ConnectionError):
            return started.ask() == 200
        assert process.poll() is None, (folder / "log").read_text()
        return False

    try:
        eventually(answers, "no answer")
        yield started
        assert process.poll() is None, "it ended"
        assert 200 == started.ask()
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("listener", ["exporter"], indirect=True, scope="module")
def test_a_head_of_the_largest_size_is_read(listener: Listener) -> None:
    """The limit is what the text of the refusal says."""
    for size, code in ((MAX_HEAD_BYTES - 400, 401), (MAX_HEAD_BYTES, 431)):
        url = f"http://127.0.0.1:{listener.port}{listener.path}"
        assert code == requests.get(url, headers={"X-Filler": "x" * size}, timeout=30).status_code


@pytest.mark.parametrize(
    "listener",
    ["exporter", *(pytest.param(name, marks=pytest.mark.thorough) for name in ("bridge", "web"))],
    indirect=True,
    scope="module",
)
def test_endless_heads_take_no_memory(listener: Listener) -> None:
    """Together the clients send twice the memory that there is, before any password is asked for."""
    clients_number = 2 * listener.memory_limit // (100 * 60_000)
    line = b"x-filler: " + b"x" * 60_000 + b"\r\n"

    def send(_: int) -> bytes:
        with socket.create_connection(("127.0.0.1", listener.port), timeout=30) as peer, suppress(OSError):
            peer.sendall(b"GET / HTTP/1.1\r\n")
            for _ in range(100):
                peer.sendall(line)
            return peer.recv(100)
        return b""

    with ThreadPoolExecutor(clients_number) as clients:
        answers = list(clients.map(send, range(clients_number)))

    assert listener.counted("VmHWM") * 1024 < listener.memory_limit
    assert any(b" 431 " in answer for answer in answers)


@contextmanager
def _flood(clients: int, send: Callable[[], object]) -> Iterator[None]:
    over = threading.Event()

    def run() -> None:
        while not over.is_set():
            with suppress(requests.RequestException):
                send()

    with ThreadPoolExecutor(clients) as threads:
        for _ in range(clients):
            threads.submit(run)
        try:
            yield
        finally:
            over.set()


@pytest.mark.parametrize(
    "listener", ["exporter", pytest.param("web", marks=pytest.mark.thorough)], indirect=True, scope="module"
)
def test_wrong_passwords_do_not_shut_out_the_right_one(listener: Listener) -> None:
    """Sixty clients guess passwords without a pause; they are told to wait, and each scrape is answered."""
    seen: set[int] = set()
    with _flood(60, lambda: seen.add(listener.ask(("ops", "wrong")))):
        eventually(lambda: {401, 429} <= seen, "no guess had to wait")
        assert [200] * 5 == [listener.ask() for _ in range(5)]
        assert listener.counted("Threads") < 60 + 60

    assert {401, 429} == seen


def test_silent_connections_do_not_shut_out_anybody(listener: Listener) -> None:
    """A client that opens 600 connections and sends nothing loses the oldest of them to each new client."""
    with ExitStack() as open_ones:
        for _ in range(600):
            peer = socket.create_connection(("127.0.0.1", listener.port), timeout=30)
            open_ones.enter_context(peer)

        assert [200] * 5 == [listener.ask() for _ in range(5)]

"""Test that a page is sent in pieces as they are made, and that its resources are always released."""

from __future__ import annotations

import gzip
import socket
import threading
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, closing

import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from support.loopback import served
from triton_exporter.app.exporter import compressed
from triton_exporter.catalogue import state
from triton_exporter.exposition import scrape
from triton_exporter.exposition.scrape import Reading, SharedReader
from triton_exporter.exposition.write import TEXT, CachedSamples, text_pieces
from triton_exporter.family import Family, Sample
from triton_exporter.http.server import Response, Server, routed

_METRICS = (state.UP, state.SERVER_LIVE, state.SERVER_READY)


@given(
    st.lists(
        st.tuples(st.sampled_from(_METRICS), st.sampled_from((0, 9, 90_000, 270_000)), st.booleans()),
        max_size=5,
    )
)
def test_pieces_are_the_whole_page_in_order(lines: list[tuple[str, int, bool]]) -> None:
    """However long the lines, and however they were written, every sample is there once, plain and in gzip."""
    families, expected = [], []
    for number, (metric, size, cached) in enumerate(lines):
        samples = [Sample(f'{metric}{{n="{number}",x="{"x" * size}"}}', float(number))]
        families.append(Family(metric, CachedSamples(samples) if cached else samples))  # type: ignore[arg-type]
        expected.append((str(metric), size, float(number)))

    def page() -> Response:
        return Response((piece for piece in text_pieces(families)), TEXT)

    def read(body: bytes) -> list[tuple[str, int, float]]:
        families = text_string_to_metric_families(body.decode())
        samples = [sample for family in families for sample in family.samples]
        return [(sample.name, len(sample.labels["x"]), sample.value) for sample in samples]

    body = b"".join(page().body)
    zipped = compressed(page(), "gzip")

    assert expected == read(body)
    assert "gzip" == zipped.headers["Content-Encoding"]
    assert body == gzip.decompress(b"".join(zipped.body))


def _serving(pieces: Callable[[], Generator[bytes]]) -> AbstractContextManager[Server]:
    return served(Server("127.0.0.1", 0, routed({"GET /": lambda _: Response(pieces())})))


@pytest.mark.parametrize("request_line", ["GET / HTTP/1.1", "GET / HTTP/1.0"])
def test_the_page_ends_once_when_the_peer_has_it_or_has_gone(request_line: str) -> None:
    """The page's resources are released when it is sent, and when the peer hangs up in the middle of it."""
    over = threading.Semaphore(0)

    def pieces() -> Generator[bytes]:
        with closing(_ReleasesOnClose(over)):
            yield from [b"a" * 5_000_000] * 4

    with _serving(pieces) as server:
        assert 20_000_000 == len(requests.get(server.url, timeout=20).content)
        assert over.acquire(timeout=20)
        with socket.create_connection(server.server_address[:2]) as peer:
            peer.sendall(f"{request_line}\r\nHost: x\r\n\r\n".encode())
            peer.recv(100)

        assert over.acquire(timeout=20)
        assert not over.acquire(timeout=0.1)


class _ReleasesOnClose:
    def __init__(self, over: threading.Semaphore) -> None:
        self._over = over

    def close(self) -> None:
        self._over.release()


def test_head_begins_no_page() -> None:
    """HEAD gets the headers, and the work for the page is not done."""
    begun: list[bool] = []

    def pieces() -> Generator[bytes]:
        begun.append(True)
        yield b"one\n"

    with _serving(pieces) as server, requests.Session() as session:
        head = session.head(server.url, timeout=5)
        assert [] == begun
        # The connection is still of use.
        assert b"one\n" == session.get(server.url, timeout=5).content

    assert (200, b"", "chunked") == (head.status_code, head.content, head.headers["Transfer-Encoding"])


def test_a_peer_of_old_gets_the_same_bytes() -> None:
    """HTTP/1.0 knows no chunks: the end of the connection is the end of the page."""
    with _serving(lambda: (piece for piece in (b"one\n", b"", b"two\n"))) as server:
        chunked = requests.get(server.url, timeout=5)
        with socket.create_connection(server.server_address[:2], 5) as peer:
            peer.sendall(b"GET / HTTP/1.0\r\n\r\n")
            head, _, content = b"".join(iter(lambda: peer.recv(4096), b"")).partition(b"\r\n\r\n")

    assert ("chunked", b"one\ntwo\n") == (chunked.headers["Transfer-Encoding"], chunked.content)
    assert b"Transfer-Encoding" not in head
    assert b"one\ntwo\n" == content


def test_half_a_page_is_seen_to_be_none(caplog: pytest.LogCaptureFixture) -> None:
    """A bug behind the first piece breaks the answer off, so that no reader takes the half for the whole."""

    def broken() -> Generator[bytes]:
        yield b"one\n"
        raise ZeroDivisionError("of all things")

    with _serving(broken) as server, pytest.raises(requests.exceptions.ChunkedEncodingError):
        requests.get(server.url, timeout=5)

    assert "of all things" in caplog.text


def test_a_peer_that_is_slow_to_take_its_page_delays_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """While one scrape is not over, the next one gets a reading of its own."""
    monkeypatch.setattr(scrape, "PATIENCE_SECONDS", 60.0)
    digested: list[Reading] = []
    reader = SharedReader(
        lambda: Reading(b"", "", "", 0.0, 0.0), lambda _: None, digested.append, lambda: 3600.0
    )
    thread = threading.Thread(target=reader.run)
    thread.start()
    try:
        with reader.fresh(10) as slow:
            assert slow() is not None
            with reader.fresh(10) as other:
                assert other() is not None
    finally:
        reader.stop()
        thread.join(10)

    assert digested

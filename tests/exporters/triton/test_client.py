"""Test the client's reader of HTTP/1.1 with answers that proxies give and that break off."""

from __future__ import annotations

from contextlib import closing

import pytest

from exporters.faults import faulty, raw
from support.loopback import Handler, HttpServer, served
from triton_exporter.http.client import Client, FetchError, Limits

_OK = b"HTTP/1.1 200 OK\r\n"
_CHUNKED = _OK + b"Transfer-Encoding: Chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("answer", "status", "content"),
    [
        (_OK + b"Content-Length: 3\r\n\r\nabcdef", 200, b"abc"),
        (_OK + b"\r\nabcdef", 200, b"abcdef"),
        (b"HTTP/1.0 404 Not Found\nContent-Length:2\n\nno", 404, b"no"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + _OK + b"content-length: 1\r\n\r\na", 200, b"a"),
        (b"HTTP/1.1 204\r\n\r\nabc", 204, b""),
        (_CHUNKED + b"3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\nTrailer: 1\r\n\r\n", 200, b"abc0123456789"),
        (_CHUNKED + b"0\r\n\r\n", 200, b""),
    ],
    ids=["length", "until the end", "line feeds", "continue", "no content", "chunks", "no chunk"],
)
def test_an_answer_is_read_as_it_is_framed(answer: bytes, status: int, content: bytes) -> None:
    with faulty({"/metrics": raw(answer)}) as server, closing(Client(server.url)) as client:
        got = client.get("/metrics")

    assert (status, content) == (got.status, got.body)


@pytest.mark.parametrize(
    ("answer", "partial"),
    [
        (b"HTTP/1.1 200 O", b""),
        (_OK + b"Content-Len", b""),
        (_OK + b"Content-Length: 9\r\n\r\nabc", b"abc"),
        (_CHUNKED + b"3\r\nabc\r\n", b"abc"),
        (_CHUNKED + b"3\r\nabc\r\n9\r\nde", b"abcde"),
        (_CHUNKED + b"3\r\nabcdef\r\n0\r\n\r\n", b"abc"),
        (_CHUNKED + b"-3\r\nabc\r\n0\r\n\r\n", b""),
        (_CHUNKED + b"f" * 20 + b"\r\nabc", b""),
        (b"HTTP/2 200\r\n\r\nabc", b""),
    ],
)
def test_an_answer_that_breaks_off_is_a_fault_with_what_arrived(answer: bytes, partial: bytes) -> None:
    with (
        faulty({"/metrics": raw(answer)}) as server,
        closing(Client(server.url)) as client,
        pytest.raises(FetchError) as caught,
    ):
        client.get("/metrics")

    assert ("bad_response", partial) == (caught.value.reason, caught.value.partial)


def test_chunks_are_no_way_round_the_limit() -> None:
    answer = raw(_CHUNKED + b"3\r\nabc\r\n" * 10 + b"0\r\n\r\n")
    with (
        faulty({"/metrics": answer}) as server,
        closing(Client(server.url, Limits(5, 20))) as client,
        pytest.raises(FetchError, match="more than 20 bytes"),
    ):
        client.get("/metrics")


def test_a_connection_is_used_again_and_sends_the_headers_of_the_operator() -> None:
    peers, sent = [], []

    class Answering(Handler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            peers.append(self.client_address)
            sent.append(dict(self.headers.items()))
            self.reply("x", headers={"Connection": "close"} if self.path == "/last" else {})

    headers = {"Host": "triton.example", "X-Key": "secret"}
    with served(HttpServer(Answering)) as server, closing(Client(server.url, headers=headers)) as client:
        for path in ("/a", "/b", "/last", "/c"):
            assert b"x" == client.get(path).body
        with pytest.raises(FetchError, match="no request can have the path"):
            client.get("/a b")
        client.close()

    assert peers[0] == peers[1] == peers[2] != peers[3]
    assert {"host": "triton.example", "x-key": "secret"}.items() <= sent[0].items()
    assert ["accept-encoding", "host", "user-agent", "x-key"] == sorted(sent[0])

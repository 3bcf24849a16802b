"""A page goes out in pieces; whoever waits for its end is told, whatever the peer does."""

from __future__ import annotations

import gzip
import socket
import threading

import pytest
import requests
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from triton_exporter import scrape
from triton_exporter.catalogue import state
from triton_exporter.exposition import TEXT, text_pieces
from triton_exporter.family import Family, Sample
from triton_exporter.kept import Kept
from triton_exporter.pages import packed
from triton_exporter.scrape import Reading, SharedReader
from triton_exporter.serving import Page, Server

_METRICS = (state.UP, state.SERVER_LIVE, state.SERVER_READY)


@settings(max_examples=30)
@given(
    st.lists(
        st.tuples(st.sampled_from(_METRICS), st.sampled_from((0, 9, 90_000, 270_000)), st.booleans()),
        max_size=5,
    )
)
def test_pieces_are_the_whole_page_in_order(lines: list[tuple[str, int, bool]]) -> None:
    """However long the lines, and whoever wrote them, every sample is there once, plain and in gzip."""
    families, expected = [], []
    for number, (metric, size, kept) in enumerate(lines):
        samples = [Sample(f'{metric}{{n="{number}",x="{"x" * size}"}}', float(number))]
        families.append(Family(metric, Kept(samples) if kept else samples))  # type: ignore[arg-type]
        expected.append((str(metric), size, float(number)))
    page = Page(text_pieces(families), TEXT)

    def read(body: bytes) -> list[tuple[str, int, float]]:
        found = text_string_to_metric_families(body.decode())
        samples = [sample for family in found for sample in family.samples]
        return [(one.name, len(one.labels["x"]), one.value) for one in samples]

    body = b"".join(page.pieces)
    assert expected == read(body)
    assert page.size == len(body)
    zipped = packed(page, "gzip")
    assert body == (gzip.decompress(b"".join(zipped.pieces)) if zipped.headers else b"".join(zipped.pieces))


@pytest.mark.parametrize("patient", [True, False])
def test_the_end_of_a_page_is_told_once(patient: bool) -> None:
    """When the page is out, and also when the peer hangs up in the middle of it."""
    told = threading.Semaphore(0)
    page = Page((b"a" * 5_000_000,) * 4, sent=lambda: told.release())
    with Server("127.0.0.1", 0, {"/": lambda _: page}) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        if patient:
            assert 20_000_000 == len(requests.get(server.url, timeout=20).content)
        else:
            with socket.create_connection(server.server_address[:2]) as peer:
                peer.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                peer.recv(100)

        assert told.acquire(timeout=20)
        assert not told.acquire(timeout=0.1)
        server.shutdown()


def test_a_peer_that_is_slow_to_take_its_page_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """While one scrape is not over, the next one gets a reading of its own."""
    monkeypatch.setattr(scrape, "PATIENCE_SECONDS", 60.0)
    digested: list[Reading] = []
    reader = SharedReader(
        lambda: Reading(b"", "", "", 0.0, 0.0), lambda _: None, digested.append, interval_seconds=3600
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

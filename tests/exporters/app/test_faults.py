"""Test the exporter beside servers that misbehave: every scrape is answered in time, with the valid series."""

from __future__ import annotations

import gzip
import itertools
import socket
import threading
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families

from exporters.faults import Answer, FaultyServer, body, drip, faulty, flood, hang, raw, reset
from support.exporter import RunningExporter, ScrapedPage, exporting
from triton_exporter.catalogue import own, state, triton
from triton_exporter.exposition import scrape
from triton_exporter.exposition.parse import Exposition, Parser

_GOOD = (
    b"# HELP nv_inference_count Inferences\n# TYPE nv_inference_count counter\n"
    b'nv_inference_count{model="a",version="1"} 7\n'
)
_OK = b"HTTP/1.1 200 OK\r\n"
_INDEX = '[{"name":"a","version":"1","state":"READY"}]'
_LONG_LINE = b"x" * 100_000


@contextmanager
def watched(
    answers: Mapping[str, Answer], expected: Mapping[str, tuple[str, ...]] | None = None, **settings: object
) -> Iterator[tuple[FaultyServer, RunningExporter]]:
    """Run a server with these answers, and an exporter beside it, until the block ends."""
    with (
        faulty(answers) as target,
        exporting(target.url, f"{target.url}/metrics", expected, **settings) as running,
    ):
        yield target, running


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        pytest.param(hang, "timeout", id="hangs"),
        pytest.param(drip(_OK + b"Content-Length: 9\r\n\r\nabcdefghi", 0.05), "timeout", id="drips headers"),
        pytest.param(body(b"oops", "500 Internal Server Error"), "http_error", id="answers 500"),
        pytest.param(body(b"", "302 Found", Location="/metrics"), "http_error", id="redirects to itself"),
        pytest.param(body(_GOOD, "404 Not Found"), "http_error", id="is not there"),
        pytest.param(raw(b""), "bad_response", id="hangs up"),
        pytest.param(raw(b"SSH-2.0-OpenSSH_9.2\r\n"), "bad_response", id="is not a web server"),
        pytest.param(raw(_OK + b"A: " + _LONG_LINE + b"\r\n\r\n"), "bad_response", id="has a huge header"),
        pytest.param(raw(_OK + b"A: b\r\n" * 200 + b"\r\n"), "bad_response", id="has many headers"),
        pytest.param(
            raw(_OK + b"Content-Length: x\r\n\r\n" + b"\0" * 99), "not_triton", id="has a bad length"
        ),
        pytest.param(flood(b"# " + b"a" * 65534, 64), "too_large", id="floods"),
        pytest.param(body(gzip.compress(bytes(5_000_000)), Content_Encoding="gzip"), "too_large", id="bombs"),
        pytest.param(body(b"no gzip", Content_Encoding="gzip"), "bad_response", id="lies about gzip"),
        pytest.param(body(_GOOD, Content_Encoding="br"), "bad_response", id="answers in brotli"),
    ],
)
def test_a_target_that_gives_no_metrics_is_a_page_with_a_reason(answer: Answer, reason: str) -> None:
    """For any response instead of metrics, the page comes in time, with up 0 and the class of the failure."""
    with watched({"/metrics": answer}, timeout=0.5, max_body_bytes=1_000_000) as (_, running):
        page = running.scrape(timeout_seconds=2)
        if reason:
            running.wait(lambda page: page.value(own.SCRAPE_FAILURES, endpoint="metrics", reason=reason))

    assert (0 if reason else 1) == page.value(state.UP)
    assert page.value(triton.INFERENCE_COUNT, model="a", version="1") is None


def test_a_compressed_body_is_never_inflated_beyond_the_limit() -> None:
    """50 MB of zeros packed into 50 kB cost no more memory than the limit allows."""
    with watched(
        {"/metrics": body(gzip.compress(bytes(50_000_000)), Content_Encoding="gzip")},
        max_body_bytes=1_000_000,
    ) as (_, running):
        tracemalloc.start()
        try:
            for _ in range(3):
                running.scrape()
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak < 10_000_000


@pytest.mark.parametrize(
    ("bad", "kind"),
    [
        pytest.param(b'nv_inference_count{model="b",version="1"} seven\n', "value", id="no number"),
        pytest.param(b"nv_inference_count{model=} 7\n", "syntax", id="no label value"),
        pytest.param(b'nv_inference_count{model="\xff",version="1"} 7\n', "encoding", id="no UTF-8"),
        pytest.param(b'nv_inference_count{model="a",version="1"} 8\n', "duplicate", id="a series twice"),
        pytest.param(b'nv_inference_count{model="c",version="1"} 1', "truncated", id="a cut line"),
        pytest.param(b"<html>not metrics</html>\n", "syntax", id="another language"),
        pytest.param(b"# TYPE nv_inference_count gauge\n", "type", id="a second type"),
        pytest.param(b'odd{path="C:\\models"} 1\n', "corrected", id="an unknown escape"),
        pytest.param(b"triton_up 17\n", "collision", id="a series of the exporter's"),
    ],
)
def test_good_lines_are_read_and_bad_ones_counted(bad: bytes, kind: str) -> None:
    """A bad line costs itself only, and is counted by kind."""
    with watched({"/metrics": body(_GOOD + bad)}) as (_, running):
        page = running.scrape()

    assert 1 == page.value(state.UP)
    assert 7 == page.value(triton.INFERENCE_COUNT, model="a", version="1")
    assert (page.value(own.BAD_LINES, kind=kind) or 0) >= 1


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(
            raw(_OK + b"Content-Length: 5000\r\n\r\n" + _GOOD + b'nv_inference_count{model="b",ver'),
            id="cut short",
        ),
        pytest.param(
            reset(_OK + b"Content-Length: 5000\r\n\r\n" + _GOOD + b'nv_inference_count{model="b",ver', 0.1),
            id="reset",
        ),
        # The check sum at the end of gzip is how a client knows that it has all.
        pytest.param(body(gzip.compress(_GOOD)[:-8], Content_Encoding="gzip"), id="gzip without its end"),
    ],
)
def test_the_whole_lines_of_a_truncated_body_are_read(answer: Answer) -> None:
    """Half an answer is not an answer (up 0), but what came of it is true."""
    with watched({"/metrics": answer}) as (_, running):
        page = running.scrape()
        running.wait(lambda page: page.value(own.SCRAPE_FAILURES, endpoint="metrics", reason="bad_response"))

    assert 0 == page.value(state.UP)
    assert 7 == page.value(triton.INFERENCE_COUNT, model="a", version="1")


@pytest.mark.parametrize(
    ("answer", "timeout"),
    [
        # A byte every 20 ms, for ten minutes.
        (drip(_OK + b"Content-Length: 99999\r\n\r\n" + b"# \n" * 9999, 0.02), 0.4),
        (hang, 60.0),
    ],
    ids=["never ends", "hangs beyond the limit of Prometheus"],
)
def test_no_answer_keeps_a_scrape_waiting(answer: Answer, timeout: float) -> None:
    """The deadline is total, and no later than that of Prometheus."""
    with watched({"/metrics": answer}, timeout=timeout) as (_, running):
        assert 0 == running.scrape(timeout_seconds=1).value(state.UP)


def test_hostile_label_values_come_through_unchanged() -> None:
    """Quotes, line ends, braces and NaN of a custom metric reach Prometheus as Triton wrote them."""
    hostile = b'my_metric{text="quote \\" brace } newline \\n back \\\\ hash # ",version="1"} NaN\n'
    content = b"# TYPE my_metric gauge\n" + hostile
    with watched({"/metrics": body(b"nv_energy_consumption 1\n" + content)}) as (_, running):
        text = running.get().content

    assert b"\n" + content in text
    family = next(
        family for family in text_string_to_metric_families(text.decode()) if family.name == "my_metric"
    )
    assert 'quote " brace } newline \n back \\ hash # ' == family.samples[0].labels["text"]


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(body(b"[[[[" * 100_000), id="deep nesting"),
        pytest.param(body(b'{"an":"object"}'), id="an object"),
        pytest.param(
            body(b'[null,1,"x",{},{"name":3},{"name":"a","state":[],"version":{}}]'), id="wrong types"
        ),
        pytest.param(body(b"\xff\xfe"), id="no UTF-8"),
        pytest.param(body(b""), id="nothing"),
        pytest.param(body(b"", "403 Forbidden"), id="restricted"),
    ],
)
def test_a_hostile_index_is_counted_and_changes_nothing_else(answer: Answer) -> None:
    """An answer that is not an index leaves the page whole."""
    answers = {"/metrics": body(_GOOD), "/v2/repository/index": answer, "/v2/models/stats": body(b"[]")}
    with watched(answers, {"a": ()}) as (_, running):
        page = running.wait(lambda page: page.value(state.SERVER_LIVE))

    assert 1 == page.value(state.UP)
    assert 0 == page.value(state.MODEL_READY, model="a", version="")


def test_a_hostile_model_name_is_escaped_everywhere() -> None:
    """A name with quotes and line ends stays one label value, and is in no path."""
    index = b'[{"name":"a\\"b\\n../x?y#z","version":"1","state":"READY"}]'
    answers = {"/v2/repository/index": body(index), "/metrics": body(b"")}
    with watched(answers) as (target, running):
        name = 'a"b\n../x?y#z'
        page = running.wait(lambda page: page.value(state.MODEL_READY, model=name, version="1"))
        paths = {path for _, path, _ in target.requests}

    assert 1 == page.value(state.MODEL_STATE, model=name, version="1", state="ready")
    assert [] == [path for path in paths if path.startswith("/v2/models/a")]


def test_an_unexpected_error_makes_one_poll_unknown_and_the_next_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An unexpected exception costs one poll: its states are unknown, and the next poll brings them back."""
    broken = threading.Event()

    def path(model: str, version: str) -> str:
        if broken.is_set():
            raise ZeroDivisionError
        return f"/v2/models/{model}"

    monkeypatch.setattr("triton_exporter.triton.poll.model_path", path)
    answers = {"/v2/repository/index": body(_INDEX.encode()), "/metrics": body(b"")}
    with watched(answers) as (_, running):

        def shown(name: str) -> Callable[[ScrapedPage], object]:
            return lambda page: page.value(state.MODEL_STATE, model="a", version="1", state=name)

        running.wait(shown("ready"))
        broken.set()
        page = running.wait(shown("unknown"))
        broken.clear()
        running.wait(shown("ready"))

    assert page.value(own.SCRAPE_FAILURES, endpoint="index", reason="bad_response")


def test_a_reading_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Relay, histograms, failures and GPUs share the families of one parse, scraped or not."""
    parsed: list[bytes] = []
    parse = Parser.parse

    def counted(parser: Parser, body: bytes, only: Collection[str] | None = None) -> Exposition:
        parsed.append(body)
        return parse(parser, body, only)

    monkeypatch.setattr(Parser, "parse", counted)
    monkeypatch.setattr(scrape, "PATIENCE_SECONDS", 60.0)
    bodies = (b"%s# TYPE nv_n gauge\nnv_n %d\n" % (_GOOD, number) for number in itertools.count())
    with watched(
        {"/metrics": lambda connection, stop: body(next(bodies))(connection, stop)},
        gpu="triton",
        sampling_interval=0.05,
    ) as (_, running):
        for _ in range(5):
            assert (running.scrape().value("nv_n") or 0) >= 0
            time.sleep(0.1)

    assert len(parsed) > 5
    assert set() == {body for body, count in Counter(parsed).items() if count > 1}


def test_concurrent_scrapes_share_one_fetch() -> None:
    """Twenty scrapes at once ask Triton about once, and each gets the page."""
    slow = drip(_OK + b"Connection: close\r\n\r\n" + _GOOD[:1], 0.005)
    with watched({"/metrics": slow}, sampling_interval=60.0) as (target, running):
        running.scrape()
        before = len([path for _, path, _ in target.requests if path == "/metrics"])
        statuses: list[int] = []
        scrapes = [
            threading.Thread(target=lambda: statuses.append(running.get().status_code)) for _ in range(20)
        ]
        for scrape in scrapes:
            scrape.start()
        for scrape in scrapes:
            scrape.join()
        fetches = len([path for _, path, _ in target.requests if path == "/metrics"]) - before

    assert [200] * 20 == statuses
    assert 1 <= fetches <= 4


def test_no_request_of_the_exporter_can_change_triton() -> None:
    """For any answers of Triton, the exporter only sends GET, and POST for the index."""
    stats = b'{"model_stats":[{"name":"a","version":"1"}]}'
    answers = {
        "/metrics": body(_GOOD),
        "/v2/repository/index": body(_INDEX.encode()),
        "/v2/models/stats": body(stats),
    }
    with watched(answers) as (target, running):
        running.wait(lambda page: page.value(state.MODEL_READY, model="a", version="1"))
        time.sleep(0.3)
        asked = {(method, path) for method, path, _ in target.requests}

    assert {("POST", "/v2/repository/index")} == {request for request in asked if request[0] != "GET"}
    assert not any(word in path for _, path in asked for word in ("load", "trace", "logging", "shared"))
    assert len(asked) >= 7


def test_headers_for_restricted_endpoints_are_sent_and_never_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Every request carries them; no page and no log line does."""
    with watched({"/metrics": body(_GOOD, "500 No")}, triton_headers_file={"admin-key": "s3cret"}) as (
        target,
        running,
    ):
        running.wait(lambda page: page.value(state.SERVER_LIVE))
        pages = [running.get(path).text for path in ("/", "/metrics", "/state")]
        sent = {headers.get("admin-key") for _, _, headers in target.requests}
        shown = repr(running.exporter.settings)

    assert {"s3cret"} == sent
    assert not any("s3cret" in text for text in (*pages, caplog.text, shown))


def test_pages_are_served_while_peers_leave_connections_open() -> None:
    """Forty clients that connect and send nothing do not block a scrape."""
    with watched({"/metrics": body(_GOOD)}) as (_, running):
        host, port = running.url.removeprefix("http://").split(":")
        idle = [socket.create_connection((host, int(port))) for _ in range(40)]
        try:
            healthy = requests.get(f"{running.url}/-/healthy", timeout=20)
            assert 200 == healthy.status_code
        finally:
            for connection in idle:
                connection.close()

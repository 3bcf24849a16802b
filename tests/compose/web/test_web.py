"""Test `tritonwatch web` on a real Prometheus: the state of `status`, its cost and its age."""

from __future__ import annotations

import json
import re
import ssl
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import bcrypt
import pytest
import requests
from starlette.requests import Request
from starlette.responses import Response

from support import history, loopback, web_fleet
from support.tls import authority, certificate
from support.tools import ROOT
from support.web_fleet import states
from triton_exporter.http.web_config import load_web_config
from triton_slo.prometheus import Prometheus, PrometheusError
from triton_slo.server_access import Access
from tritonwatch.cli import main
from tritonwatch.web.site import Site
from tritonwatch.web.sources import PrometheusReader, Sources

MODELS = 120


@pytest.fixture(scope="module")
def end() -> float:
    """Return the newest moment of the history: now, on a whole minute."""
    return time.time() // 60 * 60


@pytest.fixture(scope="module")
def prometheus(end: float, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield a real Prometheus with a month of a fleet."""
    series = [
        *web_fleet.fleet(MODELS, end),
        *web_fleet.broken(end),
        *web_fleet.missed(end),
    ]
    with history.serve(
        history.openmetrics(series), tmp_path_factory.mktemp("prometheus"), flags=web_fleet.LOOKBACK
    ) as url:
        yield url


@pytest.fixture(scope="module")
def site(prometheus: str) -> Iterator[str]:
    """Yield the address of the pages."""
    with web_fleet.pages(prometheus, objectives=ROOT / "slo" / "objectives") as (url, _):
        yield url


def test_a_page_is_made_once_for_all_viewers(prometheus: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its whole address; what failed is made again, and HEAD keeps no page without a body."""
    made: list[str] = []
    page = Site.page

    def counting(site: Site, request: Request, *more: Any, **named: Any) -> Response:
        made.append(str(request.url.query))
        return page(site, request, *more, **named)

    monkeypatch.setattr(Site, "page", counting)
    with Prometheus(Access(prometheus, timeout_seconds=60)) as client:
        sources = Sources(PrometheusReader(client, 15.0))
        with web_fleet.served(sources, keep_seconds=60.0) as url:
            assert 200 == requests.head(f"{url}/", timeout=60).status_code
            first, second = (requests.get(f"{url}/", timeout=60).text for _ in range(2))
            other = requests.get(f"{url}/?slo=latency", timeout=60).text
            for _ in range(2):
                assert 404 == requests.get(f"{url}/objective?slo=none", timeout=60).status_code

    assert "</html>" in first
    assert first == second != other
    assert ["", "slo=latency"] == [query for query in made if query != "slo=none"]
    assert 2 == made.count("slo=none")


def _shown(site: str, path: str) -> str:
    response = requests.get(site + path, timeout=60)
    assert 200 == response.status_code, response.text
    return response.text


@pytest.mark.real
def test_the_overview_and_status_agree(
    site: str, prometheus: str, end: float, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every row of every page has the state of `status --json`, in its order; the API returns the same JSON."""
    assert 0 == main(["status", "--prometheus", prometheus, "--at", str(end), "--json"])
    expected = json.loads(capsys.readouterr().out)

    shown: list[str] = []
    for number in range(1, 2 + 2 * MODELS // 50):
        shown += states(_shown(site, f"/?page={number}&at={end}"))

    assert [row["state"] for row in expected["group_statuses"]] == shown
    unloaded = {row["state"] for row in expected["group_statuses"] if row["group"]["model"] == "model-0005"}
    assert {"ok (estimated), not served", "ok, not served"} == unloaded
    assert expected == requests.get(f"{site}/api/status?at={end}", timeout=60).json()
    assert [
        "triton-1:8000 does not answer since HH:MM UTC: nothing serves embedder now; ranker: still served by 1 of 2 servers",
        "Nothing is known about triton-2:8000 since HH:MM UTC: its exporter does not answer",
        "broken failed to load on triton-0:8000 since DAY HH:MM UTC: nothing serves it now; reason: missing file",
    ] == list(map(web_fleet.without_times, expected["broken"]))
    assert 0 == main(["status", "--prometheus", prometheus, "--at", str(end)])
    text = capsys.readouterr().out
    assert all(f"\nbroken now: {line}\n" in text for line in expected["broken"])
    assert 0 == main(["status", "--prometheus", prometheus, "--at", str(end), "--model", "model-0001"])
    assert "triton-1" not in capsys.readouterr().out


@pytest.mark.real
@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("q=model-0001", 2),
        ("q=MODEL-0001+queue", 1),
        ("q=nothing", 0),
        ("slo=queue&state=exhausted", 3),
        ("owner=search&q=model-0007", 1),
        ("state=estimated&q=model-0007", 1),
        ("page=99", 42),
    ],
)
def test_the_address_chooses_the_rows(site: str, query: str, rows: int) -> None:
    """Search, filters and page; after the last page there is the last."""
    assert rows == len(states(_shown(site, f"/?{query}")))


@pytest.mark.real
def test_columns_sort_both_ways_and_unknown_values_come_last(site: str) -> None:
    """Sorting by burn rate puts the fastest at an end; groups without data are after them in both orders."""
    for order in ("up", "down"):
        matches = [
            rate
            for page in range(1, 4)
            for rate in re.findall(
                r'data-label="Burn 5m"[^>]*>([^<]*)',
                _shown(site, f"/?slo=latency&sort=burn&order={order}&page={page}"),
            )
        ]
        known = [float(rate.rstrip("x")) for rate in matches if rate != "-"]

        assert sorted(known, reverse=order == "down") == known
        assert ["-"] * 3 == matches[-3:]


@pytest.mark.real
def test_the_last_point_of_a_sparkline_is_the_budget_beside_it(site: str) -> None:
    """Number and picture cannot disagree: 24 high with a margin of 2, so 90.0 % is drawn at 4.0."""
    page = _shown(site, "/?q=model-0000&slo=latency")

    assert "90.0%" in page
    assert re.search(r'<path d="M[^"]*L90\.0 4\.0"/>', page)


@pytest.mark.real
def test_a_group_without_data_is_unknown_and_never_full(site: str) -> None:
    """On both pages: no number, no sparkline, and no share of 100 %."""
    rows = _shown(site, "/?state=unknown")
    detail = _shown(site, "/objective?slo=latency&model=model-0003&version=1")

    assert 6 == rows.count('class="number">unknown<')
    assert "sparkline" not in rows
    assert "<dt>Budget left</dt><dd>unknown</dd>" in detail
    assert 6 == len(re.findall(r"\? unknown no data since \d\d:\d\d UTC", web_fleet.text_of(rows)))
    assert "100.0%" not in rows + detail.partition("<figure")[0]


@pytest.mark.real
def test_what_is_over_is_not_broken_now(site: str, end: float) -> None:
    """Its page fires on for minutes; a budget that is spent is so still. The page of a model begins with a fault of
    its requests, too."""
    home, row, over, still = (
        _shown(site, f"{path}at={end}")
        for path in ("/?", "/?q=over&", "/model?model=over&", "/model?model=still&")
    )
    line = "still version 1: 20 % of requests took over 500ms in the last 5 min, at most 1 % may"

    assert "over version 1:" not in home
    assert [True, True] == [line in page for page in (home, still)]
    assert [False, True] == ["Broken now" in page for page in (over, still)]
    assert ["idle over", "warning firing"] == re.findall(
        r'<span class="alert ([^"]*)">(?:page, over|ticket)<', row
    )


@pytest.mark.real
def test_fifty_viewers_cost_prometheus_what_one_costs(prometheus: str) -> None:
    """Prometheus itself counts the queries: a dozen at most for a page, and none more for 49 further viewers."""
    for path in ("/", "/objective?slo=latency&model=model-0001&version=1"):
        with web_fleet.pages(prometheus, every=60.0) as (url, _):
            before = web_fleet.queries(prometheus)
            _shown(url, path)
            cost = web_fleet.queries(prometheus) - before
            with ThreadPoolExecutor(50) as viewers:
                list(viewers.map(lambda _: _shown(url, path), range(49)))  # noqa: B023 # used in this round

            assert cost <= 12
            assert cost == web_fleet.queries(prometheus) - before


@pytest.mark.real
def test_without_prometheus_the_last_state_stays_under_a_banner(end: float, tmp_path: Path) -> None:
    """An unreachable Prometheus is named with the age of what is shown; the rows stay."""
    series = history.openmetrics(web_fleet.fleet(2, end))
    server = ExitStack()
    prometheus = server.enter_context(history.serve(series, tmp_path, flags=web_fleet.LOOKBACK))
    with server, web_fleet.pages(prometheus, every=0.01) as (url, _):
        path = "/objective?slo=latency&model=model-0000&version=1"
        before, detail = states(_shown(url, "/")), _shown(url, path)
        server.close()
        page = _shown(url, "/")

        assert 4 == len(before)
        assert before == states(page)
        assert "is not reachable" in page
        assert "last known state" in page
        assert 503 == requests.get(f"{url}/api/status", timeout=60).status_code
        assert "90.0%" in detail
        assert "90.0%" in _shown(url, path)


@pytest.mark.real
def test_no_page_allows_a_script_or_a_style_of_its_own(site: str) -> None:
    """The policy is on every response, errors and files among them, and no page needs more than it allows."""
    paths = [
        "/",
        "/objective?slo=latency&model=model-0001&version=1",
        "/nowhere",
        "/?at=x",
        "/static/site.css",
    ]
    for path in paths:
        response = requests.get(site + path, timeout=60)

        assert "default-src 'none'" in response.headers["Content-Security-Policy"]
        assert "unsafe" not in response.headers["Content-Security-Policy"]
        assert [] == re.findall(
            r"<script(?! src=\"/)|<link[^>]* href=\"(?!/)|\sstyle=|<style|\son\w+=", response.text
        )


def test_the_pages_have_the_tls_and_the_users_of_the_web_configuration(tmp_path: Path) -> None:
    """The file is that of the exporter: a renewed certificate is served, and only the right password admitted."""
    authority(tmp_path)
    stored = bcrypt.hashpw(b"correct horse", bcrypt.gensalt(4)).decode()
    files = "tls_server_config: {cert_file: server.pem, key_file: server.key}"
    (tmp_path / "web.yml").write_text(f"{files}\nbasic_auth_users: {{ops: '{stored}'}}\n")
    ca = str(tmp_path / "ca.pem")
    with (
        Prometheus(Access("http://127.0.0.1:1")) as client,
        web_fleet.served(
            Sources(PrometheusReader(client, 60.0)), load_web_config(tmp_path / "web.yml")
        ) as url,
    ):
        codes = [
            requests.get(url + path, auth=auth, verify=ca, timeout=60).status_code
            for path in ("/", "/static/site.css", "/api/status")
            for auth in (None, ("ops", "wrong"), ("ops", "correct horse"))
        ]
        asked = requests.get(f"{url}/api/status", verify=ca, timeout=60).headers["WWW-Authenticate"]
        address = ("localhost", int(url.rpartition(":")[2]))
        before = ssl.get_server_certificate(address, ca_certs=ca)
        certificate(tmp_path, "server", "ca")
        after = ssl.get_server_certificate(address, ca_certs=ca)

    assert [*[401, 401, 200] * 2, 401, 401, 503] == codes
    assert 'Basic realm="tritonwatch"' == asked
    assert before != after == (tmp_path / "server.pem").read_text()


def test_a_query_that_fails_keeps_the_last_answer_and_its_age() -> None:
    """The reason is beside the value; the next interval queries again."""
    clock = [0.0]
    with Prometheus(Access("http://127.0.0.1:1")) as client:
        reader = PrometheusReader(client, 10.0, now=lambda: clock[0])
        good = reader.ask("a", lambda _: 1, 0)
        clock[0] = 11.0
        stale = reader.ask("a", _failing, 0)
        clock[0] = 22.0
        again = reader.ask("a", lambda _: 2, 0)

    assert (1, 0.0, "") == (good.value, good.read_at, good.problem)
    assert (1, 0.0, "too slow") == (stale.value, stale.read_at, stale.problem)
    assert (2, 22.0, "") == (again.value, again.read_at, again.problem)


def _partial(request: loopback.Handler) -> None:
    """Answer as a Thanos that lacks a store: the oldest Prometheus that is tested has no warnings."""
    answer = {"status": "success", "data": {"resultType": "vector", "result": []}}
    request.reply(answer | ({"warnings": ["no store"]} if "partial" in request.path else {}))


def test_a_warning_is_on_the_answer_that_it_came_with() -> None:
    """Neither an answer of another thread has it, nor the one after a question that failed."""
    asked, others_done = threading.Event(), threading.Event()

    def warned(client: Prometheus) -> int:
        return len(client.instant("partial"))

    def slow(client: Prometheus) -> int:
        warnings = warned(client)
        asked.set()
        assert others_done.wait(20)
        return warnings

    def failing(client: Prometheus) -> int:
        return warned(client) + _failing(client)

    with (
        loopback.answering(_partial) as url,
        Prometheus(Access(url)) as client,
        ThreadPoolExecutor(1) as other,
    ):
        reader = PrometheusReader(client, 60.0)
        waiting = other.submit(reader.ask, "slow", slow, 0)
        try:
            assert asked.wait(20)
            reader.ask("failing", failing, 0)
            plain = reader.ask("plain", lambda client: len(client.instant("whole")), 0)
        finally:
            others_done.set()
        doubtful = waiting.result(20)

    assert plain.read_at is not None
    assert () == plain.warnings
    assert ("no store",) == doubtful.warnings


def _failing(*_: object) -> int:
    raise PrometheusError("too slow")


@pytest.mark.parametrize("text", ["https://wiki.example.org/{name}", "{alert}", "https://wiki/{"])
def test_a_runbook_address_that_no_page_could_use_is_refused(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command refuses it at the start, as `generate` does, instead of failing on every page of an objective."""
    words = ["web", "--prometheus", "http://127.0.0.1:9", "--listen", "192.0.2.1:9"]

    assert 2 == main([*words, "--runbook-url", text])
    printed = capsys.readouterr().err
    assert f"--runbook-url: {text!r} is not a URL" in printed


def test_answers_that_were_used_longest_ago_are_dropped() -> None:
    """Memory is bounded, for any times and names in the requests."""
    with Prometheus(Access("http://127.0.0.1:1")) as client:
        reader = PrometheusReader(client, 10.0, max_answers=2)
        for key in "abac":
            reader.ask(key, lambda _: 1, 0)

        assert [1, 2] == [reader.ask(key, lambda _: 2, 0).value for key in "ab"]

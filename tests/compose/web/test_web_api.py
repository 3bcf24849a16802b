"""Test errors of the web server: JSON for scripts at /api/, pages for people, both in the same words."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator

import pytest
import requests

from support import history, loopback, web_fleet
from support.web_fleet import text_of
from tritonwatch.assistant_tool import ask
from tritonwatch.cli import main
from tritonwatch.commands import mcp
from tritonwatch.usage import VERBS
from tritonwatch.web.site import Site

NOWHERE = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    """Pages over a Prometheus that does not answer: what an address asks for is judged before it is read."""
    with web_fleet.pages(NOWHERE) as (url, _):
        yield url


def answered(site: str, path: str) -> requests.Response:
    return requests.get(site + path, timeout=60)


TIME = "is not a time; write 2026-05-01T09:30Z or Unix seconds"
MISREAD = [
    ("/api/status?at=x", "at", f"at: 'x' {TIME}"),
    ("/api/incidents?at=x", "at", f"at: 'x' {TIME}"),
    ("/api/incidents?last=x", "last", "last: 'x' is not one of 1d, 7d, 30d; write for example last=1d"),
    (
        "/api/incidents?kind=x",
        "kind",
        "kind: 'x' is not one of all, page, ticket; write for example kind=all",
    ),
    ("/api/incidents?state=x", "state", "state: 'x' is not one of all, firing, resolved"),
    ("/api/objective?slo=a&at=x", "at", f"at: 'x' {TIME}"),
    ("/api/objective?slo=a&last=x", "last", "last: 'x' is not one of 1h, 6h, 1d, 7d, 30d, period"),
    ("/api/report?at=x", "at", f"at: 'x' {TIME}"),
    ("/api/report?period=x", "period", "period: 'x' is not a period; write 2026-10, 2026-Q3"),
    ("/api/report?period=2999-01", "period", "period: 2999-01 has not begun; write for example last-month"),
    (
        "/api/report?timezone=Mars",
        "timezone",
        "timezone: 'Mars' is not a time zone; write one such as Europe/Berlin",
    ),
]


@pytest.mark.parametrize(("path", "parameter", "words"), MISREAD)
def test_a_parameter_that_cannot_be_read_is_named(site: str, path: str, parameter: str, words: str) -> None:
    """In JSON, with the valid values and an example; the page of the same parameters has the same words."""
    answer = answered(site, path)
    page = answered(site, path.replace("/api/status", "/").replace("/api", ""))

    assert (400, 400) == (answer.status_code, page.status_code)
    assert parameter == answer.json()["parameter"]
    assert words in answer.json()["error"]
    assert words in text_of(page.text)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/?sort=x", "sort: 'x' is not one of urgency, objective, model"),
        ("/?order=x", "order: 'x' is not one of up, down"),
        ("/?state=x", "state: 'x' is not one of exhausted, burning"),
        ("/?page=-1", "page: '-1' is not a number of a page; write for example page=2"),
        ("/?page=1e9", "page: '1e9' is not a number"),
        ("/what-if?history=9999d", "history: '9999d' is not one of 1d, 7d, 30d, 90d"),
        ("/api/status?slo=latency", "slo: /api/status has no such parameter; it takes at"),
        (
            "/api/incidents?lsat=1d",
            "lsat: /api/incidents has no such parameter; it takes at, kind, last, q, state",
        ),
        ("/api/report?month=2026-10", "it takes at, owner, period, timezone"),
    ],
)
def test_no_parameter_is_ignored(site: str, path: str, words: str) -> None:
    """What cannot be read, or is not known, is named: no other rows, and no answer to a wider question."""
    answer = answered(site, path)

    assert 400 == answer.status_code
    assert words in (answer.json()["error"] if path.startswith("/api") else text_of(answer.text))


@pytest.mark.parametrize(
    ("method", "path", "code", "words"),
    [
        ("GET", "/api/status", 503, "is not reachable"),
        ("GET", "/api/objective?slo=latency", 503, "is not reachable"),
        ("GET", "/api/report?period=2025-09", 503, "is not reachable"),
        ("GET", "/api/nothing", 404, "Not Found"),
        ("POST", "/api/status", 405, "Method Not Allowed"),
    ],
)
def test_every_error_of_the_api_is_json(site: str, method: str, path: str, code: int, words: str) -> None:
    """Unknown addresses and methods are included."""
    answer = requests.request(method, site + path, timeout=60)

    assert code == answer.status_code
    assert "application/json" == answer.headers["Content-Type"]
    assert words in answer.json()["error"]
    assert ("Allow" in answer.headers) is (code == 405)


def test_an_error_of_the_server_is_json_for_scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason is in the log, to which the page refers, with the menu as the way back."""

    def failing(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Site, "status", failing)
    with web_fleet.pages(NOWHERE) as (url, _):
        answer, page = answered(url, "/api/status"), answered(url, "/")

    assert (500, 500) == (answer.status_code, page.status_code)
    assert answer.json()["error"] in text_of(page.text)
    assert "The log of tritonwatch web has the reason" in text_of(page.text).replace("`", "")
    assert 'href="/incidents"' in page.text


@pytest.fixture(scope="module")
def end() -> float:
    """Return the newest moment of the history: now, on a whole minute."""
    return time.time() // 60 * 60


@pytest.fixture(scope="module")
def partial(end: float, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield a Prometheus with two objectives of two models, behind a vmselect of which a storage node is away."""
    text = history.openmetrics(web_fleet.fleet(2, end))
    folder = tmp_path_factory.mktemp("prometheus")
    with history.serve(text, folder, flags=web_fleet.LOOKBACK) as url:

        def marked(request: loopback.Handler) -> None:
            answer = requests.get(url + request.path, timeout=60)
            request.reply(answer.content.replace(b"{", b'{"isPartial":true,', 1), answer.status_code)

        with loopback.answering(marked) as proxy:
            yield proxy


PARTIAL = "the answer is partial (isPartial)"


@pytest.mark.real
@pytest.mark.parametrize(
    ("path", "claim"),
    [
        ("/", ""),
        ("/objective?slo=latency&model=model-0000&version=1", ""),
        ("/model?model=model-0000", ""),
        ("/report?period=this-month", ""),
        ("/?at=2020-01-01", "has recorded no objective"),
        ("/model?model=nobody", "has no series of a model"),
        ("/objective?slo=none", "records no such objective"),
        ("/report?period=2020-01", ""),
        ("/what-if?history=1d", ""),
    ],
)
def test_a_partial_answer_is_a_banner_and_an_empty_part_shows_nothing(
    partial: str, path: str, claim: str
) -> None:
    """On every page that has something of it; what is missing may be in the part that did not answer."""
    with web_fleet.pages(partial) as (url, _):
        text = text_of(answered(url, path).text)

    assert f"Prometheus warns: {PARTIAL}" in text
    assert not claim or claim not in text


@pytest.mark.real
def test_a_script_sees_that_an_answer_is_partial(
    partial: str, end: float, capsys: pytest.CaptureFixture[str]
) -> None:
    """`/api/status` and `status --json` have it as a field; `--fail-on` does not take it for fine."""
    words = ["status", "--prometheus", partial, "--at", str(end), "--json"]
    assert 0 == main(words)
    printed = capsys.readouterr()
    assert 1 == main([*words, "--fail-on", "exhausted"])
    with web_fleet.pages(partial) as (url, _):
        answer = answered(url, f"/api/status?at={end}").json()
        charts = answered(url, "/api/objective?slo=latency&model=model-0000&version=1").json()

    assert 4 == len(answer["group_statuses"])
    assert answer == json.loads(printed.out)
    assert [] == answer["infos"]
    for document in (answer, charts):
        [warning] = document["warnings"]
        assert PARTIAL in warning
    assert f"tritonwatch status: Prometheus warns: {PARTIAL}" in printed.err


NOT_FINITE = ("inf", "-inf", "nan")


@pytest.fixture(scope="module")
def infinite(end: float, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield a Prometheus with a healthy model, and one for each value that is not finite, which it has for two days."""
    wrong = [
        (
            name,
            labels,
            [
                (at, float(value) if at > end - 2 * 86_400 else usual)
                for at, usual in points
                if at > end - 3 * 86_400
            ],
        )
        for value in NOT_FINITE
        for name, labels, points in web_fleet.incident(end, model=value)
    ]
    text = history.openmetrics([*web_fleet.fleet(1, end), *wrong])
    folder = tmp_path_factory.mktemp("prometheus")
    with history.serve(text, folder, flags=web_fleet.LOOKBACK) as url:
        yield url


def refused(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


@pytest.mark.real
def test_values_that_are_not_finite_are_unknown_on_every_page_and_in_json(
    infinite: str, end: float, capsys: pytest.CaptureFixture[str]
) -> None:
    """No page fails, all JSON is valid, and the gate does not promote these groups."""
    words = ["--prometheus", infinite, "--at", str(end), "--json"]
    objectives = [f"slo=latency&model={value}&version=2" for value in NOT_FINITE]
    with web_fleet.pages(infinite) as (url, _):
        for path in (
            "/",
            *(f"/objective?{objective}" for objective in objectives),
            *(f"/model?model={value}" for value in NOT_FINITE),
            "/report?period=this-month",
        ):
            page = answered(url, path)
            assert 200 == page.status_code, path
            assert "is not a finite number" in page.text or path.startswith("/report"), path
        status, report, *charts = (
            json.loads(answered(url, path).text, parse_constant=refused)
            for path in (
                "/api/status",
                "/api/report?period=this-month",
                *(f"/api/objective?{objective}" for objective in objectives),
            )
        )

    states = {row["group"]["model"]: row["state"] for row in status["group_statuses"]}
    assert "ok" == states["model-0000"].partition(" ")[0]
    assert {"unknown"} == {states[value] for value in NOT_FINITE}
    assert all(chart["warnings"] for chart in charts)
    assert report["warnings"]
    for value in NOT_FINITE:
        assert main(["gate", *words, f"--model={value}"]) in (3, 4)
        judged = json.loads(capsys.readouterr().out, parse_constant=refused)
        assert "promote" not in {judgement["verdict"] for judgement in judged["judgements"]}
    assert 0 == main(["status", *words])
    json.loads(capsys.readouterr().out, parse_constant=refused)


@pytest.mark.real
def test_a_gate_names_the_warning_for_assistants_and_people(
    partial: str, end: float, capsys: pytest.CaptureFixture[str]
) -> None:
    """The verdict does not change; its `doubts` contain the same warning as those of `status`."""
    parser = argparse.ArgumentParser()
    VERBS["mcp"].configure(parser)
    [gate] = [tool for tool in mcp.TOOLS if tool.name == "gate"]

    answer = ask(gate, parser.parse_args(["--prometheus", partial]), {"at": end})
    assert 3 == main(["gate", "--prometheus", partial, "--at", str(end)])

    assert not answer["sure"]
    assert 1 == sum(f"Prometheus warns: {PARTIAL}" in doubt for doubt in answer["doubts"])
    assert 1 == capsys.readouterr().err.count(f"tritonwatch gate: Prometheus warns: {PARTIAL}")

"""Test that responses of another server at Triton's address are ignored, with one line in the log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from exporters.faults import body, faulty
from support import history
from support.exporter import RunningExporter, exporting
from support.loopback import Handler, answering
from support.repository import Repository
from support.triton import live_triton
from triton_exporter.catalogue import own, state
from tritonwatch.cli import main


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield a real Prometheus."""
    with history.serve("", tmp_path_factory.mktemp("prometheus")) as url:
        yield url


def phase(exporter: RunningExporter) -> dict[str, object]:
    """Return the state of the server as a whole from /state."""
    answer: dict[str, object] = exporter.get("/state").json()["triton"]
    return answer


@pytest.mark.real
def test_a_prometheus_at_the_address_of_triton_is_refused(prometheus: str) -> None:
    """`triton_up` is 0 with the reason in a series and in /state, and none of its metrics are relayed."""
    with exporting(prometheus, f"{prometheus}/metrics") as exporter:
        page = exporter.wait(
            lambda page: all(
                page.value(own.SCRAPE_FAILURES, endpoint=endpoint, reason="not_triton")
                for endpoint in ("metadata", "metrics")
            )
        )
        shown = phase(exporter)

    assert 0 == page.value(state.UP)
    assert "prometheus_build_info" not in page.text
    assert ("not Triton", "not_triton", "not_triton") == tuple(
        shown[name] for name in ("phase", "api_failure", "metrics_failure")
    )
    assert "GET /v2 answers HTTP 404" == shown["api_failure_text"]


@pytest.mark.real
def test_the_doctor_names_a_server_that_is_not_triton(
    prometheus: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The doctor prints one line, or one finding as JSON, and exits with 1."""
    assert 1 == main(["doctor", "--triton", prometheus])
    answer = capsys.readouterr()
    assert ("", 1) == (answer.out, answer.err.count("\n"))
    assert (
        f"the server at {prometheus} is not a Triton: {prometheus}: GET /v2 answers HTTP 404; give --triton"
        in answer.err
    )

    assert 1 == main(["doctor", "--triton", prometheus, "--json"])
    assert ["This is not a Triton"] == [finding["title"] for finding in json.loads(capsys.readouterr().out)]


@pytest.mark.real
def test_init_proposes_nothing_from_a_server_that_is_not_triton(
    prometheus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command prints one line, exits with 1, and writes no file."""
    assert 1 == main(["init", "--triton", prometheus, "--out", str(tmp_path / "o.yaml")])

    assert f"tritonwatch init: {prometheus}: is not a Triton (GET /v2 answers HTTP 404)" in (
        answer := capsys.readouterr().err
    )
    assert 1 == answer.count("\n")
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("content", "status", "reason", "text"),
    [
        (b"<html>welcome</html>", "200 OK", "not_triton", "GET /v2 answers HTTP 200: "),
        (b"", "200 OK", "not_triton", "GET /v2 answers HTTP 200: "),
        (
            b'{"name":"other","extensions":[]}',
            "200 OK",
            "not_triton",
            "GET /v2 answers HTTP 200: the server is named 'other'",
        ),
        (b"", "302 Found", "not_triton", "GET /v2 answers HTTP 302"),
        (b'{"error":"no such path"}', "404 Not Found", "not_triton", "GET /v2 answers HTTP 404"),
        (b"who are you?", "401 Unauthorized", "http_error", "GET /v2 answers HTTP 401"),
        (b"no upstream", "503 Service Unavailable", "http_error", "GET /v2 answers HTTP 503"),
    ],
)
def test_only_triton_is_accepted(content: bytes, status: str, reason: str, text: str) -> None:
    """Other servers are named so; a proxy that hides who answers is a failed request. Triton's metrics answer."""
    with (
        faulty({"/v2": body(content, status), "/metrics": body(b"nv_x 1\n")}) as server,
        exporting(server.url, f"{server.url}/metrics") as exporter,
    ):
        exporter.wait(lambda page: page.value(own.SCRAPE_FAILURES, endpoint="metadata", reason=reason))
        shown = phase(exporter)

    assert (reason, True) == (shown["api_failure"], shown["up"])
    assert str(shown["api_failure_text"]).startswith(text)


def test_a_server_that_takes_the_place_of_triton_is_noticed() -> None:
    """The server's identity is queried again as soon as the health endpoint answers differently."""
    with (
        faulty({"/metrics": body(b"nv_x 1\n")}) as server,
        exporting(server.url, f"{server.url}/metrics") as exporter,
    ):
        exporter.wait(lambda page: page.value(state.SERVER_LIVE))
        server.answers |= {
            path: body(b"404 page not found", "404 Not Found") for path in ("/v2", "/v2/health/live")
        }
        exporter.wait(lambda page: page.value(own.SCRAPE_FAILURES, endpoint="metadata", reason="not_triton"))
        page = exporter.scrape()

    assert (0, 0) == (page.value(state.UP), page.value(state.SERVER_LIVE))


@pytest.mark.real
@pytest.mark.parametrize(
    "arguments",
    [["--id=renamed"], ["--http-restricted-api=metadata:key=secret"]],
    ids=["renamed", "restricted"],
)
def test_a_triton_with_another_name_or_restricted_metadata_is_accepted(
    tmp_path: Path, arguments: list[str]
) -> None:
    """The name is the operator's to choose, and a refusal in Triton's words is Triton's."""
    Repository(tmp_path / "models").model("adder")
    with (
        live_triton(tmp_path / "models", tmp_path, "none", arguments) as triton,
        exporting(triton.http_url, triton.metrics_url) as exporter,
    ):
        page = exporter.wait(lambda page: page.value(state.MODEL_READY, model="adder", version="1"))

    assert (1, 1) == (page.value(state.UP), page.value(state.SERVER_LIVE))


@pytest.mark.real
def test_a_wrong_address_of_the_metrics_is_shown(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Without a path it is /metrics, as in Prometheus; at any other, Triton answers 200 and nothing."""
    Repository(tmp_path / "models").model("adder")
    seen = []
    with live_triton(tmp_path / "models", tmp_path) as triton, answering(_not_found) as missing:
        base = triton.metrics_url.removesuffix("/metrics")
        for address in (base, f"{base}/metric", f"{triton.http_url}/v2", f"{missing}/metrics"):
            caplog.clear()
            with exporting(triton.http_url, address) as exporter:
                page = exporter.scrape()
            reasons = [
                reason
                for reason in ("not_triton", "http_error")
                if page.value(own.SCRAPE_FAILURES, endpoint="metrics", reason=reason)
            ]
            logged = [line for line in caplog.messages if "Triton's metrics" in line]
            seen.append((page.value(state.UP), reasons, [line.partition(" are not ")[2] for line in logged]))

    see = "; see --triton-metrics"
    assert [
        (1, [], []),
        (0, ["not_triton"], [f"read (not_triton): the page is empty; Triton's metrics are at /metrics{see}"]),
        (0, ["not_triton"], [f"read (not_triton): the page has no metric of Triton (nv_...){see}"]),
        (0, ["http_error"], [f"read (http_error): HTTP 404{see}"]),
    ] == seen


def _not_found(request: Handler) -> None:
    request.reply("no such page", 404)

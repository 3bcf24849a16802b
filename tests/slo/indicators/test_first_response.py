"""Test a first_response objective on a Triton that does not export it: the message names what it needs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from slo.slo_scenarios import series
from support import history
from support.exporter import exporting
from support.promtool import evaluated
from support.repository import Repository
from support.tools import promtools
from support.triton import infer, live_triton
from support.waiting import eventually
from triton_exporter.catalogue import llm, models, triton
from triton_slo import names
from triton_slo.artifact import Options
from triton_slo.generate import artifacts
from triton_slo.objective.reading import read
from triton_slo.prometheus import Prometheus
from triton_slo.server_access import Access
from tritonwatch.cli import main

OBJECTIVE = "{name: first, target: 99%, indicator: {kind: first_response, threshold: 500ms}}"
TOKEN = "{name: token, target: 99%, indicator: {kind: first_response, threshold: 250ms, engine: vllm}}"
NEEDS = "26.01 (2.65)", "24.11 (2.52)", "--metrics-config histogram_latencies=true"
STEPS = "x20"


def serving(name: str) -> dict[str, str]:
    return {series(triton.REQUEST_SUCCESS, name): f"0+9{STEPS}"}


def measured(name: str) -> dict[str, str]:
    histogram = triton.FIRST_RESPONSE_MS
    return serving(name) | {
        series(histogram.bucket, name, le="500"): f"0+9{STEPS}",
        series(histogram.count, name): f"0+9{STEPS}",
    }


def streaming(name: str, value: int = 1) -> dict[str, str]:
    return serving(name) | {series(models.DECOUPLED, name): f"{value}{STEPS}"}


def on_backend(name: str, backend: str) -> dict[str, str]:
    return serving(name) | {series(models.INFO, name, backend=backend, platform=""): f"1{STEPS}"}


TOKENS = {
    series(llm.FIRST_TOKEN.bucket, "llm", le="0.25"): f"0+9{STEPS}",
    series(llm.FIRST_TOKEN.count, "llm"): f"0+9{STEPS}",
}


@pytest.mark.real
@pytest.mark.parametrize(
    ("objective", "there", "unknown"),
    [
        pytest.param(OBJECTIVE, serving("a"), {"a": "no_first_response"}, id="no model has it"),
        pytest.param(OBJECTIVE, measured("a"), {}, id="it is exported"),
        pytest.param(OBJECTIVE, measured("a") | streaming("b", 0), {}, id="b answers once, a streams"),
        pytest.param(
            OBJECTIVE, measured("a") | streaming("b"), {"b": "no_first_response"}, id="b streams without it"
        ),
        pytest.param(
            OBJECTIVE,
            serving("a") | {series(triton.FIRST_RESPONSE_MS, "a"): f"1{STEPS}"},
            {"a": "no_histogram"},
            id="it is exported and not stored",
        ),
        pytest.param(
            TOKEN,
            on_backend("llm", "vllm") | on_backend("classifier", "python"),
            {"llm": "no_token_times"},
            id="vLLM does not report",
        ),
        pytest.param(TOKEN, on_backend("llm", "vllm") | TOKENS, {}, id="vLLM reports"),
    ],
)
def test_models_without_a_first_response_are_unknown(
    objective: str, there: dict[str, str], unknown: dict[str, str], tmp_path: Path
) -> None:
    """Without its histogram the objective is unknown, with a reason of its own."""
    [parsed] = read([("o.yaml", objective)]).objectives
    [rules] = [
        artifact.text
        for artifact in artifacts([parsed], Options())
        if artifact.name == f"slo-{parsed.name}.yml"
    ]
    alert = f'{names.ALERTS}{{alertname="{names.UNMEASURED_ALERT}"}}'
    asked = [(f"max by (model, {names.REASON}) ({alert})", 120.0)]
    [answer] = evaluated(promtools()[0], tmp_path, rules, there, asked, interval=15, evaluation=15)

    assert unknown == {labels["model"]: labels[names.REASON] for labels, _ in answer}


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield a real Triton 2.51 beside its exporter, the objective's rules loaded."""
    directory = tmp_path_factory.mktemp("first")
    Repository(directory / "models").model("echo")
    objectives = read([("o.yaml", OBJECTIVE)]).objectives
    options = Options(scrape_interval_seconds=1, time_scale=1 / 60)
    rules = {
        artifact.name: artifact.text
        for artifact in artifacts(objectives, options)
        if artifact.part == "rules"
    }
    with (
        live_triton(
            directory / "models", directory, arguments=["--metrics-config=histogram_latencies=true"]
        ) as server,
        exporting(server.http_url, server.metrics_url) as exporter,
        history.serve("", directory / "p", rules=rules, scrape=exporter.url.removeprefix("http://")) as url,
    ):
        assert 200 == infer(server, "echo")
        with Prometheus(Access(url)) as client:
            alert = f'{names.ALERTS}{{alertname="{names.UNMEASURED_ALERT}"}}'
            eventually(lambda: client.instant(alert), "nothing is unknown")
        yield url


@pytest.mark.real
def test_check_status_and_gate_name_the_version_and_the_flag(
    prometheus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A Triton 2.51 has no histogram of ordinary models: check refuses, status and gate name what is needed."""
    (tmp_path / "o.yaml").write_text(OBJECTIVE)

    def said(code: int, *words: str) -> str:
        """Return what a command prints, once it says all; a scrape that a busy machine misses leaves a gap."""

        def printed() -> str:
            actual = main([*words, "--prometheus", prometheus])
            text = " ".join("".join(capsys.readouterr()).split())
            return text if actual == code and all(needed in text for needed in NEEDS) else ""

        return eventually(printed, f"{words} never names {NEEDS}")

    said(1, "check", str(tmp_path), "--scrape-interval", "1")
    assert "unknown (no_first_response): first echo version 1" in said(0, "status")
    assert "hold first echo version 1: unknown: no_first_response" in said(3, "gate")

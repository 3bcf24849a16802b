"""Test objectives on tokens through a real Triton, the exporter and both versions of Prometheus.

Of ten requests to each model one has a slow first token, one slow tokens, and one both, and so a slow end.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support import history
from support.exporter import exporting
from support.language_model import Seen, generate, write_language_model
from support.panels import MODELS, Grafana
from support.promtool import evaluated
from support.tools import prometheuses, promtools
from support.triton import live_triton
from support.waiting import eventually
from triton_exporter.catalogue import Metric, llm, state
from triton_slo import names
from triton_slo.artifact import Options
from triton_slo.generate import artifacts
from triton_slo.objective.reading import read
from triton_slo.plan import Plan
from triton_slo.prometheus import Prometheus
from triton_slo.server_access import Access
from tritonwatch.cli import main

pytestmark = pytest.mark.real

OBJECTIVES = """
objectives:
  - {name: ttft, target: 90%, indicator: {kind: first_token, threshold: 500ms}}
  - {name: itl, target: 90%, indicator: {kind: inter_token, threshold: 250ms}}
  - {name: end, target: 90%, indicator: {kind: end_to_end, threshold: 2500ms}}
  - {name: old, target: 90%, indicator: {kind: first_response, engine: vllm, threshold: 500ms}}
  - name: goodput
    target: 90%
    indicator: {kind: goodput, first_token: 500ms, inter_token: 250ms, end_to_end: 2500ms}
"""
PARSED = read([("o.yaml", OBJECTIVES)]).objectives
OPTIONS = Options(scrape_interval_seconds=1, time_scale=1 / 60)
TOKENS = 5
FAST, SLOW_FIRST, SLOW_TOKENS, SLOW = (0.02, 0.01), (0.9, 0.01), (0.02, 0.4), (1.5, 0.4)
LOAD = (*[FAST] * 7, SLOW_FIRST, SLOW_TOKENS, SLOW)
ENGINES = ("head", "v1", "trtllm-serve", "nim", "trtllm")


def missed(seen: Seen) -> bool:
    """Return whether the client of a request waited longer than any limit."""
    mean = sum(seen.gaps) / len(seen.gaps)
    return seen.first > 0.5 or mean > 0.25 or seen.end > 2.5


@pytest.fixture(scope="module", params=prometheuses(), ids=str)
def measured(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, list[Seen]]]:
    """Yield the address of a Prometheus that saw all requests, and what the clients of `v1` saw."""
    directory = tmp_path_factory.mktemp("tokens")
    for engine in ENGINES:
        write_language_model(directory / "models", engine, engine)
    rules = {
        artifact.name: artifact.text for artifact in artifacts(PARSED, OPTIONS) if artifact.part == "rules"
    }
    with (
        live_triton(directory / "models", directory) as server,
        exporting(server.http_url, server.metrics_url) as exporter,
        history.serve(
            "",
            directory / "p",
            rules=rules,
            scrape=exporter.url.removeprefix("http://"),
            server=request.param,
        ) as url,
        Prometheus(Access(url)) as prometheus,
        ThreadPoolExecutor(10) as pool,
    ):
        exporter.wait(lambda page: page.value(state.MODEL_READY, model="v1", version="1"))
        counted = f'count({names.COUNTER}{{{names.SLO}="end"}}) >= 8'
        eventually(lambda: prometheus.instant(counted), "nothing is counted")
        for engine in ENGINES:
            seen = [
                each.result() for each in [pool.submit(generate, server, engine, *t, TOKENS) for t in LOAD]
            ]
            if engine == "v1":
                of_clients = seen
        done = f'count({names.COUNTER}{{{names.SLO}=~"end|goodput", {names.EVENT}="total"}} == 10) >= 6'
        eventually(lambda: prometheus.instant(done), "not all is counted")
        yield url, of_clients


def counts(url: str, slo: str) -> dict[str, tuple[float, float]]:
    """Return failed and all events of an objective by model."""
    with Prometheus(Access(url)) as prometheus:
        samples = prometheus.instant(f'{names.COUNTER}{{{names.SLO}="{slo}"}}')
    found = {(sample.labels["model"], sample.labels[names.EVENT]): sample.value for sample in samples}
    return {model: (found[model, names.ERROR], found[model, names.TOTAL]) for model, _ in found}


@pytest.mark.parametrize("slo", ["ttft", "old"])
def test_first_tokens_are_counted_for_every_engine(measured: tuple[str, list[Seen]], slo: str) -> None:
    """Two of ten were slow; TensorRT-LLM in Triton 2.51 exports no first tokens."""
    url, seen = measured

    assert 2 == sum(each.first > 0.5 for each in seen)
    assert dict.fromkeys(("head", "v1", "trtllm-serve", "nim"), (2, 10)) == counts(url, slo)


def test_each_further_token_is_an_event(measured: tuple[str, list[Seen]]) -> None:
    """Two of ten answers had four slow gaps; trtllm-serve counts the mean of an answer once."""
    url, seen = measured

    assert 8 == sum(gap > 0.25 for each in seen for gap in each.gaps)
    assert dict.fromkeys(("head", "v1", "nim"), (8, 40)) | {"trtllm-serve": (2, 10)} == counts(url, "itl")


def test_ends_are_counted(measured: tuple[str, list[Seen]]) -> None:
    """One answer of ten took longer than 2.5 s."""
    url, seen = measured

    assert 1 == sum(each.end > 2.5 for each in seen)
    assert dict.fromkeys(("head", "v1", "trtllm-serve", "nim"), (1, 10)) == counts(url, "end")


def test_goodput_is_bounded_on_both_sides(measured: tuple[str, list[Seen]]) -> None:
    """Three of ten clients missed a limit: no more than are counted, and no less than the stated error leaves."""
    url, seen = measured
    [goodput] = [objective for objective in PARSED if objective.name == "goodput"]
    doubt = Plan(goodput, OPTIONS).measure.stated_error
    assert doubt is not None
    with Prometheus(Access(url)) as prometheus:
        errors = {sample.labels["model"]: sample.value for sample in prometheus.instant(doubt("10m"))}
    failed, total = counts(url, "goodput")["v1"]
    least = failed / total - errors["v1"]

    assert {"v1": (5, 10), "trtllm-serve": (5, 10)} == counts(url, "goodput")
    assert 0.3 == sum(map(missed, seen)) / len(seen)
    assert 0.2 == pytest.approx(least)


@pytest.mark.parametrize("model", ["head", "v1", "nim"])
def test_the_first_screen_of_the_board_shows_what_clients_saw(
    measured: tuple[str, list[Seen]], model: str
) -> None:
    """First token, further tokens, tokens per second and cache, of any engine; vLLM in Triton shows no cache."""
    url, seen = measured
    view = Grafana(url, int(time.time()), 300, 150, 75).open(MODELS["triton-model"], {"model": model})

    def shown(title: str) -> float | None:
        [answer] = view.panel(title)
        return answer.last()[0] if answer.series else None

    slowest = sorted(each.first for each in seen)[-1]
    first, further, pace = map(shown, ("First token, p95", "Further tokens, p95", "Tokens per second"))
    assert first is not None
    assert further is not None
    assert pace is not None
    assert 0.5 < slowest
    assert 0.5 < first <= 2.5
    assert 0.25 < further <= 0.5
    assert pace > 0
    assert (None if model == "head" else 0) == shown("KV cache")


def test_status_says_what_an_engine_lacks(
    measured: tuple[str, list[Seen]], capsys: pytest.CaptureFixture[str]
) -> None:
    """Triton's vLLM backend has no means of requests, and TensorRT-LLM none of these times."""
    url, _ = measured

    def status() -> str:
        main(["status", "--prometheus", url])
        return " ".join(capsys.readouterr().out.split())

    shown = eventually(lambda: text if "no_token_times" in (text := status()) else "", status)

    assert "unknown (no_request_means): goodput head version 1" in shown
    assert "promise it by an objective of the kind inter_token" in shown
    assert "unknown (no_token_times)" in shown


def _histogram(metric: Metric, bound: str, within: int) -> dict[str, str]:
    """Return a histogram of ten requests a minute, so many of them within the limit."""
    labels = 'instance="t", job="triton-exporter", model="m", version="1"'
    return {
        f'{metric.bucket}{{{labels}, le="{bound}"}}': f"0+{within}x90",
        f"{metric.count}{{{labels}}}": "0+10x90",
    }


@pytest.mark.parametrize(
    ("within", "pages"),
    [
        pytest.param((9, 9, 9), False, id="30 % at most, 10 % at least"),
        pytest.param((8, 9, 9), True, id="40 % at most, 20 % at least"),
    ],
)
def test_a_page_needs_a_burn_that_is_certain(
    within: tuple[int, int, int], pages: bool, tmp_path: Path
) -> None:
    """At 99 % a page needs 14.4 %: the misses of one limit alone, not a sum in which requests may count twice."""
    text = OBJECTIVES.replace("90%", "99%")
    [goodput] = [each for each in read([("o.yaml", text)]).objectives if each.name == "goodput"]
    [rules] = [each.text for each in artifacts([goodput], Options()) if each.name == "slo-goodput.yml"]
    metrics = ((llm.FIRST_TOKEN, "0.5"), (llm.REQUEST_INTER_TOKEN, "0.25"), (llm.E2E, "2.5"))
    there: dict[str, str] = {}
    for (metric, bound), good in zip(metrics, within, strict=True):
        there |= _histogram(metric, bound, good)
    paging = f'{names.ALERTS}{{alertname="TritonTokensBudgetBurn", {names.TIER}="page_fast"}}'
    [answer] = evaluated(
        promtools()[0], tmp_path, rules, there, [(paging, 5400.0)], interval=60, evaluation=30
    )

    assert pages == bool(answer)


def test_a_goodput_of_one_limit_is_refused() -> None:
    """The message says what to write."""
    problems = read(
        [("o.yaml", "{name: g, target: 9%, indicator: {kind: goodput, first_token: 1s}}")]
    ).problems

    assert any("two or three of first_token, inter_token and end_to_end" in str(each) for each in problems)

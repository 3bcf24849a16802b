"""Test objectives on tokens through a real Triton, the exporter and both versions of Prometheus.

Of ten requests to each model one has a slow first token, one slow tokens, and one both, and so a slow end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support import history
from support.exporter import exporting
from support.language_model import Seen, generate, write_language_model
from support.panels import MODELS, Grafana
from support.promtool import evaluated
from support.tools import newest, prometheuses, promtools
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
  - {name: ttft, target: 90%, indicator: {kind: first_token, threshold: 2500ms}}
  - {name: itl, target: 90%, indicator: {kind: inter_token, threshold: 500ms}}
  - {name: end, target: 90%, indicator: {kind: end_to_end, threshold: 5s}}
  - {name: old, target: 90%, indicator: {kind: first_response, engine: vllm, threshold: 2500ms}}
  - name: goodput
    target: 90%
    indicator: {kind: goodput, first_token: 2500ms, inter_token: 500ms, end_to_end: 5s}
"""
PARSED = read([("o.yaml", OBJECTIVES)]).objectives
OPTIONS = Options(scrape_interval_seconds=1, time_scale=1 / 60)
TOKENS = 5
FAST, SLOW_FIRST, SLOW_TOKENS, SLOW = (0.02, 0.01), (3.0, 0.01), (0.02, 0.8), (4.0, 0.8)
"""Seconds to the first token and between tokens, far from the limits: a busy machine adds half a second."""
ENGINES = ("head", "v1", "trtllm-serve", "nim", "trtllm")


Measured = tuple[str, Mapping[str, Sequence[Seen]]]
"""The address of a Prometheus that saw all requests, and what the clients of each engine saw."""


def missed(seen: Seen) -> bool:
    """Return whether the client of a request waited longer than any limit."""
    mean = sum(seen.gaps) / len(seen.gaps)
    return seen.first > 2.5 or mean > 0.5 or seen.end > 5


@pytest.fixture(scope="module", params=newest(prometheuses()), ids=str)
def measured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Measured]:
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
        ThreadPoolExecutor(3 * len(ENGINES)) as pool,
    ):
        exporter.wait(lambda page: page.value(state.MODEL_READY, model="v1", version="1"))
        counted = f'count({names.COUNTER}{{{names.SLO}="end"}}) >= 8'
        eventually(lambda: prometheus.instant(counted), "nothing is counted")
        slow = {
            engine: [
                pool.submit(generate, server, engine, *times, TOKENS)
                for times in (SLOW_FIRST, SLOW_TOKENS, SLOW)
            ]
            for engine in ENGINES
        }
        # One after the other: many at once would be slow on a busy machine.
        fast = {engine: [generate(server, engine, *FAST, TOKENS) for _ in range(7)] for engine in ENGINES}
        seen = {engine: fast[engine] + [each.result() for each in slow[engine]] for engine in ENGINES}
        done = f'count({names.COUNTER}{{{names.SLO}=~"end|goodput", {names.EVENT}="total"}} == 10) >= 6'
        eventually(lambda: prometheus.instant(done), "not all is counted")
        # A query in the middle of an evaluation reads new totals beside old failures.
        later = f"min(timestamp({names.COUNTER})) > {time.time()}"
        eventually(lambda: prometheus.instant(later), "not evaluated again")
        yield url, seen


def counts(url: str, slo: str) -> dict[str, tuple[float, float]]:
    """Return failed and all events of an objective by model."""
    with Prometheus(Access(url)) as prometheus:
        samples = prometheus.instant(f'{names.COUNTER}{{{names.SLO}="{slo}"}}')
    found = {(sample.labels["model"], sample.labels[names.EVENT]): sample.value for sample in samples}
    return {model: (found[model, names.ERROR], found[model, names.TOTAL]) for model, _ in found}


def assert_counted(
    measured: Measured, slo: str, slow: Callable[[Seen], int], *of: tuple[str, int, int]
) -> None:
    """Of each engine all events are counted, and as failures at least those that were made slow.

    Of a busy machine others are slow, too: at most as many as the clients saw.
    """
    url, seen = measured
    totals = {engine: total for engine, _, total in of}

    def complete() -> dict[str, tuple[float, float]]:
        found = counts(url, slo)
        return found if totals == {model: total for model, (_, total) in found.items()} else {}

    found = eventually(complete, lambda: str(counts(url, slo)))
    for engine, least, _ in of:
        assert least <= found[engine][0] <= sum(map(slow, seen[engine])), (engine, found)


@pytest.mark.parametrize("slo", ["ttft", "old"])
def test_first_tokens_are_counted_for_every_engine(measured: Measured, slo: str) -> None:
    """Two of ten were slow; TensorRT-LLM in Triton 2.51 exports no first tokens."""
    engines = ("head", "v1", "trtllm-serve", "nim")
    assert_counted(measured, slo, lambda seen: seen.first > 2.5, *((engine, 2, 10) for engine in engines))


def test_each_further_token_is_an_event(measured: Measured) -> None:
    """Two of ten answers had four slow gaps; trtllm-serve counts the mean of an answer once."""
    assert_counted(
        measured,
        "itl",
        lambda seen: sum(gap > 0.5 for gap in seen.gaps),
        *(("head", 8, 40), ("v1", 8, 40), ("nim", 8, 40), ("trtllm-serve", 2, 10)),
    )


def test_ends_are_counted(measured: Measured) -> None:
    """One answer of ten took longer than 5 s."""
    engines = ("head", "v1", "trtllm-serve", "nim")
    assert_counted(measured, "end", lambda seen: seen.end > 5, *((engine, 1, 10) for engine in engines))


def test_goodput_is_bounded_on_both_sides(measured: Measured) -> None:
    """Three of ten clients missed a limit: no more than are counted, and no less than the stated error leaves."""
    url, seen = measured
    [goodput] = [objective for objective in PARSED if objective.name == "goodput"]
    doubt = Plan(goodput, OPTIONS).measure.stated_error
    assert doubt is not None
    with Prometheus(Access(url)) as prometheus:

        def error() -> list[float]:
            return [
                sample.value for sample in prometheus.instant(doubt("10m")) if sample.labels["model"] == "v1"
            ]

        [uncertain] = eventually(error, "no stated error")
    found = eventually(lambda: counts(url, "goodput"), "no counts of goodput")
    failed, total = found["v1"]

    assert {"v1", "trtllm-serve"} == found.keys()
    assert 5 <= failed
    assert 10 == total
    assert (
        0.2 <= round(failed / total - uncertain, 6) <= sum(map(missed, seen["v1"])) / total <= failed / total
    )


@pytest.mark.parametrize("model", ["head", "v1", "nim"])
def test_the_first_screen_of_the_board_shows_what_clients_saw(measured: Measured, model: str) -> None:
    """First token, further tokens, tokens per second and cache, of any engine; vLLM in Triton shows no cache."""
    url, seen = measured
    titles = ["First token, p95", "Further tokens, p95", "Tokens per second", "KV cache"]

    def screen() -> list[float | None]:
        view = Grafana(url, int(time.time()), 300, 150, 75).open(MODELS["triton-model"], {"model": model})
        answers = [view.panel(title)[0] for title in titles]
        return [answer.last()[0] if answer.series else None for answer in answers]

    # A scrape that a busy machine misses leaves a gap.
    there = 3 if model == "head" else 4
    first, further, pace, cache = eventually(
        lambda: shown if None not in (shown := screen())[:there] else [], lambda: str(screen())
    )
    assert 2.5 < max(each.first for each in seen[model])
    assert first is not None
    assert further is not None
    assert pace is not None
    assert 2.5 < first <= 5
    assert 0.5 < further <= 1
    assert pace > 0
    assert (None if model == "head" else 0) == cache


def test_status_says_what_an_engine_lacks(measured: Measured, capsys: pytest.CaptureFixture[str]) -> None:
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
    metrics = ((llm.FIRST_TOKEN, "2.5"), (llm.REQUEST_INTER_TOKEN, "0.5"), (llm.E2E, "5"))
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

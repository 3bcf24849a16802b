"""Test the series of language models: a real Triton whose models name theirs as each engine does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import requests

from support.exporter import RunningExporter, ScrapedPage, exporting
from support.language_model import ENGINES, generate, write_language_model
from support.triton import live_triton
from triton_exporter import language_models
from triton_exporter.catalogue import Metric, llm, state
from triton_exporter.exposition.parse import parse
from triton_exporter.exposition.write import text_pieces
from tritonwatch.local import TritonServer

pytestmark = pytest.mark.real

_OF_ROLE: dict[str, Metric] = {
    "first": llm.FIRST_TOKEN,
    "gap": llm.INTER_TOKEN,
    "mean": llm.REQUEST_INTER_TOKEN,
    "end": llm.E2E,
    "read": llm.PROMPT_TOKENS,
    "made": llm.GENERATION_TOKENS,
    "preempted": llm.PREEMPTIONS,
    "cache": llm.KV_CACHE,
    "running": llm.REQUESTS,
}
REQUESTS, TOKENS = 3, 4
MADE = (REQUESTS - 1) * TOKENS + 1


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TritonServer, RunningExporter]]:
    directory = tmp_path_factory.mktemp("language")
    for engine in ENGINES:
        write_language_model(directory / "models", engine, engine)
    with (
        live_triton(directory / "models", directory) as server,
        exporting(server.http_url, server.metrics_url) as exporter,
    ):
        for engine in ENGINES:
            exporter.wait(lambda page, name=engine: page.value(state.MODEL_READY, model=name, version="1"))  # type: ignore[misc]
        yield server, exporter


@pytest.fixture(scope="module")
def page(running: tuple[TritonServer, RunningExporter]) -> ScrapedPage:
    """Return the page after three requests to each model, the last of which does not end."""
    server, exporter = running
    for engine in ENGINES:
        for _ in range(REQUESTS - 1):
            generate(server, engine, 0.02, 0.01, TOKENS)
    with ExitStack() as last:
        for engine in ENGINES:
            ask = {"text_input": "0.02,600,2"}  # its second token never comes
            url = f"{server.http_url}/v2/models/{engine}/generate_stream"
            last.enter_context(requests.post(url, json=ask, stream=True, timeout=60))
        return exporter.wait(
            lambda page: (
                [REQUESTS] * 5 == list(page.series(llm.FIRST_TOKEN.count).values())
                and {MADE} == set(page.series(llm.GENERATION_TOKENS).values())
                and 5 == sum(v for k, v in page.series(llm.REQUESTS).items() if ("state", "running") in k)
            )
        )


def _of(page: ScrapedPage, name: str, engine: str, **more: str) -> float | None:
    version = {} if engine in ("nim", "trtllm-serve") else {"version": "1"}
    labels = {"model": engine, "version": version.get("version", ""), **more}
    return page.value(name, **labels)


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_has_the_same_names(page: ScrapedPage, engine: str) -> None:
    """What an engine exports is there under the common name, and nothing that it does not export."""
    there = {
        role
        for role, metric in _OF_ROLE.items()
        for series in ([metric.count] if metric.kind == "histogram" else [metric.name])
        if any(("model", engine) in labels for labels in page.series(series))
    }
    expected = set(ENGINES[engine]) & _OF_ROLE.keys()
    if engine == "trtllm-serve":
        expected.add("gap")  # it has the mean of each request only

    assert expected == there


@pytest.mark.parametrize("engine", [name for name, names in ENGINES.items() if "first" in names])
def test_values_are_those_of_the_engine(page: ScrapedPage, engine: str) -> None:
    """Three first tokens, none of them within 10 ms; two requests ended."""
    whole, fast = (_of(page, llm.FIRST_TOKEN.bucket, engine, le=le) for le in ("+Inf", "0.01"))

    assert (REQUESTS, REQUESTS, 0) == (_of(page, llm.FIRST_TOKEN.count, engine), whole, fast)
    assert MADE == _of(page, llm.GENERATION_TOKENS.name, engine)
    if "end" in ENGINES[engine]:
        assert REQUESTS - 1 == _of(page, llm.E2E.count, engine)
    if "gap" in ENGINES[engine]:
        assert (REQUESTS - 1) * (TOKENS - 1) == _of(page, llm.INTER_TOKEN.count, engine)


@pytest.mark.parametrize("engine", [name for name, names in ENGINES.items() if "cache" in names])
def test_the_load_of_an_engine_is_shown(page: ScrapedPage, engine: str) -> None:
    """One request fills a quarter of the cache; three wait, and one is paused."""
    names = ENGINES[engine]
    assert 0.25 == _of(page, llm.KV_CACHE.name, engine)
    for role, number in (("running", 1), ("waiting", 3), ("paused", 1)):
        assert (number if role in names else None) == _of(page, llm.REQUESTS.name, engine, state=role)


def test_a_server_that_is_gone_shows_no_load(
    running: tuple[TritonServer, RunningExporter], page: ScrapedPage
) -> None:
    """A cache that was full when the server died is not shown as full for ever."""
    server, exporter = running
    server.kill()
    dead = exporter.wait(lambda page: page.value(state.UP) == 0)

    assert not dead.series(llm.KV_CACHE)
    assert not dead.series(llm.FIRST_TOKEN.count)


def test_the_engines_of_one_server_are_one_model() -> None:
    """vLLM with data parallelism: requests and tokens add up, and the fullest cache counts; other series stay out."""
    text = """# HELP vllm:generation_tokens_total Tokens.
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="org/a b"} 40.0
vllm:generation_tokens_total{engine="1",model_name="org/a b"} 2.0
# HELP vllm:generation_tokens_created Tokens.
# TYPE vllm:generation_tokens_created gauge
vllm:generation_tokens_created{engine="0",model_name="org/a b"} 1.7e9
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="org/a b"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="org/a b"} 0.75
# TYPE vllm:gpu_cache_usage_perc gauge
vllm:gpu_cache_usage_perc{engine="0",model_name="org/a b"} 0.9
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{engine="0",le="1.0",model_name="org/a b"} 3.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="org/a b"} 4.0
vllm:time_to_first_token_seconds_count{engine="0",model_name="org/a b"} 4.0
vllm:time_to_first_token_seconds_sum{engine="0",model_name="org/a b"} 6.0
# TYPE vllm:e2e_request_latency_seconds gauge
vllm:e2e_request_latency_seconds{model_name="org/a b"} 6.0
# TYPE time_to_first_token_seconds histogram
time_to_first_token_seconds_bucket{le="+Inf"} 4.0
"""
    page = text_pieces(language_models.families(parse(text.encode())))
    values = [line for line in b"".join(page).decode().splitlines() if not line.startswith("#")]

    who = 'model="org/a b",version=""'
    assert [
        f'triton_llm_time_to_first_token_seconds_bucket{{{who},le="1.0"}} 3',
        f'triton_llm_time_to_first_token_seconds_bucket{{{who},le="+Inf"}} 4',
        f"triton_llm_time_to_first_token_seconds_count{{{who}}} 4",
        f"triton_llm_time_to_first_token_seconds_sum{{{who}}} 6",
        f"triton_llm_generation_tokens_total{{{who}}} 42",
        f"triton_llm_kv_cache_usage_ratio{{{who}}} 0.75",
    ] == values


def test_the_first_response_of_a_tensorrt_llm_model_is_its_first_token() -> None:
    """Triton's own histogram, in milliseconds, of language models only."""
    text = """# TYPE nv_llm_output_token_len histogram
nv_llm_output_token_len_sum{model="llm",response_metric_type="total_output_tokens",version="1"} 50
# TYPE nv_inference_first_response_histogram_ms histogram
nv_inference_first_response_histogram_ms_bucket{model="llm",version="1",le="500"} 2
nv_inference_first_response_histogram_ms_sum{model="llm",version="1"} 600
nv_inference_first_response_histogram_ms_count{model="resnet",version="1"} 2
"""
    page = text_pieces(language_models.families(parse(text.encode())))
    values = [line for line in b"".join(page).decode().splitlines() if not line.startswith("#")]

    who = 'model="llm",version="1"'
    assert [
        f'triton_llm_time_to_first_token_seconds_bucket{{{who},le="0.5"}} 2',
        f"triton_llm_time_to_first_token_seconds_sum{{{who}}} 0.6",
        f"triton_llm_generation_tokens_total{{{who}}} 50",
    ] == values

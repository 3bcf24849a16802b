"""Measure the samples that the fleet dashboard reads at 1,000 models x 10 servers, against naive queries.

Samples are Prometheus' own count (`?stats=all`, totalQueryableSamples), so the ratio is the same in every run.
The naive panels query Triton's raw counters for the same values, as dashboards usually do.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import requests

from support.history import END, Series, backfilled, openmetrics, record, running
from support.panels import MACROS, Grafana, fill, panels
from triton_dashboards.boards import fleet
from triton_dashboards.grafana import dashboard_model
from triton_dashboards.recording import rules_text
from triton_exporter.catalogue import EXPORTER_JOB, Metric, own, state, triton
from triton_slo.artifact import Options

MODELS, SERVERS, STEP, MINUTES = 1_000, 10, 30, 12
VIEW_SECONDS = 600
_S = 'job=~"triton-exporter", model=~".*"'


def _points(per_second: float) -> list[tuple[float, float]]:
    start = END - MINUTES * 60
    return [(at, (at - start) * per_second) for at in range(start, END + 1, STEP)]


def _series() -> Iterator[Series]:
    counters: tuple[tuple[Metric, float, dict[str, str]], ...] = (
        (triton.REQUEST_SUCCESS, 10.0, {}),
        *(
            (triton.REQUEST_FAILURE, rate, {"reason": reason})
            for reason, rate in (("BACKEND", 0.1), ("REJECTED", 0.0), ("CANCELED", 0.0), ("OTHER", 0.0))
        ),
        (triton.REQUEST_DURATION_US, 50_000.0, {}),
        (triton.QUEUE_DURATION_US, 20_000.0, {}),
        (triton.INFERENCE_COUNT, 10.0, {}),
        (triton.EXEC_COUNT, 4.0, {}),
    )
    for number in range(SERVERS):
        server = {"job": EXPORTER_JOB, "instance": f"triton-{number}:9400"}
        for metric in (state.UP, state.SERVER_LIVE, state.SERVER_READY):
            yield metric.name, server, [(at, 1.0) for at, _ in _points(1)]
        yield "up", server, [(at, 1.0) for at, _ in _points(1)]
        yield own.LAST_SUCCESS.name, server, [(at, at - 1.0) for at, _ in _points(1)]
        for index in range(MODELS):
            labels = {**server, "model": f"model-{index:04}", "version": "1"}
            yield state.MODEL_READY.name, labels, [(at, 1.0) for at, _ in _points(1)]
            yield triton.PENDING_REQUESTS.name, labels, [(at, 0.0) for at, _ in _points(1)]
            for metric, rate, more in counters:
                yield metric.name, {**labels, **more}, _points(rate * (1 + index % 7))


def _rate(metric: Metric, by: str = "") -> str:
    grouped = f"by ({by}) " if by else ""
    return f"sum {grouped}(rate({metric}{{{_S}}}[$__rate_interval]))"


def _naive(by: str) -> list[str]:
    """Traffic, failures, latency, queue, batch and pending as dashboards usually ask for them."""
    success, failure = _rate(triton.REQUEST_SUCCESS, by), _rate(triton.REQUEST_FAILURE, by)
    grouped = f"by ({by}) " if by else ""
    return [
        f"{success} + {failure}",
        f"{failure} / ({success} + {failure})",
        f"{_rate(triton.REQUEST_DURATION_US, by)} / {success}",
        f"{_rate(triton.QUEUE_DURATION_US, by)} / {_rate(triton.REQUEST_DURATION_US, by)}",
        f"{_rate(triton.INFERENCE_COUNT, by)} / {_rate(triton.EXEC_COUNT, by)}",
        f"sum {grouped}({triton.PENDING_REQUESTS}{{{_S}}})",
    ]


def _cost(url: str, asked: list[tuple[str, bool]]) -> tuple[int, float]:
    """Return the samples read and seconds taken by queries (text, instant)."""
    samples, started = 0, time.perf_counter()
    for expr, instant in asked:
        parameters: dict[str, str | float] = {"query": expr, "stats": "all", "timeout": "120s"}
        parameters |= {"time": END} if instant else {"start": END - VIEW_SECONDS, "end": END, "step": STEP}
        path = "query" if instant else "query_range"
        answer = requests.get(f"{url}/api/v1/{path}", params=parameters, timeout=180).json()
        assert answer["status"] == "success", answer
        samples += answer["data"]["stats"]["samples"]["totalQueryableSamples"]
    return samples, time.perf_counter() - started


def test_fleet_refresh_reads_a_tenth_of_the_naive_one(tmp_path: Path) -> None:
    """At 1,000 models x 10 servers a refresh reads at most a tenth of the samples, rules counted apart."""
    backfilled(openmetrics(_series()), tmp_path / "data")
    rules = rules_text(Options(scrape_interval_seconds=STEP))
    record(rules, tmp_path, (END - MINUTES * 60 + 120, END, STEP))
    model = dashboard_model(fleet.dashboard(Options()))
    with running(tmp_path) as url:
        chosen = Grafana(url, END, VIEW_SECONDS, STEP).choose(model, {})
        ours = [
            (fill(target["expr"], chosen).replace("3600s:", f"{VIEW_SECONDS}s:"), target["instant"])
            for panel in panels(model)
            for target in panel["targets"]
        ]
        # The same panels: stats and time series over the view, the two tables at its end.
        naive = [(fill(expr, {**MACROS, "__rate_interval": "2m"}), False) for expr in _naive("")[:4]]
        naive += [(fill(expr, {**MACROS, "__rate_interval": "2m"}), False) for expr in _naive("model")[:4]]
        naive += [
            (fill(expr, {**MACROS, "__rate_interval": "2m"}), True)
            for by in ("model", "instance")
            for expr in _naive(by)
        ]
        read, seconds = _cost(url, ours)
        naively, slowly = _cost(url, naive)
        evaluated = sum(_cost(url, [(rule, True)])[0] for rule in _rules())
    print(
        f"\nfleet dashboard, {MODELS} models x {SERVERS} servers, {VIEW_SECONDS // 60} min at {STEP} s:\n"
        f"  ours   {len(ours):3} queries  {read:12,} samples  {seconds:6.2f} s\n"
        f"  naive  {len(naive):3} queries  {naively:12,} samples  {slowly:6.2f} s\n"
        f"  ratio  {read / naively:.4f} of the samples, {seconds / slowly:.3f} of the time\n"
        f"  recording costs {evaluated:,} samples an evaluation, once, however many people look"
    )

    assert read <= naively / 10


def _rules() -> list[str]:
    import yaml

    groups = yaml.safe_load(rules_text(Options(scrape_interval_seconds=STEP)))["groups"]
    return [rule["expr"] for group in groups for rule in group["rules"]]

"""Test pages of Tritons newer than those that run here (2.41, 2.51), written from what the sources of each add.

Between r24.10 and the main branch of August 2026 (2.73), the families of core's src/metrics.cc gained two:
nv_model_load_duration_secs (r24.11, core#397) and nv_inference_first_response_histogram_ms (r24.11 of decoupled models,
core#396; r26.01 of all, core#464). The protocol gained nothing; the configuration model_metrics (r24.11) and
max_inflight_requests of ensembles (r25.11). Five histograms in microseconds are proposed (core#474, open in 2026).
"""

from __future__ import annotations

import itertools
import json
import socket
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager

import pytest

from exporters.faults import FaultyServer, body, faulty
from support.exporter import ScrapedPage, exporting
from triton_exporter.catalogue import models, own, state, triton
from tritonwatch.cli import main

CONFIGS = {
    "resnet": {
        "backend": "onnxruntime",
        "model_metrics": {
            "metric_control": [
                {
                    "metric_identifier": {"family": triton.FIRST_RESPONSE_MS.name},
                    "histogram_options": {"buckets": [1, 2, 5, 10]},
                }
            ]
        },
    },
    "story": {"backend": "python", "model_transaction_policy": {"decoupled": True}},
    "pipeline": {
        "platform": "ensemble",
        "ensemble_scheduling": {
            "max_inflight_requests": 8,
            "step": [{"model_name": "resnet", "model_version": -1}],
        },
    },
}
MILLISECONDS = 4
"""Time of every request, of which a quarter waits in the queue."""
PROPOSED = "nv_inference_queue_duration_histogram_us"


def page(requests: int, with_histogram: Collection[str], *, proposed: bool = False) -> str:
    """Write the metrics after as many requests to each model."""
    micros = 1000 * MILLISECONDS * requests
    families: dict[tuple[str, str], list[tuple[str, str, float]]] = {}

    def add(kind: str, family: str, labels: str, value: float, suffix: str = "") -> None:
        families.setdefault((kind, family), []).append((f"{family}{suffix}", labels, value))

    for model in CONFIGS:
        of = f'model="{model}",version="1"'
        for name in ("request_success", "count", "exec_count"):
            add("counter", f"nv_inference_{name}", of, requests)
        for reason in ("BACKEND", "CANCELED", "OTHER", "REJECTED"):
            add(
                "counter", "nv_inference_request_failure", f'model="{model}",reason="{reason}",version="1"', 0
            )
        for name, part in (("request", 1.0), ("queue", 0.25), ("compute_infer", 0.75)):
            add("counter", f"nv_inference_{name}_duration_us", of, part * micros)
        for name in ("compute_input", "compute_output"):
            add("counter", f"nv_inference_{name}_duration_us", of, 0)
        add("gauge", "nv_inference_pending_request_count", of, 0)
        add("gauge", "nv_model_load_duration_secs", of, 0 if model == "pipeline" else 2.5)
        histograms = (
            [(triton.FIRST_RESPONSE_MS.name, (1, 2, 5, 10), MILLISECONDS)] if model in with_histogram else []
        )
        histograms += [(PROPOSED, (100, 1000, 5000), 250 * MILLISECONDS)] if proposed else []
        for family, bounds, value in histograms:
            add("histogram", family, of, requests, "_count")
            add("histogram", family, of, value * requests, "_sum")
            for bound in (*bounds, float("inf")):
                le = "+Inf" if bound == float("inf") else bound
                add("histogram", family, f'{of},le="{le}"', requests if value <= bound else 0, "_bucket")
    lines = []
    for (kind, family), samples in families.items():
        lines += [f"# HELP {family} Text", f"# TYPE {family} {kind}"]
        lines += [f"{name}{{{labels}}} {value}" for name, labels, value in samples]
    return "\n".join(lines) + "\n"


@contextmanager
def a_triton(
    version: str, with_histogram: Collection[str], *, proposed: bool = False
) -> Iterator[FaultyServer]:
    """Serve such a Triton, which answers 20 requests to each model between two readings of its metrics."""
    counter = itertools.count(100, 20)

    def metrics(connection: socket.socket, stop: threading.Event) -> None:
        body(page(next(counter), with_histogram, proposed=proposed).encode())(connection, stop)

    names = [{"name": model, "version": "1"} for model in CONFIGS]
    answers = {
        "/v2": {"name": "triton", "version": version, "extensions": ["model_configuration"]},
        "/v2/repository/index": [{**name, "state": "READY"} for name in names],
        "/v2/models/stats": {"model_stats": [{**name, "inference_stats": {}} for name in names]},
        **{
            f"/v2/models/{model}/versions/1/config": {"name": model, **config}
            for model, config in CONFIGS.items()
        },
    }
    known = {path: body(json.dumps(answer).encode()) for path, answer in answers.items()}
    with faulty({**known, "/metrics": metrics}) as server:
        yield server


@pytest.mark.parametrize(
    ("version", "with_histogram", "proposed", "exact"),
    [
        ("2.52.0", ("story",), False, set()),
        pytest.param("2.65.0", tuple(CONFIGS), False, {"resnet", "pipeline"}, marks=pytest.mark.thorough),
        ("2.73.0", tuple(CONFIGS), True, {"resnet", "pipeline"}),
    ],
    ids=["2.52", "2.65", "2.73 with the proposed histograms"],
)
def test_the_exporter_uses_what_each_release_adds(
    version: str, with_histogram: Collection[str], exact: Collection[str], *, proposed: bool
) -> None:
    """Latency is exact where Triton has the histogram; that of a stream is of its first response, so it is not."""

    def source(page: ScrapedPage, model: str, signal: str) -> str:
        return next(
            dict(labels)["source"]
            for labels, value in page.series(state.DISTRIBUTION_SOURCE).items()
            if value == 1 and {("model", model), ("signal", signal)} <= labels
        )

    with (
        a_triton(version, with_histogram, proposed=proposed) as server,
        exporting(server.url, f"{server.url}/metrics") as exporter,
    ):
        # What was read before the configurations shows nothing yet.
        shown = exporter.wait(
            lambda page: (
                len(page.series(models.INFO)) == len(CONFIGS)
                and all(
                    page.value(state.REQUEST_DURATION.count, model=model, version="1") for model in CONFIGS
                )
                and exact == {model for model in CONFIGS if source(page, model, "request") == "histogram"}
            )
        )

    assert "histogram" != source(shown, "resnet", "queue")
    for model in CONFIGS:
        assert 1 == shown.value(state.MODEL_READY, model=model, version="1")
    assert 2.5 == shown.value(triton.MODEL_LOAD_DURATION_SECS, model="resnet", version="1")
    assert {0} == set(shown.series(own.BAD_LINES).values())
    assert proposed == bool(shown.value(f"{PROPOSED}_count", model="resnet", version="1"))


def test_the_doctor_asks_nothing_of_the_newest(capsys: pytest.CaptureFixture[str]) -> None:
    """It has every histogram, with buckets of its own: no upgrade and no flag is named."""
    with a_triton("2.73.0", tuple(CONFIGS)) as server:
        at = ["--triton", server.url, "--triton-metrics", f"{server.url}/metrics"]
        main(["doctor", *at, "--gpu=none", "--json"])
    titles = {finding["title"] for finding in json.loads(capsys.readouterr().out)}

    assert not any("newest" in title or "istogram" in title or "first response" in title for title in titles)

"""A language model for a real Triton on a CPU: streams made-up tokens, and counts them as an engine does.

As in Triton's vLLM backend, `execute` returns at once and a thread of each request sends its tokens. A request's text is
`seconds to the first token, seconds between tokens, number of tokens`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import requests

from tritonwatch.local import TritonServer

ENGINES: Mapping[str, Mapping[str, str]] = {
    # vllm_backend at 8de0c14 (January 2026): histograms and tokens, no gauges.
    "head": {
        "first": "vllm:time_to_first_token_seconds",
        "gap": "vllm:time_per_output_token_seconds",
        "end": "vllm:e2e_request_latency_seconds",
        "read": "vllm:prompt_tokens_total",
        "made": "vllm:generation_tokens_total",
    },
    "old": {
        "first": "vllm:time_to_first_token_seconds",
        "made": "vllm:generation_tokens_total",
        "running": "vllm:num_requests_running",
        "waiting": "vllm:num_requests_waiting",
        "paused": "vllm:num_requests_swapped",
        "cache": "vllm:gpu_cache_usage_perc",
    },
    "v1": {
        "first": "vllm:time_to_first_token_seconds",
        "gap": "vllm:inter_token_latency_seconds",
        "mean": "vllm:request_time_per_output_token_seconds",
        "end": "vllm:e2e_request_latency_seconds",
        "read": "vllm:prompt_tokens_total",
        "made": "vllm:generation_tokens_total",
        "running": "vllm:num_requests_running",
        "waiting": "vllm:num_requests_waiting",
        "preempted": "vllm:num_preemptions_total",
        "cache": "vllm:kv_cache_usage_perc",
    },
    "trtllm-serve": {
        "first": "trtllm_time_to_first_token_seconds",
        "mean": "trtllm_time_per_output_token_seconds",
        "end": "trtllm_e2e_request_latency_seconds",
        "made": "trtllm_generation_tokens_total",
        "running": "trtllm_num_requests_running",
        "paused": "trtllm_num_paused_requests",
        "cache": "trtllm_kv_cache_utilization",
    },
    "nim": {
        "first": "time_to_first_token_seconds",
        "gap": "time_per_output_token_seconds",
        "end": "e2e_request_latency_seconds",
        "read": "prompt_tokens_total",
        "made": "generation_tokens_total",
        "running": "num_requests_running",
        "waiting": "num_requests_waiting",
        "cache": "gpu_cache_usage_perc",
    },
    "trtllm": {
        "running": "nv_trt_llm_request_metrics request_type active",
        "waiting": "nv_trt_llm_request_metrics request_type waiting",
        "paused": "nv_trt_llm_inflight_batcher_metrics inflight_batcher_specific_metric paused_requests",
        "cache": "nv_trt_llm_kv_cache_block_metrics kv_cache_block_type used",
        "blocks": "nv_trt_llm_kv_cache_block_metrics kv_cache_block_type max",
    },
}
"""What each engine calls its series; a role that it lacks is not exported."""

_MODEL = """\
import threading
import time

import numpy as np
import triton_python_backend_utils as pb_utils

NAMES = {names!r}
SECONDS = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0]


class TritonPythonModel:
    def initialize(self, args):
        self.metrics, self.families = {{}}, {{}}
        self.running, self.lock, self.changing = 0, threading.Lock(), threading.Lock()
        label = "model_name" if {model_name} else "model"
        for role, text in NAMES.items():
            name, *more = text.split()
            labels = {{label: args["model_name"]}}
            if not {model_name}:
                labels["version"] = args["model_version"]
            if more:
                labels[more[0]] = more[1]
            kind, extra = pb_utils.MetricFamily.GAUGE, {{}}
            if role in ("first", "gap", "mean", "end"):
                kind, extra = pb_utils.MetricFamily.HISTOGRAM, {{"buckets": SECONDS}}
            elif role in ("read", "made", "preempted"):
                kind = pb_utils.MetricFamily.COUNTER
            if name not in self.families:
                self.families[name] = pb_utils.MetricFamily(name=name, description=name, kind=kind)
            self.metrics[role] = self.families[name].Metric(labels=labels, **extra)
        self.gauge("blocks", 64)
        self.gauge("waiting", 3)
        self.gauge("paused", 1)
        self.count("preempted", 2)

    def execute(self, requests):
        for request in requests:
            text = pb_utils.get_input_tensor_by_name(request, "text_input").as_numpy().flatten()[0].decode()
            first, gap, tokens = map(float, text.split(","))
            sender = request.get_response_sender()
            threading.Thread(target=self.answer, args=(sender, first, gap, int(tokens))).start()

    def answer(self, sender, first, gap, tokens):
        began = last = time.monotonic()
        with self.lock:
            self.running += 1
            self.load()
        for number in range(tokens):
            time.sleep(gap if number else first)
            now = time.monotonic()
            self.observe("gap" if number else "first", now - last)
            first_at, last = (first_at if number else now), now
            tensor = pb_utils.Tensor("text_output", np.array([b"token"], dtype=object))
            sender.send(pb_utils.InferenceResponse([tensor]))
            self.count("made", 1)
        self.observe("mean", (last - first_at) / max(1, tokens - 1))
        self.observe("end", last - began)
        self.count("read", 12)
        with self.lock:
            self.running -= 1
            self.load()
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def load(self):
        self.gauge("running", self.running)
        self.gauge("cache", 16 * self.running if "blocks" in NAMES else 0.25 * self.running)

    def gauge(self, role, value):
        self.change(role, "set", value)

    def count(self, role, value):
        self.change(role, "increment", value)

    def observe(self, role, value):
        self.change(role, "observe", value)

    def change(self, role, how, value):
        # One at a time, as in the vLLM backend: the stub dies of metrics that two threads change at once.
        if role in self.metrics:
            with self.changing:
                getattr(self.metrics[role], how)(value)
"""
_CONFIG = """\
backend: "python"
max_batch_size: 0
model_transaction_policy { decoupled: True }
input [{ name: "text_input" data_type: TYPE_STRING dims: [ 1 ] }]
output [{ name: "text_output" data_type: TYPE_STRING dims: [ 1 ] }]
instance_group [{ kind: KIND_CPU count: 1 }]
"""


def write_language_model(repository: Path, name: str, engine: str) -> None:
    """Write a model that names its series as the engine does."""
    folder = repository / name / "1"
    folder.mkdir(parents=True)
    model_name = engine in ("nim", "trtllm-serve")
    (folder / "model.py").write_text(_MODEL.format(names=dict(ENGINES[engine]), model_name=model_name))
    (folder.parent / "config.pbtxt").write_text(_CONFIG)


@dataclass(frozen=True)
class Seen:
    """What the client of a stream saw."""

    first: float
    gaps: tuple[float, ...]
    end: float


def generate(server: TritonServer, model: str, first: float, gap: float, tokens: int) -> Seen:
    """Send a prompt, and read its tokens as they arrive."""
    url = f"{server.http_url}/v2/models/{model}/generate_stream"
    began, at = time.monotonic(), []
    with requests.post(
        url, json={"text_input": f"{first},{gap},{tokens}"}, stream=True, timeout=60
    ) as answer:
        assert 200 == answer.status_code, answer.text
        at = [time.monotonic() for line in answer.iter_lines() if line.startswith(b"data:")]
    assert tokens == len(at)
    gaps = tuple(after - before for before, after in pairwise(at))
    return Seen(at[0] - began, gaps, at[-1] - began)

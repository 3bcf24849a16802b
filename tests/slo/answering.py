"""A Python model that does what its input asks for: answer, fail in one of three ways, or take its time."""

from __future__ import annotations

from pathlib import Path

import requests

MODEL = """
import time
import triton_python_backend_utils as utils

class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(utils.get_input_tensor_by_name(one, "X").as_numpy()) for one in requests]

    def answer(self, x):
        value = float(x.flatten()[0])
        if value == -1:
            return utils.InferenceResponse(error=utils.TritonError("hidden"))
        if value == -2:
            raise RuntimeError("raised")
        if value == -3:
            return utils.InferenceResponse(error=utils.TritonError("bad", utils.TritonError.INVALID_ARG))
        if value > 1:
            time.sleep(value / 10)
        return utils.InferenceResponse([utils.Tensor("Y", x)])
"""
CONFIG = """
backend: "python"
max_batch_size: 1
input [{ name: "X" data_type: TYPE_FP32 dims: [ 1 ] }]
output [{ name: "Y" data_type: TYPE_FP32 dims: [ 1 ] }]
instance_group [{ kind: KIND_CPU count: 1 }]
dynamic_batching { default_queue_policy { max_queue_size: 1 } }
"""
HIDDEN, RAISED, REFUSED, SLOW = -1.0, -2.0, -3.0, 5.0
ROUND = (HIDDEN, RAISED, REFUSED, SLOW, *[0.0] * 16)
"""What a client sends again and again: two of twenty fail, and one of them Triton counts; one takes 500 ms."""


def write_models(repository: Path, *names: str) -> None:
    """Write such models into a repository."""
    for name in names:
        version = repository / name / "1"
        version.mkdir(parents=True)
        (version / "model.py").write_text(MODEL)
        (version.parent / "config.pbtxt").write_text(CONFIG)


def post(url: str, model: str, value: float, timeout: float = 9.0) -> int:
    """HTTP status of an inference."""
    tensor = {"name": "X", "shape": [1, 1], "datatype": "FP32", "data": [value]}
    return requests.post(
        f"{url}/v2/models/{model}/infer", json={"inputs": [tensor]}, timeout=timeout
    ).status_code

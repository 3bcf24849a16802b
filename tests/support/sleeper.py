"""A model that takes as long as each request asks for: the client knows the true duration.

Input X is [batch, 2] doubles: seconds to sleep for each row, and the Unix time at which the client sent it.
"""

from __future__ import annotations

from pathlib import Path

import urllib3

_MODEL = """\
import json
import time
from pathlib import Path

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.histogram = None
        wanted = Path(args["model_repository"]) / "histogram.json"
        if wanted.exists():
            wanted = json.loads(wanted.read_text())
            family = pb_utils.MetricFamily(
                name=wanted["name"], description="as Triton 26.01 has it", kind=pb_utils.MetricFamily.HISTOGRAM
            )
            labels = {"model": args["model_name"], "version": args["model_version"]}
            self.histogram = family.Metric(labels=labels, buckets=wanted["buckets"])
            self.family = family

    def execute(self, requests):
        responses = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            time.sleep(float(x[:, 0].sum()))
            if self.histogram is not None:
                self.histogram.observe(float(int((time.time() - x[0, 1]) * 1000)))
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", x[:, :1])]))
        return responses
"""

_CONFIG = """\
backend: "python"
max_batch_size: 8
input [{ name: "X" data_type: TYPE_FP64 dims: [ 2 ] }]
output [{ name: "Y" data_type: TYPE_FP64 dims: [ 1 ] }]
"""


def write_sleeper(
    repository: Path, name: str, instances: int = 1, config: str = "", histogram: str = "", versions: int = 1
) -> None:
    """Write the model; `histogram` is JSON {name, buckets} of a histogram in whole milliseconds to keep."""
    folder = repository / name
    for version in range(1, versions + 1):
        (folder / str(version)).mkdir(parents=True)
        (folder / str(version) / "model.py").write_text(_MODEL)
    group = f"instance_group [{{ kind: KIND_CPU count: {instances} }}]\n"
    (folder / "config.pbtxt").write_text(_CONFIG + group + config)
    if histogram:
        (folder / "histogram.json").write_text(histogram)


_POOL = urllib3.PoolManager(maxsize=64)
"""Its connections stay open: a new one would be part of the truth. With `requests` each would take twice the
processor time."""


def sleep_request(url: str, model: str, sleeps: list[float], now: float) -> int:
    """Ask the model to sleep; returns the HTTP status."""
    data = [value for sleep in sleeps for value in (sleep, now)]
    tensor = {"name": "X", "shape": [len(sleeps), 2], "datatype": "FP64", "data": data}
    asked = f"{url}/v2/models/{model}/infer"
    return _POOL.request("POST", asked, json={"inputs": [tensor]}, timeout=30, retries=False).status

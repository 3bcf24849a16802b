"""Models that sleep as long as an execution of theirs would take, and a client with a clock of its own."""

from __future__ import annotations

import asyncio
import json
import random
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

_MODEL = """\
import fcntl, json, random, time
from pathlib import Path
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.w = json.loads((Path(args["model_repository"]) / "workload.json").read_text())

    def execute(self, requests):
        w, start = self.w, time.perf_counter()
        if w["lock"]:
            with open(w["lock"], "w") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                self.sleep(len(requests), time.perf_counter())
        else:
            self.sleep(len(requests), start)
        took = np.array([[time.perf_counter() - start]], dtype=np.float32)
        answers = [pb_utils.InferenceResponse([pb_utils.Tensor("Y", took)]) for _ in requests]
        if not w["decoupled"]:
            return answers
        for request, answer in zip(requests, answers):
            sender = request.get_response_sender()
            sender.send(answer, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def sleep(self, size, start):
        w = self.w
        seconds = w["fixed"] + w["each"] * size
        if w["cv2"]:
            seconds *= random.gammavariate(1 / w["cv2"], w["cv2"])
        if random.random() < w["rare"]:
            seconds *= w["times"]
        time.sleep(max(0.0, seconds - (time.perf_counter() - start)))
"""
_CONFIG = """\
backend: "python"
input [{{ name: "X" data_type: TYPE_FP32 dims: [ 1 ] }}]
output [{{ name: "Y" data_type: TYPE_FP32 dims: [ 1 ] }}]
max_batch_size: {batch}
instance_group [{{ kind: KIND_CPU count: {instances} }}]
{more}
"""


@dataclass(frozen=True)
class Model:
    """What the configuration and the code of a model say; seconds of an execution of n: fixed + each * n."""

    fixed: float
    each: float = 0.0
    cv2: float = 0.0
    rare: float = 0.0
    """Share of executions that take `times` as long."""
    times: float = 10.0
    instances: int = 1
    batch: int = 1
    more: str = ""
    lock: str = ""
    """File that is locked while it works: a device that models share."""
    decoupled: bool = False

    @property
    def capacity(self) -> float:
        """Requests a second that it can answer."""
        size = self.batch if self.more else 1
        mean = (self.fixed + self.each * size) * (1 + self.rare * (self.times - 1))
        return self.instances * size / mean

    def write(self, repository: Path, name: str) -> None:
        folder = repository / name / "1"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "model.py").write_text(_MODEL)
        (folder.parent / "workload.json").write_text(
            json.dumps(
                {
                    key: getattr(self, key)
                    for key in ("fixed", "each", "cv2", "rare", "times", "lock", "decoupled")
                }
            )
        )
        more = self.more + ("model_transaction_policy { decoupled: true }" if self.decoupled else "")
        (folder.parent / "config.pbtxt").write_text(
            _CONFIG.format(batch=self.batch, instances=self.instances, more=more)
        )


def plan(rate: float, seconds: float, burst: int = 1, seed: int = 1) -> list[float]:
    """Return when requests are sent: at random, `burst` at a time, so many a second in all."""
    chance, at, times = random.Random(seed), 0.0, []
    while (at := at + chance.expovariate(rate / burst)) < seconds:
        times += [at] * burst
    return times


Answers = list[tuple[int, float, float]]
"""Status of each request, seconds until its answer, and seconds of its execution."""


def send(
    url: str, times: Mapping[str, Sequence[float]], clients: Mapping[str, int] | None = None
) -> dict[str, Answers]:
    """Send each model its requests at their times (seconds from now), whatever becomes of the earlier ones.

    `clients` of a model send one request after the other until the last time.
    """
    return asyncio.run(_send(url, times, clients or {}))


async def _send(
    url: str, times: Mapping[str, Sequence[float]], clients: Mapping[str, int]
) -> dict[str, Answers]:
    where = urlsplit(url)
    body = b'{"inputs":[{"name":"X","shape":[1,1],"datatype":"FP32","data":[1.0]}]}'
    free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    answers: dict[str, Answers] = {model: [] for model in times}
    began = time.perf_counter()

    async def ask(model: str) -> None:
        started = time.perf_counter()
        reader, writer = free.pop() if free else await asyncio.open_connection(where.hostname, where.port)
        head = f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: t\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        headers = await reader.readuntil(b"\r\n\r\n")
        length = int(re.search(rb"(?i)content-length: (\d+)", headers)[1])  # type: ignore[index]
        text = await reader.readexactly(length)
        took = time.perf_counter() - started
        free.append((reader, writer))
        status = int(headers.split()[1])
        execution = json.loads(text)["outputs"][0]["data"][0] if status == 200 else 0.0
        answers[model].append((status, took, execution))

    async def one_by_one(model: str, until: float) -> None:
        while time.perf_counter() < began + until:
            await ask(model)

    tasks = [
        asyncio.create_task(one_by_one(model, max(times[model])))
        for model, count in clients.items()
        for _ in range(count)
    ]
    open_loop = sorted(
        (at, model) for model, of_model in times.items() if model not in clients for at in of_model
    )
    for at, model in open_loop:
        await asyncio.sleep(max(0.0, began + at - time.perf_counter()))
        tasks.append(asyncio.create_task(ask(model)))
    await asyncio.gather(*tasks)
    for _, writer in free:
        writer.close()
        await writer.wait_closed()
    return answers

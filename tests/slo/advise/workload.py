"""Models that sleep as long as an execution of theirs would take, and clients with a clock of their own.

Run as a program it is such a client: it sends requests at the times of a plan whatever becomes of the earlier ones,
and prints JSON lines [seconds since the start, status, seconds].
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

_MODEL = """\
import json
import random
import time
from pathlib import Path

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.work = json.loads((Path(args["model_repository"]) / "work.json").read_text())

    def execute(self, requests):
        began, work = time.perf_counter(), self.work
        seconds = work["fixed"] + work["each"] * len(requests)
        if work["cv2"]:
            seconds *= random.gammavariate(1 / work["cv2"], work["cv2"])
        responses = []
        for request in requests:
            x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("Y", x)]))
        time.sleep(max(0.0, seconds - (time.perf_counter() - began)))
        return responses
"""

_CONFIG = """\
backend: "python"
input [{ name: "X" data_type: TYPE_FP32 dims: [ 1 ] }]
output [{ name: "Y" data_type: TYPE_FP32 dims: [ 1 ] }]
"""

_BODY = json.dumps({"inputs": [{"name": "X", "shape": [1, 1], "datatype": "FP32", "data": [1.0]}]}).encode()


def write_model(
    repository: Path,
    name: str,
    *,
    fixed: float,
    each: float = 0.0,
    cv2: float = 0.0,
    instances: int = 1,
    max_batch_size: int = 8,
    config: str = "",
) -> None:
    """Write a model whose execution of n requests takes `fixed + each * n` seconds, with this squared variation."""
    folder = repository / name
    (folder / "1").mkdir(parents=True, exist_ok=True)
    (folder / "1" / "model.py").write_text(_MODEL)
    (folder / "work.json").write_text(json.dumps({"fixed": fixed, "each": each, "cv2": cv2}))
    group = f"instance_group [{{ kind: KIND_CPU count: {instances} }}]\nmax_batch_size: {max_batch_size}\n"
    (folder / "config.pbtxt").write_text(_CONFIG + group + config)


def plan(rate: float, seconds: float, burst: int = 1, seed: int = 1) -> list[float]:
    """Return when requests are sent: at random, `burst` at a time, so many a second in all."""
    chance, at, times = random.Random(seed), 0.0, []
    while (at := at + chance.expovariate(rate / burst)) < seconds:
        times += [at] * burst
    return times


@dataclass
class Client:
    """A client that sends a plan to a model."""

    answers_file: Path
    process: subprocess.Popen[str]
    answers: list[tuple[float, int, float]] = field(default_factory=list)

    def wait(self) -> Sequence[tuple[float, int, float]]:
        """Wait until all is answered; return the time of each request, its status and the seconds it took."""
        assert self.process.wait(timeout=120) == 0
        lines = self.answers_file.read_text().splitlines()
        self.answers = [tuple(json.loads(line)) for line in lines]
        return self.answers


@contextmanager
def sending(url: str, model: str, times: Sequence[float], folder: Path) -> Iterator[Client]:
    """Send requests at these times (seconds from now) from a process of its own; the block ends it."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{model}-{time.time():.3f}"
    (folder / f"{name}.plan").write_text(json.dumps(list(times)))
    answers = folder / f"{name}.answers"
    with answers.open("w") as out:
        command = [sys.executable, __file__, url, model, str(folder / f"{name}.plan")]
        process = subprocess.Popen(command, stdout=out, text=True)
    try:
        yield Client(answers, process)
    finally:
        process.kill()
        process.wait()


async def _send_all(url: str, model: str, times: Sequence[float]) -> None:
    where = urlsplit(url)
    head = (
        f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: {where.netloc}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(_BODY)}\r\n\r\n"
    ).encode()
    free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    began = time.perf_counter()

    async def send(at: float) -> None:
        started = time.perf_counter()
        reader, writer = free.pop() if free else await asyncio.open_connection(where.hostname, where.port)
        writer.write(head + _BODY)
        answer = await reader.readuntil(b"\r\n\r\n")
        length = int(answer.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        await reader.readexactly(length)
        took = time.perf_counter() - started
        free.append((reader, writer))
        print(json.dumps([at, int(answer.split()[1]), took]))

    tasks = []
    for at in times:
        await asyncio.sleep(max(0.0, began + at - time.perf_counter()))
        tasks.append(asyncio.create_task(send(at)))
    await asyncio.gather(*tasks)


if __name__ == "__main__":
    asyncio.run(_send_all(sys.argv[1], sys.argv[2], json.loads(Path(sys.argv[3]).read_text())))

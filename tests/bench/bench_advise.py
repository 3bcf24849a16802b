"""Measure what `tritonwatch advise` predicts, on workloads that its authors did not choose.

From minutes of light traffic it predicts the rate at which each objective breaks, now and after a change. Then a ramp is
sent around the prediction, by a client with a clock of its own, to the model as it is and changed. The models sleep, so
that two cores are no limit. `ADVISE_LIGHT_SECONDS` is the length of the light traffic, and of the refused cases.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from bench.measurements import record
from slo.advise.workload import plan
from support import history
from support.exporter import exporting
from support.triton import control, live_triton
from support.waiting import eventually
from tritonwatch.cli import main
from tritonwatch.local import TritonServer, wheel_folder

LIGHT_SECONDS = int(os.environ.get("ADVISE_LIGHT_SECONDS", "240"))
STEP_SECONDS = 25
STEPS = (0.7, 0.85, 1.0, 1.15, 1.3)
"""Rates of a ramp, in predicted break rates."""
AT_ONCE = 4
"""Models that are ramped at the same time: more would keep the two cores busy."""
EVERY_SECONDS = 5

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


@dataclass(frozen=True)
class Workload:
    """A model, its light traffic (requests/s, so many at a time), its objective, and a change to predict."""

    name: str
    rate: float
    signal: str
    threshold: float
    target: float
    model: Model
    change: str
    changed: Model
    burst: int = 1

    def objective(self) -> str:
        return (
            f"- name: {self.name}\n  models: [{self.name}]\n  target: {self.target}%\n"
            f"  indicator: {{kind: {self.signal}, threshold: {self.threshold * 1000:g}ms}}\n"
        )


def batcher(more: str = "") -> str:
    return f"dynamic_batching {{ {more} }}"


def changing(
    name: str,
    rate: float,
    signal: str,
    threshold: float,
    target: float,
    model: Model,
    change: str,
    burst: int = 1,
    **changed: Any,
) -> Workload:
    return Workload(name, rate, signal, threshold, target, model, change, replace(model, **changed), burst)


WORKLOADS = (
    changing("steady", 25, "latency", 0.06, 99, Model(0.012), "instances=2", instances=2),
    changing("uneven", 20, "queue", 0.05, 99, Model(0.015, cv2=0.3), "instances=2", instances=2),
    changing(
        "batch-of-4",
        35,
        "latency",
        0.1,
        99,
        Model(0.01, 0.006, batch=4, more=batcher()),
        "max_batch_size=8",
        batch=8,
    ),
    changing(
        *("delay-20ms", 32, "latency", 0.12, 99),
        Model(0.02, 0.006, batch=6, more=batcher("max_queue_delay_microseconds: 20000")),
        *("delay_ms=0",),
        more=batcher(),
    ),
    changing(
        "two-instances", 24, "queue", 0.05, 95, Model(0.025, cv2=0.5, instances=2), "instances=3", instances=3
    ),
    changing(
        "in-threes", 30, "latency", 0.15, 95, Model(0.03, instances=3), "instances=4", burst=3, instances=4
    ),
    changing(
        *("queue-of-12", 35, "latency", 0.12, 99),
        Model(0.01, 0.004, batch=4, more=batcher("default_queue_policy { max_queue_size: 12 }")),
        "instances=2",
        instances=2,
    ),
    changing("rarely-slow", 25, "latency", 0.2, 95, Model(0.01, rare=0.02), "instances=2", instances=2),
    changing(
        "large-batches",
        35,
        "queue",
        0.1,
        99,
        Model(0.06, 0.004, batch=16, more=batcher()),
        "instances=2",
        instances=2,
    ),
    changing(
        "batching-off", 14, "latency", 0.15, 95, Model(0.018, 0.002, batch=8), "batching=1", more=batcher()
    ),
)


@dataclass
class Stack:
    """A Triton with all models, and the Prometheus that watches it."""

    triton: TritonServer
    repository: Path
    prometheus: str
    folder: Path

    def advise(self, model: str, ended: float, *words: str) -> dict[str, Any]:
        """Return what is said about a model from its light traffic, which ended then (Unix time)."""
        command = ["advise", "--prometheus", self.prometheus, "--objectives", str(self.folder / "objectives")]
        command += ["--model", model, "--scrape-interval", str(EVERY_SECONDS), "--json", *words]
        command += ["--last", f"{LIGHT_SECONDS}s", "--at", f"{ended:.0f}"]
        printed, told = StringIO(), StringIO()
        with redirect_stdout(printed), redirect_stderr(told):
            code = main(command)
        if code != 0:
            return {"unknown": f"exit code {code}", "text": told.getvalue().strip()}
        advice: dict[str, Any] = json.loads(printed.getvalue())["advice"][0]
        return advice

    def change(self, workload: Workload) -> None:
        workload.changed.write(self.repository, workload.name)
        assert 200 == control(self.triton, "unload", workload.name)
        eventually(lambda: control(self.triton, "load", workload.name) == 200, "not loaded again")


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


def kept(workload: Workload, answers: Answers) -> float:
    """Return the share of the requests that kept the objective, as the client saw them; a refused one did not."""
    spent = [
        took - (execution if workload.signal == "queue" else 0)
        for status, took, execution in answers
        if status == 200
    ]
    return sum(seconds <= workload.threshold for seconds in spent) / max(1, len(answers))


def ramp(stack: Stack, predicted: Mapping[Workload, float]) -> dict[Workload, float]:
    """Return the rate at which each objective broke, between two steps of its ramp; NaN above all of them."""
    shares: dict[Workload, list[float]] = {each: [] for each in predicted}
    chosen = list(predicted)
    for number in range(0, len(chosen), AT_ONCE):
        group = chosen[number : number + AT_ONCE]
        for step in STEPS:
            times = {
                each.name: plan(predicted[each] * step, STEP_SECONDS, each.burst, seed=9) for each in group
            }
            answers = send(stack.triton.http_url, times)
            for each in group:
                shares[each].append(kept(each, answers[each.name]))
            time.sleep(1)
    return {each: predicted[each] * crossing(of_each, each.target / 100) for each, of_each in shares.items()}


def crossing(shares: Sequence[float], target: float) -> float:
    """Return the step at which the share falls under the target, between two steps; the last break counts."""
    above = [number for number, share in enumerate(shares) if share >= target]
    if not above:
        return STEPS[0]
    last = above[-1]
    if last == len(STEPS) - 1:
        return STEPS[-1]
    part = (shares[last] - target) / (shares[last] - shares[last + 1])
    return STEPS[last] + part * (STEPS[last + 1] - STEPS[last])


def serving(folder: Path, models: Mapping[str, Model], objectives: str, arguments: Sequence[str] = ()) -> Any:
    for name, model in models.items():
        model.write(folder / "models", name)
    (folder / "objectives").mkdir()
    (folder / "objectives" / "o.yaml").write_text("objectives:\n" + objectives)
    return live_triton(folder / "models", folder, "explicit", ["--load-model=*", *arguments])


_ADVISED = """\
{seconds} s of light traffic to all models at once, then ramps of 25 s a step around each prediction, on a machine with a load
of {load:.1f}. The client has its own clock; a refused request is not good. A measured rate is that between the last step that met the
objective and the next; the ramp ends at 1.3 times the prediction.

{table}
"""
_REFUSED = """\
The same, {seconds} s of traffic that no rate can be told of: a closed loop of four clients, two models that lock one file, cached or
decoupled responses, a model slower than its threshold, executions of which few last very long, and sequences.

{table}
"""
COMMAND = "make bench ARGS=tests/bench/bench_advise.py"


def told(advice: Mapping[str, Any]) -> str:
    if advice["unknown"]:
        return f"UNKNOWN ({advice['unknown']})"
    breaks = advice["breaks"]
    return f"{breaks['estimate']:.1f}" if breaks["estimate"] else f"at most {breaks['most']:.1f}"


@pytest.mark.real
def test_break_rates_and_changes(tmp_path: Path) -> None:
    """Predict from light traffic; then send what was predicted, before and after the change."""
    lines = [
        "| workload | breaks at, predicted | measured | error | change | predicted | measured | error |",
        "|---|---|---|---|---|---|---|---|",
    ]
    models = {each.name: each.model for each in WORKLOADS}
    with (
        serving(tmp_path, models, "".join(each.objective() for each in WORKLOADS)) as server,
        exporting(server.http_url, server.metrics_url, buckets_from=tmp_path / "objectives") as exporter,
        history.serve(
            "", tmp_path / "p", scrape=exporter.url.removeprefix("http://"), every=f"{EVERY_SECONDS}s"
        ) as url,
    ):
        stack = Stack(server, tmp_path / "models", url, tmp_path)
        time.sleep(2 * EVERY_SECONDS)
        light = {each.name: plan(each.rate, LIGHT_SECONDS, each.burst) for each in WORKLOADS}
        answers = send(server.http_url, light)
        time.sleep(EVERY_SECONDS + 1)
        ended = time.time()
        lost = [name for name, each in answers.items() if any(status != 200 for status, _, _ in each)]
        print("lost", lost, "load", os.getloadavg())
        advice = {each: stack.advise(each.name, ended, "--if", each.change) for each in WORKLOADS}
        (tmp_path / "advice.json").write_text(
            json.dumps({each.name: a for each, a in advice.items()}, indent=1)
        )
        print(tmp_path / "advice.json", {each.name: (told(a), a.get("text")) for each, a in advice.items()})
        known = {
            each: a
            for each, a in advice.items()
            if not a["unknown"] and a["breaks"]["estimate"] and a["asked"]["breaks"]["estimate"]
        }
        now = {each: float(a["breaks"]["estimate"]) for each, a in known.items()}
        then = {each: float(a["asked"]["breaks"]["estimate"]) for each, a in known.items()}
        measured = ramp(stack, now)
        for each in known:
            stack.change(each)
        changed = ramp(stack, then)
        for each, a in advice.items():
            if each not in known:
                lines.append(f"| {each.name} | {told(a)} | | | {each.change} | | | |")
                continue
            errors = [
                f"{predicted[each] / seen[each] - 1:+.0%}"
                for predicted, seen in ((now, measured), (then, changed))
            ]
            lines.append(
                f"| {each.name} | {now[each]:.1f} | {measured[each]:.1f} | {errors[0]} "
                f"| {each.change} | {then[each]:.1f} | {changed[each]:.1f} | {errors[1]} |"
            )
    table = "\n".join(lines)
    print(table, "load", os.getloadavg())
    record("advised", COMMAND, _ADVISED.format(seconds=LIGHT_SECONDS, load=os.getloadavg()[0], table=table))


REFUSED = {
    "closed-loop": Model(0.02),
    "shares-a-lock": Model(0.015, lock="device.lock"),
    "shares-it-too": Model(0.02, lock="device.lock"),
    "response-cache": Model(0.02, more="response_cache { enable: true }"),
    "decoupled": Model(0.02, decoupled=True),
    "too-slow-alone": Model(0.17),
    "heavy-tail": Model(0.012, cv2=2.5),
    "sequences": Model(0.02, batch=4, more="sequence_batching { direct {} }"),
}
"""Cases of which no rate can be told, or only a bound: why is in the name."""


@pytest.mark.real
def test_refusals(tmp_path: Path) -> None:
    """What is said where the counters do not tell at what rate an objective breaks."""
    models = {
        name: replace(model, lock=model.lock and str(tmp_path / model.lock))
        for name, model in REFUSED.items()
    }
    objectives = "- {name: answers, target: 95%, indicator: {kind: latency, threshold: 150ms}}\n"
    with (
        serving(
            tmp_path,
            models,
            objectives,
            [f"--cache-directory={wheel_folder() / 'caches'}", "--cache-config=local,size=1048576"],
        ) as server,
        exporting(server.http_url, server.metrics_url, buckets_from=tmp_path / "objectives") as exporter,
        history.serve(
            "", tmp_path / "p", scrape=exporter.url.removeprefix("http://"), every=f"{EVERY_SECONDS}s"
        ) as url,
    ):
        stack = Stack(server, tmp_path / "models", url, tmp_path)
        time.sleep(2 * EVERY_SECONDS)
        loads = {
            name: plan(15 if name != "too-slow-alone" else 2, LIGHT_SECONDS, seed=number)
            for number, name in enumerate(models)
            if name not in ("decoupled", "sequences")
        }
        answers = send(server.http_url, loads, {"closed-loop": 4})
        time.sleep(EVERY_SECONDS + 1)
        ended = time.time()
        print({name: len(each) for name, each in answers.items()}, "load", os.getloadavg())
        said = {name: stack.advise(name, ended) for name in models}
    lines = [f"| {name} | {told(advice)} | {advice['text']} |" for name, advice in said.items()]
    table = "\n".join(["| workload | breaks at | why |", "|---|---|---|", *lines])
    print(table)
    record("refused", COMMAND, _REFUSED.format(seconds=LIGHT_SECONDS, table=table))

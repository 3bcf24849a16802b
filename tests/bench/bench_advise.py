"""Measure what `tritonwatch advise` predicts, on workloads that its authors did not choose.

From minutes of light traffic it predicts the rate at which each objective breaks, now and after a change. Then that rate is
searched, by a client with a clock of its own that does not know the prediction, for the model as it is and changed. The
models sleep, so that two cores are no limit. `ADVISE_LIGHT_SECONDS` is the length of the light traffic, and of the refused
cases; `ADVISE_ONLY` names the workloads to measure, with commas (then nothing is written to the page).

What Prometheus recorded, and every step of the searches, stay in .cache/bench-advise. With `ADVISE_REPLAY=1` nothing is sent:
what is predicted now from the last recording is compared with what was measured then, and printed.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.measurements import record
from slo.advise.workload import Model, plan, send
from support import history
from support.exporter import exporting
from support.tools import ROOT
from support.triton import control, live_triton
from support.waiting import eventually
from tritonwatch.cli import main
from tritonwatch.local import TritonServer, wheel_folder

LIGHT_SECONDS = int(os.environ.get("ADVISE_LIGHT_SECONDS", "240"))
STEPS, STEP_SECONDS = 11, 15
"""Of a search for the rate at which an objective breaks."""
STRIDE, LAST_STRIDE = 1.3, 1.06
"""Of the rates of its steps."""
AT_ONCE = 650
"""Requests a second that the models searched at the same time could answer at most: more would keep two cores busy."""
HELD, HELD_SECONDS = 0.9, 30
"""Share of the measured rate that is sent after a change, and for how long: what the objective bore before."""
EVERY_SECONDS = 3
REPLAY = bool(os.environ.get("ADVISE_REPLAY"))


@dataclass(frozen=True, eq=False)
class Workload:
    """A model, its light traffic (requests/s, so many at a time), its objective, and a change to predict."""

    name: str
    rate: float
    signal: str
    threshold: float
    target: float
    model: Model
    change: str
    changed: Mapping[str, Any]
    """What the change sets in the model."""
    burst: int = 1

    @property
    def allowed(self) -> float:
        """Share of the requests that may be late or refused."""
        return 1 - self.target / 100

    def objective(self) -> str:
        return (
            f"- name: {self.name}\n  models: [{self.name}]\n  target: {self.target}%\n"
            f"  indicator: {{kind: {self.signal}, threshold: {self.threshold * 1000:g}ms}}\n"
        )


def batcher(more: str = "") -> str:
    return f"dynamic_batching {{ {more} }}"


DELAYED = batcher("max_queue_delay_microseconds: 20000")
LIMITED = batcher("default_queue_policy { max_queue_size: 12 }")
TWO = {"instances": 2}
WORKLOADS = (
    Workload("steady", 25, "latency", 0.06, 99, Model(0.012), "instances=2", TWO),
    Workload("uneven", 20, "queue", 0.05, 99, Model(0.015, cv2=0.3), "instances=2", TWO),
    Workload(
        *("batch-of-4", 35, "latency", 0.1, 99, Model(0.01, 0.006, batch=4, more=batcher())),
        *("max_batch_size=8", {"batch": 8}),
    ),
    Workload(
        *("delay-20ms", 32, "latency", 0.12, 99, Model(0.02, 0.006, batch=6, more=DELAYED)),
        *("delay_ms=0", {"more": batcher()}),
    ),
    Workload(
        *("two-instances", 24, "queue", 0.05, 95, Model(0.025, cv2=0.5, instances=2)),
        *("instances=3", {"instances": 3}),
    ),
    Workload(
        *("in-threes", 30, "latency", 0.15, 95, Model(0.03, instances=3)),
        *("instances=4", {"instances": 4}, 3),
    ),
    Workload(
        *("queue-of-12", 35, "latency", 0.12, 99, Model(0.01, 0.004, batch=4, more=LIMITED)),
        *("instances=2", TWO),
    ),
    Workload("rarely-slow", 25, "latency", 0.2, 95, Model(0.01, rare=0.02), "instances=2", TWO),
    Workload(
        *("large-batches", 35, "queue", 0.1, 99, Model(0.06, 0.004, batch=16, more=batcher())),
        *("instances=2", TWO),
    ),
    Workload(
        *("batching-off", 14, "latency", 0.15, 95, Model(0.018, 0.002, batch=8)),
        *("batching=1", {"more": batcher()}),
    ),
    Workload(
        *("batching-on", 60, "latency", 0.15, 95, Model(0.018, 0.002, batch=8, more=batcher())),
        *("batching=0", {"more": ""}),
    ),
)
ONLY = os.environ.get("ADVISE_ONLY", "").split(",")
CHOSEN = [each for each in WORKLOADS if ONLY == [""] or each.name in ONLY]


def advised(
    prometheus: str, folder: Path, model: str, ended: float, *words: str, seconds: float = LIGHT_SECONDS
) -> dict[str, Any]:
    """Return what is said about a model from its traffic of so many seconds until then (Unix time)."""
    command = ["advise", "--prometheus", prometheus, "--objectives", str(folder / "objectives")]
    command += ["--model", model, "--scrape-interval", str(EVERY_SECONDS), "--json", *words]
    command += ["--last", f"{seconds:.0f}s", "--at", f"{ended:.0f}"]
    printed, told = StringIO(), StringIO()
    with redirect_stdout(printed), redirect_stderr(told):
        code = main(command)
    if code != 0:
        return {"unknown": f"exit code {code}", "text": told.getvalue().strip()}
    advice: dict[str, Any] = json.loads(printed.getvalue())["advice"][0]
    return advice


Step = tuple[float, int, int]
"""Requests a second, how many were late or refused, and how many were sent."""


def sent(url: str, rates: Mapping[Workload, float], seconds: float, seed: int) -> dict[Workload, Step]:
    """Send to each model at its rate; return what came, as the client saw it."""
    times = {
        each.name: plan(rate, seconds, each.burst, seed=100 * WORKLOADS.index(each) + seed)
        for each, rate in rates.items()
    }
    answers = send(url, times)
    return {
        each: (
            len(answers[each.name]) / seconds,
            sum(
                status != 200 or took - (execution if each.signal == "queue" else 0) > each.threshold
                for status, took, execution in answers[each.name]
            ),
            len(answers[each.name]),
        )
        for each in rates
    }


def next_rate(steps: Sequence[Step], first: float, allowed: float) -> float:
    """Return the rate of the next step: up after one that met the objective, else down; strides shrink where it turns."""
    rate, stride, before = first, STRIDE, None
    for _, late, count in steps:
        met = late <= allowed * count
        if before not in (None, met):
            stride = max(LAST_STRIDE, stride**0.5)
        rate, before = rate * stride if met else rate / stride, met
    return rate


def crossing(steps: Sequence[Step], allowed: float) -> tuple[float, float]:
    """Return the rate at which the allowed share is late, and its standard error as a share of it.

    It is read off a logistic regression of the share that was late on the logarithm of the rate, over all steps. Late
    requests come in clusters: how far the steps are off the curve tells by how much that widens the error.
    """
    rates, late, count = np.array(steps).T
    x = np.column_stack([np.ones(len(steps)), np.log(rates / rates.mean())])
    limit = math.log(allowed / (1 - allowed))
    line = np.array([limit, 10.0])
    for _ in range(100):
        share = 1 / (1 + np.exp(-np.clip(x @ line, -30, 30)))
        weights = count * share * (1 - share) + 1e-9
        covariance = np.linalg.inv(x.T @ (weights[:, None] * x))
        line += np.clip(covariance @ (x.T @ (late - count * share)), -3, 3)
        line[1] = max(1.0, line[1])
    at = float(
        np.clip((limit - line[0]) / line[1], -1, 1)
    )  # steps that never, or always, met it tell no more
    slopes = np.array([1, at]) / line[1]
    spread = max(1.0, float(np.sum((late - count * share) ** 2 / weights)) / (len(steps) - 2))
    return float(rates.mean() * math.exp(at)), float(spread * slopes @ covariance @ slopes) ** 0.5


def groups(models: Mapping[Workload, Model]) -> list[list[Workload]]:
    """Return the workloads that are measured at the same time."""
    found: list[list[Workload]] = []
    for each in sorted(models, key=lambda each: -models[each].capacity):
        for group in found:
            if sum(models[other].capacity for other in (*group, each)) <= AT_ONCE:
                group.append(each)
                break
        else:
            found.append([each])
    return found


def search(url: str, models: Mapping[Workload, Model]) -> dict[Workload, list[Step]]:
    """Send around the rate at which each objective breaks; it begins at a share of what the model can answer."""
    steps: dict[Workload, list[Step]] = {each: [] for each in models}
    for number in range(STEPS):
        rates = {
            each: next_rate(steps[each], 0.7 * model.capacity, each.allowed) for each, model in models.items()
        }
        for each, step in sent(url, rates, STEP_SECONDS, number).items():
            steps[each].append(step)
    return steps


def kept_folder(name: str) -> Path:
    """Return the folder in which a test's recording stays; empty, unless it is replayed."""
    folder = ROOT / ".cache" / "bench-advise" / name
    if not REPLAY:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    return folder


@contextmanager
def serving(
    folder: Path, models: Mapping[str, Model], objectives: str, arguments: Sequence[str] = ()
) -> Iterator[tuple[TritonServer, str]]:
    """Run a Triton with the models; yields it, and the Prometheus that watches it."""
    for name, model in models.items():
        model.write(folder / "models", name)
    (folder / "objectives").mkdir()
    (folder / "objectives" / "o.yaml").write_text("objectives:\n" + objectives)
    with (
        live_triton(folder / "models", folder, "explicit", ["--load-model=*", *arguments]) as server,
        exporting(server.http_url, server.metrics_url, buckets_from=folder / "objectives") as exporter,
        history.serve(
            "", folder / "p", scrape=exporter.url.removeprefix("http://"), every=f"{EVERY_SECONDS}s"
        ) as url,
    ):
        time.sleep(2 * EVERY_SECONDS)
        yield server, url


_ADVISED = """\
{seconds} s of light traffic to all models at once, read every {every} s; then {steps} steps of {step} s around each break rate, on a
machine with a load of {load:.1f}. The client has its own clock and does not know the prediction; a refused request is not good. A measured
rate, with its standard error, is where a logistic regression over the steps has the allowed share of late requests. "Held" is the
share of good requests at {held:.0%} of the rate that the objective bore before the change. "Advised" is a change that `advise` proposed when
asked about the search before it.

{table}

{within}
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
    if breaks["estimate"]:
        return f"{breaks['estimate']:.1f}"
    return (
        f"{breaks['least']:.1f} to {breaks['most']:.1f}"
        if breaks["least"]
        else f"at most {breaks['most']:.1f}"
    )


def predict(url: str, folder: Path, ended: float) -> dict[str, dict[str, Any]]:
    """Return the advice on each workload from its light traffic."""
    return {each.name: advised(url, folder, each.name, ended, "--if", each.change) for each in CHOSEN}


def measure(folder: Path) -> dict[str, Any]:
    """Send light traffic; then search the break rates, before and after the change."""
    before = {each: each.model for each in CHOSEN}
    after = {each: replace(each.model, **each.changed) for each in CHOSEN}
    with serving(
        folder, {each.name: each.model for each in CHOSEN}, "".join(each.objective() for each in CHOSEN)
    ) as (server, _):
        light = {each.name: plan(each.rate, LIGHT_SECONDS, each.burst) for each in CHOSEN}
        answers = send(server.http_url, light)
        seen: dict[str, Any] = {"ended": time.time(), "load": os.getloadavg()[0]}
        lost = [name for name, each in answers.items() if any(status != 200 for status, _, _ in each)]
        print("lost", lost, "load", os.getloadavg(), flush=True)
        for key in ("now", "searched", "held", "then"):
            seen[key] = {}
        for group in groups(before):
            began = time.time()
            found = search(server.http_url, {each: before[each] for each in group})
            time.sleep(2 * EVERY_SECONDS)
            seen["now"] |= {each.name: steps for each, steps in found.items()}
            seen["searched"] |= {each.name: (began, time.time()) for each in group}
        for each, model in after.items():
            model.write(folder / "models", each.name)
            assert 200 == control(server, "unload", each.name)
            eventually(lambda: control(server, "load", each.name) == 200, "not loaded again")  # noqa: B023
        for group in groups(after):
            bore = {each: crossing(seen["now"][each.name], each.allowed)[0] for each in group}
            held = {each: HELD * rate for each, rate in bore.items() if rate < after[each].capacity}
            found_held = sent(server.http_url, held, HELD_SECONDS, STEPS)
            found = search(server.http_url, {each: after[each] for each in group})
            seen["held"] |= {each.name: step for each, step in found_held.items()}
            seen["then"] |= {each.name: steps for each, steps in found.items()}
    (folder / "seen.json").write_text(json.dumps(seen, indent=1))
    return seen


def off(told: Mapping[str, Any] | None, measured: float, allowed: float) -> tuple[str, bool]:
    """Return how far a predicted range is off, and whether that is as much as is allowed."""
    if told is None or not told["most"]:
        return "", False
    if told["estimate"] is None:
        inside = (told["least"] or 0.0) <= measured <= told["most"]
        return "within" if inside else "outside", inside
    error = told["estimate"] / measured - 1
    return f"{error:+.0%}", abs(error) <= allowed


@pytest.mark.real
def test_break_rates_and_changes() -> None:
    """Compare what is predicted from light traffic with what was measured, before and after a change."""
    folder = kept_folder("advised")
    seen = json.loads((folder / "seen.json").read_text()) if REPLAY else measure(folder)
    lines = [
        "| workload | breaks at, predicted | measured | error | change | predicted | measured | error | held | advised |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    right: dict[str, list[bool]] = {"break rates within 15 %": [], "changes within 10 %": [], "held": []}
    with history.running(folder / "p") as url:
        advice = predict(url, folder, seen["ended"])
        for each in CHOSEN:
            said, (began, ended) = advice[each.name], seen["searched"][each.name]
            cells = [each.name]
            for key, allowed, of in (("now", 0.15, said), ("then", 0.1, said.get("asked") or {})):
                breaks = of.get("breaks")
                rate, error = crossing(seen[key][each.name], each.allowed)
                text, good = off(breaks, rate, allowed)
                right["break rates within 15 %" if key == "now" else "changes within 10 %"].append(good)
                cells += [told(of | {"unknown": said["unknown"]}), f"{rate:.1f} ± {error * rate:.1f}", text]
                cells += [each.change] if key == "now" else []
            near = advised(url, folder, each.name, ended, seconds=ended - began)
            proposed = [
                ",".join(f"{k}={v:g}" for k, v in one["what"].items()) for one in near.get("changes", ())
            ]
            _, late, count = seen["held"].get(each.name, (0, 0, 0))
            if count:
                right["held"].append(late <= each.allowed * count)
            cells += [f"{1 - late / count:.1%}, target {each.target} %" if count else "", ", ".join(proposed)]
            lines.append(f"| {' | '.join(cells)} |")
    table = "\n".join(lines)
    within = (
        "; ".join(f"{what}: {sum(good)} of {len(good)}" for what, good in right.items()).capitalize() + "."
    )
    print(table, within, sep="\n\n")
    if not REPLAY and CHOSEN == list(WORKLOADS):
        facts = {"seconds": LIGHT_SECONDS, "every": EVERY_SECONDS, "load": seen["load"], "held": HELD}
        facts |= {"steps": STEPS, "step": STEP_SECONDS}
        record("advised", COMMAND, _ADVISED.format(**facts, table=table, within=within))


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
def test_refusals() -> None:
    """What is said where the counters do not tell at what rate an objective breaks."""
    folder = kept_folder("refused")
    if not REPLAY:
        refuse(folder)
    ended = json.loads((folder / "seen.json").read_text())["ended"]
    with history.running(folder / "p") as url:
        said = {name: advised(url, folder, name, ended) for name in REFUSED}
    lines = [f"| {name} | {told(advice)} | {advice['text']} |" for name, advice in said.items()]
    table = "\n".join(["| workload | breaks at | why |", "|---|---|---|", *lines])
    print(table)
    if not REPLAY:
        record("refused", COMMAND, _REFUSED.format(seconds=LIGHT_SECONDS, table=table))


def refuse(folder: Path) -> None:
    """Send the traffic that no rate can be told of."""
    models = {
        name: replace(model, lock=model.lock and str(folder / model.lock)) for name, model in REFUSED.items()
    }
    objectives = "- {name: answers, target: 95%, indicator: {kind: latency, threshold: 150ms}}\n"
    cache = [f"--cache-directory={wheel_folder() / 'caches'}", "--cache-config=local,size=1048576"]
    with serving(folder, models, objectives, cache) as (server, _):
        loads = {
            name: plan(15 if name != "too-slow-alone" else 2, LIGHT_SECONDS, seed=number)
            for number, name in enumerate(models)
            if name not in ("decoupled", "sequences")
        }
        answers = send(server.http_url, loads, {"closed-loop": 4})
        (folder / "seen.json").write_text(json.dumps({"ended": time.time()}))
        print({name: len(each) for name, each in answers.items()}, "load", os.getloadavg())
        time.sleep(2 * EVERY_SECONDS)

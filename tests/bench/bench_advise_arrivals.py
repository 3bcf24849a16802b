"""Measure how `tritonwatch advise` copes with arrivals that are no Poisson process, on made counters.

Requests are played on a clock by code that shares none with the product; a reading takes place a few milliseconds late, and
the seconds of executions are read up to 0.2 s before the requests. The truth is found by playing many more of them.
"""

from __future__ import annotations

import math
import random
from bisect import bisect
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from heapq import heapreplace
from itertools import accumulate
from statistics import fmean, median, stdev

from bench import bench_advise
from bench.measurements import record
from triton_slo.advise.advice import advise
from triton_slo.advise.measured import Configuration, Measured, Promise, Step

SECONDS, STEP = 240.0, 10.0
SEEDS = range(1, 5)
OVERHEAD = 0.0015


@dataclass(frozen=True)
class Workload:
    """Requests that come one by one, `burst` at a time, or at 1.5 and 0.5 times the rate for `period` seconds by turns.

    With `geometric`, that is the mean of the burst. 95 % are to wait (with `latency`: take) no longer than `threshold`.
    """

    rate: float
    threshold: float
    fixed: float
    each: float = 0.0
    cv2: float = 0.0
    instances: int = 1
    batch: int = 1
    latency: bool = False
    burst: int = 1
    geometric: bool = False
    period: float = 0.0

    def arrivals(self, rate: float, seconds: float, seed: int) -> Iterator[float]:
        chance, at = random.Random(seed), 0.0
        fast, changes = True, chance.expovariate(1 / self.period) if self.period else math.inf
        while at < seconds:
            pace = (1.5 if fast else 0.5) if self.period else 1.0
            following = at + chance.expovariate(pace * rate / self.burst)
            if following > changes:
                at, fast = changes, not fast
                changes += chance.expovariate(1 / self.period)
                continue
            at, size = following, self.burst
            if self.geometric:
                size = 1 + int(math.log(1 - chance.random()) / math.log(1 - 1 / self.burst))
            yield from [at] * size

    def play(self, rate: float, seconds: float, seed: int) -> list[tuple[float, float, list[float]]]:
        """Return the start of each execution, what it took, and when its requests came."""
        chance, free = random.Random(1000 + seed), [0.0] * self.instances
        queue: deque[float] = deque()
        done = []
        for now in (*self.arrivals(rate, seconds, seed), math.inf):
            while queue:
                if (start := max(free[0], queue[0])) > now:
                    break
                size = min(len(queue), self.batch)
                took = self.fixed + self.each * size
                took *= chance.gammavariate(1 / self.cv2, self.cv2) if self.cv2 else 1.0
                heapreplace(free, start + took)
                done.append((start, took, [queue.popleft() for _ in range(size)]))
            queue.append(now)
        return done

    def breaks(self) -> float:
        """Return the rate above which more than 5 % are late, by playing 60,000 requests at each."""
        low, high = 0.0, self.instances * self.batch / (self.fixed + self.each * self.batch)
        while high - low > 0.01 * high:
            rate = (low + high) / 2
            done = self.play(rate, 60_000 / rate, 77)
            late, sent = sum(map(self.late, done)), sum(len(ats) for _, _, ats in done)
            low, high = (rate, high) if late <= 0.05 * sent else (low, rate)
        return (low + high) / 2

    def late(self, execution: tuple[float, float, list[float]]) -> int:
        """Return how many requests of an execution are late."""
        start, took, ats = execution
        end = start + (took + OVERHEAD if self.latency else 0)
        return sum(end - at > self.threshold for at in ats)

    def predicted(self, seed: int) -> float | None:
        """Return what is advised after four minutes."""
        chance = random.Random(seed)
        done = sorted(self.play(self.rate, SECONDS, seed), key=lambda each: each[0] + each[1])
        ends = [start + took for start, took, _ in done]
        rows = [
            (1, len(ats), sum(start - at for at in ats), len(ats) * took, took, len(ats) ** 2)
            for start, took, ats in done
        ]
        sums = [list(accumulate(column, initial=0.0)) for column in zip(*rows, strict=True)]
        steps, last = [], [0.0] * 6
        # The window ends four seconds after the traffic.
        for at in (4 + STEP * k for k in range(int(SECONDS / STEP) + 1)):
            reads = [at + chance.expovariate(50)] * 4 + [at - chance.uniform(0, 0.2)] * 2
            now = [column[bisect(ends, read)] for column, read in zip(sums, reads, strict=True)]
            executions, requests, queued, computed, busy, squares = (
                new - old for new, old in zip(now, last, strict=True)
            )
            last = now
            if at > STEP:
                spent = {"queue_seconds": queued, "compute_seconds": computed, "busy_seconds": busy}
                spent["request_seconds"] = queued + computed + OVERHEAD * requests
                steps.append(Step("a", at, STEP, executions, requests, requests, squares=squares, **spent))
        batcher = self.batch > 1
        configuration = Configuration(self.instances, "cpu", 1, self.batch if batcher else 8, batcher)
        promise = Promise("o", "latency" if self.latency else "queue", 0.95, self.threshold)
        [advice] = advise(Measured("m", "1", configuration, tuple(steps), (promise,)), changes=False)
        return advice.breaks.estimate if advice.breaks else None


WORKLOADS = {
    "one by one": (
        Workload(20, 0.06, 0.02),
        Workload(30, 0.06, 0.025, cv2=1, instances=2),
        Workload(28, 0.12, 0.03, instances=3, latency=True),
        Workload(40, 0.12, 0.02, 0.005, batch=8, latency=True),
    ),
    "some at a time": (
        Workload(20, 0.05, 0.015, burst=2),
        Workload(26, 0.06, 0.035, instances=3, burst=3),
        Workload(40, 0.15, 0.025, instances=4, burst=4, latency=True),
        Workload(60, 0.15, 0.03, instances=6, burst=10, latency=True),
        Workload(30, 0.1, 0.04, 0.004, batch=8, burst=2),
        Workload(30, 0.12, 0.06, 0.004, batch=16, burst=3),
    ),
    "some at a time, their number geometric": (
        Workload(18, 0.1, 0.015, burst=2, geometric=True),
        Workload(30, 0.15, 0.018, cv2=0.2, instances=2, burst=3, geometric=True, latency=True),
    ),
    "three times as many by turns of 2 s": (
        Workload(18, 0.08, 0.02, period=2),
        Workload(30, 0.15, 0.03, 0.005, batch=8, period=2, latency=True),
    ),
    "three times as many by turns of 30 s": (
        Workload(30, 0.12, 0.02, instances=2, period=30, latency=True),
        Workload(30, 0.15, 0.03, 0.005, batch=8, period=30, latency=True),
    ),
}
_TEXT = """\
Made counters of {seconds:.0f} s in steps of {step:.0f} s, {seeds} times for each of {count} workloads of one to six instances, with batches or
without; the objective has a target of 95 %. Refused counts as not within 15 %.
The simulation has no rate that changes by turns: there predictions are too high.

{table}
"""


def errors(workload: Workload) -> list[float]:
    """Return how far each prediction is off; infinity where there is none."""
    truth = workload.breaks()
    return [(workload.predicted(seed) or math.inf) / truth - 1 for seed in SEEDS]


def test_arrivals() -> None:
    """Compare what is predicted with the truth, for each kind of arrivals."""
    lines = ["| requests come | within 15 % | median error | worst |", "|---|---|---|---|"]
    with ProcessPoolExecutor(2) as pool:
        for kind, workloads in WORKLOADS.items():
            off = [error for each in pool.map(errors, workloads) for error in each]
            near, told = sum(abs(error) <= 0.15 for error in off), [each for each in off if each < math.inf]
            worst = f"{max(told, key=abs):+.0%}" + (
                f", {len(off) - len(told)} refused" if told != off else ""
            )
            lines.append(f"| {kind} | {near} of {len(off)} | {median(map(abs, off)):.0%} | {worst} |")
    table = "\n".join(lines)
    print(table)
    facts = {"seconds": SECONDS, "step": STEP, "seeds": len(SEEDS)}
    count = sum(map(len, WORKLOADS.values()))
    record("arrivals", COMMAND, _TEXT.format(**facts, count=count, table=table))


def searched(workload: Workload) -> str:
    """Return how far searches as those of bench_advise are off the truth, as a line of the table."""
    truth, found = workload.breaks(), []
    capacity = workload.instances * workload.batch / (workload.fixed + workload.each * workload.batch)
    for seed in range(20):
        steps: list[bench_advise.Step] = []
        for step in range(bench_advise.STEPS):
            rate = bench_advise.next_rate(steps, 0.7 * capacity, 0.05)
            done = workload.play(rate, bench_advise.STEP_SECONDS, 100 * seed + step)
            late = sum(workload.late(each) for each in done)
            sent = sum(len(ats) for _, _, ats in done)
            steps.append((sent / bench_advise.STEP_SECONDS, late, sent))
        found.append(bench_advise.crossing(steps, 0.05))
    off = [rate / truth - 1 for rate, _ in found]
    return (
        f"| {truth:.1f} | {fmean(off):+.1%} | {stdev(off):.1%} | {median(error for _, error in found):.1%} |"
    )


def test_searches() -> None:
    """Compare the search with which bench_advise measures break rates with the truth, on queues that are known."""
    lines = ["| breaks at | mean error | standard deviation | standard error, as told |", "|---|---|---|---|"]
    with ProcessPoolExecutor(2) as pool:
        lines += pool.map(searched, (each for kind in list(WORKLOADS.values())[:2] for each in kind))
    table = "\n".join(lines)
    print(table)
    record(
        "searches", COMMAND, f"20 searches of each of the workloads below whose rate is steady.\n\n{table}"
    )


COMMAND = "make bench ARGS=tests/bench/bench_advise_arrivals.py"

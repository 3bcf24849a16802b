"""Draw random arrival and service processes, and their parameters."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from support.simulated_traffic import (
    Draw,
    Floats,
    Requests,
    batched,
    exponential,
    independent,
    lognormal,
    mixture,
    poisson,
    queued,
)

Kind = Literal["free", "changing", "queued", "waits", "batches", "batch_waits"]
"""Instances are free, free with a change of the work, queued for (requests, or their waits alone), or batch."""

ARRIVALS = ("poisson", "in_groups", "regular", "on_and_off")


class RandomTraffic(NamedTuple):
    """Requests, and how many seconds apart the readings of Triton's counters are."""

    text: str
    requests: Requests
    interval: float


def arriving(rng: np.random.Generator, how: str, rate: float, seconds: float) -> Floats:
    """Arrivals at random, in groups of four on average, evenly, or at random for six seconds in ten."""
    if how == "in_groups":
        starts = poisson(rng, rate / 4, seconds)
        several = rng.geometric(0.25, len(starts))
        return np.sort(np.repeat(starts, several) + rng.uniform(0, 0.01, several.sum()))
    if how == "regular":
        count = int(rate * seconds)
        return np.sort((np.arange(count) + rng.uniform(-0.2, 0.2, count)) / rate + 1)
    arrivals = poisson(rng, rate, seconds)
    return arrivals[arrivals % 10 < 6] if how == "on_and_off" else arrivals


def work(rng: np.random.Generator, mean: float) -> tuple[str, Draw]:
    """One of seven kinds of service times, from nearly the same to 40 times as long."""
    slow, far = float(rng.uniform(0.01, 0.3)), between(rng, 2, 40)
    wide, narrow = float(rng.uniform(0.3, 1.0)), float(rng.uniform(0.03, 0.25))
    few = [1.0, far**0.5, far]
    draws: dict[str, Draw] = {
        "exponential": exponential(rng, mean),
        "lognormal": lognormal(rng, mean, wide),
        "narrow": lognormal(rng, mean, narrow),
        "mixture": mixture(rng, slow, mean, mean * far),
        "uniform": lambda count: rng.uniform(0.1, 1.9, count) * mean,
        "same": lognormal(rng, mean, 0.02),
        "three": lambda count: (
            mean * rng.choice(few, count, p=[0.6, 0.3, 0.1]) * rng.lognormal(0, 0.1, count)
        ),
    }
    kind = str(rng.choice(list(draws)))
    return f"{kind} {1000 * mean:.0f} ms", draws[kind]


def between(rng: np.random.Generator, low: float, high: float) -> float:
    """Evenly by the logarithm."""
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def random_traffic(kind: Kind, seed: int, seconds: float) -> RandomTraffic:
    """Return the traffic of a seed, always the same."""
    rng = np.random.default_rng([seed, 15])
    how, interval = str(rng.choice(ARRIVALS)), float(rng.choice([0.05, 0.07, 0.1, 0.15]))
    mean = between(rng, 0.003, 0.15)
    text, draw = work(rng, mean)
    load, servers, rate = rng.uniform(0.15, 0.9), int(rng.choice([1, 2, 4])), between(rng, 6, 300)
    if kind in ("queued", "waits"):
        rate = min(300, load * servers / float(draw(10_000).mean()))
        arrivals = arriving(rng, how, rate, seconds)
        requests = queued(arrivals, draw(len(arrivals)), servers)
    elif kind in ("free", "changing"):
        arrivals = arriving(rng, how, rate, seconds)
        took = draw(len(arrivals))
        if kind == "changing":
            then, later = work(rng, mean * float(rng.uniform(0.5, 4)))
            at = float(rng.uniform(0.2, 0.8)) * seconds
            text, took = f"{text}, then {then}", np.where(arrivals < at, took, later(len(arrivals)))
        requests = independent(arrivals, took)
    else:
        base, most = between(rng, 0.004, 0.06), int(rng.choice([4, 8, 32]))
        delay, each = (
            float(rng.choice([0.0, 0.002, 0.005, 0.01, 0.02])),
            float(rng.choice([0.0, 0.001, 0.004])),
        )
        rate = min(rng.uniform(0.3, 5) / base, load * most / (base + most * each))
        arrivals = arriving(rng, how, rate, seconds)
        requests = batched(
            arrivals, lognormal(rng, base, float(rng.choice([0.02, 0.1, 0.4]))), most, delay, each
        )
        text = f"{base * 1000:.0f} ms and {each * 1000:.0f} for each of {most} after {delay * 1000:.0f} ms"
    requests = requests.until(seconds)
    if kind == "waits":
        requests = requests.only_waits()
    elif kind == "batch_waits":
        requests = Requests(requests.ended, requests.waited, requests.execution, requests.waited)
    return RandomTraffic(f"{kind} {seed}, {how}, {rate:.0f}/s: {text}, {interval} s", requests, interval)

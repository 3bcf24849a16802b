"""Measure what rules cost a real Prometheus: CPU seconds, series, samples read and written.

Counters of 3.2 or more days are backfilled up to a few minutes ago; then a Prometheus scrapes their continuation,
healthy or with many failures, and evaluates an engine's rules every few seconds. CPU seconds are those of the
process, less those of a Prometheus that only scrapes: other programs on the machine lengthen an evaluation, but
hardly its CPU seconds.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import requests
import yaml
from numpy.typing import NDArray

from support.history import backfilled, running
from support.loopback import answering
from support.tools import prometheuses
from triton_exporter.catalogue import EXPORTER_JOB, models, state, triton
from triton_exporter.common.duration import parse_seconds
from triton_slo import names

SCRAPE = 60
"""Seconds between scrapes and, in production, between evaluations: Prometheus' defaults."""
HOUR, DAY = 3600, 86_400
EVERY = 3
"""Seconds between evaluations while costs are measured."""
WARM, MEASURED = 3, 6
"""Evaluations that are not measured, and that are."""
RECENT = 2 * HOUR
STORM_SHARE, HEALTHY_SHARE = 0.2, 0.0003
Group = Mapping[str, Any]
Times = NDArray[np.float64]
Line = tuple[str, Times, Times]
"""A series, its times and its values."""


@dataclass(frozen=True)
class Fleet:
    """Models, replicas of each, and days of counters."""

    models: int
    replicas: int
    days: float

    @property
    def groups(self) -> list[str]:
        return [f'model="m{number}",version="1"' for number in range(self.models)]

    def rate(self, number: int) -> float:
        """Return the requests a second of a model's replica: from 0.1 to 10, and some models without."""
        return float(10 ** (-1 + 2 * (number % 20) / 20))


@dataclass(frozen=True)
class Cost:
    """One evaluation of rules: CPU seconds, samples written (a series each) and read, and alerts that fire."""

    cpu_seconds: float
    written: float
    read: float
    firing: int


class Counters:
    """The fleet's counters at any time; in a storm every model fails from an hour ago on."""

    def __init__(self, fleet: Fleet, now: int, storm: bool) -> None:
        self.fleet, self.start, self.storm = fleet, now - round(fleet.days * DAY), storm
        self.broken = now - 70 * 60

    def at(self, number: int, times: Times) -> tuple[Times, Times]:
        """Successes and failures since the start."""
        rate = self.fleet.rate(number)
        failed = rate * HEALTHY_SHARE * (times - self.start)
        if self.storm:
            failed = failed + rate * STORM_SHARE * np.clip(times - self.broken, 0, None)
        return np.floor(rate * (times - self.start)) - np.floor(failed), np.floor(failed)

    def lines(self, start: float, end: float) -> Iterator[Line]:
        """Return the samples scraped in a stretch of time."""
        times = np.arange(start, end, SCRAPE, dtype=float)
        for number, group in enumerate(self.fleet.groups):
            good, failed = self.at(number, times)
            for replica in range(self.fleet.replicas):
                own = f'{group},instance="s{replica}",job="{EXPORTER_JOB}"'
                yield f"{triton.REQUEST_SUCCESS}{{{own}}}", times, good
                yield f'{triton.REQUEST_FAILURE}{{{own},reason="BACKEND"}}', times, failed

    def exposition(self, now: float) -> str:
        """Return the page of one server now, including the exporter's states."""
        lines = []
        for number, group in enumerate(self.fleet.groups):
            good, failed = (float(values[0]) for values in self.at(number, np.array([now])))
            model = group.partition(",")[0]
            lines += [
                f"{triton.REQUEST_SUCCESS}{{{group}}} {good}",
                f'{triton.REQUEST_FAILURE}{{{group},reason="BACKEND"}} {failed}',
                f"{triton.PENDING_REQUESTS}{{{group}}} 1",
                f"{state.MODEL_READY}{{{group}}} 1",
                f'{state.MODEL_STATE}{{{group},state="ready"}} 1',
                f'{state.MODEL_STATE}{{{group},state="unloaded"}} 0',
                f'{state.MODEL_STATE}{{{group},state="unloading"}} 0',
                f'{state.MODEL_STATE}{{{group},state="loading"}} 0',
                f"{state.MODEL_EXPECTED}{{{model}}} 1",
                f'{models.INFO}{{{model},backend="onnxruntime",platform="onnx"}} 1',
            ]
        return "\n".join(lines) + "\n"


def sums(counters: Counters, now: int) -> Iterator[Line]:
    """Return what our rules recorded where they read it again: a day, and about each window's beginning."""
    about = [now - parse_seconds(window) for window in ("2h", "6h", "12h", "1d", "30h", "3d", "4d", "30d")]
    stretches = [(at - 75 * 60, at + 75 * 60) for at in about]
    day = np.arange(now - DAY - HOUR, now, SCRAPE, dtype=float)
    often = np.unique(
        np.concatenate([day, *(np.arange(a, min(b, now), SCRAPE, dtype=float) for a, b in stretches)])
    )
    rare = np.unique(np.concatenate([day[::4], np.arange(now - 31 * DAY, now - 29 * DAY, 240.0)]))
    far = np.concatenate([np.arange(at - 6 * HOUR - 600, at + 600, 240.0) for at in about[3:]])
    rare = np.unique(np.concatenate([rare, np.arange(now - 4 * DAY, now, 240.0), far]))
    rare = rare[rare < now]
    for number, group in enumerate(counters.fleet.groups):
        own = f'slo="errors",indicator="errors",{group}'
        yield f"{names.LAST_SEEN}{{{own}}}", day, day
        yield f"{names.SLI_EVENTS_SINCE}{{{own}}}", day, np.full(day.size, float(now - 40 * DAY))
        for event in (names.ERROR, names.TOTAL):
            labels = f'{own},event="{event}"'
            total = partial(_total, counters, number, event)
            yield f"{names.SLI_EVENTS_SUM}{{{labels}}}", often, total(often)
            hour = (total(often) - total(often - HOUR)) / HOUR
            yield f"{names.sli_events('1h')}{{{labels}}}", often, hour
            yield f"{names.SLI_EVENTS_CHECKPOINT}{{{labels}}}", rare, total(rare)
            six = (total(rare) - total(rare - 6 * HOUR)) / (6 * HOUR)
            yield f"{names.SLI_EVENTS_COUNTED}{{{labels}}}", rare, six


def _total(counters: Counters, number: int, event: str, times: Times) -> Times:
    good, failed = counters.at(number, times + 40 * DAY)
    return counters.fleet.replicas * (failed if event == names.ERROR else good + failed)


def ratios(fleet: Fleet, now: int, name: str, labels: str) -> Iterator[Line]:
    """Return a month of a ratio that an engine recorded at each evaluation, as Sloth's period reads it."""
    times = np.arange(now - 30 * DAY, now, SCRAPE, dtype=float)
    random = np.random.default_rng(3)
    for group in fleet.groups:
        yield f"{name}{{{labels},{group}}}", times, random.poisson(1, times.size) / 3000


def backfill(folder: Path, lines: Iterable[Line]) -> None:
    """Write blocks of series."""
    path = folder / "lines.om"
    with path.open("w", encoding="utf-8") as file:
        for name, times, values in lines:
            file.write(
                "\n".join(
                    f"{name} {value:.9g} {at:.0f}"
                    for value, at in zip(values.tolist(), times.tolist(), strict=True)
                )
            )
            file.write("\n")
        file.write("# EOF\n")
    backfilled(path, folder / "data")
    path.unlink()


def copied(common: Path, folder: Path) -> Path:
    """Return a folder with the same blocks, which nobody changes."""
    shutil.copytree(common / "data", folder / "data", copy_function=os.link)
    return folder


@dataclass(frozen=True)
class EvaluatingPrometheus:
    """A Prometheus that evaluates rules, and what that costs it."""

    url: str

    def cpu(self) -> float:
        return self.metric("process_cpu_seconds_total")

    def metric(self, name: str) -> float:
        """Return the sum of a metric's series on its own page."""
        lines = requests.get(f"{self.url}/metrics", timeout=60).text.splitlines()
        return sum(
            float(line.rpartition(" ")[2]) for line in lines if line.startswith((f"{name} ", f"{name}{{"))
        )

    def rules(self) -> list[dict[str, Any]]:
        """Every rule, with how long it took last."""
        groups = requests.get(f"{self.url}/api/v1/rules", timeout=60).json()["data"]["groups"]
        return [{**rule, "group": group["name"]} for group in groups for rule in group["rules"]]

    def wait(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 300
        while not done():
            assert time.monotonic() < deadline, "Prometheus evaluates too slowly"
            time.sleep(0.5)


@contextmanager
def evaluating(folder: Path, groups: Sequence[Group], counters: Counters) -> Iterator[EvaluatingPrometheus]:
    """Run a Prometheus over the folder's data that evaluates groups every few seconds."""
    with answering(lambda request: request.reply(counters.exposition(time.time()))) as target:
        replicas = [
            {"targets": [target.removeprefix("http://")], "labels": {"instance": f"s{replica}"}}
            for replica in range(counters.fleet.replicas)
        ]
        # One group, so that the number of its evaluations is that of all rules.
        rules = [rule for group in groups for rule in group["rules"]]
        document = {"groups": [{"name": "all", "interval": f"{EVERY}s", "rules": rules}]}
        (folder / "rules.yml").write_text(yaml.safe_dump(document, sort_keys=False))
        config = {
            "global": {"scrape_interval": "15s"},
            "rule_files": ["rules.yml"] if groups else [],
            "scrape_configs": [{"job_name": EXPORTER_JOB, "static_configs": replicas}],
        }
        with running(folder, config, server=prometheuses()[-1]) as url:
            yield EvaluatingPrometheus(url)


def cost(folder: Path, groups: Sequence[Group], counters: Counters, idle: float) -> Cost:
    """Return the cost of one evaluation of groups; `idle` is what scraping costs, in CPU seconds a second."""
    with evaluating(folder, groups, counters) as running:

        def iterations() -> float:
            planned = running.metric("prometheus_rule_group_iterations_total")
            return planned - running.metric("prometheus_rule_group_iterations_missed_total")

        running.wait(lambda: iterations() >= WARM)
        began, cpu, first = time.monotonic(), running.cpu(), iterations()
        read = running.metric("prometheus_engine_query_samples_total")
        running.wait(lambda: iterations() >= first + MEASURED)
        count = iterations() - first
        spent = running.cpu() - cpu - idle * (time.monotonic() - began)
        read = running.metric("prometheus_engine_query_samples_total") - read
        rules = running.rules()
        broken = [f"{rule['name']}: {rule['lastError']}" for rule in rules if rule.get("lastError")]
        assert not broken, broken[:3]
        firing = sum(alert["state"] == "firing" for rule in rules for alert in rule.get("alerts", ()))
        written = running.metric("prometheus_rule_group_last_evaluation_samples")
    return Cost(spent / count, written, read / count, firing)


def idle_cpu(folder: Path, counters: Counters, seconds: float = 15) -> float:
    """CPU seconds a second that a Prometheus spends that only scrapes."""
    with evaluating(folder, (), counters) as running:
        time.sleep(10)
        began, cpu = time.monotonic(), running.cpu()
        time.sleep(seconds)
        return (running.cpu() - cpu) / (time.monotonic() - began)

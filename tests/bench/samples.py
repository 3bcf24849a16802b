"""Evaluate rules over a history: record them level by level with promtool, then query with statistics."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import requests
import yaml

from support.history import backfilled, record, running
from support.tools import prometheuses
from triton_exporter.catalogue import triton

STEP = 60
"""Seconds between scrapes and between evaluations: Prometheus' defaults."""
HOUR = 3600
Rule = Mapping[str, Any]


@dataclass(frozen=True)
class Answer:
    """What a query gave, by model, and how many samples it read."""

    values: Mapping[str, float]
    samples: int


def write_history(path: Path, models: int, start: int, end: int) -> None:
    """Counters of models whose traffic follows the day, with quiet nights, and whose failures come in hours."""
    random = np.random.default_rng(7)
    times = np.arange(start, end + 1, STEP)
    with path.open("w", encoding="utf-8") as file:
        for number in range(models):
            day = 1 + 0.95 * np.sin(2 * np.pi * times / 86_400 + random.uniform(0, 6))
            requests_ = random.poisson(10 ** random.uniform(1.5, 3.5) * day)
            share = np.repeat(
                random.choice((0.0005, 0.002, 0.03), times.size // 60 + 1, p=(0.8, 0.15, 0.05)), 60
            )
            failed = random.binomial(requests_, share[: times.size])
            labels = f'model="m{number}",version="1",instance="a"'
            for name, counts in (
                (f"{triton.REQUEST_SUCCESS}{{{labels}}}", requests_ - failed),
                (f'{triton.REQUEST_FAILURE}{{{labels},reason="BACKEND"}}', failed),
            ):
                file.writelines(
                    f"{name} {value} {at}\n"
                    for value, at in zip(np.cumsum(counts).tolist(), times.tolist(), strict=True)
                )
        file.write("# EOF\n")


class History:
    """A Prometheus' data directory that grows by what rules record over it."""

    def __init__(self, folder: Path, models: int, days: float, end: int) -> None:
        self.folder, self.end, self.start = folder, end, end - round(days * 86_400)
        (folder / "data").mkdir(parents=True)
        write_history(folder / "history.om", models, self.start, end)
        backfilled(folder / "history.om", folder / "data")
        (folder / "history.om").unlink()

    def record(self, rules: Sequence[Rule], *ranges: tuple[float, float, int]) -> None:
        """Let promtool record rules over (start, end, step), in an order in which each finds what it reads."""
        for level in levels(rules):
            document = {"groups": [{"name": "rules", "rules": [dict(rule) for rule in level]}]}
            record(yaml.safe_dump(document), self.folder, *ranges)

    def add(self, series: Mapping[str, Sequence[tuple[float, float]]]) -> None:
        """Write series as (time, value), each with the samples that promtool cannot record."""
        path = self.folder / "added.om"
        with path.open("w", encoding="utf-8") as file:
            for name, points in series.items():
                file.writelines(f"{name} {value:.9g} {at:.3f}\n" for at, value in points)
            file.write("# EOF\n")
        backfilled(path, self.folder / "data")
        path.unlink()

    def recorded(self, series: str) -> list[tuple[Mapping[str, str], list[tuple[float, float]]]]:
        """All that was recorded of series: labels, and (time, value) of each."""
        with running(self.folder, server=prometheuses()[-1]) as url:
            query = {"query": f"{series}[{self.end - self.start + HOUR}s]", "time": self.end}
            answer = requests.post(f"{url}/api/v1/query", data=query, timeout=600).json()
        return [
            (series["metric"], [(float(at), float(value)) for at, value in series["values"]])
            for series in answer["data"]["result"]
        ]

    def ask(self, exprs: Sequence[str], at: float) -> list[Answer]:
        """Each expression at a time, with what it read."""
        with running(self.folder, server=prometheuses()[-1]) as url:
            return [_ask(url, expr, at) for expr in exprs]

    def evaluated(self, series: str) -> float:
        """When a series was last recorded on the hour: promtool keeps to the rule group's own offset."""
        before = self.end - 2 * HOUR
        (answer,) = self.ask([f"max(max_over_time(timestamp({series})[1h:1s]))"], before)
        return answer.values[""] + 2 * HOUR


def _ask(url: str, expr: str, at: float) -> Answer:
    answer = requests.post(
        f"{url}/api/v1/query", data={"query": expr, "time": at, "stats": "all"}, timeout=600
    ).json()
    if answer["status"] != "success":
        raise RuntimeError(f"{expr[:200]}: {answer}")
    data = answer["data"]
    result = data["result"] if data["resultType"] == "vector" else []
    values = {series["metric"].get("model", ""): float(series["value"][1]) for series in result}
    return Answer(values, int(data["stats"]["samples"]["totalQueryableSamples"]))


def levels(rules: Sequence[Rule]) -> Iterator[list[Rule]]:
    """Return recording rules in turns: each reads what earlier ones recorded, or itself, or other series."""
    left = list(rules)
    while left:
        waiting = {rule["record"] for rule in left}
        ready = [
            rule
            for rule in left
            if not (set(re.findall(r"[\w:]+", rule["expr"])) & waiting - {rule["record"]})
        ]
        if not ready:
            raise ValueError(f"rules that need each other: {sorted(waiting)}")
        # A name that several rules record is ready once all of them are.
        late = {rule["record"] for rule in left if rule not in ready}
        now = [rule for rule in ready if rule["record"] not in late]
        yield now
        left = [rule for rule in left if rule not in now]

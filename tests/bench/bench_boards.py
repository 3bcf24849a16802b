"""Measure what a refresh of each dashboard costs at 200 models x 30 servers x 4 objectives, queried as by Grafana.

The series are those of the made fleet, once for each model, server and objective, over 30 days, with what
the dashboards' own rules record. A scrape takes place every ten minutes, and all windows are longer in
proportion, so each window contains as many samples as at 15 seconds.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests

from dashboards import made_fleet
from support.history import END, backfilled, running
from support.panels import Grafana, fill, panels
from triton_dashboards.generate import dashboards
from triton_dashboards.grafana import dashboard_model
from triton_dashboards.objectives import BURN_WINDOWS
from triton_exporter.catalogue import EXPORTER_JOB
from triton_slo.artifact import Options
from triton_slo.names import (
    BECAME_READY,
    FAILED_LOADS,
    MODELS_IN_STATE,
    OBJECTIVE_EVENTS,
    OVERBURN,
    PERIOD_BUDGET_REMAINING,
    THRESHOLD_SECONDS,
    TRAFFIC,
    UTILIZATION_CAUSED,
    WORST_CAUSE,
    model_traffic,
    server_traffic,
    worst_burn,
)

MODELS, SERVERS = (
    int(os.environ.get(f"BENCH_{name}", usual)) for name, usual in (("MODELS", 200), ("SERVERS", 30))
)
OBJECTIVES = ("errors", "latency", "queue", "readiness")
OVERSPENT = 24
SCRAPE, EVALUATION, THIN = 600, 240, 43_200
"""Seconds between samples of what is scraped, of what graphs read of the last day, and of the rest of 31 days."""
DAY, HOUR = 86_400, 3_600
PIXELS = 1_920
OPTIONS = Options(scrape_interval_seconds=SCRAPE)
SECONDS, SAMPLES = 1.0, 1_000_000
"""CPU seconds that a refresh may take, and samples that one of its queries may load at a time."""
_TEMPLATE = ("classifier", "1")
_FIRST = made_fleet.SERVERS[0]
_ROUNDED = (
    (17.5, 15), (25, 20), (45, 30), (90, 60), (210, 120), (450, 300), (750, 600), (1050, 900),
    (1500, 1200), (2700, 1800), (5400, 3600), (9000, 7200), (16_200, 10_800), (32_400, 21_600), (86_400, 43_200),
)  # fmt: skip
"""Grafana's steps: a span of time for a pixel below the first number is rounded to the second."""
_LOOKBACK = ("--query.lookback-delta=725m",)
"""Samples of the last month are twelve hours apart; a query reads one of each series and step."""


@dataclass(frozen=True)
class Cost:
    """What the queries of one refresh took: seconds on the clock, and of the processor."""

    queries: int
    seconds: float
    cpu: float
    samples: int
    peak: int
    slowest: str


def _step(width: int, seconds: int, min_step: int) -> int:
    """Return the step that Grafana chooses for a panel of so many columns."""
    each = seconds / max(100, width / 24 * PIXELS - 30)
    rounded = next((step for below, step in _ROUNDED if each < below), 86_400)
    return max(rounded, min_step)


def _asked(model: dict[str, Any], seconds: int) -> Iterator[tuple[str, str, bool, int, int]]:
    """Title, query, whether instant, range and step of all that a refresh asks."""
    for panel in model["panels"]:
        span = 30 * DAY if panel.get("timeFrom") == "30d" else seconds
        hours = re.fullmatch(r"(\d+)([mh])", panel.get("interval", "0m"))
        assert hours
        min_step = int(hours[1]) * (HOUR if hours[2] == "h" else 60)
        for target in panel.get("targets", ()):
            yield (
                panel["title"],
                target["expr"],
                target["instant"],
                span,
                _step(panel["gridPos"]["w"], span, max(15, min_step)),
            )
    for annotation in model["annotations"]["list"]:
        if "target" in annotation and annotation["enable"]:
            step = max(60, next(step for below, step in _ROUNDED if seconds / 100 < below))
            yield annotation["name"], annotation["target"]["expr"], False, seconds, step


def cost(url: str, model: dict[str, Any], seconds: int) -> Cost:
    """Ask all that a refresh asks, one after the other."""
    chosen = Grafana(url, END, seconds, 60, SCRAPE).choose(model, {})
    count = samples = peak = 0
    before = _cpu(url)
    took: dict[str, float] = {}
    for title, text, instant, span, step in _asked(model, seconds):
        expr = fill(text, chosen, Grafana(url, END, span, step, SCRAPE).macros)
        at: dict[str, float] = (
            {"time": END}
            if instant
            else {"start": END // step * step - span // step * step, "end": END // step * step, "step": step}
        )
        path = "query" if instant else "query_range"
        started = time.perf_counter()
        answer = requests.post(
            f"{url}/api/v1/{path}", data={"query": expr, "stats": "all", **at}, timeout=180
        ).json()
        took[title] = took.get(title, 0.0) + time.perf_counter() - started
        assert answer["status"] == "success", (title, answer)
        read = answer["data"]["stats"]["samples"]
        count, samples = count + 1, samples + read["totalQueryableSamples"]
        peak = max(peak, read["peakSamples"])
    slowest = sorted(took.items(), key=lambda item: -item[1])[:4]
    return Cost(
        count,
        sum(took.values()),
        _cpu(url) - before,
        samples,
        peak,
        ", ".join(f"{title} {took:.2f}" for title, took in slowest),
    )


def _cpu(url: str) -> float:
    """Seconds of processor time that Prometheus has taken."""
    page = requests.get(f"{url}/metrics", timeout=60).text
    match = re.search(r"^process_cpu_seconds_total (\S+)", page, re.M)
    assert match
    return float(match[1])


def _times(recorded: bool) -> list[int]:
    """When there are samples: six hours of what is scraped; of what is recorded a day, and thirty thinly."""
    if not recorded:
        return list(range(END - 6 * HOUR - 4 * SCRAPE, END + 1, SCRAPE))
    return [*range(END - 31 * DAY, END - DAY, THIN), *range(END - DAY, END + 1, EVALUATION)]


def _lines(name: str, labels: Mapping[str, str], values: Iterable[tuple[int, float]]) -> str:
    inside = ",".join(f'{key}="{value}"' for key, value in labels.items())
    head = f"{name}{{{inside}}} "
    return "".join([f"{head}{value:g} {at}\n" for at, value in values])


def history(path: Path, shown: set[str]) -> int:
    """Write the series of a fleet as large as this; of what no dashboard of several models shows, one model's."""
    times, recorded = _times(False), _times(True)
    thin = [*range(END - 31 * DAY, END, THIN), END]
    count = 0
    with path.open("w", encoding="utf-8") as file:
        for name, labels, points in made_fleet.series():
            last = points[-1][1] if points else 0.0
            ours = name.startswith("slo:")
            grows = last > 0 and len(points) > 2 and points[0][1] == 0 and not ours
            drawn = name == PERIOD_BUDGET_REMAINING or name.startswith("ALERTS")
            at = recorded if drawn else thin if ours else times
            for index, more in enumerate(_copies(name, labels, shown)):
                base = at[0]
                rate = last / 10_800
                values = [
                    (moment, (moment - base) * rate if grows else _value(name, last, index, moment))
                    for moment in at
                ]
                file.write(_lines(name, more, values))
                count += 1
        for name, labels, value in _recorded():
            at = recorded if name.startswith("slo:") else times
            file.write(_lines(name, labels, [(moment, value) for moment in at]))
            count += 1
        file.write("# EOF\n")
    return count


def _recorded() -> Iterator[tuple[str, dict[str, str], float]]:
    """Return the series that the dashboards' rules record: name, labels and value."""
    job = {"job": EXPORTER_JOB}
    for what in TRAFFIC:
        value = 40.0 if what == "requests" else 0.4
        yield from (
            (model_traffic(what), {**job, "model": _model(number)}, value) for number in range(MODELS)
        )
        yield from ((server_traffic(what), {**job, "instance": server}, value) for server in _servers())
    for number in range(MODELS):
        yield from ((name, {**job, "model": _model(number)}, 0.5) for name in (UTILIZATION_CAUSED,))
    for server in _servers():
        for state in ("ready", "unavailable"):
            yield MODELS_IN_STATE, {**job, "instance": server, "state": state}, 100.0
        failed = {**job, "instance": server, "model": _model(0)}
        yield FAILED_LOADS, {**failed, "reason": "python_error"}, 1.0
        yield BECAME_READY, {**failed, "version": "1"}, 1.0
    for name in OBJECTIVES:
        labels = {"slo": name, "indicator": name}
        yield from ((worst_burn(window), labels, 50.0) for window in BURN_WINDOWS)
        yield from ((OBJECTIVE_EVENTS, {**labels, "event": event}, 20.0) for event in ("error", "total"))
        yield from (
            (WORST_CAUSE, {"indicator": name, "cause": f"cause-{number}"}, 0.5) for number in range(4)
        )
    for number in range(OVERSPENT):
        for name in OBJECTIVES[:1]:
            yield OVERBURN, {"slo": name, "indicator": name, "model": _model(number), "version": "1"}, 50.0


def _servers() -> list[str]:
    return [f"triton-{number:02}:9400" for number in range(SERVERS)]


def _value(name: str, usual: float, index: int, moment: int) -> float:
    """Return the value of a series: the first of 800 groups are overspent and burn, the others hardly."""
    if name.startswith("slo:sli_error"):
        return 0.05 if index < OVERSPENT else 0.00001 * (index % 50)
    if name == "slo:period_error_budget_remaining:ratio":
        return -0.5 - (index + moment / DAY % 3) / 100 if index < OVERSPENT else 0.9 - index / 2_000
    return usual


def _copies(name: str, labels: Mapping[str, str], shown: set[str]) -> Iterator[dict[str, str]]:
    """Return the series of one template, for each server, model and objective."""
    model, version = labels.get("model"), labels.get("version")
    if name.startswith("slo:"):
        wanted = {"errors": ["errors"], "queue": ["queue", "latency"], "readiness": ["readiness"]}
        same = labels.get("slo", labels.get("indicator", ""))
        if "model" not in labels:
            yield from ({**labels, **_objective(labels, slo)} for slo in wanted.get(same, [same]))
        elif name == THRESHOLD_SECONDS:
            return
        elif (model, version) == _TEMPLATE or name == "slo:sli_cause:ratio_rate1h":
            for number in range(MODELS):
                for slo in wanted.get(same, [same]):
                    yield {**labels, **_objective(labels, slo), "model": _model(number), "version": "1"}
        return
    if name.startswith("ALERTS"):
        spread = OVERSPENT if "slo" in labels and "model" in labels else 1
        yield from (
            {**labels, **({"model": _model(number)} if "model" in labels else {})} for number in range(spread)
        )
        return
    if "instance" not in labels or labels["instance"] not in made_fleet.SERVERS:
        yield dict(labels)
        return
    if labels["instance"] != _FIRST or (model is not None and not _is_template(name, labels)):
        return
    everywhere = name in shown
    for server in _servers():
        moved = {**labels, "instance": server}
        if "gpu_uuid" in labels:
            moved["gpu_uuid"] = f"{labels['gpu_uuid']}-{server[7:9]}"
        if model is None:
            yield moved
        else:
            yield from ({**moved, "model": _model(number)} for number in range(MODELS if everywhere else 1))


def _is_template(name: str, labels: Mapping[str, str]) -> bool:
    if name == "triton_model_not_ready_since_timestamp_seconds":
        return False
    return labels["model"] == _TEMPLATE[0] and labels.get("version", _TEMPLATE[1]) == _TEMPLATE[1]


def _objective(labels: Mapping[str, str], name: str) -> dict[str, str]:
    return {key: name for key in ("slo", "indicator") if key in labels}


def _model(number: int) -> str:
    return f"model-{number:03}"


def _read(models: Iterable[dict[str, Any]]) -> set[str]:
    """Names that the rules and the dashboards of several models ask for."""
    text = " ".join(
        target["expr"] for model in models for panel in panels(model) for target in panel["targets"]
    )
    text += " ".join(str(model["annotations"]) for model in models)
    return set(re.findall(r"[a-zA-Z_:][\w:]*", text))


@contextmanager
def served(folder: Path, every_model: bool = False) -> Iterator[str]:
    """Run a Prometheus with the history of the fleet; yield its address.

    What only the model board shows exists for one model, or for `every_model`.
    """
    made = {dashboard.uid: dashboard_model(dashboard) for dashboard in dashboards(OPTIONS)}
    shown = _read(model for uid, model in made.items() if every_model or uid != "triton-model")
    started = time.perf_counter()
    count = history(folder / "made.om", shown)
    print(f"\n{count} series written in {time.perf_counter() - started:.0f} s")
    data = backfilled(folder / "made.om", folder / "data")
    print(f"blocks after {time.perf_counter() - started:.0f} s")
    if copy_to := os.environ.get("BENCH_KEEP"):
        shutil.copytree(data, copy_to)
    with running(folder, flags=_LOOKBACK) as url:
        yield url


@pytest.mark.timeout(900)
def test_each_dashboard_stays_quick_on_a_large_fleet(tmp_path: Path) -> None:
    """A refresh takes under a second, and no query loads a million samples, not even 30 days of objectives."""
    made = {dashboard.uid: dashboard_model(dashboard) for dashboard in dashboards(OPTIONS)}
    with served(tmp_path) as url:
        costs = {}
        for uid, model in made.items():
            hours = {"now-6h": 6 * HOUR, "now-24h": DAY}[model["time"]["from"]]
            costs[uid] = cost(url, model, hours)
        costs["triton-slo, 30 days"] = cost(url, made["triton-slo"], 30 * DAY)
    print(f"{MODELS} models x {SERVERS} servers x {len(OBJECTIVES)} objectives:")
    print(f"  {'dashboard':20} queries seconds     cpu     samples       peak  slowest panels")
    for name, spent in costs.items():
        print(
            f"  {name:20} {spent.queries:7} {spent.seconds:7.2f} {spent.cpu:7.2f} "
            f"{spent.samples:11,} {spent.peak:10,}  {spent.slowest}"
        )
    slow = {name: spent for name, spent in costs.items() if spent.cpu > SECONDS or spent.peak > SAMPLES}

    assert {} == slow

"""What a refresh of each dashboard costs at 200 models x 30 servers x 4 objectives, asked as Grafana asks.

The series are those of the made fleet, once for each model, server and objective, over 30 days. A scrape takes
place every four minutes, and all windows follow it, so each window holds as many samples as at 15 seconds.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests

from support import made_fleet
from support.history import END
from support.panels import Grafana, fill, panels
from support.tools import prometheuses, promtools
from triton_dashboards.generate import dashboards
from triton_dashboards.grafana.dashboard import dashboard_model
from triton_dashboards.recording import rules_text
from triton_slo.artifact import Options

MODELS, SERVERS, OBJECTIVES = 200, 30, ("errors", "latency", "queue", "readiness")
OVERSPENT = 24
STEP = 240
DAY, HOUR = 86_400, 3_600
PIXELS = 1_920
SECONDS, SAMPLES = 1.0, 1_000_000
"""What a refresh may take in queries, and what one of them may hold at a time."""
_TEMPLATE = ("classifier", "1")
_FIRST = made_fleet.SERVERS[0]
_ROUNDED = (
    (17.5, 15), (25, 20), (45, 30), (90, 60), (210, 120), (450, 300), (750, 600), (1050, 900),
    (1500, 1200), (2700, 1800), (5400, 3600), (9000, 7200), (16_200, 10_800), (32_400, 21_600), (86_400, 43_200),
)  # fmt: skip
"""Grafana's steps: a span of time for a pixel below the first number is rounded to the second."""
_LOOKBACK = ("--query.lookback-delta=125m",)
"""Samples of the last month are two hours apart; a query reads one of each series and step."""


@dataclass(frozen=True)
class Cost:
    """What the queries of one refresh read."""

    queries: int
    seconds: float
    samples: int
    peak: int
    slowest: str


def _step(width: int, seconds: int, least: int) -> int:
    """The step that Grafana chooses for a panel of so many columns."""
    each = seconds / max(100, width / 24 * PIXELS - 30)
    rounded = next((step for below, step in _ROUNDED if each < below), 86_400)
    return max(rounded, least)


def _asked(model: dict[str, Any], seconds: int) -> Iterator[tuple[str, str, bool, int, int]]:
    """Title, query, whether instant, range and step of all that a refresh asks."""
    for panel in model["panels"]:
        span = 30 * DAY if panel.get("timeFrom") == "30d" else seconds
        hours = re.fullmatch(r"(\d+)([mh])", panel.get("interval", "0m"))
        assert hours
        least = int(hours[1]) * (HOUR if hours[2] == "h" else 60)
        for target in panel.get("targets", ()):
            yield (
                panel["title"],
                target["expr"],
                target["instant"],
                span,
                _step(panel["gridPos"]["w"], span, max(15, least)),
            )
    for annotation in model["annotations"]["list"]:
        if "target" in annotation and annotation["enable"]:
            step = max(60, next(step for below, step in _ROUNDED if seconds / 100 < below))
            yield annotation["name"], annotation["target"]["expr"], False, seconds, step


def cost(url: str, model: dict[str, Any], seconds: int) -> Cost:
    """Ask all that a refresh asks, one after the other."""
    chosen = Grafana(url, END, seconds, 60, STEP).choose(model, {})
    count = samples = peak = 0
    took: dict[str, float] = {}
    for title, text, instant, span, step in _asked(model, seconds):
        expr = fill(text, chosen, Grafana(url, END, span, step, STEP).macros)
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
    slowest = sorted(took.items(), key=lambda one: -one[1])[:4]
    return Cost(
        count, sum(took.values()), samples, peak, ", ".join(f"{title} {took:.2f}" for title, took in slowest)
    )


def _times(recorded: bool) -> list[int]:
    """When there are samples: six hours of what is scraped; of what is recorded a day, and thirty thinly."""
    if not recorded:
        return list(range(END - 6 * HOUR - 4 * STEP, END + 1, STEP))
    return [*range(END - 31 * DAY, END - DAY, 2 * HOUR), *range(END - DAY, END + 1, STEP)]


def _lines(name: str, labels: Mapping[str, str], values: Iterable[tuple[int, float]]) -> str:
    inside = ",".join(f'{key}="{value}"' for key, value in labels.items())
    head = f"{name}{{{inside}}} "
    return "".join([f"{head}{value:g} {at}\n" for at, value in values])


def history(path: Path, shown: set[str]) -> int:
    """Write the series of a fleet as large as this; of what no dashboard of several models shows, one model's."""
    times, recorded = _times(False), _times(True)
    count = 0
    with path.open("w", encoding="utf-8") as file:
        for name, labels, points in made_fleet.series():
            last = points[-1][1] if points else 0.0
            ours = name.startswith("slo:")
            grows = last > 0 and len(points) > 2 and points[0][1] == 0 and not ours
            at = recorded if ours or name.startswith("ALERTS") else times
            for index, more in enumerate(_copies(name, labels, shown)):
                base = at[0]
                rate = last / 10_800
                values = [
                    (moment, (moment - base) * rate if grows else _value(name, last, index, moment))
                    for moment in at
                ]
                file.write(_lines(name, more, values))
                count += 1
        file.write("# EOF\n")
    return count


def _value(name: str, usual: float, index: int, moment: int) -> float:
    """The first of 800 groups are overspent and burn; the others hardly."""
    if name.startswith("slo:sli_error"):
        return 0.05 if index < OVERSPENT else 0.00001 * (index % 50)
    if name == "slo:current_burn_rate:ratio":
        return 20 if index < OVERSPENT else 0.01 * (index % 50)
    if name == "slo:period_error_budget_remaining:ratio":
        return -0.5 - (index + moment / DAY % 3) / 100 if index < OVERSPENT else 0.9 - index / 2_000
    if name == "slo:sli_burning:bool":
        return float(index < OVERSPENT)
    return usual


def _copies(name: str, labels: Mapping[str, str], shown: set[str]) -> Iterator[dict[str, str]]:
    """The series of one template, for each server, model and objective; nothing of what is no template."""
    model, version = labels.get("model"), labels.get("version")
    servers = [f"triton-{number:02}:9400" for number in range(SERVERS)]
    if name.startswith("slo:"):
        wanted = {"errors": ["errors"], "queue": ["queue", "latency"], "readiness": ["readiness"]}
        same = labels.get("slo", labels.get("indicator", ""))
        if "model" not in labels:
            yield from ({**labels, **_objective(labels, one)} for one in wanted.get(same, [same]))
        elif (model, version) == _TEMPLATE or name == "slo:sli_cause:ratio_rate1h":
            for number in range(MODELS):
                for one in wanted.get(same, [same]):
                    yield {**labels, **_objective(labels, one), "model": _model(number), "version": "1"}
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
    for server in servers:
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
    text += rules_text(Options()) + " ".join(str(model["annotations"]) for model in models)
    return set(re.findall(r"[a-zA-Z_:][\w:]*", text))


@pytest.mark.timeout(900)
def test_each_dashboard_stays_quick_on_a_large_fleet(tmp_path: Path) -> None:
    """A refresh asks for under a second, and no query holds a million samples; nor does one over 30 days."""
    made = {one.uid: dashboard_model(one) for one in dashboards(Options(scrape_interval_seconds=STEP))}
    binary, promtool = prometheuses()[0], promtools()[0]
    shown = _read(model for uid, model in made.items() if uid != "triton-model")
    started = time.perf_counter()
    count = history(tmp_path / "made.om", shown)
    print(f"\n{count} series written in {time.perf_counter() - started:.0f} s")
    data = made_fleet.blocks(tmp_path, tmp_path / "made.om", promtool)
    rules = rules_text(Options(scrape_interval_seconds=STEP))
    made_fleet.record(tmp_path, data, rules, promtool, binary, END - 31 * DAY, 2 * HOUR, END - DAY, _LOOKBACK)
    made_fleet.record(tmp_path, data, rules, promtool, binary, END - DAY, STEP, END, _LOOKBACK)
    print(f"blocks after {time.perf_counter() - started:.0f} s")
    with made_fleet.serving(data, tmp_path, binary, *_LOOKBACK) as url:
        found = {}
        for uid, model in made.items():
            hours = {"now-6h": 6 * HOUR, "now-24h": DAY}[model["time"]["from"]]
            found[uid] = cost(url, model, hours)
        found["triton-slo, 30 days"] = cost(url, made["triton-slo"], 30 * DAY)
    print(f"{MODELS} models x {SERVERS} servers x {len(OBJECTIVES)} objectives:")
    print(f"  {'dashboard':20} queries seconds     samples      peak  slowest panels")
    for name, one in found.items():
        print(
            f"  {name:20} {one.queries:7} {one.seconds:7.2f} {one.samples:11,} {one.peak:9,}  {one.slowest}"
        )
    slow = {name: one for name, one in found.items() if one.seconds > SECONDS or one.peak > SAMPLES}

    assert {} == slow

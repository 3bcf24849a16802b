"""Test the file for vmalert in the real vmalert: it records what Prometheus records."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from support.history import openmetrics, serve
from support.loopback import free_ports, started
from support.tools import prometheuses, vmalert
from support.victoria import serve_victoria
from support.waiting import eventually
from triton_exporter.catalogue import triton
from triton_slo import names
from triton_slo.artifact import Format, Options
from triton_slo.generate import artifacts
from triton_slo.objective.model import Objective
from triton_slo.prometheus.client import Prometheus
from triton_slo.prometheus.server_access import Access

pytestmark = pytest.mark.real

ERRORS = Objective(name="errors", target=0.999, indicator="errors")
STEP = 15
HOURS = 2
RECORDED = f'{{__name__=~"slo:.+", {names.SLO}="errors"}}'
LAST = names.PERIOD_BUDGET_REMAINING
"""Recorded after all that it is made of."""
SLOW = (names.sli_events_base(""), names.SLI_EVENTS_CHECKPOINT)
Series = dict[tuple[tuple[str, str], ...], list[tuple[float, float]]]


def month() -> dict[str, str]:
    """Return the calendar month of a zone where it is about noon: no period begins while the test runs."""
    return {"calendar": "month", "timezone": f"Etc/GMT{time.gmtime().tm_hour - 12:+d}"}


def rules(format: Format, window: str | dict[str, str]) -> str:
    objective = Objective.model_validate({**ERRORS.model_dump(exclude_unset=True), "window": window})
    (text,) = (
        artifact.text
        for artifact in artifacts([objective], Options(scrape_interval_seconds=STEP, format=format))
        if artifact.name == "slo-errors.yml" and artifact.part == "rules"
    )
    return text


def history(end: float) -> str:
    """Two models with failures that come in bursts; the newest sample is `end`, and nothing follows it."""
    rows = []
    for model, rate, burst in (("even", 10.0, 0.001), ("bursty", 3.0, 0.2)):
        good, bad = [(0.0, 5e5)], [(0.0, 40.0)]
        for at in range(STEP, HOURS * 3600 + 1, STEP):
            # Bursts in the hour's middle: windows that end a second apart contain the same failures.
            share = burst if 1500 < HOURS * 3600 - at < 1650 or 60 < HOURS * 3600 - at < 120 else 0.0002
            good.append((at, good[-1][1] + rate * STEP * (1 - share)))
            bad.append((at, bad[-1][1] + rate * STEP * share))
        labels = {"model": model, "version": "1", "instance": "a"}
        start = end - HOURS * 3600
        for metric, extra, points in (
            (triton.REQUEST_SUCCESS, {}, good),
            (triton.REQUEST_FAILURE, {"reason": "BACKEND"}, bad),
        ):
            rows.append((str(metric), {**labels, **extra}, [(start + at, value) for at, value in points]))
    return openmetrics(rows)


@contextmanager
def running_vmalert(file: Path, prometheus: str) -> Iterator[None]:
    """vmalert reads from and writes to a Prometheus, each second, without its usual delays."""
    [port] = free_ports(1)
    command = [
        vmalert(),
        f"-rule={file}",
        f"-datasource.url={prometheus}",
        f"-remoteWrite.url={prometheus}",
        "-remoteWrite.flushInterval=100ms",
        "-evaluationInterval=1s",
        "-rule.evalDelay=0s",
        "-notifier.blackhole",
        f"-httpListenAddr=127.0.0.1:{port}",
    ]
    with started(command, f"http://127.0.0.1:{port}/health", file.parent / "vmalert.log") as process:
        yield
        assert process.poll() is None, (file.parent / "vmalert.log").read_text()[-2000:]


def ask(url: str, expr: str, at: float | None = None) -> list[dict[str, Any]]:
    asked: dict[str, str | float] = {"query": expr} if at is None else {"query": expr, "time": at}
    answer = requests.get(f"{url}/api/v1/query", params=asked, timeout=20).json()
    assert "success" == answer["status"], answer
    result: list[dict[str, Any]] = answer["data"]["result"]
    return result


def recorded(url: str) -> Series:
    """Return times and values of the last 30 s by the labels of each recorded series.

    Without what the slow group records at its own moments, which differ between engines.
    """
    return {
        tuple(sorted(series["metric"].items())): [(float(at), float(value)) for at, value in series["values"]]
        for series in ask(url, f"{RECORDED}[30s]")
        if not series["metric"]["__name__"].startswith(SLOW)
    }


def wait_recorded(url: str) -> None:
    """Wait until the last rule has seen several evaluations of those before it."""

    def several() -> bool:
        # vmalert's neighbours see each other one evaluation late: the chain to the budget is eight rules long.
        seen = ask(url, f"count_over_time({LAST}[30s])")
        return bool(seen) and all(float(series["value"][1]) >= 5 for series in seen)

    eventually(several, lambda: f"{LAST} was not recorded: {sorted(recorded(url))}")


def differences(ours: list[tuple[float, float]], theirs: list[tuple[float, float]]) -> list[float]:
    """Return the difference of each of our values to theirs of nearly the same moment, as a share of ours."""
    compared = []
    for at, value in ours:
        closest, other = min(theirs, key=lambda sample: abs(sample[0] - at))
        if abs(closest - at) <= 2:
            compared.append(abs(value - other) / max(abs(value), 1e-12))
    return compared


@pytest.mark.parametrize("window", ["30d", pytest.param(month(), id="month")])
def test_vmalert_records_what_prometheus_records(window: str | dict[str, str], tmp_path: Path) -> None:
    """The same series with the same labels, no NaN, and values that differ by less than 1 %.

    The values are those of the same moments. In one moment of fifteen, one of the engines has already lost a sample
    at the start of a window, which changes a rate of 5 minutes by 5 %: the median of the moments counts.
    """
    vmalert()
    text = history(time.time() // 1)
    (tmp_path / "slo-errors.yml").write_text(rules("vmalert", window))
    receiver = ("--web.enable-remote-write-receiver",)
    with (
        serve(text, tmp_path / "native", rules={"slo-errors.yml": rules("prometheus", window)}) as native,
        serve(text, tmp_path / "remote", server=prometheuses()[-1], flags=receiver) as remote,
        running_vmalert(tmp_path / "slo-errors.yml", remote),
    ):
        wait_recorded(remote)
        wait_recorded(native)
        theirs, ours = recorded(remote), recorded(native)
        again = {
            rule["record"]: (rule["labels"], rule["expr"])
            for rule in yaml.safe_load(rules("prometheus", window))["groups"][0]["rules"]
            if "record" in rule and rule["record"] in {names.sli_events(w) for w in ("5m", "30m", "1h")}
        }
        exact = [
            (dict(labels), value, ask(remote, again[dict(labels)["__name__"]][1], at))
            for labels, [*_, (at, value)] in theirs.items()
            if dict(labels)["__name__"] in again
        ]

    assert len(ours) > 50
    assert set(ours) == set(theirs)
    for labels, samples in ours.items():
        assert not any(math.isnan(value) for _, value in theirs[labels]), labels
        if labels[0] != ("__name__", names.LAST_SEEN):
            assert statistics.median(differences(samples, theirs[labels])) < 0.01, labels
    assert 12 == len(exact)
    for own, value, answers in exact:
        same = {names.EVENT: own[names.EVENT], "model": own["model"], "version": own["version"]}
        [answer] = [answer for answer in answers if answer["metric"] == same]
        assert pytest.approx(float(answer["value"][1]), rel=1e-9) == value, own


@pytest.mark.parametrize("minutes", [3, 20, 59])
def test_a_model_of_five_minutes_counts_for_five_minutes(minutes: int, tmp_path: Path) -> None:
    """VictoriaMetrics divides a rate by the time between its samples: twelve times as many in an hour."""
    end = float(round(time.time())) - 4 * 3600
    labels = {"instance": "a", "model": "m", "version": "1"}
    scrapes = range(0, 301, STEP)
    series = (
        (str(triton.REQUEST_SUCCESS), labels, [(end + at, 10.0 * at) for at in scrapes]),
        (
            str(triton.REQUEST_FAILURE),
            {**labels, "reason": "BACKEND"},
            [(end + at, at * 1.0) for at in scrapes],
        ),
    )
    hourly = [
        rule["expr"]
        for group in yaml.safe_load(rules("vmalert", "7d"))["groups"]
        for rule in group["rules"]
        if rule.get("record") == names.sli_events("1h")
    ]
    with serve_victoria(openmetrics(series), tmp_path) as url:
        samples = Prometheus(Access(url)).instant(hourly[0], end + 60 * minutes)
    events = {sample.labels[names.EVENT]: 3600 * sample.value for sample in samples}
    passed = min(300, 60 * minutes)

    assert {"error": pytest.approx(passed, rel=0.02), "total": pytest.approx(11 * passed, rel=0.02)} == events

"""Test the autoscaling objects: valid, right in Prometheus, and a day of traffic under the autoscaler's rule."""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.kubernetes.schemas import validate
from support.promtool import evaluated
from support.tools import ROOT, newest, promtools
from triton_slo.advise.simulate import Service, Setting, simulate
from tritonwatch.cli import main

OBJECTIVES = str(ROOT / "slo" / "objectives")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what `generate` writes for a project, by file."""
    folder = tmp_path_factory.mktemp("keda")
    project = folder / "tritonwatch.yaml"
    project.write_text("prometheus: {url: 'http://127.0.0.1:1', timeout: 1s}\n")
    words = ["--objectives", OBJECTIVES, "--format", "keda", "--out", str(folder / "out")]
    assert 0 == main(["generate", *words, "--project", str(project)])
    assert (folder / "out" / "rules").is_dir()
    files = (folder / "out" / "autoscaling").iterdir()
    return {file.name: yaml.safe_load(file.read_text()) for file in files}


def test_the_objects_are_valid(made: dict[str, Any]) -> None:
    """KEDA and Kubernetes know every field; both scale on the same value, and hold where there is none."""
    keda, hpa, [rule] = made["keda.yaml"]["spec"], made["hpa.yaml"]["spec"], made["adapter-rule.yaml"]
    validate(made["keda.yaml"])
    validate(made["hpa.yaml"])
    [trigger], [metric] = keda["triggers"], hpa["metrics"]

    assert ("Value", "false") == (trigger["metricType"], trigger["metadata"]["ignoreNullValues"])
    assert "currentReplicasIfHigher" == keda["fallback"]["behavior"]
    assert "http://127.0.0.1:1" == trigger["metadata"]["serverAddress"]
    assert rule["metricsQuery"] == trigger["metadata"]["query"]
    assert rule["name"]["as"] == metric["external"]["metric"]["name"]
    assert {"type": "Value", "value": "800m"} == metric["external"]["target"]
    assert 0.8 == float(trigger["metadata"]["threshold"])
    assert hpa["behavior"] == keda["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]


def test_autoscaling_needs_its_format(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing written is not a success."""
    words = ["--objectives", OBJECTIVES, "--only", "autoscaling", "--out", str(tmp_path)]
    assert 2 == main(["generate", *words])

    assert "--only autoscaling: needs --format keda" in capsys.readouterr().err


LEAST = 'triton_model_headroom_ratio{model="%s",version="1",slo="queue",bound="least"}'
UNKNOWN = 'triton_model_headroom_unknown{model="%s",version="1",slo="queue",reason="%s"}'


@pytest.mark.parametrize("promtool", newest(promtools()), ids=str)
@pytest.mark.parametrize(
    ("others", "rate_now", "expected"),
    [
        pytest.param({LEAST % "a": 2}, 10, 0.5, id="traffic over break rate"),
        pytest.param({LEAST % "a": 2}, 0, 0, id="no traffic now"),
        pytest.param({LEAST % "a": 2, LEAST % "b": 1.25}, 10, 0.8, id="the busiest model"),
        pytest.param(
            {LEAST % "a": 2, UNKNOWN % ("b", "unsteady"): 1}, 10, 0.8, id="another is unknown: hold"
        ),
        pytest.param({LEAST % "a": 2, UNKNOWN % ("b", "too_little_data"): 1}, 10, 0.5, id="another is idle"),
        pytest.param({LEAST % "a": 2, UNKNOWN % ("b", "ensemble"): 1}, 10, 0.5, id="its steps are known"),
        pytest.param({UNKNOWN % ("a", "unsteady"): 1}, 10, 0.8, id="unknown: hold"),
        pytest.param({LEAST % "a": 1, UNKNOWN % ("b", "unsteady"): 1}, 10, 1, id="known need beside unknown"),
        pytest.param({LEAST % "a": 2, UNKNOWN % ("a", "batches_unseen"): 1}, 10, 0.5, id="estimate unknown"),
        pytest.param({}, 10, None, id="advise does not run"),
    ],
)
def test_the_query_in_prometheus(
    promtool: Path,
    others: dict[str, float],
    rate_now: float,
    expected: float | None,
    made: dict[str, Any],
    tmp_path: Path,
) -> None:
    """Two servers had 10 requests/s each per model for hours, and have `rate_now` since five minutes."""
    asked = made["keda.yaml"]["spec"]["triggers"][0]["metadata"]["query"]
    series = {
        f'nv_inference_request_success{{instance="{i}",model="{model}",version="1"}}': (
            f"0+150x460 {69000 + 15 * now}+{15 * now}x19"
        )
        for i in range(2)
        for model, now in (("a", rate_now), ("b", 10))
    }
    series |= {name: f"{value}+0x480" for name, value in others.items()}
    question = [(f"round({asked}, 0.05)", 7200.0)]
    [answer] = evaluated(promtool, tmp_path, "groups: []", series, question, interval=15, evaluation=60)

    assert ([] if expected is None else [({}, pytest.approx(expected))]) == answer


SETTING, SERVICE, WITHIN, SHARE = Setting(max_batch=8), Service(0.040, 0.005, 0.1), 0.1, 0.99
"""One server: batches of n take 40 + 5 n ms; 99 % of the requests are to wait at most 100 ms."""
RATES = [1.0, *range(4, 97, 4)]
DAY = 24 * 60


def _traffic(minute: int) -> float:
    """From 20 requests/s at night to 240 at noon; from 18:00 to 20:00 twice as much."""
    return (2 if 18 * 60 <= minute % DAY < 20 * 60 else 1) * (
        130 - 110 * math.cos(2 * math.pi * minute / DAY)
    )


class Servers:
    """Seconds of mean wait, and the share of slow requests, of one server at any rate, from simulations."""

    def __init__(self) -> None:
        outcomes = [simulate(SETTING, SERVICE, rate, requests=4_000) for rate in RATES]
        self._waits = [outcome.mean_wait for outcome in outcomes]
        self._slow = [sum(wait > WITHIN for wait in one.waits) / len(one.waits) for one in outcomes]
        self.breaks = max(rate for rate in range(4, 97) if self.slow(rate) <= 1 - SHARE)

    def slow(self, rate: float) -> float:
        return self._at(rate, self._slow)

    def wait(self, rate: float) -> float:
        return self._at(rate, self._waits)

    def _at(self, rate: float, values: list[float]) -> float:
        i = min(max(1, bisect(RATES, rate)), len(RATES) - 1)
        part = (min(rate, RATES[-1]) - RATES[i - 1]) / (RATES[i] - RATES[i - 1])
        return values[i - 1] + part * (values[i] - values[i - 1])


@pytest.fixture(scope="module")
def servers() -> Servers:
    return Servers()


def _played(
    hpa: dict[str, Any], ratio: Callable[[int, list[int]], float], servers: Servers
) -> tuple[float, ...]:
    """Return the share of good requests, the mean and the most replicas, and how often they changed, of one day.

    Minute by minute under the rule of the HorizontalPodAutoscaler: ceil(ready * value / target) unless it is within
    10 %, the least of what the window for more replicas holds, the most of that for fewer. `ratio` is value / target;
    it gets the numbers of ready replicas until now. A new replica is ready after three minutes.
    """
    up, down = (hpa["behavior"][way]["stabilizationWindowSeconds"] // 60 for way in ("scaleUp", "scaleDown"))
    wanted, recommended, ready = [2], [2], [2]
    requests = slow = 0.0
    changes = 0
    for minute in range(2 * DAY):  # the first one settles what the night begins with
        ready.append(min(wanted[-4:]))
        over = ratio(minute, ready)
        replicas = wanted[-1] if abs(over - 1) <= 0.1 else math.ceil(ready[-1] * over)
        recommended.append(min(max(replicas, hpa["minReplicas"]), hpa["maxReplicas"]))
        least, most = min(recommended[-up - 1 :]), max(recommended[-down - 1 :])
        wanted.append(max(least, min(wanted[-1], most)))
        if minute >= DAY:
            requests += _traffic(minute)
            slow += _traffic(minute) * servers.slow(_traffic(minute) / ready[-1])
            changes += wanted[-1] != wanted[-2]
    return 1 - slow / requests, sum(ready[-DAY:]) / DAY, max(ready[-DAY:]), changes


@pytest.mark.parametrize(
    ("late", "kept"),
    [
        pytest.param(5, True, id="the headroom knows a replica after five minutes"),
        pytest.param(60, False, id="after an hour: replicas swing"),
    ],
)
def test_a_day_scaled_on_headroom(late: int, kept: bool, made: dict[str, Any], servers: Servers) -> None:
    """The headroom is that of the hour's traffic, 10 % careful, and of the replicas of some minutes ago."""

    def over(minute: int, ready: list[int]) -> float:
        hour = sum(map(_traffic, range(minute - 60, minute))) / 60
        least = 0.9 * servers.breaks * ready[max(0, len(ready) - 1 - late)] / hour
        return _traffic(minute) / hour / least / 0.8

    good, mean, most, changes = _played(made["hpa.yaml"]["spec"], over, servers)
    print(f"{good:.2%} good, {mean:.1f} replicas, at most {most}, {changes} changes")

    assert kept == (good >= SHARE and mean < 4.5 and changes <= 16)


@pytest.mark.parametrize(("target", "kept"), [(0.05, False), (0.025, True)])
def test_a_day_scaled_on_queue_time(target: float, kept: bool, servers: Servers) -> None:
    """What compose/kubernetes/autoscaling/hpa.yaml does on the same day: well with a target found for this model."""
    hpa = yaml.safe_load((ROOT / "compose" / "kubernetes" / "autoscaling" / "hpa.yaml").read_text())["spec"]
    assert "50m" == hpa["metrics"][0]["pods"]["target"]["averageValue"]

    def over(minute: int, ready: list[int]) -> float:
        return servers.wait(_traffic(minute) / ready[-1]) / target

    good, mean, most, changes = _played(hpa, over, servers)
    print(f"{good:.2%} good, {mean:.1f} replicas, at most {most}, {changes} changes")

    assert kept == (good >= SHARE)

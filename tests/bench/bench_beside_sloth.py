"""Measure what our rules and those of the real Sloth cost on the same data, each in a real Prometheus.

Sloth is built from its source, which takes Go and minutes; where Go is absent, this says so and is skipped. Both
Prometheus run at the same time, so that a busy machine slows both; CPU seconds are compared, not durations.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests
import yaml

from bench.measurements import record
from bench.process_usage import ProcessUsage
from slo.slo_scenarios import OBJECTIVE
from slo.slo_shapes import sloth
from support.history import Series, backfilled, openmetrics
from support.loopback import free_ports, started
from support.tools import prometheuses
from triton_exporter.catalogue import EXPORTER_JOB, triton
from triton_slo import names
from triton_slo.artifact import Options
from triton_slo.generate import artifacts

VERSION = "v0.16.0"
SLOTH = """\
version: prometheus/v1
service: triton
slos:
  - name: errors
    objective: 99.9
    sli:
      events:
        error_query: sum by (model, version) (rate(nv_inference_request_failure{reason!="CANCELED"}[{{.window}}]))
        total_query: sum by (model, version) (rate({__name__=~"nv_inference_request_(success|failure)", reason!="CANCELED"}[{{.window}}]))
    alerting:
      name: Sloth
      page_alert: {labels: {severity: critical}}
      ticket_alert: {labels: {severity: warning}}
"""
STEP, LONG_STEP = 30, 240
"""Seconds between evaluations, and between those of our long windows."""
FASTER = 7.5
"""Times as often as in production, so that a minute shows enough of them."""
DAY = 86_400


def real_sloth(folder: Path) -> str:
    """Build Sloth and return what it generates for the objective of the scenarios."""
    if not shutil.which("go"):
        pytest.skip("no Go here: the real Sloth cannot be built")
    environment = {**os.environ, "GOBIN": str(folder), "GOFLAGS": "-mod=mod"}
    subprocess.run(
        ["go", "install", f"github.com/slok/sloth/cmd/sloth@{VERSION}"],
        env=environment,
        check=True,
        timeout=1800,
        capture_output=True,
    )
    (folder / "in.yml").write_text(SLOTH)
    command: list[str | Path] = [folder / "sloth", "generate", "-i", folder / "in.yml"]
    command += ["-o", folder / "out.yml"]
    subprocess.run(command, check=True, capture_output=True)
    return (folder / "out.yml").read_text()


def our_rules() -> str:
    """Return our rules for the same objective."""
    [text] = [made.text for made in artifacts((OBJECTIVE,), Options()) if made.name == "slo-errors.yml"]
    return text


@dataclass(frozen=True)
class Fleet:
    """Models on some servers, how many days of them are known, and the share of their requests that fails."""

    models: int
    servers: int
    days: float
    recorded_days: float
    fails: float
    rate: float = 1000.0

    def raw(self, end: float) -> Iterator[Series]:
        """Yield Triton's counters of each server."""
        begin = end - self.days * DAY
        for model, server in itertools.product(range(self.models), range(self.servers)):
            labels = {"job": EXPORTER_JOB, "instance": f"s{server}", "model": f"m{model}", "version": "1"}
            for event, share in (("good", 1 - self.fails), ("bad", self.fails)):
                name = triton.REQUEST_SUCCESS if event == "good" else triton.REQUEST_FAILURE
                more = {} if event == "good" else {"reason": "BACKEND"}
                yield str(name), labels | more, self._grown(begin, end, STEP, share)

    def ours(self, end: float) -> Iterator[Series]:
        """Yield what our rules recorded before: the counter, its copy, and what each server has counted."""
        own = {names.SLO: "errors", names.INDICATOR: "errors"}
        hours = min(6 / 24, self.recorded_days)
        for model, event in itertools.product(range(self.models), (names.ERROR, names.TOTAL)):
            share = self.servers * (self.fails if event == names.ERROR else 1)
            group = {"model": f"m{model}", "version": "1", names.EVENT: event}
            for name, days, step in (
                (names.COUNTER, hours, STEP),
                (names.COPY, self.recorded_days, LONG_STEP),
            ):
                yield name, own | group, self._grown(end - days * DAY, end, step, share)
            for server in range(self.servers):
                labels = {names.SLO: "errors", "job": EXPORTER_JOB, "instance": f"s{server}", **group}
                each = self._grown(end - min(3600, self.days * DAY), end, STEP, share / self.servers)
                yield names.SERVER, labels, each
                yield names.SEEN, labels, each
        for model in range(self.models):
            group = {"model": f"m{model}", "version": "1"}
            times = range(int(min(1.0, self.recorded_days) * DAY), -1, -LONG_STEP)
            since = [(end - ago, end - self.recorded_days * DAY) for ago in times]
            yield names.COUNTER_SINCE, own | group, since

    def sloths(self, end: float) -> Iterator[Series]:
        """Yield the share of each five minutes, of which Sloth takes the mean over 30 days."""
        own = {"sloth_id": "triton-errors", "sloth_service": "triton", "sloth_slo": "errors"}
        for model in range(self.models):
            labels = own | {"sloth_window": "5m", "model": f"m{model}", "version": "1"}
            count = int(self.recorded_days * DAY / STEP)
            points = [(end - (count - number) * STEP, self.fails) for number in range(count + 1)]
            yield names.sli_error("5m"), labels, points

    def _grown(self, begin: float, end: float, step: float, share: float) -> list[tuple[float, float]]:
        count = int((end - begin) / step)
        each = self.rate * share * step / 60
        return [(end - (count - number) * step, round(number * each, 3)) for number in range(count + 1)]


@dataclass(frozen=True)
class Running(ProcessUsage):
    """A Prometheus that evaluates rules."""

    url: str

    def ask(self, query: str) -> float:
        answer = requests.get(f"{self.url}/api/v1/query", params={"query": query}, timeout=60).json()
        [result] = answer["data"]["result"] or [{"value": [0, "0"]}]
        return float(result["value"][1])

    def evaluations(self) -> float:
        """Return how often the group that is evaluated most has been."""
        page = requests.get(f"{self.url}/metrics", timeout=60).text
        counts = re.findall(r"^prometheus_rule_group_iterations_total\S* (\S+)$", page, re.M)
        missed = re.findall(r"^prometheus_rule_group_iterations_missed_total\S* (\S+)$", page, re.M)
        return max(map(float, counts), default=0) - max(map(float, missed), default=0)


def _sped_up(text: str) -> str:
    """Return rules whose intervals are shorter, in the same proportion."""
    document = yaml.safe_load(text)
    for group in document["groups"]:
        interval = LONG_STEP if group["name"].endswith("-long") else STEP
        group["interval"] = f"{round(1000 * interval / FASTER)}ms"
    return yaml.safe_dump(document, sort_keys=False)


@dataclass(frozen=True)
class Cost:
    """CPU seconds of one minute's evaluations in production, the series that are recorded, and the alerts."""

    cpu: float
    series: float
    firing: float


def costs(folder: Path, fleet: Fleet, rules: dict[str, str], seconds: float, ahead: float) -> dict[str, Cost]:
    """Run both engines on the fleet for some seconds; `ahead`: seconds that writing the history takes."""
    end = time.time() + ahead
    recorded: dict[str, Callable[[float], Iterable[Series]]] = {
        "tritonwatch": fleet.ours,
        "Sloth": fleet.sloths,
        "neither": lambda _: (),
    }
    with ExitStack() as stack:
        for engine in recorded:
            (folder / engine).mkdir(parents=True)
            text = openmetrics([*fleet.raw(end), *recorded[engine](end)])
            backfilled(text, folder / engine / "data")
            (folder / engine / "history.om").unlink(missing_ok=True)
        late = time.time() - end
        assert late < 60, f"the history was written {late:.0f} s too late; give `ahead` more"
        time.sleep(max(0.0, -late))
        running = {}
        for engine in recorded:
            (folder / engine / "rules.yml").write_text(_sped_up(rules.get(engine, "groups: []")))
            config = {"global": {"evaluation_interval": "4s"}, "rule_files": ["rules.yml"]}
            (folder / engine / "prometheus.yml").write_text(yaml.safe_dump(config))
            [port] = free_ports(1)
            command = [
                prometheuses()[-1],
                f"--config.file={folder / engine / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / engine / 'data'}",
                "--storage.tsdb.retention.time=1y",
                f"--web.listen-address=127.0.0.1:{port}",
            ]
            url = f"http://127.0.0.1:{port}"
            process = stack.enter_context(started(command, f"{url}/-/ready", folder / f"{engine}.log"))
            running[engine] = Running(psutil.Process(process.pid), url)
        time.sleep(LONG_STEP / FASTER / 2)  # the first evaluations also read the blocks from disk
        before = {engine: (one.cpu_seconds(), one.evaluations()) for engine, one in running.items()}
        time.sleep(seconds)
        used = {engine: one.cpu_seconds() - before[engine][0] for engine, one in running.items()}
        found = {}
        for engine in rules:
            times = running[engine].evaluations() - before[engine][1]
            assert times > 5, (engine, times)
            found[engine] = Cost(
                (used[engine] - used["neither"]) / times * 60 / STEP,
                running[engine].ask('count({__name__=~"slo:.*|sloth.*"})') / fleet.models,
                running[engine].ask('count(group by (model) (ALERTS{alertstate="firing"}))'),
            )
    return found


def _as_text(rule: dict[str, Any]) -> str:
    """Return an expression without names, labels and spelling in which the two forms may differ."""
    text = re.sub(
        r"\{sloth_id=[^}]*\}", "", rule["expr"].replace(names.sli_error(""), "sloth:sli_error:ratio_rate")
    )
    text = text.replace(
        "nv_inference_request_(success|failure)", f"{triton.REQUEST_SUCCESS}|{triton.REQUEST_FAILURE}"
    )
    text = re.sub(r"0\.000999\d+", "0.001", text)  # Sloth's 1 - 0.999
    return re.sub(r"\.0(?= )|[\s()]", "", text)


def test_the_shape_of_sloth_is_what_sloth_generates(tmp_path: Path) -> None:
    """The scenarios of bench_slo_proof.py and of the tests are played on what the real Sloth writes."""
    generated, shape = (
        [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]
        for text in (real_sloth(tmp_path), sloth())
    )
    theirs = {_as_text(rule) for rule in generated}
    mine = [rule for rule in shape if rule.get("record") != "sloth:budget_remaining"]
    assert 10 == len(mine)
    assert [] == [rule["expr"] for rule in mine if _as_text(rule) not in theirs]


@pytest.mark.timeout(3000)
def test_the_rules_cost_less_than_sloths(tmp_path: Path) -> None:
    """A fleet in which nothing burns, the same in a storm, and a storm of models without a history.

    In a storm both pages and both tickets of every model fire.
    """
    rules = {"tritonwatch": our_rules(), "Sloth": real_sloth(tmp_path)}
    healthy = costs(tmp_path / "healthy", Fleet(30, 3, 3, 30, 0.0002), rules, 128, 150)
    storm = costs(tmp_path / "storm", Fleet(30, 3, 1, 30, 0.5), rules, 96, 150)
    new = costs(tmp_path / "new", Fleet(200, 1, 1 / 12, 1 / 12, 0.5), rules, 96, 60)

    lines = {engine: len(text.splitlines()) for engine, text in rules.items()}
    recording = {engine: text.count("record:") for engine, text in rules.items()}
    load = os.getloadavg()[0]
    rows = [
        ("lines of the rule file", *(f"{lines[engine]}" for engine in rules)),
        ("recording rules", *(f"{recording[engine]}" for engine in rules)),
        ("series a group, three servers", *(f"{healthy[engine].series:.0f}" for engine in rules)),
        ("CPU seconds a minute, nothing burns", *(f"{healthy[engine].cpu:.3f}" for engine in rules)),
        ("CPU seconds a minute, all 30 models burn", *(f"{storm[engine].cpu:.3f}" for engine in rules)),
        ("CPU seconds a minute, 200 new models burn", *(f"{new[engine].cpu:.3f}" for engine in rules)),
    ]
    table = ["| what | tritonwatch | Sloth |", "|---|---|---|", *(f"| {' | '.join(row)} |" for row in rows)]
    text = _TEXT.format(load=load) + "\n" + "\n".join(table)
    print(text)
    record("sloth", "make bench ARGS=tests/bench/bench_beside_sloth.py", text)

    assert all(30 == cost.firing for cost in storm.values())
    assert all(200 == cost.firing for cost in new.values())
    for cost in (healthy, storm):
        assert cost["tritonwatch"].cpu < cost["Sloth"].cpu / 4


_TEXT = f"""\
One objective (99.9 % of requests without a failure, over 30 days) as our rules and as what the real Sloth {VERSION}
generates. Both are evaluated at the same time on the same counters, each in its own Prometheus, {FASTER:g} times as often as
every {STEP} s (our long windows: every {LONG_STEP // 60} min); a third Prometheus with the same data and no rules is subtracted. The
figures are CPU seconds, annotations included, on a machine with a load of {{load:.0f}}. Nothing burns: 30 models on three servers,
30 days of what the rules record. The storm: the same models fail half of their requests, and both pages and both
tickets of each fire. The last storm: 200 models on one server that are known for two hours only, so that Sloth's mean
over 30 days has nothing to read. There ours cost more: Prometheus writes the labels and texts of each alert again at
each evaluation, and ours have four alerts a model, each with a first step and links, where Sloth's have two.
"""

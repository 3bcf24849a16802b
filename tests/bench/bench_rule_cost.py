"""Measure what an evaluation of our rules costs a real Prometheus, beside Sloth's and Pyrra's rules.

Writes docs/rule-cost.md. TRITONWATCH_COST=MODELSxDAYS runs it smaller; only the whole one writes the page. Where
`sloth` and `pyrra` are on PATH their real output is measured, otherwise rules in their shape.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from bench.rule_cost import (
    RECENT,
    SCRAPE,
    Cost,
    Counters,
    Fleet,
    Group,
    Line,
    backfill,
    copied,
    cost,
    idle_cpu,
    ratios,
    sums,
)
from slo.slo_scenarios import OBJECTIVE
from slo.slo_shapes import pyrra, sloth
from support.tools import ROOT
from triton_dashboards.recording import rules_text
from triton_exporter.catalogue import triton
from triton_exporter.common.duration import parse_seconds
from triton_slo.artifact import Options
from triton_slo.generate import CAUSES, artifacts

PAGE = ROOT / "docs" / "rule-cost.md"
WHOLE = "100x4.4"
MODELS, DAYS = os.environ.get("TRITONWATCH_COST", WHOLE).split("x")
FLEET = Fleet(int(MODELS), 3, float(DAYS))
_FAILED = f'{triton.REQUEST_FAILURE}{{reason!="CANCELED"}}'
_ALL = f'{{__name__=~"{triton.REQUEST_SUCCESS}|{triton.REQUEST_FAILURE}", reason!="CANCELED"}}'
_SLOTH_IDS = 'sloth_id="triton-errors",sloth_service="triton",sloth_slo="errors",sloth_window="5m"'


@dataclass(frozen=True)
class Engine:
    """Rules, and what they recorded in the past that they read again."""

    name: str
    groups: Sequence[Group]
    past: Callable[[int], Iterable[Line]] = lambda now: ()


@dataclass(frozen=True)
class Row:
    """Costs of an engine's rules: at every evaluation, of the groups with a longer interval, and in a storm."""

    engine: str
    often: Cost
    every: Cost
    storm: Cost


def ours() -> Engine:
    """Return the objective's groups, without the cause split that all objectives share."""
    options = Options(scrape_interval_seconds=SCRAPE)
    [text] = [
        artifact.text for artifact in artifacts((OBJECTIVE,), options) if artifact.name == "slo-errors.yml"
    ]
    return Engine("ours", groups_of(text))


def with_boards() -> Engine:
    """Return the objective's groups and the rules that the dashboards read, which all objectives share."""
    recorded = groups_of(rules_text(Options(scrape_interval_seconds=SCRAPE)))
    return Engine("ours, and the boards'", [*ours().groups, *recorded])


def causes() -> list[Group]:
    """Return the group of the cause split, which alerts query."""
    options = Options(scrape_interval_seconds=SCRAPE)
    [text] = [
        artifact.text for artifact in artifacts((OBJECTIVE,), options) if artifact.name == f"{CAUSES}.yml"
    ]
    return groups_of(text)


def groups_of(text: str) -> list[Group]:
    document: list[Group] = yaml.safe_load(text)["groups"]
    return document


def sloth_engine(folder: Path) -> Engine:
    """Return the output of `sloth generate`, or its shape."""
    if not shutil.which("sloth"):
        name, labels = "sloth:sli_error:ratio_rate5m", 'sloth_window="5m"'
        return Engine("Sloth (shape)", groups_of(sloth()), lambda now: ratios(FLEET, now, name, labels))
    events = {
        "error_query": f"sum by (model, version) (rate({_FAILED}[{{{{.window}}}}]))",
        "total_query": f"sum by (model, version) (rate({_ALL}[{{{{.window}}}}]))",
    }
    severities = {f"{kind}_alert": {"labels": {"severity": kind}} for kind in ("page", "ticket")}
    slo = {"name": "errors", "objective": 99.9, "sli": {"events": events}}
    spec = {
        "version": "prometheus/v1",
        "service": "triton",
        "slos": [{**slo, "alerting": {"name": "Sloth", **severities}}],
    }
    (folder / "sloth.yml").write_text(yaml.safe_dump(spec))
    command = ["sloth", "generate", "-i", str(folder / "sloth.yml"), "-o", str(folder / "sloth-rules.yml")]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    groups = groups_of((folder / "sloth-rules.yml").read_text())
    return Engine("Sloth", groups, lambda now: ratios(FLEET, now, "slo:sli_error:ratio_rate5m", _SLOTH_IDS))


def pyrra_engine(folder: Path) -> Engine:
    """Return the output of `pyrra generate`, or its shape; Pyrra wants one metric as total: that of successes."""
    if not shutil.which("pyrra"):
        return Engine("Pyrra (shape)", groups_of(pyrra()))
    ratio = {"errors": {"metric": _FAILED}, "total": {"metric": f'{triton.REQUEST_SUCCESS}{{version=~".+"}}'}}
    spec = {
        "apiVersion": "pyrra.dev/v1alpha1",
        "kind": "ServiceLevelObjective",
        "metadata": {"name": "errors"},
        "spec": {
            "target": "99.9",
            "window": "30d",
            "indicator": {"ratio": {**ratio, "grouping": ["model", "version"]}},
        },
    }
    (folder / "pyrra.yml").write_text(yaml.safe_dump(spec))
    (folder / "pyrra").mkdir()
    command = ["pyrra", "generate", f"--config-files={folder / 'pyrra.yml'}"]
    subprocess.run(
        [*command, f"--prometheus-folder={folder / 'pyrra'}"], check=True, capture_output=True, timeout=60
    )
    return Engine("Pyrra", groups_of((folder / "pyrra" / "pyrra.yml").read_text()))


def per_minute(group: Group) -> float:
    """How often a group is evaluated in a minute."""
    return 60 / parse_seconds(str(group.get("interval", "1m")))


def measure(engine: Engine, folder: Path, idle: float, extra: Sequence[Group] = ()) -> Row:
    """Backfill what the engine recorded, then evaluate its groups; `extra` ones count in the storm alone."""
    now, common = int(time.time()) // SCRAPE * SCRAPE, folder / "common"
    healthy, storm = (Counters(FLEET, now, failing) for failing in (False, True))
    common.mkdir(parents=True)
    backfill(common, healthy.lines(healthy.start, now - RECENT))
    backfill(common, sums(healthy, now) if engine.name.startswith("ours") else engine.past(now))
    for counters, name in ((healthy, "healthy"), (storm, "storm")):
        backfill(copied(common, folder / name), counters.lines(now - RECENT, now))
    often = [group for group in engine.groups if per_minute(group) >= 1]
    seldom = [group for group in engine.groups if per_minute(group) < 1]
    first = cost(copied(folder / "healthy", folder / "often"), often, healthy, idle)
    both = cost(copied(folder / "healthy", folder / "all"), engine.groups, healthy, idle) if seldom else first
    failing = cost(copied(folder / "storm", folder / "failing"), [*often, *extra], storm, idle)
    shared = max(per_minute(group) for group in often)
    rarely = min((per_minute(group) for group in seldom), default=0)
    # A group with an interval of its own is evaluated less (or more) often than once a minute.
    mean = Cost(
        shared * first.cpu_seconds + rarely * max(both.cpu_seconds - first.cpu_seconds, 0),
        shared * first.written + rarely * (both.written - first.written),
        shared * first.read + rarely * max(both.read - first.read, 0),
        first.firing,
    )
    return Row(engine.name, mean, both, failing)


HEAD = """# What the rules cost

This page shows what our rules for one objective cost Prometheus, compared with the rules that Sloth and Pyrra
write for the same objective. It also shows the cost while every model fails. The cost of larger fleets is in
the quality of the alerts in [the scenarios](slo-proof.md).

`make bench` writes this page (`tests/bench/bench_rule_cost.py`). A real Prometheus contains the counters of
{models} models with 3 replicas each, scraped every 60 s for {days} days. Where an engine's rules read their own
recorded series again, it also contains 30 days of those. Prometheus evaluates the rules every few seconds, while
it scrapes counters that grow.

- *CPU seconds a minute*: CPU time of the Prometheus process for the rules of one minute, at an evaluation
  interval of 1 minute (Prometheus' default). A group with its own interval counts as often as it is evaluated.
  The cost of scraping is subtracted.
- *Series a group*: recorded series for each model version, in all rule groups.
- *Storm*: all models fail at once, for over an hour. The CPU seconds of one evaluation include the queries in the
  annotations of the alerts, and, for ours, the cause split that these queries read.

{where}

"""


def page(rows: Sequence[Row]) -> str:
    """Return the whole page."""
    real = [row.engine for row in rows[2:] if "shape" not in row.engine]
    where = f"Rules of {' and '.join(real)} are what the tools' own code writes." if real else ""
    lines = [
        "| rules | CPU seconds a minute | series a group | written/min | read/min | storm: CPU | firing |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        lines.append(
            f"| {row.engine} | {row.often.cpu_seconds:.2f} | {row.every.written / FLEET.models:.0f} "
            f"| {row.often.written:,.0f} | {row.often.read:,.0f} "
            f"| {row.storm.cpu_seconds:.2f} s | {row.storm.firing:,} |"
        )
    return HEAD.format(models=FLEET.models, days=f"{FLEET.days:g}", where=where) + "\n".join(lines) + "\n"


@pytest.mark.timeout(3600)
def test_rules_cost_less_than_those_of_sloth(tmp_path: Path) -> None:
    """Fewer CPU seconds than the other engines' rules for the same objective."""
    peers = (sloth_engine(tmp_path), ()), (pyrra_engine(tmp_path), ())
    engines = ((ours(), causes()), (with_boards(), causes()), *peers)
    (tmp_path / "idle").mkdir()
    idle = idle_cpu(tmp_path / "idle", Counters(FLEET, int(time.time()), False))
    rows = [measure(engine, tmp_path / engine.name, idle, extra) for engine, extra in engines]
    text = page(rows)
    print(text)
    if f"{MODELS}x{DAYS}" == WHOLE:
        PAGE.write_text(text)

    for row in rows[2:]:
        assert rows[0].often.cpu_seconds < row.often.cpu_seconds, row.engine

"""Measure 50 servers of 200 models, remote-written to a real Prometheus and a real VictoriaMetrics.

Writes docs/measurements.md. An agent scrapes 50 pages that continue a real exporter's page and writes all to both.
Prometheus and vmalert run the shipped rules there. The share of requests that fail is known for every model, and
so is its budget. TRITONWATCH_SCALE=SERVERSxMODELSxMINUTES runs it smaller; only the whole one writes the page.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests
import yaml

from bench.fleet_pages import share
from bench.measurements import record
from bench.process_usage import ProcessUsage
from support import loopback
from support.loopback import free_ports
from support.tools import ROOT, prometheuses, versions_of, vmalert
from triton_exporter.catalogue import EXPORTER_JOB
from triton_slo import names
from tritonwatch.cli import main

WHOLE = "50x200x10"
SERVERS, MODELS, MINUTES = (int(number) for number in os.environ.get("TRITONWATCH_SCALE", WHOLE).split("x"))
INTERVAL = 30
TIME_SCALE = 1 / 720
"""30 days in an hour; no window gets shorter than four scrapes."""
TARGET = 0.999
ONLY_WHEN_IT_HAPPENS = ("prometheus_remote_storage_samples_dropped_total",)
"""Series that Prometheus has only once there is something to count."""


@dataclass(frozen=True)
class Part(ProcessUsage):
    """A running program, and what it has used."""

    name: str
    url: str

    def metric(self, name: str, **labels: str) -> float:
        """Return the sum of a metric's series on the program's own page whose labels contain these."""
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        match = [
            float(line.rpartition(" ")[2])
            for line in requests.get(f"{self.url}/metrics", timeout=60).text.splitlines()
            if re.match(rf"{name}[{{ ]", line) and all(label in line for label in wanted)
        ]
        assert match or name in ONLY_WHEN_IT_HAPPENS, f"{self.name} has no {name} {wanted}"
        return sum(match)

    def ask(self, expr: str, **options: str) -> dict[str, Any]:
        """Return an instant query's data."""
        answer = requests.get(
            f"{self.url}/api/v1/query", params={"query": expr, **options}, timeout=120
        ).json()
        assert "success" == answer["status"], answer
        data: dict[str, Any] = answer["data"]
        return data


@contextmanager
def started(name: str, folder: Path, port: int, ready: str, *command: object) -> Iterator[Part]:
    """Run a program on loopback; yield it once it answers."""
    url, log = f"http://127.0.0.1:{port}", folder / f"{name}.log"
    with loopback.started(command, url + ready, log) as process:
        yield Part(psutil.Process(process.pid), name, url)
        assert process.poll() is None, log.read_text()[-2000:]


def pages(folder: Path) -> int:
    """Two pages of a real exporter of one server; returns the series on one."""
    triton, port = free_ports(2)
    stub = [sys.executable, Path(__file__).with_name("stub_triton.py"), triton, MODELS]
    exporter = [sys.executable, "-m", "tritonwatch", "exporter", "--gpu", "none"]
    exporter += ["--triton", f"http://127.0.0.1:{triton}", "--listen", f"127.0.0.1:{port}"]
    exporter += ["--triton-metrics", f"http://127.0.0.1:{triton}/metrics"]
    with (
        started("stub", folder, triton, "/v2/health/live", *stub),
        started("exporter", folder, port, "/-/ready", *exporter) as running,
    ):
        time.sleep(5)
        before, then = requests.get(f"{running.url}/metrics", timeout=30).text, time.time()
        time.sleep(10)
        after, now = requests.get(f"{running.url}/metrics", timeout=30).text, time.time()
    content = {"before": before, "after": after, "seconds": now - then}
    (folder / "pages.json").write_text(json.dumps(content))
    return sum(1 for line in before.splitlines() if not line.startswith("#"))


def write_rules(folder: Path, form: str) -> None:
    """Return the shipped objectives' rules and all alerts, in one engine's format."""
    options = ["--scrape-interval", str(INTERVAL), "--time-scale", str(TIME_SCALE), "--format", form]
    source = ["--objectives", str(ROOT / "slo" / "objectives"), "--only", "rules"]
    assert 0 == main(["generate", *source, *options, "--out", str(folder)])


def scraping(fleet: int, receivers: Mapping[str, str]) -> str:
    """Return the agent's configuration: every server has its own path."""
    servers = [
        {"targets": [f"triton-{number}"], "labels": {"__path": str(number)}} for number in range(SERVERS)
    ]
    relabel = [
        {"source_labels": ["__path"], "target_label": "__metrics_path__", "replacement": "/$1/metrics"},
        {"source_labels": ["__address__"], "target_label": "instance"},
        {"target_label": "__address__", "replacement": f"127.0.0.1:{fleet}"},
    ]
    config = {
        "global": {"scrape_interval": f"{INTERVAL}s", "scrape_timeout": f"{INTERVAL}s"},
        "scrape_configs": [{"job_name": EXPORTER_JOB, "static_configs": servers, "relabel_configs": relabel}],
        "remote_write": [{"name": name, "url": url} for name, url in receivers.items()],
    }
    return yaml.safe_dump(config)


@dataclass(frozen=True)
class Stack:
    agent: Part
    prometheus: Part
    victoria: Part
    vmalert: Part


@contextmanager
def fleet(folder: Path) -> Iterator[Stack]:
    """Everything, running."""
    servers, agent, receiver, victoria, alert = free_ports(5)
    write_rules(folder / "rules", "prometheus")
    write_rules(folder / "vm", "vmalert")
    receivers = {
        "prometheus": f"http://127.0.0.1:{receiver}/api/v1/write",
        "victoria": f"http://127.0.0.1:{victoria}/api/v1/write",
    }
    (folder / "agent.yml").write_text(scraping(servers, receivers))
    every = {"evaluation_interval": f"{INTERVAL}s", "scrape_interval": f"{INTERVAL}s"}
    (folder / "prometheus.yml").write_text(
        yaml.safe_dump({"global": every, "rule_files": [str(folder / "rules" / "*.yml")]})
    )
    newest = prometheuses()[-1]
    here = "127.0.0.1"
    with ExitStack() as stack:
        run = stack.enter_context
        pages_path = ROOT / "tests" / "bench" / "fleet_pages.py"
        run(
            started(
                "fleet", folder, servers, "/0/", sys.executable, pages_path, servers, folder / "pages.json"
            )
        )
        prometheus = run(
            started(
                "prometheus",
                folder,
                receiver,
                "/-/ready",
                newest,
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'tsdb'}",
                "--web.enable-remote-write-receiver",
                f"--web.listen-address={here}:{receiver}",
            )
        )
        store = run(
            started(
                "victoria",
                folder,
                victoria,
                "/health",
                versions_of("victoria-metrics")[0],
                f"-storageDataPath={folder / 'vmdata'}",
                "-retentionPeriod=1d",
                "-search.latencyOffset=0s",
                f"-httpListenAddr={here}:{victoria}",
            )
        )
        alerting = run(
            started(
                "vmalert",
                folder,
                alert,
                "/health",
                vmalert(),
                f"-rule={folder / 'vm' / '*.yml'}",
                f"-datasource.url={store.url}",
                f"-remoteWrite.url={store.url}",
                f"-evaluationInterval={INTERVAL}s",
                "-notifier.blackhole",
                f"-httpListenAddr={here}:{alert}",
            )
        )
        writer = run(
            started(
                "agent",
                folder,
                agent,
                "/-/ready",
                newest,
                "--agent",
                f"--config.file={folder / 'agent.yml'}",
                f"--storage.agent.path={folder / 'wal'}",
                f"--web.listen-address={here}:{agent}",
            )
        )
        yield Stack(writer, prometheus, store, alerting)


def budgets(part: Part) -> dict[str, float]:
    """Model -> the share of its errors budget that is left."""
    answer = part.ask(f'{names.PERIOD_BUDGET_REMAINING}{{{names.SLO}="errors"}}')["result"]
    return {series["metric"]["model"]: float(series["value"][1]) for series in answer}


@pytest.mark.timeout(0)
def test_two_engines_record_the_true_budgets_of_a_fleet(tmp_path: Path) -> None:
    """No sample is lost, and both engines know every budget as it is, however late they evaluate."""
    if not versions_of("victoria-metrics"):
        pytest.skip("VictoriaMetrics is not here; `make tools-next` fetches it where apt can")
    series = pages(tmp_path)
    with fleet(tmp_path) as stack:
        time.sleep(60 * MINUTES / 2)
        parts = (stack.agent, stack.prometheus, stack.victoria, stack.vmalert)
        cpu, wrote = [part.cpu_seconds() for part in parts], _written(stack)
        began = time.monotonic()
        time.sleep(60 * MINUTES / 2)
        passed = time.monotonic() - began
        cores = [(part.cpu_seconds() - before) / passed for part, before in zip(parts, cpu, strict=True)]
        rate = {name: (now - wrote[name]) / passed for name, now in _written(stack).items()}
        seen = _figures(stack, rate.pop("rules"))
        ours, theirs = budgets(stack.prometheus), budgets(stack.victoria)
        memory = [part.rss_mib() / 1024 for part in parts]
    truth = {f"model_{number}": 1 - share(number) / (1 - TARGET) for number in range(MODELS)}
    assert truth.keys() == ours.keys() == theirs.keys()
    off = {
        name: max(abs(budgets_left[model] - truth[model]) for model in truth)
        for name, budgets_left in (("Prometheus", ours), ("VictoriaMetrics", theirs))
    }
    apart = max(abs(ours[model] - theirs[model]) for model in truth)
    table = _table(series, parts, cores, memory, rate, seen, off, apart)
    print(table)
    if os.environ.get("TRITONWATCH_SCALE", WHOLE) == WHOLE:
        command = "make bench ARGS=tests/bench/bench_scale.py"
        record("fleet", command, f"{_FLEET}\n{table}\n", "Fifty servers")
    assert 0 == seen["samples refused or dropped"]
    assert max(off.values()) < 0.03
    assert apart < 0.03


def _written(stack: Stack) -> dict[str, float]:
    return {
        "Prometheus": stack.prometheus.metric("prometheus_tsdb_head_samples_appended_total"),
        "VictoriaMetrics": stack.victoria.metric("vm_rows_inserted_total"),
        "rules": stack.prometheus.metric("prometheus_engine_query_samples_total"),
    }


def _figures(stack: Stack, read: float) -> dict[str, float]:
    return {
        "rules": stack.prometheus.metric("prometheus_rule_group_rules"),
        "samples read by one evaluation of all rules, Prometheus": round(read * INTERVAL),
        "series recorded": float(
            stack.prometheus.ask('count({__name__=~"slo:.*|triton:.*"})')["result"][0]["value"][1]
        ),
        "seconds of all rule groups' last evaluations, added up, Prometheus": stack.prometheus.metric(
            "prometheus_rule_group_last_duration_seconds"
        ),
        "seconds of all rule groups' median evaluations, added up, vmalert": stack.vmalert.metric(
            "vmalert_iteration_duration_seconds", quantile="0.5"
        ),
        "series in Prometheus": stack.prometheus.metric("prometheus_tsdb_head_series"),
        "series in VictoriaMetrics": stack.victoria.metric(
            "vm_cache_entries", type="storage/hour_metric_ids"
        ),
        "samples refused or dropped": stack.agent.metric("prometheus_remote_storage_samples_failed_total")
        + stack.agent.metric("prometheus_remote_storage_samples_dropped_total"),
        "samples sent again": stack.agent.metric("prometheus_remote_storage_samples_retried_total"),
        "evaluations of a group missed, Prometheus": stack.prometheus.metric(
            "prometheus_rule_group_iterations_missed_total"
        ),
        "evaluations of a group missed, vmalert": stack.vmalert.metric("vmalert_iteration_missed_total"),
    }


def _table(
    series: int,
    parts: tuple[Part, ...],
    cores: list[float],
    memory: list[float],
    rate: Mapping[str, float],
    seen: Mapping[str, float],
    off: Mapping[str, float],
    apart: float,
) -> str:
    rows = [
        ("servers x models", f"{SERVERS} x {MODELS}"),
        ("series on one exporter's page", f"{series:,} ({series / MODELS:.0f} a model)"),
        ("scraped and evaluated every", f"{INTERVAL} s"),
        *(
            (f"samples a second into {name}", f"{value:,.0f}")
            for name, value in rate.items()
            if name != "agent"
        ),
        *((name, f"{value:,.2f}" if value % 1 else f"{value:,.0f}") for name, value in seen.items()),
        *(
            (f"{part.name}: cores, memory", f"{used:.2f}, {gib:.1f} GiB")
            for part, used, gib in zip(parts, cores, memory, strict=True)
        ),
        *((f"largest error of a budget left, {name}", f"{value:.4f}") for name, value in off.items()),
        ("largest difference of a budget between the two", f"{apart:.4f}"),
    ]
    return "\n".join(["| what | measured |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)])


_FLEET = f"""\
One agent scrapes {SERVERS} exporters, each simulated from the output of a real exporter with {MODELS} models, and
writes to a real Prometheus and a real VictoriaMetrics at the same time. Prometheus and vmalert evaluate the shipped
rules and alerts there, with windows that are shorter by a factor of {1 / TIME_SCALE:.0f}, on the same two cores. Every
model fails a known share of its requests, from none to twice its budget.
"""

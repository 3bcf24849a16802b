"""Test the file for vmalert in the real vmalert: it counts each event once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from support.history import openmetrics, serve
from support.loopback import answering, free_ports, started
from support.tools import prometheuses, vmalert
from support.victoria import serve_victoria
from support.waiting import eventually
from triton_exporter.catalogue import triton
from triton_slo import names
from triton_slo.artifact import Options
from triton_slo.generate import artifacts
from triton_slo.objective.model import Objective
from triton_slo.prometheus import Prometheus
from triton_slo.server_access import Access

pytestmark = pytest.mark.real

ERRORS = Objective(name="errors", target=0.9, indicator="errors")
WHO = 'model="m",version="1"'
RATE, FAILING = 200.0, 0.2
"""Requests a second, and the share of them that fails."""


def rules() -> str:
    (text,) = (
        artifact.text
        for artifact in artifacts(
            [ERRORS], Options(time_scale=1 / 60, scrape_interval_seconds=1, format="vmalert")
        )
        if artifact.name == "slo-errors.yml"
    )
    return text


def page(seconds: float) -> str:
    """Return what a Triton exports after so many seconds."""
    failed = int(RATE * FAILING * seconds)
    return (
        f"# TYPE {triton.REQUEST_SUCCESS} counter\n"
        f"{triton.REQUEST_SUCCESS}{{{WHO}}} {int(RATE * seconds) - failed}\n"
        f"# TYPE {triton.REQUEST_FAILURE} counter\n"
        f'{triton.REQUEST_FAILURE}{{{WHO},reason="BACKEND"}} {failed}\n'
    )


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


def test_vmalert_counts_each_event_once(tmp_path: Path) -> None:
    """What it records has the true share of failures, and as many events as the exporter has shown."""
    vmalert()
    (tmp_path / "slo-errors.yml").write_text(rules())
    began: list[float] = []
    with (
        answering(lambda request: request.reply(page(time.monotonic() - began[0] if began else 0))) as exporter,
        serve("", tmp_path / "remote", server=prometheuses()[-1], flags=("--web.enable-remote-write-receiver",),
              scrape=exporter.removeprefix("http://")) as url,
        running_vmalert(tmp_path / "slo-errors.yml", url),
        Prometheus(Access(url)) as prometheus,
    ):  # fmt: skip
        eventually(lambda: prometheus.instant(names.COUNTER), "nothing is counted")
        began.append(time.monotonic())
        eventually(lambda: prometheus.instant(names.sli_error("30d")), "no long window")
        shown = f"sum({triton.REQUEST_SUCCESS}) + sum({triton.REQUEST_FAILURE})"
        asked = (names.sli_error("1h"), f'sum({names.COUNTER}{{event="total"}}) / ({shown})')

        def values() -> list[float]:
            return [sample.value for query in asked for sample in prometheus.instant(query)]

        # The first seconds are extrapolated, and a busy machine evaluates late: that weighs less with each second.
        wanted = [pytest.approx(FAILING, abs=0.02), pytest.approx(0.9, abs=0.11)]
        eventually(lambda: wanted == values(), lambda: str(values()))


def test_a_window_has_the_same_share_in_victoriametrics(tmp_path: Path) -> None:
    """`increase` there neither extrapolates nor takes the first value of a counter for its growth."""
    end = float(round(time.time())) - 3600
    group = {names.SLO: "errors", names.INDICATOR: "errors", "model": "m", "version": "1"}
    series = [
        (
            names.COUNTER,
            {**group, names.EVENT: event},
            [(end - back, pace * (7200 - back)) for back in range(7200, -1, -30)],
        )
        for event, pace in ((names.ERROR, 1.0), (names.TOTAL, 10.0))
    ]
    [share] = [
        rule["expr"]
        for made in yaml.safe_load(
            next(a.text for a in artifacts([ERRORS], Options(format="vmalert")) if a.name == "slo-errors.yml")
        )["groups"]
        for rule in made["rules"]
        if rule.get("record") == names.sli_error("1h")
    ]
    with serve_victoria(openmetrics(series), tmp_path) as url, Prometheus(Access(url)) as client:
        assert [pytest.approx(0.1, rel=1e-3)] == [sample.value for sample in client.instant(share, end)]

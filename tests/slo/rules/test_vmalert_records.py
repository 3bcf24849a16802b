"""Test the file for vmalert in the real vmalert: it counts what Prometheus counts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
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
from triton_slo.artifact import Format, Options
from triton_slo.generate import artifacts
from triton_slo.objective.model import Objective
from triton_slo.prometheus import Prometheus
from triton_slo.server_access import Access

pytestmark = pytest.mark.real

ERRORS = Objective(name="errors", target=0.9, indicator="errors")
WHO = 'model="m",version="1"'
RATE, FAILING = 200.0, 0.2
"""Requests a second, and the share of them that fails."""


def rules(format: Format) -> str:
    (text,) = (
        artifact.text
        for artifact in artifacts(
            [ERRORS], Options(time_scale=1 / 60, scrape_interval_seconds=1, format=format)
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


def values(url: str, query: str) -> list[float]:
    with Prometheus(Access(url)) as prometheus:
        return [sample.value for sample in prometheus.instant(query)]


def test_vmalert_counts_what_prometheus_counts(tmp_path: Path) -> None:
    """Each second's events once, of both engines: the share is the true one, and the counters grow at its pace."""
    vmalert()
    (tmp_path / "slo-errors.yml").write_text(rules("vmalert"))
    receiver = ("--web.enable-remote-write-receiver",)
    began = time.monotonic()
    with (
        answering(lambda request: request.reply(page(time.monotonic() - began))) as exporter,
        serve("", tmp_path / "native", rules={"slo-errors.yml": rules("prometheus")},
              scrape=exporter.removeprefix("http://")) as native,
        serve("", tmp_path / "remote", server=prometheuses()[-1], flags=receiver,
              scrape=exporter.removeprefix("http://")) as remote,
        running_vmalert(tmp_path / "slo-errors.yml", remote),
    ):  # fmt: skip
        for url in (native, remote):
            eventually(partial(values, url, names.sli_error("30d")), "no long window")
        time.sleep(10)
        for url in (native, remote):
            shares = partial(values, url, names.sli_error("1h"))
            # The first seconds are extrapolated; the share comes near the true one as they weigh less.
            eventually(lambda: [pytest.approx(FAILING, abs=0.02)] == shares(), lambda: str(shares()))  # noqa: B023
            # A busy machine evaluates late now and then.
            grown = partial(values, url, f'increase({names.COUNTER}{{event="total"}}[10s])')
            eventually(lambda: [pytest.approx(10 * RATE, rel=0.15)] == grown(), lambda: str(grown()))  # noqa: B023


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

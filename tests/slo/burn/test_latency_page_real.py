"""Test a latency page on a stock Triton without any flag: a slow tail of one version, as estimated."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from slo import load
from support import history
from support.exporter import exporting
from support.sleeper import write_sleeper
from support.triton import live_triton
from support.waiting import eventually
from triton_exporter.catalogue import state
from triton_slo.artifact import Options
from triton_slo.generate import artifacts
from triton_slo.objective.model import Objective
from triton_slo.prometheus import Prometheus
from triton_slo.server_access import Access
from tritonwatch.local import TritonServer

OBJECTIVE = Objective(name="latency", target=0.997, indicator={"kind": "latency", "threshold": "500ms"})
OPTIONS = Options(scrape_interval_seconds=1, time_scale=1 / 60)
"""As the demo has it: an hour is a minute."""
SLOW = 0.1
"""Share of the requests to version 2 that take 600 ms: its budget burns 33 times too fast."""
PAGES = 'ALERTS{alertstate="firing", severity="critical", slo="latency", version="%d"}'
MIN_FAILURES = 5
"""No page without so many."""


@contextmanager
def traffic(triton: TritonServer, seconds: float, folder: Path) -> Iterator[None]:
    """Send each version 10 to 20 requests a second, rising for two minutes, with a client of its own.

    What each client measured is in `folder`, in VERSION.answers.
    """
    clients = []
    for version in ("1", "2"):
        rng, at, lines = random.Random(version), 0.0, []
        while at < seconds:
            at += rng.expovariate(10 + 10 * min(1.0, at / 120))
            slow = version == "2" and rng.random() < SLOW
            request = {"at": at, "model": f"two/versions/{version}", "sleeps": [0.6 if slow else 0.01]}
            lines.append(json.dumps(request))
        plan = folder / f"{version}.plan"
        plan.write_text("\n".join(lines))
        command = [sys.executable, str(Path(load.__file__)), triton.http_url, str(time.time() + 1)]
        with plan.open() as standard_input, (folder / f"{version}.answers").open("w") as answers:
            clients.append(subprocess.Popen(command, stdin=standard_input, stdout=answers))
    try:
        yield
    finally:
        for client in clients:
            client.kill()
            client.wait()


def slow_answers(answers: Path) -> int:
    """Answers that took a client longer than the objective's threshold."""
    lines = answers.read_text().splitlines()
    return sum(json.loads(line)[2] > 0.5 for line in lines[:-1])  # the last may be half written


@pytest.mark.real
def test_a_slow_tail_on_a_stock_triton_pages_for_its_version_only(tmp_path: Path) -> None:
    """One request in ten takes 600 ms, which the mean of a second hides; the other version stays quiet."""
    write_sleeper(tmp_path / "models", "two", instances=3, config="version_policy { all {} }\n", versions=2)
    rules = {
        artifact.name: artifact.text
        for artifact in artifacts([OBJECTIVE], OPTIONS)
        if artifact.part == "rules"
    }
    with (
        live_triton(tmp_path / "models", tmp_path) as triton,
        exporting(
            triton.http_url, triton.metrics_url, buckets_from={"request": (0.5,)}, sampling_interval=None
        ) as exporter,
        history.serve(
            "", tmp_path / "p", rules=rules, scrape=exporter.url.removeprefix("http://")
        ) as prometheus,
        traffic(triton, 300.0, tmp_path),
        Prometheus(Access(prometheus)) as client,
    ):
        eventually(lambda: client.instant(PAGES % 2), "version 2 was not paged")

        # A machine that stands still for a second makes the other version slow too: then its page is right.
        if client.instant(PAGES % 1):
            assert slow_answers(tmp_path / "1.answers") >= MIN_FAILURES
        asked = {"model": "two", "version": "2", "signal": "request", "source": "decomposed"}
        # On a busy machine, the first estimate may come after the page.
        exporter.wait(lambda page: page.value(state.DISTRIBUTION_SOURCE, **asked))

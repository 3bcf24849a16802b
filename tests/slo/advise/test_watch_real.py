"""Test `tritonwatch advise --watch`: a real Prometheus has the traffic, and scrapes the headroom."""

from __future__ import annotations

import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import requests

from slo.advise.made import BATCHING, STEP, Made, poisson, series, varying
from support.history import openmetrics, serve
from support.loopback import free_ports, started
from support.waiting import eventually
from triton_exporter.catalogue.external import headroom
from triton_slo import autoscaling
from triton_slo.advise.measured import Configuration, Measured, Promise, Step
from triton_slo.advise.watch import Watch
from tritonwatch.cli import main

ONE = Configuration(max_batch_size=8)
WAITS = Promise("waits", "queue", 0.99, 0.1, 0.995)


def test_prometheus_scrapes_the_headroom_of_its_models(tmp_path: Path) -> None:
    """It is there once Prometheus is, computed once, and gone when Prometheus is; SIGTERM ends the command."""
    (tmp_path / "o.yaml").write_text(
        "{name: waits, target: 99%, indicator: {kind: queue, threshold: 100ms}}\n"
    )
    steps = Made(varying(0.02)).steps(poisson(24))
    text = openmetrics(sorted(series(steps, ONE, int(time.time()), 0.001), key=lambda part: part[0]))
    port, prometheus = free_ports(2)
    log = tmp_path / "watch.log"
    page = f"http://127.0.0.1:{port}/metrics"
    command = [
        sys.executable,
        "-m",
        "tritonwatch",
        "advise",
        "--prometheus",
        f"http://127.0.0.1:{prometheus}",
    ]
    command += ["--objectives", str(tmp_path), "--watch", "1s", "--listen", f"127.0.0.1:{port}"]
    with started(command, page, log) as watch:
        eventually(lambda: "ERROR" in log.read_text(), "Prometheus, which is not there, is not named")
        with serve(text, tmp_path / "p", scrape=f"127.0.0.1:{port}", port=prometheus) as url:

            def found() -> dict[tuple[str, ...], float]:
                answer = requests.get(
                    f"{url}/api/v1/query", {"query": headroom.RATIO.name}, timeout=10
                ).json()
                return {
                    tuple(row["metric"][label] for label in headroom.RATIO.labels): float(row["value"][1])
                    for row in answer["data"]["result"]
                }

            values = eventually(found, log.read_text)
            assert values.keys() == {("m", "1", "waits", bound) for bound in ("estimate", "least")}
            estimate, least = values["m", "1", "waits", "estimate"], values["m", "1", "waits", "least"]
            assert 1.1 < least < estimate < 1.6
            # What autoscaling asks for: traffic over break rate. The traffic ends when the test begins: "now" has less.
            answer = requests.get(f"{url}/api/v1/query", {"query": autoscaling.query()}, timeout=10).json()
            [row] = answer["data"]["result"]
            assert 0.3 < float(row["value"][1]) * least < 1.2
            time.sleep(2.5)
            assert 1 == log.read_text().count("computed 1 of the model versions")
        eventually(lambda: "{" not in requests.get(page, timeout=10).text, "old values stay")
        watch.send_signal(signal.SIGTERM)
        assert 0 == watch.wait(30)


def test_a_model_is_computed_again_when_something_moved() -> None:
    """Not for 3 % more requests; for 10 % more, slower executions, another configuration."""
    known = Watch(60)

    def computed(rate: float, now: float, seconds: float = 0.01, configuration: Configuration = ONE) -> int:
        before = known.computations
        steps = Made(varying(seconds)).steps(poisson(rate))
        known.update([Measured("m", "1", configuration, tuple(steps), (WAITS,))], now)
        return known.computations - before

    assert [1, 0, 1] == [computed(10, 0), computed(10.3, 60), computed(11, 120)]
    assert [1, 0] == [computed(11, 180, 0.012), computed(11, 240, 0.012)]
    assert 1 == computed(11, 300, 0.012, replace(ONE, instances=2))
    assert len(list(known.families(360)[0].samples)) == 2
    assert not list(known.families(361)[0].samples)


def test_another_server_changes_the_headroom() -> None:
    """It has no traffic yet, so that no rate moved; autoscaling on the headroom of fewer would add ever more."""
    steps = Made(lambda requests, _: 0.04 + 0.005 * requests, batch=8).steps(poisson(20, 900))
    watch = Watch(60)
    for known in (steps, steps, [*steps, Step("b", steps[-1].at, STEP)]):
        watch.update([Measured("m", "1", BATCHING, tuple(known), (WAITS,))], 1000.0)

    assert 2 == watch.computations


def test_the_headroom_is_that_of_the_last_minutes() -> None:
    """Three times as much in the last minute is 3 % of the hour: nothing is computed again, and there is a third of the room."""
    watch, rooms = Watch(60), []
    for last in (10, 30):
        times = [*poisson(10, 3540), *(3540 + at for at in poisson(last, 60, seed=2))]
        steps = Made(varying(0.01)).steps([*times, 3600])
        watch.update([Measured("m", "1", Configuration(), tuple(steps), (WAITS,))], 1000.0)
        rooms += [sample.value for sample in watch.families(1000.0)[0].samples if "estimate" in sample.series]

    assert 1 == watch.computations
    assert rooms[0] / rooms[1] == pytest.approx(3, rel=0.15)


@pytest.mark.parametrize(
    ("cv2", "configuration", "reason"),
    [(2.5, ONE, "unseen_tail"), (0.0, replace(ONE, unsupported=("a response cache",)), "unsupported")],
)
def test_what_is_not_known_has_a_reason(cv2: float, configuration: Configuration, reason: str) -> None:
    """Each objective has a headroom or a reason."""
    watch = Watch(60)
    steps = Made(varying(0.02, cv2=cv2)).steps(poisson(10))
    watch.update([Measured("m", "1", configuration, tuple(steps), (replace(WAITS, good=None),))], 0)
    ratio, unknown = watch.families(0)
    assert not list(ratio.samples)
    assert [f'{headroom.UNKNOWN}{{model="m",version="1",slo="waits",reason="{reason}"}}'] == [
        sample.series for sample in unknown.samples
    ]


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (["--watch", "5m"], 2, "--watch: needs --listen"),
        (["--watch", "5m", "--listen", "127.0.0.1:0", "--json"], 2, "--json: is of no use with --watch"),
        (["--watch", "0s", "--listen", "127.0.0.1:0"], 2, "--watch: a duration must be longer"),
        (["--watch", "5m", "--listen", "127.0.0.1:0", "--objective", "x"], 2, "--objective x"),
        (["--watch", "5m", "--listen", "192.0.2.1:9"], 1, "--listen 192.0.2.1:9: cannot be used"),
    ],
)
def test_mistakes_are_named(
    words: list[str], code: int, expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is served."""
    assert code == main(["advise", "--prometheus", "http://127.0.0.1:9", *words])
    assert expected in capsys.readouterr().err

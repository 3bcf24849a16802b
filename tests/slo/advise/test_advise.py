"""Test `tritonwatch advise` on a real Prometheus with counters whose truth is known."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slo.advise.made import Made, poisson, series, varying
from support.history import END, openmetrics, serve
from triton_exporter.catalogue import models
from triton_slo.advise.advice import advise
from triton_slo.advise.measured import Configuration, Measured, Promise
from triton_slo.advise.report import compare
from tritonwatch.cli import main

ONE = Configuration(max_batch_size=8)
TWO = replace(ONE, instances=2)
CHANGED = END - 3600
"""When a second instance came."""


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Options for a Prometheus with an hour of one instance and traffic near its limit, then one with a second."""
    folder = tmp_path_factory.mktemp("advise")
    (folder / "o.yaml").write_text("{name: waits, target: 99%, indicator: {kind: queue, threshold: 100ms}}\n")
    before = Made(varying(0.02)).steps(poisson(36))
    after = Made(varying(0.02), instances=2).steps(poisson(36, seed=5))
    parts = [*series(before, ONE, CHANGED, 0.02), *series(after, TWO, END, 0.0)]
    text = openmetrics(sorted(parts, key=lambda part: part[0]))
    with serve(text, folder / "p") as url:
        yield ["advise", "--prometheus", url, "--objectives", str(folder)]


def test_advice_is_kept_and_compared_with_what_came(
    prometheus: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Asked before the change, a second instance is advised; checked after it, the wait is the predicted one."""
    file = str(tmp_path / "predictions.json")
    assert 0 == main([*prometheus, "--at", str(CHANGED), "--json"])
    Path(file).write_text(capsys.readouterr().out)
    assert 0 == main([*prometheus, "--at", str(CHANGED)])
    text = capsys.readouterr().out
    assert "past      the objective was broken: about 98.00% (estimated) did in" in text
    assert "change 1  instances=2 (now 1): breaks at about " in text
    assert "99 % of today's requests would wait at most " in " ".join(text.split())
    assert "\n# tritonwatch advise: waits breaks at about " in text
    assert "\ninstance_group [{ kind: KIND_CPU count: 2 }]\n" in text
    assert max(map(len, text.splitlines())) <= 80

    assert 0 == main([*prometheus, "--at", str(END), "--check", file])
    text = capsys.readouterr().out
    assert "changed   instances 2, was 1" in text
    assert "verdict   as predicted" in text
    assert max(map(len, text.splitlines())) <= 80
    assert 0 == main([*prometheus, "--at", str(END), "--check", file, "--json"])
    [checked] = json.loads(capsys.readouterr().out)["checked"]
    assert checked["wait"] == pytest.approx(checked["predicted_wait"], rel=0.2)

    # A prediction that was wrong is called so: of executions half as long.
    saved = json.loads(Path(file).read_text())
    saved["advice"][0]["fit"]["service"]["fixed"] = 0.035
    Path(file).write_text(json.dumps(saved))
    assert 3 == main([*prometheus, "--at", str(END), "--check", file])
    assert "verdict   not as predicted" in capsys.readouterr().out
    assert 0 == main([*prometheus, "--at", str(CHANGED), "--check", file])
    assert "open      the configuration is as it was" in capsys.readouterr().out
    for wrong in (
        {},
        saved | {"at": math.nan},
        saved | {"at": 1e300},
        fitted(saved, burst=0),
        fitted(saved, rows=1e300),
    ):
        Path(file).write_text(json.dumps(wrong))
        assert 1 == main([*prometheus, "--check", file])
        assert "is not a file of predictions" in capsys.readouterr().err


def fitted(saved: dict[str, Any], **numbers: float) -> dict[str, Any]:
    [advice] = saved["advice"]
    return saved | {"advice": [advice | {"fit": advice["fit"] | numbers}]}


def test_a_prediction_is_not_judged_by_rates_that_vary() -> None:
    """By turns of a minute two instances get 40 and 90 requests/s: at the mean rate requests wait a quarter as long."""
    promise = Promise("waits", "queue", 0.99, 0.1)
    [advice] = advise(Measured("m", "1", ONE, tuple(Made(varying(0.02)).steps(poisson(30))), (promise,)))
    times = [60 * k + at for k in range(30) for at in poisson(90 if k % 2 else 40, 60, seed=k)]
    found = compare(advice, 0, Measured("m", "1", TWO, tuple(Made(varying(0.02), instances=2).steps(times))))

    assert found.came_true is None
    assert "cannot be judged: the rate varied from " in found.open


def test_a_wait_that_is_off_by_a_factor_is_not_as_predicted() -> None:
    """Six hundred requests at once wait three seconds: their standard error is large, and no excuse."""
    promise = Promise("waits", "queue", 0.99, 0.1)
    [advice] = advise(Measured("m", "1", ONE, tuple(Made(varying(0.02)).steps(poisson(30))), (promise,)))
    times = sorted([*poisson(30, 900, seed=4), *[450.0] * 600])
    found = compare(advice, 0, Measured("m", "1", TWO, tuple(Made(varying(0.02), instances=2).steps(times))))

    assert not found.came_true


def test_no_change_is_needed_where_there_is_room(
    prometheus: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """With two instances there is room."""
    assert 0 == main([*prometheus, "--at", str(END)])
    told = " ".join(capsys.readouterr().out.split())
    assert told.endswith("advice No change needed.")
    assert re.search(r"; headroom .+ times this traffic", told)


def test_a_model_that_was_just_begun_to_be_scraped_is_unknown(
    prometheus: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A few seconds after the first scrape there is no step yet."""
    assert 0 == main([*prometheus, "--at", str(CHANGED - 3600 + 20)])
    assert "0 executions in 0 steps are too few" in " ".join(capsys.readouterr().out.split())


def test_an_instance_that_made_executions_longer_is_no_reason_for_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two instances that share a lock work one at a time: each execution takes twice as long since there are two."""
    (tmp_path / "o.yaml").write_text(
        "{name: waits, target: 95%, indicator: {kind: queue, threshold: 150ms}}\n"
    )
    before = Made(varying(0.07)).steps(poisson(5, 1800))
    after = Made(varying(0.15), instances=2).steps(poisson(5, 1500, seed=5))
    parts = [*series(before, ONE, END - after[-1].at - 15, 0.0), *series(after, TWO, END, 0.0)]
    with serve(openmetrics(sorted(parts, key=lambda part: part[0])), tmp_path / "p") as url:
        assert 0 == main(["advise", "--prometheus", url, "--objectives", str(tmp_path), "--at", str(END)])
    told = " ".join(capsys.readouterr().out.split())
    assert "executions take 150ms, and took 70ms with fewer instances" in told
    assert told.endswith("(shared_device)")


def test_what_was_measured_on_another_backend_does_not_count(
    prometheus: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model that took 80 ms on the old one, for most of the hour, takes 20 ms; Prometheus shows both for 5 minutes."""
    old, new = varying(0.08, cv2=0.2), varying(0.02, cv2=0.2, seed=8)
    made = Made(lambda items, at: (old if at < 2700 else new)(items, at))
    moved, parts = END - 900, []
    for name, labels, points in series(made.steps(poisson(5)), ONE, END, 0.0):
        before, after = (
            [point for point in points if (point[0] < moved) == is_old] for is_old in (True, False)
        )
        parts += [
            (name, {**labels, "backend": "old"} if name == models.INFO.name else labels, before),
            (name, labels, after),
        ]
    with serve(openmetrics(sorted(parts, key=lambda part: part[0])), tmp_path) as url:
        assert 0 == main(["advise", "--prometheus", url, *prometheus[3:], "--at", str(END)])
    assert "did in the last 10m 30s" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (["--if", "instance=2"], 2, "'instance' is not one of"),
        (["--if", "batching=2"], 2, "'2' is not on or off"),
        (["--if", "instances=2", "--if", "batching=on"], 2, "--if is given twice"),
        (["--model", "m", "--model", "m"], 2, "--model is given twice"),
        (["--if", "instances=0"], 2, "is not a number of 1 to 1000"),
        (["--if", "instances=1000000"], 2, "is not a number of 1 to 1000"),
        (["--model", ""], 2, "--model is empty"),
        (["--model", "n"], 1, "Prometheus has no counters of model n in the last 1h"),
        (["--objective", "wait"], 2, "--objective wait: is not an objective; did you mean waits?"),
        (["--check", "nowhere.json"], 2, "nowhere.json: No such file"),
        (["--check", "a", "--if", "instances=2"], 2, "leave out --if"),
    ],
)
def test_mistakes_are_named(
    prometheus: list[str],
    words: list[str],
    code: int,
    expected: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What is wrong, and what would be right."""
    assert code == main([*prometheus, "--at", str(END), *words])
    assert expected in capsys.readouterr().err

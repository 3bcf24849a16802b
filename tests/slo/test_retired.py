"""Which groups are retired, which are lost, and which alerts of theirs go on: promtool on the generated rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from slo.slo_scenarios import series
from support.promtool import PAUSED, evaluated, grouped, pausable, resting_on, timely
from support.thorough import THOROUGH
from support.tools import promtools
from triton_exporter.catalogue import probe, state, triton
from triton_slo import names
from triton_slo.artifact import Options
from triton_slo.generate import artifacts
from triton_slo.indicators import BURN_ALERTS
from triton_slo.objective.model import Objective
from triton_slo.promql import by

pytestmark = pytest.mark.real

STEP = 30
BEFORE, AFTER = 60, 80
"""Scrapes until something happens, and from then on: half an hour, and forty minutes."""
FIRING = 'group by (alertname) (ALERTS{alertstate="firing"})'
Labels = dict[str, str]


def serving(before: bool = True, after: bool = True, **labels: str) -> Labels:
    """A version as an exporter shows it: ready before, after, or both; otherwise there are no series."""
    values = f"{'1' if before else '_'}x{BEFORE - 1} {'1' if after else 'stale _'}x{AFTER}"
    return {
        series(state.MODEL_READY, **labels): values,
        series(state.MODEL_STATE, state="ready", **labels): values,
        series(triton.REQUEST_SUCCESS, **labels): values,
    }


def unloaded(until: int = AFTER, **labels: str) -> Labels:
    """A version that is ready, then unloaded on purpose, and leaves with its server so many scrapes later."""
    end = f"stale _x{AFTER - until}" if until < AFTER else ""
    return {
        series(state.MODEL_READY, **labels): f"1x{BEFORE - 1} 0x{until} {end}",
        series(state.MODEL_STATE, state="ready", **labels): f"1x{BEFORE - 1} 0x{until} {end}",
        series(state.MODEL_STATE, state="unloaded", **labels): f"0x{BEFORE - 1} 1x{until} {end}",
        series(triton.REQUEST_SUCCESS, **labels): f"1x{BEFORE - 1} stale",
    }


def counters(before: bool = True, after: bool = True, **labels: str) -> Labels:
    """A version of a Triton without an exporter."""
    success = series(triton.REQUEST_SUCCESS, **labels)
    return {success: serving(before, after, **labels)[success]}


def ask(
    query: str,
    minutes: Sequence[float],
    input_series: Labels,
    folder: Path,
    *only: str,
    group_by: tuple[str, ...] = ("model", "version"),
    kind: str = "errors",
    step: int = STEP,
) -> list[list[Labels]]:
    """What the rules of an objective give at each time; `only` leaves out what these series do not rest on."""
    objective = Objective(name="errors", target=0.999, indicator=kind, group_by=group_by)
    options = Options(scrape_interval_seconds=step)
    [text] = [
        artifact.text for artifact in artifacts([objective], options) if artifact.name == "slo-errors.yml"
    ]
    groups = yaml.safe_load(text)["groups"]
    rules: list[Mapping[str, Any]] = [rule for group in groups for rule in timely(group, step)]
    rules = resting_on(rules, *only) if only else rules
    chosen = grouped({"slo": pausable(rules) if PAUSED in input_series else rules})
    asked = [(query, at * 60) for at in minutes]
    answers = evaluated(promtools()[-1], folder, chosen, input_series, asked, interval=step, evaluation=step)
    return [sorted((labels for labels, _ in answer), key=str) for answer in answers]


def lost(
    input_series: Labels, folder: Path, group_by: tuple[str, ...] = ("model", "version")
) -> list[Labels]:
    """The groups that are unknown at the end of these series."""
    query = f"group {by(group_by)} ({names.UNKNOWN})"
    end = (BEFORE + AFTER) * STEP / 60
    [samples] = ask(query, [end], input_series, folder, names.UNKNOWN, group_by=group_by)
    return samples


def pages(*versions: str, **labels: str) -> list[Labels]:
    """Groups of the model."""
    return [{"model": "m", "version": version} | labels for version in versions]


@pytest.mark.parametrize(
    ("input_series", "unknown"),
    [
        pytest.param(
            serving(after=False) | serving(version="2") | serving(before=False, version="3"),
            [],
            id="restarted with the next versions",
        ),
        pytest.param(
            serving(after=False) | serving(instance="b", version="2"),
            [],
            id="the only server of a version leaves while another serves the next version",
        ),
        pytest.param(
            counters(after=False) | counters(before=False, version="2"),
            [],
            id="a rollout without an exporter",
        ),
        pytest.param(unloaded(), [], id="unloaded on purpose"),
        pytest.param(unloaded(until=10), [], id="unloaded, and then its server is gone"),
        pytest.param(
            serving(after=False) | serving(instance="b"), [], id="one of two servers of a version is gone"
        ),
        pytest.param(serving(after=False), pages("1"), id="the model vanishes with its only server"),
        pytest.param(
            serving(after=False) | serving(after=False, version="2", instance="b"),
            pages("1", "2"),
            id="all versions vanish with all servers",
        ),
        pytest.param(
            serving(after=False) | {series(state.MODEL_READY, version="2"): f"_x{BEFORE} 0x{AFTER}"},
            pages("1"),
            id="the next version is never ready",
        ),
        pytest.param(
            serving(after=False) | serving(model="other"), pages("1"), id="only another model is served"
        ),
        pytest.param(
            {
                series(state.MODEL_READY): f"0x{BEFORE - 1} stale",
                series(state.MODEL_STATE, state="unloaded"): f"1x{BEFORE - 1} stale",
            }
            | serving(after=False, instance="b"),
            pages("1"),
            id="unloaded on one server, and lost with that one and the one that served it",
        ),
        pytest.param(
            {name: values for name, values in serving().items() if str(triton.REQUEST_SUCCESS) not in name}
            | serving(version="2")
            | {series(triton.REQUEST_SUCCESS): f"1x{BEFORE} stale"},
            pages("1"),
            id="its counters are gone and its server says that it serves",
        ),
    ],
)
def test_a_version_is_lost_only_when_nobody_decided(
    input_series: Labels, unknown: list[Labels], tmp_path: Path
) -> None:
    """Rollouts, unloads and fewer servers are decisions; whatever else takes a version away pages."""
    assert unknown == lost(input_series, tmp_path)


def test_a_version_that_was_retired_and_serves_again_can_be_lost(tmp_path: Path) -> None:
    """Unloaded, loaded again, and gone with its server."""
    back = f"1x19 0x20 1x{BEFORE - 41} stale"
    input_series = {
        series(state.MODEL_READY): back,
        series(state.MODEL_STATE, state="unloaded"): f"0x19 1x20 0x{BEFORE - 41} stale",
        series(triton.REQUEST_SUCCESS): f"1x19 stale _x19 1x{BEFORE - 41} stale",
    }

    assert pages("1") == lost(input_series, tmp_path)


def test_what_was_replaced_stays_retired_when_its_successor_is_lost(tmp_path: Path) -> None:
    """One model is one page: not another one for each version that it ever had."""
    input_series = serving(after=False) | {
        name: values.replace(f"x{AFTER}", "x40 stale")
        for name, values in serving(before=False, version="2").items()
    }

    assert pages("2") == lost(input_series, tmp_path)


@pytest.mark.parametrize("after", [True, False], ids=["it moved", "its model is lost"])
def test_a_group_of_one_server_may_move_to_another(after: bool, tmp_path: Path) -> None:
    """With `group_by: [model, version, instance]` a server that left is not a loss while another serves it."""
    input_series = serving(after=False) | serving(before=not after, after=after, instance="b")
    group_by = ("model", "version", "instance")
    unknown = [] if after else [*pages("1", instance="a"), *pages("1", instance="b")]

    assert unknown == lost(input_series, tmp_path, group_by)


@pytest.mark.parametrize("replaced", [True, False], ids=["replaced", "still served"])
def test_a_prober_is_not_silent_about_a_version_that_was_replaced(replaced: bool, tmp_path: Path) -> None:
    """The exporter shows the counter of its last probes for 15 minutes, and sends no more of them."""
    input_series = serving(after=not replaced) | serving(before=False, version="2")
    input_series[series(probe.REQUESTS, result="success")] = f"0+1x{BEFORE} {BEFORE}x{AFTER}"
    minutes = (BEFORE + AFTER) * STEP / 60
    query = f"group {by(('model', 'version', names.REASON))} ({names.UNKNOWN})"
    unknown = [] if replaced else pages("1", reason="silent")

    assert [unknown] == ask(query, [minutes], input_series, tmp_path, names.UNKNOWN, kind="probe")


@pytest.mark.parametrize("decided", [True, False], ids=["unloaded", "still loaded"])
def test_an_unload_ends_the_burn_alerts(decided: bool, tmp_path: Path) -> None:
    """The page and the tickets of a failing version end with it; a version that is merely idle keeps them."""
    success = f"0+500x{BEFORE - 1} " + ("stale" if decided else f"{500 * BEFORE}x10")
    input_series = (unloaded() if decided else serving()) | {
        series(triton.REQUEST_SUCCESS): success,
        series(triton.REQUEST_FAILURE, reason="BACKEND"): f"0+500x{BEFORE - 1} {500 * BEFORE}x10",
    }
    minutes = BEFORE * STEP / 60
    burning = [{"alertname": BURN_ALERTS["errors"]}]

    before, after = ask(FIRING, [minutes - 1, minutes + 3], input_series, tmp_path)
    assert burning == before
    assert ([] if decided else burning) == after


@pytest.mark.parametrize("kind", ["errors", "probe"])
@pytest.mark.parametrize("pause", [11, 14, 40] if THOROUGH else [11, 40])
def test_nothing_is_unknown_before_the_first_scrape_after_a_pause(
    pause: int, kind: str, tmp_path: Path
) -> None:
    """A Prometheus that comes back evaluates rules before it has scraped anything."""
    input_series = around_a_pause(pause, after="1+4x40")
    assert [[], [], []] == after_a_pause(input_series, pause, [0, 1, 5], tmp_path, kind)


@pytest.mark.parametrize("pause", [11, 40, 300])
def test_a_model_that_is_gone_is_unknown_also_after_a_pause(pause: int, tmp_path: Path) -> None:
    """It vanished while Prometheus was down, or minutes before: nobody may forget it."""
    during = around_a_pause(pause, after="_x40")
    before = around_a_pause(pause, after="_x40", before=20, model="n")
    unknown = [*pages("1"), *pages("1", model="n")]

    assert [unknown] == after_a_pause(during | before, pause, [6], tmp_path, "errors")


def around_a_pause(pause: int, after: str, before: int = 0, model: str = "m") -> Labels:
    """A version served for an hour, until so many minutes before a pause in which all of Prometheus is down.

    Rules go on half a minute before the scrapes do.
    """
    served = f"1+4x{239 - 4 * before} " + (f"stale _x{4 * before - 1} " if before else "")
    values = f"{served}_x{4 * pause + 2} {after}"
    return {
        PAUSED: f"0x239 1x{4 * pause - 1} 0x42",
        series(triton.REQUEST_SUCCESS, model): values,
        series(probe.REQUESTS, model, result="success"): values,
    }


def after_a_pause(
    input_series: Labels, pause: int, minutes: Sequence[float], folder: Path, kind: str
) -> list[list[Labels]]:
    """The groups that are unknown so many minutes after rules go on."""
    query, at = (
        f"group {by(('model', 'version'))} ({names.UNKNOWN})",
        [60 + pause + minute for minute in minutes],
    )
    return ask(query, at, input_series, folder, names.UNKNOWN, kind=kind, step=15)

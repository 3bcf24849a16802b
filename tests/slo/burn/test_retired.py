"""Test which groups are retired or lost, and which of their alerts continue: promtool on the generated rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from slo.slo_scenarios import series
from support.promtool import PAUSED, at_own_interval, evaluated, pausable, recording_rules_for, rule_file
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
FIRING = 'group by (alertname, model) (ALERTS{alertstate="firing"})'
Labels = dict[str, str]


def serving(before: bool = True, after: bool = True, **labels: str) -> Labels:
    """Return a version as an exporter shows it: ready before, after, or both; otherwise there are no series."""
    values = f"{'1' if before else '_'}x{BEFORE - 1} {'1' if after else 'stale _'}x{AFTER}"
    return {
        series(state.MODEL_READY, **labels): values,
        series(state.MODEL_STATE, state="ready", **labels): values,
        series(triton.REQUEST_SUCCESS, **labels): values,
    }


def unloaded(until: int = AFTER, **labels: str) -> Labels:
    """Return a version that is ready, then unloaded, and leaves with its server so many scrapes later."""
    end = f"stale _x{AFTER - until}" if until < AFTER else ""
    return {
        series(state.MODEL_READY, **labels): f"1x{BEFORE - 1} 0x{until} {end}",
        series(state.MODEL_STATE, state="ready", **labels): f"1x{BEFORE - 1} 0x{until} {end}",
        series(state.MODEL_STATE, state="unloaded", **labels): f"0x{BEFORE - 1} 1x{until} {end}",
        series(triton.REQUEST_SUCCESS, **labels): f"1x{BEFORE - 1} stale",
    }


def counters(before: bool = True, after: bool = True, **labels: str) -> Labels:
    """Return a version of a Triton without an exporter."""
    success = series(triton.REQUEST_SUCCESS, **labels)
    return {success: serving(before, after, **labels)[success]}


def ask(
    query: str,
    minutes: Sequence[float],
    scenarios: Mapping[str, Labels],
    folder: Path,
    *only: str,
    group_by: tuple[str, ...] = ("model", "version"),
    kind: str = "errors",
    step: int = STEP,
) -> list[dict[str, list[Labels]]]:
    """Return what the rules of an objective give each scenario at each time.

    They are played at once, each on models of its own. `only` leaves out rules that these series do not rest on.
    """
    objective = Objective(name="errors", target=0.999, indicator=kind, group_by=group_by)
    options = Options(scrape_interval_seconds=step)
    [text] = [
        artifact.text for artifact in artifacts([objective], options) if artifact.name == "slo-errors.yml"
    ]
    groups = yaml.safe_load(text)["groups"]
    rules: list[Mapping[str, Any]] = [rule for group in groups for rule in at_own_interval(group, step)]
    rules = recording_rules_for(rules, *only) if only else rules
    played = {
        name.replace('model="', f'model="{scenario}/'): values
        for scenario, input_series in scenarios.items()
        for name, values in input_series.items()
    }
    chosen = rule_file({"slo": pausable(rules) if PAUSED in played else rules})
    asked = [(query, at * 60) for at in minutes]
    answers = evaluated(promtools()[-1], folder, chosen, played, asked, interval=step, evaluation=step)
    given: list[dict[str, list[Labels]]] = []
    for answer in answers:
        given.append({scenario: [] for scenario in scenarios})
        for labels in sorted((labels for labels, _ in answer), key=str):
            scenario, model = labels["model"].split("/")
            given[-1][scenario].append(labels | {"model": model})
    return given


def lost(
    scenarios: Mapping[str, Labels], folder: Path, group_by: tuple[str, ...] = ("model", "version")
) -> dict[str, list[Labels]]:
    """Return the groups of each scenario that are unknown at its end."""
    query = f"group {by(group_by)} ({names.UNKNOWN})"
    end = (BEFORE + AFTER) * STEP / 60
    [samples] = ask(query, [end], scenarios, folder, names.UNKNOWN, group_by=group_by)
    return samples


def pages(*versions: str, **labels: str) -> list[Labels]:
    """Return groups of the model."""
    return [{"model": "m", "version": version} | labels for version in versions]


UNKNOWN_AT_THE_END: dict[str, tuple[Labels, list[Labels]]] = {
    "restarted with the next versions": (
        serving(after=False) | serving(version="2") | serving(before=False, version="3"),
        [],
    ),
    "the only server of a version leaves while another serves the next version": (
        serving(after=False) | serving(instance="b", version="2"),
        [],
    ),
    "a rollout without an exporter": (counters(after=False) | counters(before=False, version="2"), []),
    "unloaded on purpose": (unloaded(), []),
    "unloaded, and then its server is gone": (unloaded(until=10), []),
    "one of two servers of a version is gone": (serving(after=False) | serving(instance="b"), []),
    "the model vanishes with its only server": (serving(after=False), pages("1")),
    "all versions vanish with all servers": (
        serving(after=False) | serving(after=False, version="2", instance="b"),
        pages("1", "2"),
    ),
    "the next version is never ready": (
        serving(after=False) | {series(state.MODEL_READY, version="2"): f"_x{BEFORE} 0x{AFTER}"},
        pages("1"),
    ),
    "only another model is served": (serving(after=False) | serving(model="other"), pages("1")),
    "unloaded on one server, and lost with that one and the one that served it": (
        {
            series(state.MODEL_READY): f"0x{BEFORE - 1} stale",
            series(state.MODEL_STATE, state="unloaded"): f"1x{BEFORE - 1} stale",
        }
        | serving(after=False, instance="b"),
        pages("1"),
    ),
    "its counters are gone and its server says that it serves": (
        {name: values for name, values in serving().items() if str(triton.REQUEST_SUCCESS) not in name}
        | serving(version="2")
        | {series(triton.REQUEST_SUCCESS): f"1x{BEFORE} stale"},
        pages("1"),
    ),
    "it was retired, serves again, and is gone with its server": (
        {
            series(state.MODEL_READY): f"1x19 0x20 1x{BEFORE - 41} stale",
            series(state.MODEL_STATE, state="unloaded"): f"0x19 1x20 0x{BEFORE - 41} stale",
            series(triton.REQUEST_SUCCESS): f"1x19 stale _x19 1x{BEFORE - 41} stale",
        },
        pages("1"),
    ),
    # One model is one page: not another one for each version that it ever had.
    "what was replaced stays retired when its successor is lost": (
        serving(after=False)
        | {
            name: values.replace(f"x{AFTER}", "x40 stale")
            for name, values in serving(before=False, version="2").items()
        },
        pages("2"),
    ),
}


def test_a_version_is_lost_only_when_nobody_decided(tmp_path: Path) -> None:
    """Rollouts, unloads and fewer servers are decisions; a version that goes away in another way pages."""
    scenarios = {name: input_series for name, (input_series, _) in UNKNOWN_AT_THE_END.items()}

    assert {name: unknown for name, (_, unknown) in UNKNOWN_AT_THE_END.items()} == lost(scenarios, tmp_path)


def test_a_group_of_one_server_may_move_to_another(tmp_path: Path) -> None:
    """With `group_by: [model, version, instance]` a server that left is not a loss while another serves it."""
    scenarios = {
        "it moved": serving(after=False) | serving(before=False, instance="b"),
        "its model is lost": serving(after=False) | serving(after=False, instance="b"),
    }
    unknown = [*pages("1", instance="a"), *pages("1", instance="b")]

    assert {"it moved": [], "its model is lost": unknown} == lost(
        scenarios, tmp_path, ("model", "version", "instance")
    )


def test_a_prober_is_not_silent_about_a_version_that_was_replaced(tmp_path: Path) -> None:
    """The exporter shows the counter of its last probes for 15 minutes, and sends no more of them."""
    probed = {series(probe.REQUESTS, result="success"): f"0+1x{BEFORE} {BEFORE}x{AFTER}"}
    scenarios = {
        "replaced": serving(after=False) | serving(before=False, version="2") | probed,
        "still served": serving() | serving(before=False, version="2") | probed,
    }
    minutes = (BEFORE + AFTER) * STEP / 60
    query = f"group {by(('model', 'version', names.REASON))} ({names.UNKNOWN})"
    unknown = {"replaced": [], "still served": pages("1", reason="silent")}

    assert [unknown] == ask(query, [minutes], scenarios, tmp_path, names.UNKNOWN, kind="probe")


def test_an_unload_ends_the_burn_alerts(tmp_path: Path) -> None:
    """The page and the tickets of a failing version end with it; a version that is merely idle keeps them."""
    failing = {series(triton.REQUEST_FAILURE, reason="BACKEND"): f"0+500x{BEFORE - 1} {500 * BEFORE}x10"}
    success = series(triton.REQUEST_SUCCESS)
    scenarios = {
        "unloaded": unloaded() | failing | {success: f"0+500x{BEFORE - 1} stale"},
        "still loaded": serving() | failing | {success: f"0+500x{BEFORE - 1} {500 * BEFORE}x10"},
    }
    minutes = BEFORE * STEP / 60
    burning = [{"alertname": BURN_ALERTS["errors"], "model": "m"}]

    before, after = ask(FIRING, [minutes - 1, minutes + 3], scenarios, tmp_path)
    assert {"unloaded": burning, "still loaded": burning} == before
    assert {"unloaded": [], "still loaded": burning} == after


@pytest.mark.parametrize(
    ("pause", "kind"),
    [
        *(
            (pause, kind)
            for pause in ([11, 14, 40] if THOROUGH else [11, 40])
            for kind in ("errors", "probe")
        ),
        (300, "errors"),
    ],
)
def test_only_a_model_that_is_gone_is_unknown_after_a_pause(pause: int, kind: str, tmp_path: Path) -> None:
    """A Prometheus that comes back evaluates rules before it has scraped anything, and forgets nothing.

    A model vanished while it was down, or minutes before.
    """
    scenarios = {
        "back": around_a_pause(pause, after="1+4x40"),
        "gone": around_a_pause(pause, after="_x40")
        | around_a_pause(pause, after="_x40", before=20, model="n"),
    }
    query = f"group {by(('model', 'version'))} ({names.UNKNOWN})"
    minutes = [60 + pause + after for after in (0, 1, 5, 6)]

    answers = ask(query, minutes, scenarios, tmp_path, names.UNKNOWN, kind=kind, step=15)

    assert [[]] * 4 == [answer["back"] for answer in answers]
    assert [*pages("1"), *pages("1", model="n")] == answers[-1]["gone"]


def around_a_pause(pause: int, after: str, before: int = 0, model: str = "m") -> Labels:
    """Return a version served for an hour, until so many minutes before a pause in which all of Prometheus is down.

    Rules go on half a minute before the scrapes do.
    """
    served = f"1+4x{239 - 4 * before} " + (f"stale _x{4 * before - 1} " if before else "")
    values = f"{served}_x{4 * pause + 2} {after}"
    return {
        PAUSED: f"0x239 1x{4 * pause - 1} 0x42",
        series(triton.REQUEST_SUCCESS, model): values,
        series(probe.REQUESTS, model, result="success"): values,
    }


def test_each_evaluation_records_who_is_retired_before_who_is_seen() -> None:
    """Series that end in between would leave a group seen after it was retired: a page for an unload."""
    objective = Objective(name="errors", target=0.99, indicator="errors")
    (text,) = (
        artifact.text for artifact in artifacts([objective], Options()) if artifact.name == "slo-errors.yml"
    )
    records = [rule.get("record") for rule in yaml.safe_load(text)["groups"][0]["rules"]]

    assert records.index(names.RETIRED) < records.index(names.LAST_SEEN)

"""Test who is paged: nobody for a loss that redundancy covers, on-call for the last server or replica."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import pytest
import yaml

from alerts.test_alertmanager_config import meets
from support.promtool import alerting_rule_file, evaluated
from support.tools import ROOT, newest, promtools
from triton_alerts.catalogue import ALERTS
from triton_alerts.generate import artifacts
from triton_alerts.inhibitions import INHIBITIONS
from triton_exporter.catalogue import EXPORTER_JOB, probe, state, triton
from triton_exporter.catalogue.external import stack
from triton_slo.artifact import Options
from triton_slo.generate import artifacts as slo_artifacts
from triton_slo.indicators import BURN_ALERTS
from triton_slo.objective.reading import read


def server(name: str, *, live: str = "1x160", ready: str = "1x160") -> dict[str, str]:
    """Return what Prometheus stores of one server with one model, `ranker`."""
    labels = f'instance="{name}:9095", job="{EXPORTER_JOB}"'
    return {
        f"{stack.UP}{{{labels}}}": "1x160",
        f"{state.SERVER_LIVE}{{{labels}}}": live,
        f"{state.UP}{{{labels}}}": live,
        f'{state.MODEL_EXPECTED}{{{labels}, model="ranker"}}': "1x160",
        f'{state.MODEL_READY}{{{labels}, model="ranker", version="1"}}': ready,
    }


def exporter_down(name: str) -> dict[str, str]:
    """Return the series of a server whose exporter cannot be scraped any more: only `up` is left."""
    gone = dict.fromkeys(server(name), "1x19 stale")
    return gone | {series: "1x19 0x140" for series in gone if series.startswith(f"{stack.UP}{{")}


def not_ready_since(name: str, seconds: str) -> dict[str, str]:
    """Return the exporter's clock of an episode in which `ranker` is not ready on this server."""
    labels = f'instance="{name}:9095", job="{EXPORTER_JOB}", model="ranker", version="1"'
    return {f"{state.MODEL_NOT_READY_SINCE}{{{labels}}}": seconds}


READINESS = (ROOT / "slo/objectives/readiness.yaml").read_text()
ERRORS = (ROOT / "slo/objectives/errors.yaml").read_text()
PROBE = "{name: probe, target: 99%, window: 30d, indicator: probe}"


@cache
def _rules(*texts: str) -> str:
    """Return the rules of the catalogue and of objectives, without texts, which promtool expands slowly."""
    objectives = read([(f"{number}.yaml", text) for number, text in enumerate(texts)]).objectives
    written = [
        artifact
        for artifact in (*artifacts((), Options()), *slo_artifacts(objectives, Options()))
        if artifact.part == "rules" and artifact.name.startswith(("triton-", "slo-"))
    ]
    groups = [group for file in written for group in yaml.safe_load(file.text)["groups"]]
    return alerting_rule_file(json.dumps({"groups": groups}))


def fired(folder: Path, series: Mapping[str, str]) -> Mapping[str, set[str]]:
    """Severity -> the names of the alerts of the catalogue that fire at any minute of forty."""
    query = 'group by (alertname, severity) (ALERTS{alertstate="firing"})'
    asked = [(query, 60.0 * minute) for minute in range(1, 39)]
    answers = evaluated(promtools()[-1], folder, _rules(), series, asked, interval=15, evaluation=60)
    alerts_by_severity: dict[str, set[str]] = {"critical": set(), "warning": set()}
    for labels in (labels for answer in answers for labels, _ in answer):
        alerts_by_severity.setdefault(labels["severity"], set()).add(labels["alertname"])
    return alerts_by_severity


RESTART = "1x19 0x23 1x120"
"""Gone for six minutes, then back."""
HEALTHY = server("gpu-2") | server("gpu-3")
OTHERS = {name.replace("ranker", "embedder"): values for name, values in HEALTHY.items()}
"""Servers of the job with other models."""


@pytest.mark.real
@pytest.mark.parametrize(
    ("series", "ticket"),
    [
        (server("gpu-1", live=RESTART, ready=RESTART) | HEALTHY, "TritonServerDown"),
        (
            server("gpu-1", ready="1x19 0x140") | not_ready_since("gpu-1", "_x20 300x140") | HEALTHY,
            "TritonModelNotReadyProlonged",
        ),
        (exporter_down("gpu-1") | HEALTHY, "TritonExporterDown"),
        (server("gpu-1", live="0x160", ready="0x160") | HEALTHY, "TritonServerNotStarting"),
    ],
    ids=["a server restarts", "a replica is not ready", "an exporter is down", "a server never starts"],
)
def test_one_of_three_that_fails_is_a_ticket(series: Mapping[str, str], ticket: str, tmp_path: Path) -> None:
    """The two others serve: a ticket is enough, nobody is woken."""
    firing = fired(tmp_path, series)

    assert set() == firing["critical"]
    assert ticket in firing["warning"]


@pytest.mark.real
@pytest.mark.parametrize(
    ("series", "page"),
    [
        (server("gpu-1", live=RESTART, ready=RESTART), "TritonAllServersDown"),
        (server("gpu-1", live="0x160", ready="0x160"), "TritonAllServersDown"),
        (server("gpu-1", ready="1x19 0x140"), "TritonModelDownEverywhere"),
        (server("gpu-1", ready="0x160") | not_ready_since("gpu-1", "60x160"), "TritonModelDownEverywhere"),
        (exporter_down("gpu-1"), "TritonExporterAbsent"),
    ],
    ids=["it restarts", "it never starts", "its model goes", "its model never loads", "its exporter is down"],
)
def test_the_only_server_of_a_small_installation_pages(
    series: Mapping[str, str], page: str, tmp_path: Path
) -> None:
    """No other server can serve its models."""
    assert page in fired(tmp_path, series)["critical"]


@pytest.mark.real
def test_a_server_whose_models_no_other_serves_pages_once(tmp_path: Path) -> None:
    """Other servers of the job are up, but they serve other models."""
    firing = fired(tmp_path, server("gpu-1", live=RESTART, ready=RESTART) | OTHERS)

    assert {"TritonMostServersDown"} == firing["critical"]


def sent_pages(
    tool: Path, folder: Path, series: Mapping[str, str], minutes: int, *objectives: str
) -> dict[str, list[float]]:
    """Return the minutes at which each page fires and no inhibition holds it back, to half a minute."""
    asked = [('ALERTS{alertstate="firing"}', 30.0 * step) for step in range(2, 2 * minutes)]
    answers = evaluated(tool, folder, _rules(*objectives), series, asked, interval=15, evaluation=30)

    def is_held(alert: Mapping[str, str], firing: Iterable[Mapping[str, str]]) -> bool:
        return any(
            meets(row.source, other)
            and meets(row.target, alert)
            and all(other.get(label) == alert.get(label) for label in row.equal)
            for row in INHIBITIONS
            for other in firing
        )

    pages: dict[str, list[float]] = {}
    for (_, at), answer in zip(asked, answers, strict=True):
        firing = [labels for labels, _ in answer]
        for alert in firing:
            if alert["severity"] == "critical" and not is_held(alert, firing):
                pages.setdefault(alert["alertname"], []).append(at / 60)
    return pages


def after_an_outage(up: str, then: str, *, ready: str = "", not_ready: str = "") -> dict[str, str]:
    """Return a server that was down for three minutes, and is back for three; and its values after that."""
    (name, *_), was = server("gpu-1"), "1x19 0x11 1x11 "
    labels = name.removeprefix(f"{stack.UP}{{").removesuffix("}")
    of_model = f'{labels}, model="ranker", version="1"'
    return {
        **server("gpu-1", live=was + then, ready=was + (ready or then)),
        f"{stack.UP}{{{labels}}}": f"1x43 {up}",
        f'{state.MODEL_EXPECTED}{{{labels}, model="ranker"}}': f"1x43 {then}",
        f'{state.MODEL_STATE}{{{of_model}, state="ready"}}': was + (ready or then),
        f'{state.MODEL_STATE}{{{of_model}, state="unknown"}}': f"0x19 1x11 0x11 {not_ready or 'stale'}",
        f"{state.MODEL_NOT_READY_SINCE}{{{of_model}}}": f"_x20 300x11 stale _x11 {not_ready.replace('1', '690')}",
    }


@pytest.mark.real
@pytest.mark.parametrize("tool", newest(promtools()), ids=str)
@pytest.mark.parametrize(
    ("then", "pages"),
    [
        (after_an_outage("0x80", "stale"), {"TritonModelExporterDown"}),
        (after_an_outage("stale", "stale") | dict.fromkeys(server("gpu-4"), "_x44 1x80"), set()),
        (
            after_an_outage("1x80", "1x80", ready="0x80", not_ready="1x80"),
            {"TritonModelDownEverywhere", BURN_ALERTS["readiness"]},
        ),
    ],
    ids=["its exporter dies", "its pod is replaced", "its model fails"],
)
def test_an_outage_that_is_over_does_not_page_again(
    tool: Path, then: Mapping[str, str], pages: set[str], tmp_path: Path
) -> None:
    """Its burn alert fires on for minutes. It was sent when the exporter died in them."""
    assert {"TritonMostServersDown", *pages} == set(sent_pages(tool, tmp_path, then | OTHERS, 20, READINESS))


@pytest.mark.real
@pytest.mark.parametrize("tool", newest(promtools()), ids=str)
@pytest.mark.parametrize(
    ("minutes", "live"),
    [
        pytest.param(8, "1", id="the model is not ready for 8 min"),
        pytest.param(30, "0", id="the server is down for 30 min"),
        *(
            pytest.param(minutes, live, marks=pytest.mark.thorough)
            for minutes, live in ((3, "0"), (3, "1"), (8, "0"), (30, "1"))
        ),
    ],
)
def test_no_page_begins_after_an_outage(tool: Path, minutes: int, live: str, tmp_path: Path) -> None:
    """Its probes fail until a minute after it. What burns the budget then is held by what burned it before."""
    begin, down = 40, 4 * minutes
    labels = f'instance="gpu-1:9095", job="{EXPORTER_JOB}"'
    of_model = f'{labels}, model="ranker", version="1"'

    def values(good: str, bad: str) -> str:
        return f"{good}x{4 * begin - 1} {bad}x{down - 1} {good}x100"

    ready, state_then = values("1", "0"), "unknown" if live == "0" else "unavailable"
    series = server("gpu-1", live=values("1", live), ready=ready) | {
        f'{state.MODEL_EXPECTED}{{{labels}, model="ranker"}}': values("1", "1"),
        f'{state.MODEL_STATE}{{{of_model}, state="ready"}}': ready,
        f'{state.MODEL_STATE}{{{of_model}, state="{state_then}"}}': values("0", "1"),
        f'{probe.REQUESTS}{{{of_model}, result="success"}}': f"0+1x{4 * begin} {4 * begin}+0x{down + 3} "
        f"{4 * begin}+1x100",
        f'{probe.REQUESTS}{{{of_model}, result="error"}}': f"0x{4 * begin} 1+1x{down + 3} {down + 4}x100",
        f"{stack.UP}{{{labels}}}": values("1", "1"),
    }

    pages = sent_pages(tool, tmp_path, series, begin + minutes + 20, READINESS, PROBE)

    assert pages
    over = begin + minutes
    for name, at in pages.items():
        assert at == [at[0] + step / 2 for step in range(len(at))], name
        assert at[0] <= over, name
        assert at[-1] <= over + 15, name


@pytest.mark.real
@pytest.mark.parametrize("tool", newest(promtools()), ids=str)
@pytest.mark.parametrize("grouping", ["", pytest.param("group_by: [model]", marks=pytest.mark.thorough)])
def test_a_model_that_fails_requests_once_it_is_ready_again_pages(
    tool: Path, grouping: str, tmp_path: Path
) -> None:
    """The page about its readiness fires on then, and held this one back for twelve minutes."""
    begin, down = 160, 32
    labels = f'instance="gpu-1:9095", job="{EXPORTER_JOB}"'
    of_model = f'{labels}, model="ranker", version="1"'
    ready = f"1x{begin - 1} 0x{down - 1} 1x100"
    served = f"0+10x{begin} {10 * begin}+0x{down} {10 * begin}"
    series = server("gpu-1", ready=ready) | {
        f'{state.MODEL_EXPECTED}{{{labels}, model="ranker"}}': "1x300",
        f'{state.MODEL_STATE}{{{of_model}, state="ready"}}': ready,
        f'{state.MODEL_STATE}{{{of_model}, state="unavailable"}}': f"0x{begin - 1} 1x{down - 1} 0x100",
        f"{triton.REQUEST_SUCCESS}{{{of_model}}}": f"{served}+5x100",
        f'{triton.REQUEST_FAILURE}{{{of_model}, reason="BACKEND"}}': f"0x{begin + down} 0+5x100",
    }

    pages = sent_pages(tool, tmp_path, series, 60, READINESS, ERRORS + grouping)

    ready_at = (begin + down) / 4
    assert pages[BURN_ALERTS["readiness"]][-1] > ready_at + 6
    assert ready_at < pages[BURN_ALERTS["errors"]][0] <= ready_at + 3


@pytest.mark.real
@pytest.mark.parametrize("tool", newest(promtools()), ids=str)
def test_an_expected_model_that_is_unloaded_pages(tool: Path, tmp_path: Path) -> None:
    """It was on the list of `--expect`: its budget was not charged, and only a ticket came."""
    begin = 160
    of_model = f'instance="gpu-1:9095", job="{EXPORTER_JOB}", model="ranker", version="1"'
    ready = f"1x{begin - 1} 0x100"
    series = server("gpu-1", ready=ready) | {
        f'{state.MODEL_EXPECTED}{{instance="gpu-1:9095", job="{EXPORTER_JOB}", model="ranker"}}': "1x300",
        f'{state.MODEL_STATE}{{{of_model}, state="ready"}}': ready,
        f'{state.MODEL_STATE}{{{of_model}, state="unloaded"}}': f"0x{begin - 1} 1x100",
    }

    pages = sent_pages(tool, tmp_path, series, 50, READINESS)

    assert begin / 4 < pages[BURN_ALERTS["readiness"]][0] <= begin / 4 + 2.5


def test_the_pages_are_these() -> None:
    """A new page needs a reason here and at the top of docs/alerts.md why a ticket is not enough."""
    redundancy_gone = {"TritonModelDownEverywhere", "TritonAllServersDown", "TritonMostServersDown"}
    nothing_known_or_a_version_lost = {
        "TritonModelExporterDown",
        "TritonSLOUnknown",
        "TritonModelVersionLost",
    }
    requests_hang = {"TritonModelStalled", "TrtLlmEngineStuck"}
    watch_or_delivery_gone = {
        "TritonExporterAbsent",
        "AlertmanagerNotificationsFailing",
        "AlertBridgeDown",
        "AlertBridgeDeliveryFailing",
        "AlertBridgeStoreFailing",
    }

    assert redundancy_gone | nothing_known_or_a_version_lost | requests_hang | watch_or_delivery_gone == {
        alert.name for alert in ALERTS if alert.severity == "critical"
    }

"""Test that `make verify-grafana` finds what a Grafana refuses, with a stand-in, because there is no Docker."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

import verify_grafana
from dashboards.grafana_api import State, grafana
from support.history import serve
from support.waiting import eventually
from triton_exporter.catalogue import EXPORTER_JOB, models, own, state
from triton_slo import names

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield a real Prometheus that knows one model, one server and one alert now."""
    at = ("job", EXPORTER_JOB), ("instance", "triton:9400")
    labels = dict((*at, ("model", "a.b"), ("version", "1")))
    rules = [
        (state.UP.name, dict(at)),
        (own.LAST_SUCCESS.name, dict(at)),
        (state.MODEL_READY.name, labels),
        (state.MODEL_STATE.name, {**labels, "state": "ready"}),
        (models.INFO.name, labels),
        (names.OBJECTIVE_RATIO, {names.SLO: "queue", "model": "a.b", "version": "1"}),
        ("ALERTS", {"alertname": "TritonQueueBudgetBurn", "component": "slo", "owner": "me", "model": "a.b"}),
    ]
    lines = [
        f"- record: {name}\n  expr: vector(1)\n  labels: {{{', '.join(f'{k}: {v!r}' for k, v in labels.items())}}}"
        for name, labels in rules
    ]
    text = "groups:\n- name: made\n  rules:\n" + "\n".join(
        f"  {line}" for line in "\n".join(lines).split("\n")
    )
    with serve("", tmp_path_factory.mktemp("made"), rules={"made.yml": text}) as url:
        query = f"{url}/api/v1/query?query=ALERTS"
        eventually(
            lambda: requests.get(query, timeout=5).json()["data"]["result"], "the rules recorded nothing"
        )
        yield url


@pytest.fixture
def imported(prometheus: str) -> Iterator[tuple[str, State]]:
    """Start a Grafana stand-in that has the committed dashboards and queries the real Prometheus."""
    with grafana() as (url, held):
        held.anonymous = True
        held.prometheus = prometheus
        held.dashboards = {model["uid"]: model for model in verify_grafana.models()}
        yield url, held


def test_the_committed_dashboards_have_no_problem(
    imported: tuple[str, State], capsys: pytest.CaptureFixture[str]
) -> None:
    """Every dashboard is found, every variable resolved, every query of panels and annotations runs."""
    assert [] == verify_grafana.verify(imported[0], verify_grafana.models(), import_seconds=0)

    lines = capsys.readouterr().out.splitlines()
    assert len(verify_grafana.models()) == len(lines)
    assert all(" 0 failed" in line for line in lines)
    assert any("triton-model: " in line and "0 queries" not in line for line in lines)


def test_a_model_is_chosen_and_not_a_pattern(prometheus: str) -> None:
    """A variable with one value is compared as it is: `.*` would find no model at all."""
    with grafana() as (url, held):
        held.anonymous, held.prometheus = True, prometheus
        dashboard = next(model for model in verify_grafana.models() if model["uid"] == "triton-model")
        variable = next(v for v in dashboard["templating"]["list"] if v["name"] == "model")
        chosen = dict.fromkeys(("cluster", "job", "instance"), ".*")

        assert "a.b" == verify_grafana._choose(url, variable, chosen)


def test_a_dashboard_that_was_not_imported_is_named(imported: tuple[str, State]) -> None:
    """One that provisioning refused is a problem with its uid."""
    url, held = imported
    del held.dashboards["triton-gpu"]

    assert ["triton-gpu: was not imported"] == verify_grafana.verify(
        url, verify_grafana.models(), import_seconds=0
    )


def test_lost_and_angular_panels_are_named(imported: tuple[str, State]) -> None:
    """What Grafana dropped, or took for an Angular panel, is a problem."""
    url, held = imported
    fleet = copy.deepcopy(held.dashboards["triton-fleet"])
    gone = fleet["panels"].pop()
    held.dashboards["triton-fleet"], held.angular = fleet, True
    printed = verify_grafana.verify(url, (verify_grafana.models()[0],), import_seconds=0)

    assert f"triton-fleet: panel {gone['title']!r} was lost" in printed
    assert any("taken for an Angular one" in line for line in printed)


def test_a_query_that_fails_is_named_with_prometheus_words(imported: tuple[str, State]) -> None:
    """A broken expression is a problem with its panel, its query and the reason."""
    url, held = imported
    broken = copy.deepcopy(held.dashboards["triton-fleet"])
    panel = next(panel for panel in broken["panels"] if panel.get("targets"))
    panel["targets"][0]["expr"] = "sum by ("

    [printed] = verify_grafana.query_all(url, broken)
    assert printed.startswith(f"{panel['title']} A: ")
    assert "parse error" in printed


def test_a_data_source_without_prometheus_is_one_problem(imported: tuple[str, State]) -> None:
    """A wrong --prometheus is reported once, not once a query."""
    url, held = imported
    held.prometheus = ""

    [printed] = verify_grafana.verify(url, verify_grafana.models(), import_seconds=0)
    assert "does not reach Prometheus: 400 connection refused" in printed


def test_a_prometheus_without_the_exporter_is_named(imported: tuple[str, State], tmp_path: Path) -> None:
    """Where the variables offer nothing, a problem names the variable and the reason."""
    url, held = imported
    with serve("", tmp_path / "empty") as empty:
        held.prometheus = empty
        printed = verify_grafana.verify(url, verify_grafana.models(), import_seconds=0)

    assert any("variable job: offers nothing" in line for line in printed)


def test_missing_docker_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No Docker is exit 2 and one line, not a traceback."""
    monkeypatch.setenv("PATH", str(tmp_path))

    assert 2 == verify_grafana.main(["--prometheus", "http://127.0.0.1:1"])
    assert "needs Docker" in capsys.readouterr().err


def test_a_container_that_fails_is_a_problem_of_its_image(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Docker's own words are shown for each image, and the other image is still tried."""
    docker = tmp_path / "docker"
    docker.write_text("#!/bin/sh\necho 'no such image' >&2\nexit 125\n")
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")

    assert 1 == verify_grafana.main(["--prometheus", "http://127.0.0.1:1"])
    printed = capsys.readouterr().out
    assert all(f"{image}: docker run failed: no such image" in printed for image in verify_grafana.IMAGES)


def test_provisioning_is_what_grafana_reads(tmp_path: Path) -> None:
    """A data source under the uid that the dashboards' variable finds, and one provider of files."""
    verify_grafana.provision(tmp_path, "http://p:9090")

    assert {"datasources/tritonwatch.yaml", "dashboards/tritonwatch.yaml"} == {
        str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.yaml")
    }
    assert 0o755 == tmp_path.stat().st_mode & 0o777

"""Test that the generated alert rules load and fire as the catalogue promises, with the real promtool."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from alerts.proofs import PROOFS, WITHOUT_SERIES
from alerts.proofs.proof import Proof, promtool_file
from support.files import write
from support.promtool import promtool
from support.tools import promtools, shared_out
from triton_alerts import rules as rules
from triton_alerts.alert import Alert
from triton_alerts.catalogue import ALERTS, FAMILIES
from triton_alerts.generate import artifacts
from triton_exporter.catalogue.state import LOAD_FAILURE_REASONS
from triton_exporter.common.duration import parse_seconds
from triton_slo.alert_settings import AlertSetting, Tuning
from triton_slo.artifact import Options

DEMO = Options(time_scale=1 / 360, scrape_interval_seconds=1.0, selector='cluster="eu1"')


@pytest.mark.real
@pytest.mark.parametrize("binary", promtools(), ids=str)
@pytest.mark.parametrize("options", [Options(), DEMO], ids=["real time", "demo"])
def test_every_promtool_loads_the_rules(binary: Path, options: Options, tmp_path: Path) -> None:
    """The rules load on every Prometheus that is here, at real time and in the demo."""
    write(artifacts((), options), tmp_path)

    checked = promtool(binary, "check", "rules", *sorted((tmp_path / "rules").iterdir()))

    assert 0 == checked.returncode, checked.stdout + checked.stderr


def alone(alert: Alert, groups: Sequence[Mapping[str, Any]], folder: Path, some: Sequence[Proof]) -> Path:
    """Return the proofs of an alert on its own rule: with the whole family they take ten times as long."""
    own = [
        {**group, "rules": [rule for rule in group["rules"] if rule.get("alert", alert.name) == alert.name]}
        for group in groups
    ]
    (folder / f"{alert.name}.yml").write_text(json.dumps({"groups": own}))
    proofs = folder / f"{alert.name}.test.json"
    proofs.write_text(promtool_file(f"{alert.name}.yml", some, (alert,)))
    return proofs


SPLIT = Options(
    tuning=Tuning(
        {
            alert.name: AlertSetting.model_validate(
                {"overrides": [{"models": {"regex": "r.+"}, "for": alert.for_ or "0s"}]}
            )
            for alert in ALERTS
            if "model" in alert.labels
        }
    )
)
"""Each alert about models as two rules, one for some models and one for the others."""


@pytest.mark.real
@pytest.mark.parametrize(
    "options",
    [
        pytest.param(Options(), id="whole"),
        # What `make test` runs of these: test_models_have_thresholds_of_their_own.
        pytest.param(SPLIT, id="split by models", marks=pytest.mark.thorough),
    ],
)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_proof_passes(family: str, options: Options, tmp_path: Path) -> None:
    """Each alert fires, stays quiet and has the annotations of its proofs, with one of the installed promtools.

    Rules that are split by models are the same expressions with a selector more: they fire, on the newest.
    """
    if options is SPLIT and not any(member.name in SPLIT.tuning.alerts for member in FAMILIES[family]):
        pytest.skip("no alert of this family is about a model")
    write(artifacts((), options), tmp_path)
    document = yaml.safe_load((tmp_path / "rules" / f"triton-{family}.yml").read_text())
    alerts = FAMILIES[family]
    dealt, proofs = shared_out(alerts), PROOFS
    if options is SPLIT:
        dealt = {promtools()[-1]: [alert for alert in alerts if alert.name in SPLIT.tuning.alerts]}
        proofs = tuple(proof for proof in PROOFS if proof.kind == "fires")

    for binary, some in dealt.items():
        if not some:  # one alert, two promtools
            continue
        files = [alone(alert, document["groups"], tmp_path, proofs) for alert in some]
        tested = promtool(binary, "test", "rules", *files)
        assert 0 == tested.returncode, tested.stdout + tested.stderr


def test_every_alert_is_proven_from_all_sides() -> None:
    """No alert enters the catalogue without proofs that it fires, stays quiet, and survives odd data."""
    for alert in ALERTS:
        wanted = {"fires", "quiet", "boundary", "missing"}
        if re.search(r"\b(rate|increase)\(", alert.expr):
            wanted.add("reset")
        if alert.name == "Watchdog":  # never quiet
            wanted = {"fires"}
        if alert.name in WITHOUT_SERIES:
            wanted.discard("missing")

        proofs = [proof for proof in PROOFS if proof.alert == alert.name]
        proven = {proof.kind for proof in proofs} | {"boundary" for proof in proofs if proof.before}
        assert set() == wanted - proven, alert.name
        assert all(proof.fires for proof in proofs if proof.kind == "fires"), alert.name
        assert not any(proof.fires for proof in proofs if proof.kind in {"quiet", "missing"}), alert.name


def test_first_steps_are_for_causes_that_exist() -> None:
    """A step for a misspelt cause would never be shown; `other` has only the usual step."""
    with_steps = [alert for alert in ALERTS if alert.steps]

    assert {"TritonModelLoadFailed", "TritonModelNotReadyProlonged"} <= {alert.name for alert in with_steps}
    for alert in with_steps:
        assert {*LOAD_FAILURE_REASONS} - {"other"} == {cause for cause, _ in alert.steps}
        assert [] == [step for _, step in alert.steps if "{{" in step or not step.endswith(".")]


@pytest.mark.parametrize("options", [Options(), DEMO], ids=["real time", "demo"])
def test_a_prometheus_that_has_just_started_misses_nothing_yet(options: Options) -> None:
    """Prometheus starts to scrape 5 to 10 s after its rules run: absent series then raise no alert at any scale."""
    fors = {alert.name: rules.rule(alert, options).for_ for alert in ALERTS if "absent" in alert.expr}

    assert "TritonExporterAbsent" in fors
    assert [] == [name for name, lasting in fors.items() if parse_seconds(lasting) < 12]


def test_an_alert_outlives_a_scrape_gap() -> None:
    """A condition that is false at one evaluation does not resolve a page or a ticket, and open it again."""
    brief = [
        alert.name
        for alert in ALERTS
        if alert.severity in {"critical", "warning"} and not alert.keep_firing_for
    ]

    assert [] == brief

"""Test the alert rules in the formats of prometheus-operator and vmalert."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from support.files import write
from support.tools import vmalert
from triton_alerts.catalogue import ALERTS
from triton_alerts.generate import artifacts
from triton_slo.artifact import Options
from tritonwatch.cli import main


def rules(format: str) -> dict[str, dict[str, object]]:
    """File name -> what a YAML reader makes of each rule file in one format."""
    made = artifacts((), Options(format=format))  # type: ignore[arg-type]
    return {artifact.name: yaml.safe_load(artifact.text) for artifact in made if artifact.part == "rules"}


def test_resources_of_the_operator_apply_alerts_yaml(tmp_path: Path) -> None:
    """`generate --format operator --alerts`: the resource contains the tuned rules of the plain file, no others."""
    (tmp_path / "alerts.yaml").write_text(
        "alerts:\n"
        "  TritonQueueFull: {enabled: false}\n"
        "  TritonQueueNearFull:\n"
        "    threshold: 90%\n"
        "    overrides: [{models: [ranker], for: 20m, severity: critical}]\n"
    )
    (tmp_path / "objectives").mkdir()
    (tmp_path / "objectives" / "errors.yaml").write_text("{name: errors, target: 99%, indicator: errors}\n")
    made = {}
    for form in ("prometheus", "operator"):
        out = tmp_path / form
        command = [
            "generate",
            "--objectives",
            str(tmp_path / "objectives"),
            "--alerts",
            str(tmp_path / "alerts.yaml"),
        ]
        assert 0 == main([*command, "--format", form, "--out", str(out)])
        made[form] = yaml.safe_load((out / "rules" / "triton-traffic.yml").read_text())

    assert made["prometheus"] == made["operator"]["spec"]
    tuned = [rule for group in made["operator"]["spec"]["groups"] for rule in group["rules"]]
    assert "TritonQueueFull" not in {rule["alert"] for rule in tuned}
    near_full = [rule for rule in tuned if rule["alert"] == "TritonQueueNearFull"]
    assert [("20m", "critical"), ("5m", "warning")] == [
        (rule["for"], rule["labels"]["severity"]) for rule in near_full
    ]
    assert all("> 0.9" in rule["expr"] for rule in near_full)


@pytest.mark.real
def test_vmalert_loads_every_alert(tmp_path: Path) -> None:
    """vmalert parses expressions and templates of all alerts."""
    write(artifacts((), Options(format="vmalert")), tmp_path)

    checked = subprocess.run(
        [vmalert(), "-dryRun", f"-rule={tmp_path / 'rules' / '*.yml'}", "-rule.validateTemplates=true"],
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert 0 == checked.returncode, checked.stderr[-2000:]
    loaded = [
        rule
        for document in rules("vmalert").values()
        for group in document["groups"]
        for rule in group["rules"]
    ]  # type: ignore[attr-defined]
    assert {alert.name for alert in ALERTS} == {rule["alert"] for rule in loaded if "alert" in rule}

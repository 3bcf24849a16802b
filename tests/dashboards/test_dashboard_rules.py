"""Test the rules that make the fleet dashboard cheap: they load everywhere and follow the options."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from support.tools import promtools
from triton_dashboards.generate import artifacts
from triton_dashboards.recording import rules_text
from triton_slo.artifact import Options
from triton_slo.names import STEP_TRAFFIC, TRAFFIC, model_traffic, server_traffic


@pytest.mark.parametrize("promtool", promtools(), ids=str)
def test_every_promtool_loads_the_rules(promtool: Path, tmp_path: Path) -> None:
    """Every installed promtool accepts the file."""
    (tmp_path / "rules.yml").write_text(rules_text(Options(selector='cluster="eu1"')), encoding="utf-8")
    checked = subprocess.run(
        [promtool, "check", "rules", tmp_path / "rules.yml"], capture_output=True, text=True, check=False
    )

    assert 0 == checked.returncode, checked.stdout + checked.stderr


def test_every_figure_is_recorded_at_both_levels() -> None:
    """Panels by model and panels by server find the same figures."""
    groups = yaml.safe_load(rules_text(Options()))["groups"]
    names = {rule["record"] for group in groups for rule in group["rules"]}

    assert {*map(model_traffic, TRAFFIC), *map(server_traffic, STEP_TRAFFIC)} <= names


def test_what_is_recorded_keeps_the_labels_of_the_selector() -> None:
    """The panels select what is recorded by the same matchers, so it must have the labels that they name."""
    groups = yaml.safe_load(rules_text(Options(selector='region=~"eu|us", zone!="a=b"')))["groups"]
    levels = {group["name"]: [rule["expr"] for rule in group["rules"]] for group in groups}

    assert all("region, zone" in expr for expr in levels["triton-dashboards-model"])
    assert all("region, zone" in expr for expr in levels["triton-dashboards-instance"])


@pytest.mark.parametrize(("scale", "interval", "window"), [(1, 15, "2m"), (1 / 360, 1, "4s"), (1, 60, "4m")])
def test_window_follows_time_scale_but_spans_four_scrapes(scale: float, interval: float, window: str) -> None:
    """A demo's window shrinks with its time scale, and never under four scrapes."""
    assert f"[{window}]" in rules_text(Options(time_scale=scale, scrape_interval_seconds=interval))


def test_selector_is_in_every_selector() -> None:
    """A fleet's own matcher narrows each recorded figure and each panel over Triton's series."""
    text = rules_text(Options(selector='cluster="eu1"'))
    assert len(re.findall(r"\b(?:nv_inference|triton_)[\w:]+\{", text)) == text.count("eu1")
    assert re.findall(r"\b(?:nv_inference|triton_)\w+[\[)]", text) == []

    made = artifacts((), Options(selector='region="north"'))
    assert all(
        'region=\\"north\\"' in artifact.text
        for artifact in made
        if artifact.name in ("triton-fleet.json", "triton-gpu.json")
    )

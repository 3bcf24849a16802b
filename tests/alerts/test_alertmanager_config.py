"""The generated Alertmanager configuration, judged by the real amtool."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from support.tools import amtools
from triton_alerts import alertmanager
from triton_alerts.alert import Alert
from triton_alerts.catalogue import ALERTS
from triton_alerts.inhibition import INHIBITIONS, Inhibition
from triton_slo import conventions
from triton_slo.artifact import Options

DEMO = Options(time_scale=1 / 360, scrape_interval_seconds=1.0, webhook_url="http://127.0.0.1:1/alertmanager")


@pytest.fixture(params=[Options(), DEMO], ids=["real time", "demo"])
def config(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The configuration, written down."""
    path = tmp_path / "alertmanager.yml"
    path.write_text(alertmanager.render(request.param))
    return path


def amtool(binary: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run amtool and keep what it says."""
    return subprocess.run([binary, *arguments], capture_output=True, text=True, timeout=60)


@pytest.mark.real
@pytest.mark.parametrize("binary", amtools(), ids=str)
def test_every_amtool_accepts_the_configuration(binary: Path, config: Path) -> None:
    """The configuration is valid for every Alertmanager that is here."""
    checked = amtool(binary, "check-config", config)

    assert 0 == checked.returncode, checked.stdout + checked.stderr


@pytest.mark.real
@pytest.mark.parametrize("binary", amtools(), ids=str)
@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_each_alert_reaches_its_receiver(binary: Path, alert: Alert, tmp_path: Path) -> None:
    """Severity decides: pages page, warnings open tickets, the watchdog goes its own way."""
    path = tmp_path / "alertmanager.yml"
    path.write_text(alertmanager.render(Options()))
    receiver = {"critical": "page", "warning": "ticket", "info": "none", "none": "watchdog"}[alert.severity]
    labels = [f"alertname={alert.name}", f"severity={alert.severity}", f"component={alert.component}"]

    routed = amtool(
        binary,
        *("config", "routes", "test", f"--config.file={path}", f"--verify.receivers={receiver}"),
        *labels,
        *(f"{label}=x" for label in alert.labels),
    )

    assert 0 == routed.returncode, routed.stdout + routed.stderr


BURN_LABELS = ("slo", "indicator", "tier", *conventions.GROUPING)
"""What every burn alert carries beside the labels of all alerts."""


def named(matchers: tuple[str, ...]) -> list[tuple[str, ...]]:
    """The labels of each alert that a side of an inhibition names."""
    if f'{conventions.COMPONENT}="slo"' in matchers:
        return [BURN_LABELS]
    labels = {alert.name: alert.labels for alert in ALERTS}
    labels |= dict.fromkeys((*conventions.BURN_ALERTS.values(), conventions.UNKNOWN_ALERT), BURN_LABELS)
    names = re.fullmatch(r'alertname=~?"(.+)"', matchers[0])
    assert names is not None, matchers
    return [labels[name] for name in names[1].split("|")]  # a misspelt alert is a KeyError


@pytest.mark.parametrize("one", INHIBITIONS, ids=lambda one: one.why)
def test_both_sides_of_an_inhibition_carry_the_equal_labels(one: Inhibition) -> None:
    """A label that both sides lack counts as equal, and would silence the world."""
    for labels in (*named(one.source), *named(one.target)):
        assert set() == set(one.equal) - set(labels)


def test_no_alert_silences_itself_or_its_cause() -> None:
    """Two alerts that silence each other would both go unheard."""
    pairs = {
        (source, target)
        for one in INHIBITIONS
        if 'component="slo"' not in one.source
        for source in re.findall(r"\w+", one.source[0].partition("=")[2])
        for target in re.findall(r"\w+", one.target[0].partition("=")[2])
    }

    assert set() == {(source, target) for source, target in pairs if (target, source) in pairs}

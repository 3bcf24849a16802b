"""The generated Alertmanager configuration, judged by the real amtool."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from support.tools import amtools
from triton_alerts import alertmanager
from triton_alerts.alert import Alert
from triton_alerts.catalogue import ALERTS
from triton_alerts.inhibition import INHIBITIONS, Inhibition
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


def matching(matchers: tuple[str, ...]) -> list[Alert]:
    """The alerts of the catalogue that these matchers can meet; only the matchers in use are read."""
    found = []
    for alert in ALERTS:
        labels = {"alertname": alert.name, "severity": alert.severity, "component": alert.component}
        if all(_matches(matcher, labels) for matcher in matchers):
            found.append(alert)
    return found


def _matches(matcher: str, labels: dict[str, str]) -> bool:
    name, operator, value = matcher.partition("=~") if "=~" in matcher else matcher.partition("=")
    accepted = value.strip('"').split("|") if operator == "=~" else [value.strip('"')]
    return labels.get(name, "") in accepted


@pytest.mark.parametrize("one", INHIBITIONS, ids=lambda one: one.why)
def test_both_sides_of_an_inhibition_carry_the_equal_labels(one: Inhibition) -> None:
    """A label that both sides lack counts as equal, and would silence the world."""
    if 'component="slo"' in one.source:
        assert {"slo", "model", "version"} >= set(one.equal)  # what every burn alert carries
        return
    sources, targets = matching(one.source), matching(one.target)
    assert sources
    assert targets
    for alert in (*sources, *targets):
        assert set(one.equal) <= set(alert.labels), alert.name

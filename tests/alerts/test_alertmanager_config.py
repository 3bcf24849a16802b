"""Test the generated Alertmanager configuration with the real amtool."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from support.files import write
from support.tools import amtools, newest
from triton_alerts import alertmanager
from triton_alerts.alert import Alert
from triton_alerts.alerts_file import read
from triton_alerts.catalogue import ALERTS
from triton_alerts.catalogue.lifecycle import LOST_SERVER
from triton_alerts.generate import artifacts
from triton_alerts.inhibitions import INHIBITIONS
from triton_slo import names, yaml_text
from triton_slo.artifact import Options
from triton_slo.indicators import BURN_ALERTS

DEMO = Options(time_scale=1 / 360, scrape_interval_seconds=1.0, webhook_url="http://127.0.0.1:1/alertmanager")


FULL = Options(
    webhook_token_file="/run/secrets/bridge-token",
    fallback="mailto:oncall@example.com?from=am@example.com&smarthost=mail:25"
    "&username=am&password_file=/run/secrets/m",
    page_to=(
        "pagerduty:///run/secrets/pagerduty",
        "https://hooks.example.com/x?a=b#token-file=/run/secrets/t",
    ),
    ticket_to=("jsm:///run/secrets/jsm",),
    watchdog_url="https://dead-man.example.com/ping",
)
"""Every option of the generator."""


_SWAPPED = {"critical": "info", "warning": "critical", "info": "warning"}
TUNED = Options(
    tuning=read(
        "alerts.yaml",
        yaml_text.render(
            {
                "alerts": {
                    alert.name: {"severity": _SWAPPED[alert.severity]}
                    for alert in ALERTS
                    if alert.severity in _SWAPPED
                }
            }
        ),
    ).tuning
)
"""Pages as tickets and tickets as pages, all at once."""


def amtool(binary: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run amtool and return its output."""
    return subprocess.run([binary, *arguments], capture_output=True, text=True, timeout=60)


@pytest.mark.real
@pytest.mark.parametrize("binary", amtools(), ids=str)
@pytest.mark.parametrize(
    "options", [Options(), DEMO, FULL, TUNED], ids=["real time", "demo", "everything", "tuned"]
)
def test_every_amtool_accepts_the_configuration(binary: Path, options: Options, tmp_path: Path) -> None:
    """The configuration is valid for every Alertmanager that is here."""
    write(alertmanager.artifacts(options), tmp_path)
    checked = amtool(binary, "check-config", tmp_path / "alertmanager" / alertmanager.FILE)

    assert 0 == checked.returncode, checked.stdout + checked.stderr


@pytest.mark.real
@pytest.mark.parametrize("binary", newest(amtools()), ids=str)
def test_each_alert_reaches_its_receiver(binary: Path, tmp_path: Path) -> None:
    """Pages and tickets go to the bridge in one group, the watchdog goes its own way."""
    write(alertmanager.artifacts(Options()), tmp_path)
    file = f"--config.file={tmp_path / 'alertmanager' / alertmanager.FILE}"
    receivers = {"critical": "bridge", "warning": "bridge", "info": "info", "none": "watchdog"}
    # Routes and inhibitions go by these labels: the other alerts of each pair are routed alike.
    for alert in {(alert.severity, alert.component): alert for alert in ALERTS}.values():
        wanted = f"--verify.receivers=tritonwatch-{receivers[alert.severity]}"
        labels = [f"alertname={alert.name}", f"severity={alert.severity}", f"component={alert.component}"]
        labels += [f"{label}=x" for label in alert.labels]
        routed = amtool(binary, "config", "routes", "test", file, wanted, *labels)

        assert 0 == routed.returncode, f"{alert.name}: {routed.stdout}{routed.stderr}"


BURN_LABELS = ("slo", "indicator", "tier", "urgency", *names.GROUPING)
"""What every burn alert carries beside the labels of all alerts."""


def named(matchers: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Return the labels of each alert that a side of an inhibition names."""
    if f'{names.COMPONENT}="slo"' in matchers:
        return [BURN_LABELS]
    labels = {alert.name: alert.labels for alert in ALERTS}
    of_objectives = (*BURN_ALERTS.values(), names.UNMEASURED_ALERT, *names.BUDGET_ALERTS)
    labels |= dict.fromkeys(of_objectives, BURN_LABELS)
    alertnames = re.fullmatch(r'alertname=~?"(.+)"', matchers[0])
    assert alertnames is not None, matchers
    return [labels[name] for name in alertnames[1].split("|")]  # a misspelt alert is a KeyError


def test_both_sides_of_an_inhibition_carry_the_equal_labels() -> None:
    """A label that both sides lack counts as equal, and would inhibit every alert."""
    for rule in INHIBITIONS:
        for labels in (*named(rule.source), *named(rule.target)):
            assert set() == set(rule.equal) - set(labels), rule.why


def test_no_alert_is_silenced_by_what_it_silences() -> None:
    """If alerts inhibited each other, none of them would be sent."""
    everything = [*map(labels_of, ALERTS), *burn_alerts()]
    silences = {
        (index, other)
        for inhibition in INHIBITIONS
        for index, source in enumerate(everything)
        if meets(inhibition.source, source)
        for other, target in enumerate(everything)
        if meets(inhibition.target, target)
        and all(source.get(label) == target.get(label) for label in inhibition.equal)
    }
    order = TopologicalSorter[int]()
    for source, target in silences:
        order.add(target, source)

    order.prepare()  # raises CycleError on a circle
    assert len(silences) > 100


def test_a_burn_page_silences_the_tickets_about_its_budget() -> None:
    """A burn ticket does not: a budget that is nearly spent is news to who has had a ticket for days."""
    for budget in (
        burn_alert for burn_alert in burn_alerts() if burn_alert["alertname"] in names.BUDGET_ALERTS
    ):
        tiers = [
            burn_alert
            for burn_alert in burn_alerts()
            if "tier" in burn_alert and burn_alert["slo"] == budget["slo"]
        ]
        silencing = {
            tier["severity"]
            for tier in tiers
            for rule in INHIBITIONS
            if meets(rule.source, tier) and meets(rule.target, budget)
        }

        assert {"critical"} == silencing


def test_a_burn_alert_with_a_name_of_its_own_is_silent_while_all_servers_are_down() -> None:
    """Inhibition goes by the labels that every burn alert has, not by the names of those that come with us."""
    (down,) = (labels_of(alert) for alert in ALERTS if alert.name == "TritonAllServersDown")
    burning = [
        burn_alert | {"alertname": "CheckoutFails"} for burn_alert in burn_alerts() if "tier" in burn_alert
    ]

    assert [True] * len(burning) == [
        any(meets(rule.source, down) and meets(rule.target, burn) for rule in INHIBITIONS) for burn in burning
    ]


def test_no_ticket_silences_a_page() -> None:
    """A ticket may be read tomorrow; the page that it silenced would be missed tonight."""
    everything = [*map(labels_of, ALERTS), *burn_alerts()]
    pages = [alert for alert in everything if alert["severity"] == "critical"]
    # That a model lost a server is no fault of its own: an alert about the server is sent.
    tickets = [alert for alert in everything if alert not in pages and alert["alertname"] != LOST_SERVER.name]
    for rule in INHIBITIONS:
        silencing = [ticket for ticket in tickets if meets(rule.source, ticket)]
        silenced = [page for page in pages if meets(rule.target, page)]
        assert not (silencing and silenced), (rule.why, silencing, silenced)


def labels_of(alert: Alert) -> dict[str, str]:
    """Return the labels of an alert that matchers use."""
    return {"alertname": alert.name, "severity": alert.severity, "component": alert.component}


def burn_alerts() -> Iterator[dict[str, str]]:
    """Every alert of an objective there can be, by indicator and tier."""
    for indicator, name in BURN_ALERTS.items():
        for urgency, tier in enumerate(("page_fast", "page_slow", "ticket_fast", "ticket_slow"), 1):
            yield {
                "alertname": name,
                "component": "slo",
                "slo": indicator,
                "indicator": indicator,
                "tier": tier,
                "urgency": str(urgency),
                "severity": "critical" if tier.startswith("page") else "warning",
            }
        of_objective = {"component": "slo", "slo": indicator, "indicator": indicator}
        for name in (names.UNMEASURED_ALERT, *names.BUDGET_ALERTS):
            yield {"alertname": name, "severity": "warning", **of_objective}


def meets(matchers: Iterable[str], labels: Mapping[str, str]) -> bool:
    """Whether labels meet all matchers, as Alertmanager reads them."""
    return all(
        _meets(*re.fullmatch(r'(\w+)(=~|!~|!=|=)"(.*)"', matcher).groups(), labels) for matcher in matchers
    )


def _meets(name: str, operator: str, value: str, labels: Mapping[str, str]) -> bool:
    actual = labels.get(name, "")
    same = bool(re.fullmatch(value, actual)) if "~" in operator else actual == value
    return same != operator.startswith("!")


@pytest.mark.parametrize("options", [Options(), FULL], ids=["default", "everything"])
def test_amlint_finds_nothing_but_what_is_meant(options: Options, tmp_path: Path) -> None:
    """The semantic linter's findings are exactly those that have a reason."""
    write(artifacts((), options), tmp_path)
    path, rules = tmp_path / "alertmanager" / alertmanager.FILE, tmp_path / "rules" / "*.yml"
    meant = {
        "empty-receiver",  # info alerts are for dashboards, and are never sent
        "repeat-before-group",  # one heartbeat in each group interval
        "circular-inhibition",  # it does not compare tier= with tier=~; the test above proves no circle
        "inhibit-same-match",  # the tiers distinguish the two sides
    }

    linted = subprocess.run(
        [Path(sys.executable).with_name("amlint"), "check", "--format=json", f"--rules={rules}", path],
        capture_output=True,
        text=True,
        timeout=60,
    )

    # The rules of the burn alerts are in triton_slo: these files do not define them.
    burns = (*BURN_ALERTS.values(), names.UNKNOWN_ALERT, *names.BUDGET_ALERTS)
    loads = [
        finding
        for finding in json.loads(linted.stdout)
        if not any(name in finding["message"] for name in burns)
    ]
    assert set() == {finding["code"] for finding in loads} - meant, linted.stdout


@pytest.mark.parametrize(
    ("address", "integration"),
    [
        ("https://incidents.example.com/hook", "webhook_configs"),
        ("pagerduty:///run/secrets/pagerduty", "pagerduty_configs"),
        ("mailto:oncall@example.com?from=am@example.com&smarthost=mail:25", "email_configs"),
    ],
)
@pytest.mark.real
def test_the_fallback_goes_by_any_of_three_ways(address: str, integration: str, tmp_path: Path) -> None:
    """A failing delivery to Slack is reported by a method that every amtool accepts, and to the pager's, too."""
    write(alertmanager.artifacts(Options(fallback=address)), tmp_path)
    path = tmp_path / "alertmanager" / alertmanager.FILE
    assert integration in path.read_text()
    for binary in amtools():
        checked = amtool(binary, "check-config", path)
        wanted = "--verify.receivers=tritonwatch-fallback,tritonwatch-bridge"
        labels = ("alertname=AlertBridgeDown", "severity=critical", "instance=bridge:9096")
        routed = amtool(binary, "config", "routes", "test", f"--config.file={path}", wanted, *labels)
        assert (0, 0) == (checked.returncode, routed.returncode), checked.stderr + routed.stdout


@dataclass(frozen=True)
class Way:
    """An address, what Alertmanager calls it, and since which release."""

    address: str
    kind: str
    since: tuple[int, int] = (0, 25)


WAYS = (
    Way("pagerduty:///run/secrets/key", "pagerduty_configs"),
    Way("opsgenie:///run/secrets/key", "opsgenie_configs"),
    Way("opsgenie:///run/secrets/key?api_url=https://api.eu.opsgenie.com/", "opsgenie_configs"),
    Way("jsm:///run/secrets/key", "opsgenie_configs"),
    Way("teams:///run/secrets/address", "msteamsv2_configs", (0, 28)),
    Way("incidentio:///run/secrets/token?source=01ABC", "webhook_configs"),
    Way("irm:///run/secrets/address", "webhook_configs", (0, 26)),
    Way("webhook:///run/secrets/address", "webhook_configs", (0, 26)),
    Way("https://hooks.example.com/x?a=b#token-file=/run/secrets/token", "webhook_configs"),
    Way("mailto:oncall@example.com?from=am@example.com&smarthost=mail:25", "email_configs"),
)


@pytest.mark.real
@pytest.mark.parametrize("binary", amtools(), ids=str)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.address.split(":")[0])
def test_pages_and_tickets_reach_teams_without_slack(binary: Path, way: Way, tmp_path: Path) -> None:
    """Besides the bridge; an Alertmanager older than the receiver refuses the configuration by name."""
    write(alertmanager.artifacts(Options(page_to=(way.address,), ticket_to=(way.address,))), tmp_path)
    path = tmp_path / "alertmanager" / alertmanager.FILE
    assert f"  {way.kind}:" in path.read_text()
    version = re.search(r"version (\d+)\.(\d+)", amtool(binary, "--version").stdout)
    assert version is not None
    checked = amtool(binary, "check-config", path)
    if (int(version[1]), int(version[2])) < way.since:
        assert 0 != checked.returncode
        return
    assert 0 == checked.returncode, checked.stderr + checked.stdout
    for severity, name in (("critical", "page-to"), ("warning", "ticket-to"), ("info", "info")):
        routed = amtool(
            binary,
            *("config", "routes", "test", f"--config.file={path}"),
            *("alertname=A", f"severity={severity}", "model=m"),
        )
        assert (name == "info") == ("page-to" not in routed.stdout and "ticket-to" not in routed.stdout)
        assert routed.stdout.startswith(f"tritonwatch-{name}")


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("mailto:a@example.com?from=b@example.com&smarthost=mail:25&username=am", "lacks password_file"),
        (
            "mailto:a@example.com?from=b@example.com&smarthost=mail:25&passwordfile=/x",
            "has passwordfile, which is not one",
        ),
        ("mailto:a@b.example", "lacks from"),
        # The configuration is a file that many may read.
        ("https://user:secret@example.com/hook", "holds a password"),
        *((address, "is none of https://") for address in ("slack", "ftp://x", "pagerduty://")),
    ],
)
def test_an_address_that_nobody_can_use_is_refused(address: str, reason: str) -> None:
    """Otherwise a server would reject the message when it is needed."""
    with pytest.raises(ValueError, match=reason):
        alertmanager.artifacts(Options(fallback=address))


def test_no_secret_is_written_into_the_configuration() -> None:
    """Secrets are named by file."""
    text = yaml_text.render(alertmanager.config(FULL))

    assert "credentials_file: /run/secrets/bridge-token" in text
    assert "auth_password_file: /run/secrets/m" in text
    assert not re.search(
        r"^\s*(password|auth_password|credentials|routing_key|api_key): ", text, re.MULTILINE
    )


@pytest.mark.real
@pytest.mark.parametrize("binary", amtools(), ids=str)
def test_the_text_of_the_fallback_names_the_first_step(binary: Path, tmp_path: Path) -> None:
    """Anyone who is notified by mail reads cause, first step and runbook."""
    write(alertmanager.artifacts(Options()), tmp_path)
    alert = {
        "labels": {"alertname": "AlertBridgeDown", "instance": "bridge:9096"},
        "annotations": {
            "summary": "The bridge is down",
            "description": "Pages do not arrive.",
            "cause": "state:unknown 80%, compute_infer 20%",
            "action": "Restart it.",
            "runbook_url": "https://example.com/AlertBridgeDown.md",
        },
        "status": "firing",
    }
    data = tmp_path / "data.json"
    data.write_text(json.dumps({"status": "firing", "alerts": [alert], "commonLabels": alert["labels"]}))

    rendered = amtool(
        binary,
        *("template", "render", f"--template.glob={tmp_path / 'alertmanager' / alertmanager.TEMPLATES}"),
        '--template.text={{ template "triton.title" . }}\n{{ template "triton.text" . }}',
        f"--template.data={data}",
    )

    assert 0 == rendered.returncode, rendered.stderr
    for text in (
        "[FIRING] The bridge is down (AlertBridgeDown)",
        "- Cause: Triton does not answer 80%, executing the model 20%\n",
        "First: Restart it.",
        "Runbook: https",
    ):
        assert text in rendered.stdout

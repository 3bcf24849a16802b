"""Test that real Alertmanagers page services other than Slack, at their addresses, by their published fields."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
import requests
import yaml

from alerts.vendors import HOSTS, IRM, KEY, TEAMS, TOKEN, MailServer, Vendors
from support.files import write
from support.loopback import free_ports, served, started
from support.tls import certificate
from support.tools import alertmanagers, newest
from support.waiting import eventually
from triton_alerts import alertmanager
from triton_slo.artifact import Options

pytestmark = pytest.mark.real

PASSWORD = "mail-password"
RUNBOOK = "https://example.com/runbooks/TritonModelDownEverywhere.md"
DASHBOARD = "https://grafana.example.com/d/triton-model"
WIDE = 40
"""Alerts about one model, of many servers, each with a long description."""


@dataclass(frozen=True)
class Delivered:
    """The requests that one Alertmanager sent."""

    version: tuple[int, int]
    vendors: Vendors
    mail: tuple[MailServer, MailServer]
    """One with STARTTLS and a password, and a relay without both."""
    config: str

    def of(self, host: str, about: str) -> tuple[Any, Any]:
        """Return a service's first and last message about a model; skip the test without such a receiver."""
        bodies = [request.body for request in self.vendors.of(host) if about in str(request.body)]
        assert bodies, f"nothing about {about}: {self.vendors.refused}"
        return bodies[0], bodies[-1]


@pytest.fixture(scope="module", params=newest(alertmanagers()), ids=str)
def delivered(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Delivered]:
    """One run with every receiver that the version has: pages and a ticket that fire, and end."""
    folder = tmp_path_factory.mktemp("page-to")
    version = subprocess.run([request.param, "--version"], capture_output=True, text=True, timeout=30)
    match = re.search(r"version (\d+)\.(\d+)", version.stdout + version.stderr)
    assert match is not None
    release = (int(match[1]), int(match[2]))
    certificate(folder, "ca")
    certificate(folder, "vendors", "ca", hosts=HOSTS)
    for name, secret in {"key": KEY, "token": TOKEN, "teams": TEAMS, "irm": IRM, "mail": PASSWORD}.items():
        # Older ones take the end of the line for a part of Opsgenie's key and of a mail password.
        (folder / name).write_text(secret if release < (0, 29) else f"{secret}\n")
    pair = folder / "vendors.pem", folder / "vendors.key"
    with (
        served(Vendors(*pair)) as vendors,
        served(MailServer(*pair, ("am", PASSWORD))) as mail,
        served(MailServer(*pair, None)) as relay,
    ):
        mailto = "mailto:oncall@example.com?from=am@example.com&smarthost=localhost"
        page_to = [
            f"pagerduty://{folder}/key",
            f"opsgenie://{folder}/key",
            f"opsgenie://{folder}/key?api_url=https://api.eu.opsgenie.com/",
            f"incidentio://{folder}/token?source=01ABC",
            f"https://hooks.example.com/x?a=b#token-file={folder}/token",
            f"{mailto}:{mail.server_address[1]}&username=am&password_file={folder}/mail",
            f"{mailto}:{relay.server_address[1]}&require_tls=false",
            *([f"irm://{folder}/irm"] if release >= (0, 26) else []),
            *([f"teams://{folder}/teams"] if release >= (0, 28) else []),
        ]
        options = Options(
            # A page waits 1.7 s for the others of its group.
            time_scale=1 / 6,
            webhook_url="https://bridge.example.com/alertmanager",
            page_to=tuple(page_to),
            ticket_to=(f"jsm://{folder}/key",),
        )
        write(alertmanager.artifacts(options), folder)
        path = folder / "alertmanager" / alertmanager.FILE
        written = path.read_text()
        path.write_text(yaml.safe_dump(_through(vendors.url, yaml.safe_load(written))))
        (port,) = free_ports(1)
        command = [request.param, f"--config.file={path}", f"--storage.path={folder / 'data'}"]
        command += [f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address="]
        url = f"http://127.0.0.1:{port}"
        hosts = {"events.pagerduty.com", "api.opsgenie.com", "api.eu.opsgenie.com", "api.incident.io"}
        hosts |= {"hooks.example.com", "api.atlassian.com"}
        hosts |= {
            address.split("/")[2] for address, since in ((IRM, 26), (TEAMS, 28)) if release >= (0, since)
        }
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SSL_CERT_FILE", str(folder / "ca.pem"))
            with started(command, f"{url}/-/ready", folder / "log"):
                for round_ in (1, 2):
                    _send(url, timedelta(minutes=5) if round_ == 1 else timedelta())
                    eventually(
                        partial(_arrived, vendors, hosts, (mail, relay), round_),
                        lambda: f"{[(h, len(vendors.of(h))) for h in hosts]} {len(mail.taken)}",
                    )
        yield Delivered(release, vendors, (mail, relay), written)


def _arrived(vendors: Vendors, hosts: set[str], mail: Sequence[MailServer], round_: int) -> bool:
    """Whether each got its three pages or its ticket so many times; a refusal is not waited for."""
    pages = all(len(vendors.of(host)) >= round_ * (1 if "atlassian" in host else 3) for host in hosts)
    return bool(vendors.refused) or (pages and all(len(server.taken) >= 3 * round_ for server in mail))


def _through(proxy: str, config: Any) -> Any:
    """Return the configuration with the test's proxy, and nothing else changed."""
    config["global"]["http_config"] = {"proxy_url": proxy}
    for receiver in config["receivers"]:
        for integration in (entry for ones in receiver.values() if isinstance(ones, list) for entry in ones):
            if "http_config" in integration:
                integration["http_config"]["proxy_url"] = proxy
    return config


def _alert(name: str, model: str, severity: str, lasts: timedelta, **more: str) -> dict[str, Any]:
    now = datetime.now(UTC)
    texts = {
        "summary": f"{model} serves nowhere",
        "description": "No server is ready." + " The reason is long." * (50 if model == "wide" else 0),
        "cause": "weights.txt is missing",
        "action": "Read its log.",
    }
    links = {"runbook_url": RUNBOOK, "dashboard_url": DASHBOARD} if model != "foreign" else {}
    return {
        "labels": {"alertname": name, "severity": severity, "model": model} | more,
        "annotations": texts | links,
        # Alertmanager does not wait for other alerts of a group if the first alert began more than group_wait ago.
        "startsAt": now.isoformat(),
        "endsAt": (now + lasts).isoformat(),
    }


def _send(url: str, lasts: timedelta) -> None:
    down = "TritonModelDownEverywhere"
    alerts = [
        _alert(down, "broken", "critical", lasts),
        _alert("TritonReadinessBudgetBurn", "broken", "critical", lasts, slo="readiness"),
        _alert(down, "foreign", "critical", lasts),
        *(_alert(down, "wide", "critical", lasts, instance=f"triton-{number}") for number in range(WIDE)),
        _alert("TritonModelLoadFailed", "slow", "warning", lasts),
    ]
    requests.post(f"{url}/api/v2/alerts", json=alerts, timeout=5).raise_for_status()


TITLE = "[FIRING] broken serves nowhere (TritonModelDownEverywhere) and 1 more"


def test_no_service_refuses_anything(delivered: Delivered) -> None:
    """Path, method, authentication, required fields and lengths are as published, for small and large groups."""
    assert [] == delivered.vendors.refused


def test_no_secret_is_in_the_configuration(delivered: Delivered) -> None:
    """The configuration names the files of secrets, and contains no secret."""
    assert [] == [secret for secret in (KEY, TOKEN, PASSWORD) if secret in delivered.config]


def test_pagerduty_gets_title_cause_and_links(delivered: Delivered) -> None:
    """The end has the key of the start; a page without links has none."""
    fired, ended = delivered.of("events.pagerduty.com", "broken")
    assert TITLE == fired["payload"]["summary"]
    assert "Cause: weights.txt is missing" in fired["payload"]["custom_details"]["text"]
    assert [{"href": RUNBOOK, "text": "Runbook"}, {"href": DASHBOARD, "text": "Dashboard"}] == fired["links"]
    assert [] == delivered.of("events.pagerduty.com", "foreign")[0].get("links", [])
    assert ("resolve", fired["dedup_key"]) == (ended["event_action"], ended["dedup_key"])


@pytest.mark.parametrize(
    ("host", "about", "priority"),
    [
        ("api.opsgenie.com", "broken", "P1"),
        ("api.eu.opsgenie.com", "broken", "P1"),
        ("api.atlassian.com", "slow", "P3"),
    ],
)
def test_opsgenie_and_jira_get_an_alert_and_its_close(
    delivered: Delivered, host: str, about: str, priority: str
) -> None:
    """A page is P1, a ticket P3; the close names the alias of the alert."""
    fired, _ = delivered.of(host, about)
    assert fired["message"].startswith(f"[FIRING] {about} serves nowhere (Triton")
    assert priority == fired["priority"]
    assert "Cause: weights.txt is missing" in fired["description"]
    assert (RUNBOOK, DASHBOARD) == (fired["details"]["Runbook"], fired["details"]["Dashboard"])
    closed = [request.path for request in delivered.vendors.of(host) if "/close" in request.path]
    assert 1 == len([path for path in closed if f"/{fired['alias']}/" in path])


@pytest.mark.parametrize("host", ["api.incident.io", "hooks.example.com", "oncall-prod.grafana.net"])
def test_who_reads_alertmanager_s_own_document_gets_it(delivered: Delivered, host: str) -> None:
    """Summary and links are annotations of each alert; IRM gets no more alerts than it takes."""
    if host.endswith("grafana.net") and delivered.version < (0, 26):
        pytest.skip("this Alertmanager reads no address from a file")
    fired, ended = delivered.of(host, "broken")
    assert (("firing", 2), "resolved") == ((fired["status"], len(fired["alerts"])), ended["status"])
    assert fired["groupKey"] == ended["groupKey"]
    assert "broken serves nowhere" == fired["commonAnnotations"]["summary"]
    assert RUNBOOK == fired["alerts"][0]["annotations"]["runbook_url"]


def test_teams_shows_each_field_on_its_own_line(delivered: Delivered) -> None:
    """Its Markdown joins lines unless they are paragraphs or items of a list."""
    if delivered.version < (0, 28):
        pytest.skip("this Alertmanager has no receiver for Teams workflows")
    fired, ended = delivered.of("prod-00.westeurope.logic.azure.com", "broken")
    title, text = (block["text"] for block in fired["attachments"][0]["content"]["body"])
    assert TITLE == title
    for line in ("- Cause: weights.txt is missing", f"- Runbook: {RUNBOOK}", f"- Dashboard: {DASHBOARD}"):
        assert f"\n{line}\n" in text
    joined = re.findall(r"[^\n]\n(?!\n|- )[^\n]", text)
    assert [] == joined
    assert "[RESOLVED]" in ended["attachments"][0]["content"]["body"][0]["text"]


@pytest.mark.parametrize("server", [0, 1], ids=["login", "relay"])
def test_mail_is_text_with_the_links(delivered: Delivered, server: int) -> None:
    """Sent over TLS with the password of the file, or in the clear where asked; the end is a mail, too."""
    mails = [message for message in delivered.mail[server].taken if "broken" in message["Subject"]]
    body = mails[0].get_body()
    assert body is not None
    text = body.get_content()
    assert (TITLE, "text/plain") == (mails[0]["Subject"], body.get_content_type())
    assert {"RCPT TO:<oncall@example.com>"} == set(delivered.mail[server].recipients)
    assert "- Cause: weights.txt is missing" in text
    assert f"- Runbook: {RUNBOOK}" in text
    assert mails[-1]["Subject"].startswith("[RESOLVED] broken serves nowhere")


def test_a_large_group_names_some_alerts_and_counts_the_others(delivered: Delivered) -> None:
    """Teams takes 28 KB and Opsgenie 15,000 characters: a page that is longer would be refused and nobody woken."""
    fired, _ = delivered.of("api.opsgenie.com", "wide")
    assert f"and {WIDE - 10} more" in fired["description"]
    assert f"and {WIDE - 1} more" in fired["message"]

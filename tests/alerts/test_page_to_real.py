"""Real Alertmanagers page those who do not live in Slack, by the published fields of their services."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import requests
import yaml

from support.files import write
from support.loopback import started
from support.pagers import KEY, TOKEN, PagerServer
from support.tools import alertmanagers
from support.waiting import eventually
from triton_alerts.alertmanager import configuration as alertmanager
from triton_slo.artifact import Options
from tritonwatch.local.triton import free_ports

pytestmark = pytest.mark.real
LABELS = {"alertname": "TritonModelDownEverywhere", "severity": "critical", "model": "broken"}
RUNBOOK = "https://example.com/TritonModelDownEverywhere.md"


@pytest.mark.parametrize("binary", alertmanagers(), ids=str)
@pytest.mark.parametrize("runbook", [RUNBOOK, ""], ids=["ours", "another's"])
def test_a_page_and_its_end_reach_every_service(binary: Path, runbook: str, tmp_path: Path) -> None:
    """With title, cause and links, and under one key; an alert without links is a page, too."""
    (tmp_path / "key").write_text(KEY)
    (tmp_path / "token").write_text(TOKEN)
    with PagerServer() as server:
        page_to = (
            f"pagerduty://{tmp_path}/key",
            f"opsgenie://{tmp_path}/key?api_url={server.pagerduty.removesuffix('v2/enqueue')}",
            f"{server.hook}#token-file={tmp_path}/token",
        )
        options = Options(time_scale=1 / 360, webhook_url="http://127.0.0.1:9/bridge", page_to=page_to)
        write(alertmanager.artifacts(options), tmp_path)
        path = tmp_path / "alertmanager" / alertmanager.FILE
        config = yaml.safe_load(path.read_text())
        config["global"]["pagerduty_url"] = server.pagerduty
        path.write_text(yaml.safe_dump(config))
        (port,) = free_ports(1)
        order = [binary, f"--config.file={path}", f"--storage.path={tmp_path / 'data'}"]
        order += [f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address="]
        url = f"http://127.0.0.1:{port}"
        with started(order, f"{url}/-/ready", tmp_path / "log"):
            _send(url, runbook, timedelta(minutes=5))
            eventually(
                lambda: server.open and server.alerts and server.documents, lambda: str(server.refused)
            )
            _send(url, runbook, timedelta())
            eventually(lambda: not server.open and server.closed, lambda: str(server.refused))

    assert [] == server.refused
    assert "TritonModelDownEverywhere" in server.events[0]["payload"]["summary"]
    assert "weights.txt is missing" in server.events[0]["payload"]["custom_details"]["text"]
    assert "weights.txt is missing" in server.alerts[0]["description"]
    assert "P1" == server.alerts[0]["priority"]
    assert [server.alerts[0]["alias"]] == server.closed
    if runbook:
        assert {"href": RUNBOOK, "text": "Runbook"} in server.events[0]["links"]
        assert RUNBOOK == server.alerts[0]["details"]["Runbook"]


def _send(url: str, runbook: str, lasts: timedelta) -> None:
    now = datetime.now(UTC)
    annotations = {
        "summary": "broken serves nowhere",
        "description": "No server is ready.",
        "cause": "weights.txt is missing",
    }
    alert = {
        "labels": LABELS,
        "annotations": annotations | ({"runbook_url": runbook, "dashboard_url": runbook} if runbook else {}),
        "startsAt": (now - timedelta(minutes=1)).isoformat(),
        "endsAt": (now + lasts).isoformat(),
    }
    requests.post(f"{url}/api/v2/alerts", json=[alert], timeout=5).raise_for_status()

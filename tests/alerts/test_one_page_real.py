"""Test that the death of a server is one incident: real Tritons, exporters, Prometheus and Alertmanager.

Durations are divided by thirty. What Alertmanager sends is given to a bridge on the Slack stand-in.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
import requests
import yaml

from alerts.test_alertmanager_real import webhook
from support import web_fleet
from support.bridge import BridgeUnderTest, Clock
from support.exporter import exporting
from support.fast_prometheus import INTERVAL_SECONDS, FastPrometheus
from support.files import write
from support.loopback import free_ports, started
from support.repository import Repository
from support.slack.workspace import Posted
from support.tools import ROOT
from support.triton import live_triton
from support.waiting import eventually
from support.web_fleet import text_of
from triton_alerts.bridge.evidence import facts
from triton_alerts.generate import artifacts
from triton_exporter.catalogue import state
from triton_slo import names
from triton_slo.artifact import Options
from triton_slo.generate import artifacts as slo_artifacts
from triton_slo.indicators import BURN_ALERTS
from triton_slo.objective.reading import read
from triton_slo.prometheus import Prometheus
from triton_slo.server_access import Access
from tritonwatch.local import alertmanager_command, prometheus_command, prometheus_config

pytestmark = pytest.mark.real
SCALE = 1 / 30
READINESS = ROOT / "slo" / "objectives" / "readiness.yaml"
LONGER_SECONDS = 8.0
"""Time after the first page in which a second one would come: each alert fires and is sent within 5 s."""


@pytest.mark.parametrize(
    ("models", "title", "lines"),
    [
        pytest.param(
            (("ranker",),),
            "🔴 No Triton server is live: {dead} does not answer since",
            ["1 of 1 down: {dead}", "nothing serves ranker now"],
            id="the only server of all",
        ),
        pytest.param(
            (("embedder", "ranker"), ("embedder",)),
            "🔴 {dead} does not answer since HH:MM UTC: nothing serves ranker now",
            ["1 of 2 down: {dead}", "nothing serves ranker now", "embedder: still served by 1 of 2 servers"],
            id="one of two, with a model of its own",
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            (("ranker",), ("ranker",)),
            "🟠 {dead} does not answer since HH:MM UTC: its models are still served by 1 of 2 servers",
            ["1 of 2 down: {dead}", "ranker: still served by 1 of 2 servers"],
            id="one of two alike",
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_a_dead_server_is_one_incident(
    models: Sequence[Sequence[str]],
    title: str,
    lines: Sequence[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It names the server and its models. It was one about the server, and one about each of its models."""
    monkeypatch.setattr(facts, "EVIDENCE_TIMEOUT_SECONDS", 20.0)  # of a busy machine
    with ExitStack() as stack:
        inbox, url = stack.enter_context(webhook())
        options = Options(time_scale=SCALE, scrape_interval_seconds=INTERVAL_SECONDS, webhook_url=url)
        objectives = read([(READINESS.name, READINESS.read_text())]).objectives
        write((*artifacts((), options), *slo_artifacts(objectives, options)), tmp_path)
        servers, exporters, pods = [], [], stack.enter_context(ExitStack())
        for number, of_server in enumerate(models):
            place = tmp_path / str(number)
            place.mkdir()
            repository = Repository(place / "models")
            for model in of_server:
                repository.model(model)
            servers.append(stack.enter_context(live_triton(repository.path, place)))
            exporter = exporting(servers[-1].http_url, servers[-1].metrics_url, dict.fromkeys(of_server, ()))
            exporters.append(pods.enter_context(exporter).url.removeprefix("http://"))
        (port, sender) = free_ports(2)
        config = yaml.safe_load(
            prometheus_config(
                exporters[0], f"127.0.0.1:{sender}", [str(tmp_path / "rules" / "*.yml")], {}, INTERVAL_SECONDS
            )
        )
        config["scrape_configs"][0]["static_configs"] = [{"targets": exporters}]
        (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
        for command, at in (
            (
                alertmanager_command(tmp_path / "alertmanager" / "alertmanager.yml", tmp_path / "am", sender),
                sender,
            ),
            (prometheus_command(tmp_path / "prometheus.yml", tmp_path / "prometheus", port), port),
        ):
            ready = f"http://127.0.0.1:{at}/-/ready"
            stack.enter_context(started(command, ready, tmp_path / f"{at}.log"))
        watch = FastPrometheus(f"http://127.0.0.1:{port}")
        each = sum(map(len, models))
        watch.wait_seen(
            f"count(slo:sli_error:ratio_rate5m) > 0 and sum({state.MODEL_READY}) == {each}"
            f" and count({names.MODEL_EXPECTED_COPY}) == {each}"
        )
        servers[0].kill()

        bridge = BridgeUnderTest(tmp_path, clock=Clock(time.time()))
        stack.callback(bridge.close)
        prometheus = Prometheus(Access(watch.url))
        sources = {"prometheus": facts.objective_budget(prometheus), "servers": facts.servers(prometheus)}
        enrich = facts.Enricher(bridge.store, sources)
        stack.callback(enrich.close)

        def shown() -> list[Posted]:
            bridge.clock.now = max(bridge.clock.now, time.time())
            while inbox.notifications:
                body = json.dumps(inbox.notifications.pop(0))
                if '"Watchdog"' not in body:
                    bridge.receive(body.encode())
            enrich(bridge.clock())
            bridge.send()
            roots = bridge.workspace.roots()
            assert len(roots) <= 1, "\n".join(root.text for root in roots)
            return roots

        inbox.wait(shown)
        time.sleep(LONGER_SECONDS)
        [root] = shown()
        first = root.history[0] if root.history else (root.text, root.blocks)
        incident = bridge.incident()
        now = f"{title[0].replace('🔴', '✖').replace('🟠', '▲')} {exporters[0]} does not answer since"
        _wait_overview(watch.url, f"Broken now {now}", " ".join(lines[1:]))
        servers[0].start()
        watch.wait_seen(f"min({state.MODEL_READY}) == 1")
        # The objective's windows of five minutes hold the outage for longer than its alert lasts.
        time.sleep(2 * LONGER_SECONDS)
        inbox.wait(lambda: shown()[0].text.startswith("🟢 Resolved: "))
        _wait_overview(watch.url, f"Nothing is broken ✓ {len(models)} Triton server")

        if len(models) == 1:
            # Once more, and its exporter dies while the burn alert fires on: that is held back as before.
            servers[0].kill()
            watch.wait(BURN_ALERTS["readiness"], severity="critical")
            servers[0].start()
            watch.wait_seen(f"min({state.MODEL_READY}) == 1")
            pods.close()
            inbox.notifications.clear()
            watch.wait_seen(f"absent({state.SERVER_LIVE})")
            assert watch.alerts(BURN_ALERTS["readiness"], severity="critical")
            time.sleep(LONGER_SECONDS)
            assert BURN_ALERTS["readiness"] not in json.dumps(inbox.notifications)

    said = re.sub(r"\d\d:\d\d UTC", "HH:MM UTC", first[0])
    assert said.startswith(title.format(dead=exporters[0])), said
    assert "\\n".join(lines).format(dead=exporters[0]) in json.dumps(first[1])
    # The alert fires two seconds (a minute) after the condition is true.
    assert 1 <= incident.fired_at - incident.since, (incident.since, incident.fired_at)


def _wait_overview(prometheus: str, *texts: str) -> None:
    """Wait until the overview has these texts: a scrape that a busy machine misses is told there, too."""
    with web_fleet.pages(prometheus, every=1) as (site, _):

        def overview() -> str:
            return text_of(requests.get(site, timeout=20).text)

        eventually(lambda: all(text in shown for shown in [overview()] for text in texts), overview)

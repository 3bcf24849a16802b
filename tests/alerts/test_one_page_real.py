"""Test that the death of a model's only server is one page: real Tritons, exporters, Prometheus and Alertmanager.

Durations are divided by thirty. What Alertmanager sends is given to a bridge on the Slack stand-in, and pages are counted.
"""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from alerts.test_alertmanager_real import webhook
from support.bridge import BridgeUnderTest
from support.exporter import exporting
from support.fast_prometheus import INTERVAL_SECONDS, FastPrometheus
from support.files import write
from support.loopback import free_ports, started
from support.repository import Repository
from support.tools import ROOT
from support.triton import live_triton
from triton_alerts.bridge.evidence.facts import Enricher, objective_budget
from triton_alerts.generate import artifacts
from triton_exporter.catalogue import state
from triton_slo.artifact import Options
from triton_slo.generate import artifacts as slo_artifacts
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
    ("models", "page"),
    [
        pytest.param(("ranker",), "No Triton server is live", id="the only server of all"),
        pytest.param(
            ("ranker", "embedder"),
            "ranker: not ready on 100% of its servers",
            id="one of two, with its own model",
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_a_dead_server_is_one_page(models: tuple[str, ...], page: str, tmp_path: Path) -> None:
    """It was two: about the server and about the objective of its model."""
    with ExitStack() as stack:
        inbox, url = stack.enter_context(webhook())
        options = Options(time_scale=SCALE, scrape_interval_seconds=INTERVAL_SECONDS, webhook_url=url)
        objectives = read([(READINESS.name, READINESS.read_text())]).objectives
        write((*artifacts((), options), *slo_artifacts(objectives, options)), tmp_path)
        servers, exporters = [], []
        for model in models:
            place = tmp_path / model
            place.mkdir()
            repository = Repository(place / "models")
            repository.model(model)
            servers.append(stack.enter_context(live_triton(repository.path, place)))
            exporter = exporting(servers[-1].http_url, servers[-1].metrics_url, {model: ()})
            exporters.append(stack.enter_context(exporter).url.removeprefix("http://"))
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
        watch.wait_seen(
            f"count(slo:sli_error:ratio_rate5m) == {len(models)} and sum({state.MODEL_READY}) > 0"
        )
        servers[0].kill()

        bridge = BridgeUnderTest(tmp_path)
        stack.callback(bridge.close)

        def pages() -> list[str]:
            while inbox.notifications:
                body = json.dumps(inbox.notifications.pop(0))
                if '"Watchdog"' not in body:
                    bridge.receive(body.encode())
            bridge.send()
            return [root.text for root in bridge.workspace.roots() if "· page ·" in root.shown]

        inbox.wait(pages)
        time.sleep(LONGER_SECONDS)
        [shown] = pages()
        enrich = Enricher(
            bridge.store, {"prometheus": objective_budget(Prometheus(Access(f"http://127.0.0.1:{port}")))}
        )
        enrich(bridge.clock())
        enrich.close()
        incident = bridge.incident()
        servers[0].start()
        watch.wait_seen(f"min({state.MODEL_READY}) == 1")
        # The objective's windows of five minutes hold the outage for longer than its alert lasts.
        time.sleep(2 * LONGER_SECONDS)
        pages()
        messages = len(bridge.workspace.roots())

    assert page in shown
    # The alert fires two seconds (a minute) after the condition is true.
    assert 1 <= incident.fired_at - incident.since <= 10, (incident.since, incident.fired_at)
    if models == ("ranker",):
        assert 1 == messages

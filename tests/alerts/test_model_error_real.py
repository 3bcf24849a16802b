"""Test that a message about failing requests has the model's own exception: real Triton, its log, and the exporter."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.bridge import body_of
from support.exporter import exporting
from support.repository import Repository
from support.triton import infer, live_triton
from support.waiting import eventually
from triton_alerts.bridge.deliver.messages import Style, root
from triton_alerts.bridge.evidence.facts import error_messages
from triton_alerts.bridge.incidents.incident import Evidence
from triton_alerts.bridge.incidents.notification import parse
from triton_alerts.bridge.incidents.store import Store
from triton_exporter.probe.probe_settings import ProbeSettings
from triton_slo.server_access import Access

pytestmark = pytest.mark.real
EXCEPTION = "RuntimeError: fails on purpose"


def _message(tmp_path: Path, exporter_url: str, now: float) -> str:
    """Return the blocks of the message about a model whose requests fail, with the exporter's evidence."""
    store = Store(tmp_path / "bridge.sqlite", lambda _severity: "C0PAGES")
    store.receive(parse(body_of("ranker", {"1": now}, {})), now)
    [(_, incident)] = store.incidents.open(now)
    store.close()
    facts = error_messages([Access(exporter_url)])(incident)
    evidence = Evidence.of(facts, now)
    return json.dumps(root(incident.model_copy(update={"evidence": evidence}), Style(), now).blocks)


@pytest.mark.parametrize("seen_by", ["log", "probe"])
def test_the_exception_of_a_python_model_is_in_the_message(seen_by: str, tmp_path: Path) -> None:
    """From Triton's log, or from the answer to a probe where the log is not read; the model stays loaded."""
    repository = Repository(tmp_path / "models")
    folder = repository.model("ranker")
    probes = ProbeSettings(models=("*",), interval_seconds=0.5, timeout_seconds=5.0)
    more = {"triton_log": tmp_path / "triton.log"} if seen_by == "log" else {}
    with (
        live_triton(repository.path, tmp_path) as server,
        exporting(
            server.http_url, server.metrics_url, probes=probes if seen_by == "probe" else None, **more
        ) as exporter,
    ):
        assert 200 == infer(server, "ranker")
        eventually(lambda: "ranker" in exporter.get("/state").text, "the exporter does not know the model")
        (folder / "1" / "fail_every").write_text("1")
        assert 500 == infer(server, "ranker")
        shown = eventually(
            lambda: EXCEPTION in exporter.get("/state").text, lambda: exporter.get("/state").text
        )
        message = _message(tmp_path, exporter.url, exporter.exporter.model_states.lifecycle.snapshot.at)

    assert shown
    assert "*Error message* for `ranker v1`" in message
    assert EXCEPTION in message

"""Test the evidence in messages on real servers: Triton, the exporter, Prometheus, Alertmanager and the bridge.

Only Slack is a stand-in, which refuses what Slack's reference says it refuses.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
import requests

from support import web_fleet
from support.slack.server import SlackServer
from support.slack.workspace import APP_TOKEN, TOKEN, Posted, Workspace
from support.stack.demo_run import TIME_SCALE, port_base
from support.tools import alertmanagers, newest, prometheuses
from support.waiting import eventually
from support.web_fleet import text_of
from triton_slo.bridge_series import EVIDENCE_SOURCES
from triton_slo.indicators import Readiness
from tritonwatch.demo.load import FLOWS, LoadGenerator
from tritonwatch.demo.stack import Ports, Stack
from tritonwatch.local import Child

pytestmark = pytest.mark.real

VERSIONS = newest(list(zip_longest(prometheuses(), alertmanagers(), fillvalue=alertmanagers()[0])))


class _Posting(Stack):
    """The demo's stack with chosen binaries, and a bridge that posts to a Slack stand-in."""

    def __init__(self, prometheus: Path, alertmanager: Path, slack: SlackServer, directory: Path) -> None:
        super().__init__(directory, Ports(port_base()), TIME_SCALE)
        self.binaries = {"Prometheus": str(prometheus), "Alertmanager": str(alertmanager)}
        self.slack = slack

    def _parts(self) -> Iterator[tuple[Child, str]]:
        for child, url in super()._parts():
            if child.name in ("Grafana", "web page"):
                continue
            if child.name in self.binaries:
                child.command = [self.binaries[child.name], *child.command[1:]]
            if child.name == "bridge":
                child.command = [word for word in child.command if word != "--dry-run"]
                child.command += [
                    f"--alertmanager={self.ports.url('Alertmanager')}",
                    f"--slack-token-file={self._secret('bot', TOKEN)}",
                    f"--slack-app-token-file={self._secret('app', APP_TOKEN)}",
                    f"--slack-url={self.slack.api_url}",
                    "--channel=C0PAGES",
                ]
            yield child, url

    def _secret(self, name: str, content: str) -> Path:
        path = self.directory / name
        path.write_text(content)
        return path


@pytest.fixture(scope="module", params=VERSIONS, ids=lambda binaries: str(binaries[0].parent))
def posting(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Posting]:
    """The stack, once both pages are posted with their charts."""
    with ExitStack() as ended:
        slack = ended.enter_context(SlackServer(Workspace()))
        stack = _Posting(*request.param, slack, tmp_path_factory.mktemp("posting"))
        ended.callback(stack.stop)
        for _ in stack.start():
            pass
        load = LoadGenerator(stack.triton.http_url, [flow for flow in FLOWS if flow.model == "saturated"])
        load.start()
        ended.callback(load.stop)
        for model in ("broken", "saturated"):
            eventually(partial(_page, stack, model), lambda: _shown(stack))
        yield stack


def _page(stack: _Posting, model: str) -> Posted | None:
    """Return the page about a model once it has its chart."""
    page = next(
        (m for m in stack.slack.workspace.roots() if f"`{model}`" in m.shown and "· page ·" in m.shown), None
    )
    charts = {file["thread_ts"] for file in stack.slack.workspace.files}
    return page if page is not None and page.ts in charts else None


def _shown(stack: _Posting) -> str:
    files = [(file["thread_ts"], file["title"]) for file in stack.slack.workspace.files]
    return f"{[(m.ts, m.shown) for m in stack.slack.workspace.messages]} {files}\n" + (
        stack.bridge_log.with_suffix(".errors.log").read_text()
    )


def _facts(page: Posted) -> dict[str, str]:
    """Return the named facts of a message: the fields of its sections, and sections that begin with a name."""
    texts = [cell["text"] for block in page.blocks for cell in block.get("fields", ())]
    texts += [
        block["text"]["text"] for block in page.blocks if block["type"] == "section" and "text" in block
    ]
    named = (re.fullmatch(r"\*([A-Z][^*\n]+)\*\n(.*)", text, re.DOTALL) for text in texts)
    return {match[1]: match[2] for match in named if match is not None}


def test_a_page_about_a_burn_has_every_fact(posting: _Posting) -> None:
    """Objective of the title, burn rate, budget, causes, servers and chart; no GPU, as the model has none."""
    page = eventually(lambda: _page(posting, "saturated"), "the page")
    facts = _with(posting, page, "Objective", "Burn rate", "Budget left", "Causes", "Servers")
    times = r"[0-9.]+x"

    assert {
        "Affected": "`saturated` version `1`",
        # On a busy machine its requests take more than a second, too.
        "Objective": "99 % of requests within 1 s over 30d"
        if "requests take over 1 s" in page.text or "requests took over 1s" in page.text
        else "99 % of requests queued at most 100 ms over 30d",
        "Servers": f"ready on its only server: {_triton(posting)}",
    }.items() <= facts.items()
    assert re.match(rf"{times} the allowed rate", facts["Burn rate"])
    # How many failed is said once: in the title, where that is about the objective now, else beside the burn rate.
    counts = re.findall(r"[0-9,]+ (?:in [0-9]+ (?:min|s)|since [0-9:]+)\b", page.text + facts["Burn rate"])
    assert 1 == len(counts), page.shown
    assert re.fullmatch("not known yet: [0-9ms ]+ of data, of 30d", facts["Budget left"])
    assert re.match(r"queue [0-9]+%", facts["Causes"])
    assert facts["First step"].startswith("Requests wait in the queue: ")
    assert "Description" in facts
    assert "GPU" not in facts
    assert _chart(posting, page)["title"].startswith("saturated v1: slo:")
    assert {"Acknowledge", "Check again", "Runbook", "Query", "Alertmanager"} <= _buttons(page)


def test_a_page_about_a_failed_load_has_every_fact(posting: _Posting) -> None:
    """Triton's error message and its class beside the same facts; after the repair, that it ended."""
    page = eventually(lambda: _page(posting, "broken"), "the page")
    eventually(lambda: "No server serves model broken" in page.shown, lambda: page.shown)
    facts = _with(posting, page, "Objective", "Burn rate", "Budget left", "Causes", "Servers")

    assert page.text.startswith(
        f"🔴 Model broken failed to load on {_triton(posting)}; nothing serves it: weights.txt is missing"
    )
    assert "`broken`" in facts["Affected"]
    assert "No server serves model broken" in facts["Also firing"].splitlines()
    assert "99.9 % of the time ready over 30d: error budget 43m 12s" == facts["Objective"]
    assert facts["Burn rate"].startswith("1000x the allowed rate in ")
    assert re.fullmatch("not known yet: [0-9ms ]+ of data, of 30d", facts["Budget left"])
    assert re.match("(loading|failed to load) [0-9]+%", facts["Causes"])
    assert f"not ready on its only server: {_triton(posting)}" == facts["Servers"]
    message = next(block["text"]["text"] for block in page.blocks if "*Error message*" in str(block))
    assert message.startswith(
        "*Error message* for `broken v1`\n```\nInternal: FileNotFoundError: No such file"
    )
    assert "models/broken/1/weights.txt" in message
    assert facts["First step"].startswith("Put the missing file in place")
    assert "GPU" not in facts
    assert _chart(posting, page)["title"].startswith("broken")
    error = re.compile(
        r"broken failed to load on .* Internal: FileNotFoundError: .*weights\.txt \( incident \w+ \)"
    )
    with web_fleet.pages(posting.ports.url("Prometheus"), bridge=posting.bridge_data, every=1) as (site, _):
        addresses = (site, f"{site}/model?model=broken")
        # Triton loads it again and again: for a moment it is loading.
        eventually(
            lambda: all(error.search(text_of(requests.get(at, timeout=20).text)) for at in addresses),
            lambda: text_of(requests.get(site, timeout=20).text),
        )

    posting.repair()
    # On a slow machine the outage is long enough for a ticket of the readiness objective, which keeps the incident
    # open for minutes: then the end of the load failure is one fact of several.
    eventually(
        lambda: (
            "Resolved:" in page.shown or "Model broken failed to load" in _facts(page).get("Resolved", "")
        ),
        lambda: _shown(posting),
    )


def test_the_page_of_a_queue_whose_only_server_died_says_so(posting: _Posting) -> None:
    """It went on about the queue, with ever smaller numbers, and asked for more replicas."""
    page = eventually(lambda: _page(posting, "saturated"), "the page")
    posting.triton.kill()
    _recheck(
        posting,
        page,
        lambda: bool(re.search(r" \(its only server\) since| does not answer since", page.text)),
    )

    assert Readiness.steps_by_cause["state:unknown"] == _facts(page)["First step"], page.shown


def test_no_source_failed(posting: _Posting) -> None:
    """Each source was asked and has no fault; on a busy machine one may be late, which its log line says."""
    log = posting.bridge_log.with_suffix(".errors.log").read_text()
    page = requests.get(f"{posting.ports.url('bridge')}/metrics", timeout=5).text
    failures = re.findall(
        r'^triton_alert_bridge_enrichment_failures_total\{source="(.+)"\} (.+)$', page, re.M
    )
    late = re.findall(
        r" WARNING .*: no evidence from (\w+) .*: no answer within .* s(?:; try --timeout)?$", log, re.M
    )

    assert len(late) == len(re.findall(" WARNING | ERROR ", log)), log
    assert set(EVIDENCE_SOURCES) == {source for source, _ in failures}
    assert set() == {source for source, number in failures if number != "0.0"} - set(late)


def _with(posting: _Posting, page: Posted, *names: str) -> dict[str, str]:
    """Wait until these facts are there: this Prometheus has just begun."""
    _recheck(posting, page, lambda: set(names) <= _facts(page).keys())
    return _facts(page)


def _recheck(posting: _Posting, page: Posted, shows: Callable[[], bool]) -> None:
    """Press "Check again" until the page shows it."""
    for press in range(30):
        posting.slack.press(f"{page.ts}-{press}-{time.time()}", page, "recheck")
        with suppress(AssertionError):
            eventually(shows, "more facts", seconds=6)
            break
    assert shows(), page.shown


def _triton(stack: Stack) -> str:
    return stack.triton.http_url.removeprefix("http://")


def _chart(stack: _Posting, page: Posted) -> dict[str, Any]:
    """Return the one file in the thread of a page, which is a picture."""
    [file] = [file for file in stack.slack.workspace.files if file["thread_ts"] == page.ts]
    assert file["content"].startswith(b"\x89PNG")
    return file


def _buttons(page: Posted) -> set[str]:
    [actions] = [block["elements"] for block in page.blocks if block["type"] == "actions"]
    return {element["text"]["text"] for element in actions if element["type"] == "button"}

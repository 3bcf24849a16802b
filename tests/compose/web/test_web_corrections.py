"""Test the page Corrections of `tritonwatch web`: what it shows, what it writes, and who may write."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests
import yaml
from playwright.sync_api import Browser

from support import web_fleet
from support.browser import DEVICES, page_on
from support.history import openmetrics
from support.recorded_fleet import OBJECTIVE, RecordedFleet
from support.victoria import serve_victoria
from support.web_fleet import text_of
from triton_exporter.common.moments import rfc3339
from triton_slo import names
from triton_slo.artifact import Options
from triton_slo.objective.model import Objective
from triton_slo.prometheus.client import Prometheus
from triton_slo.prometheus.server_access import Access
from tritonwatch.audited_corrections.trail import Trail
from tritonwatch.audited_corrections.writers import VictoriaMetrics
from tritonwatch.cli import main
from tritonwatch.web.readers.prometheus_reader import PrometheusReader
from tritonwatch.web.sources import CorrectionSource, CorrectionWriting, Sources

TOKEN = "a-token-of-the-test"
SIGNED = {"reason": "load test", "author": "anna", "token": TOKEN}
PICTURES = os.environ.get("TRITONWATCH_PICTURES")
NOWHERE = "http://127.0.0.1:9"
EARLIER = {"from": "2026-05-01T09:30Z", "to": "2026-05-01T10:15Z"}


@contextmanager
def pages(
    url: str, trail: Path | None, *, writes: bool = True, objectives: tuple[Objective, ...] = ()
) -> Iterator[str]:
    """Yield the pages of a server, to which they also write."""

    def into(*_: object) -> VictoriaMetrics:
        return VictoriaMetrics(Access(url))

    writing = CorrectionWriting(lambda: TOKEN, into, into) if writes else None
    source = None if trail is None else CorrectionSource(trail, writing)

    def sources(client: Prometheus) -> Sources:
        return Sources(
            PrometheusReader(client, 15.0),
            objectives,
            Options(scrape_interval_seconds=60.0),
            corrections=source,
        )

    with (
        Prometheus(Access(url, timeout_seconds=5)) as client,
        web_fleet.served(sources(client)) as site,
    ):
        yield site


def sent(
    site: str, path: str = "/corrections", headers: dict[str, str] | None = None, **fields: str
) -> requests.Response:
    """Send a form as a page of the site does, unless other headers are given."""
    headers = {"Sec-Fetch-Site": "same-origin"} if headers is None else headers
    return requests.post(site + path, data=fields, headers=headers, timeout=60, allow_redirects=False)


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "none"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Origin": "{site}"}, 403),
        ({"Origin": "http://example.org"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "{site}.example.org"}, 403),
        # These are read, and the Prometheus that is not there is the next obstacle.
        ({"Origin": "{site}"}, 503),
        ({"Sec-Fetch-Site": "same-origin"}, 503),
    ],
)
def test_a_form_of_another_site_writes_nothing(headers: dict[str, str], code: int, tmp_path: Path) -> None:
    """Even with the token: a page elsewhere may have a browser send a form."""
    with pages(NOWHERE, tmp_path / "trail") as site:
        given = {name: value.format(site=site) for name, value in headers.items()}
        answer = sent(site, headers=given, **EARLIER, **SIGNED)

    assert code == answer.status_code
    assert not (tmp_path / "trail").exists()


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"token": ""}, 403, "the token is not that of --corrections-token-file; nothing was written"),
        ({"token": f"{TOKEN}x"}, 403, "nothing was written"),
        ({"token": "é"}, 403, "nothing was written"),
        ({"reason": " "}, 400, "reason: give one line of 1 to 500 characters"),
        ({"author": "a\x07"}, 400, "author: give one line"),
        ({"from": "yesterday"}, 400, "from: "),
        ({"to": ""}, 400, "to: "),
        ({"to": "2199-01-01"}, 400, "to 2199-01-01T00:00:00Z is in the future, and only past time"),
        ({"to": "2026-05-01"}, 400, "to 2026-05-01T00:00:00Z is not after from 2026-05-01T09:30:00Z"),
        ({}, 503, "is not reachable"),
    ],
)
def test_a_form_that_is_refused_keeps_its_fields(
    changes: dict[str, str], code: int, words: str, tmp_path: Path
) -> None:
    """The page names the mistake, and the token is not on it."""
    fields = {**EARLIER, **SIGNED, **changes}
    with pages(NOWHERE, tmp_path / "trail") as site:
        answer = sent(site, **fields)

    assert code == answer.status_code, answer.text
    assert words in text_of(answer.text)
    assert 'value="2026-05-01T' in answer.text
    assert TOKEN not in answer.text
    assert not (tmp_path / "trail").exists()


@pytest.mark.parametrize("path", ["/corrections", "/correction"])
def test_without_the_option_no_form_is_read(path: str, tmp_path: Path) -> None:
    """A page that only shows the trail has no form that writes, and rejects one."""
    with pages(NOWHERE, tmp_path, writes=False) as site:
        answer = sent(site, path, **EARLIER, **SIGNED, id="x", action="undo")
        page = requests.get(f"{site}/corrections", timeout=20).text

    assert 403 == answer.status_code
    assert "start it with --corrections-token-file" in text_of(answer.text)
    assert 'method="post"' not in page
    with pages(NOWHERE, None) as site:
        assert "No audit trail is known here." in text_of(
            requests.get(f"{site}/corrections", timeout=20).text
        )


def test_other_bodies_are_refused(tmp_path: Path) -> None:
    """A body that is not a form, one that is too long, and a name that is only the beginning of one."""
    with pages(NOWHERE, tmp_path) as site:
        own = {"Sec-Fetch-Site": "same-origin"}
        as_json = requests.post(f"{site}/corrections", json=SIGNED, headers=own, timeout=20)
        long = sent(site, **EARLIER, **{**SIGNED, "reason": "x" * 20_000})
        part = sent(site, "/correction", id="", action="undo", **SIGNED)

    assert [415, 413, 404] == [answer.status_code for answer in (as_json, long, part)]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--corrections-token-file", "token"], "needs --trail"),
        (["--corrections-token-file", "token", "--trail", "t"], "and --blocks or --import"),
        (["--trail", "t", "--blocks", "."], "need --corrections-token-file"),
        (["--corrections-token-file", "short", "--trail", "t", "--blocks", "."], "at least 16 characters"),
        (["--corrections-token-file", "none", "--trail", "t", "--blocks", "."], "No such file"),
    ],
)
def test_options_that_do_not_fit_end_the_start(
    words: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """No server starts that would refuse every form, or write without a token."""
    monkeypatch.chdir(tmp_path)
    Path("token").write_text(TOKEN)
    Path("short").write_text("short")

    assert 2 == main(["web", "--prometheus", NOWHERE, "--listen", "127.0.0.1:0", *words])
    assert message in capsys.readouterr().err


@pytest.fixture(scope="module")
def fleet() -> RecordedFleet:
    """Return a week of two models; half of the requests of one failed for three hours."""
    return RecordedFleet(recorded=True)


@pytest.fixture(scope="module")
def victoria(fleet: RecordedFleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serve_victoria(openmetrics(fleet.series()), tmp_path_factory.mktemp("victoria")) as url:
        yield url


@pytest.mark.real
def test_a_correction_is_planned_written_and_undone(
    browser: Browser, victoria: str, fleet: RecordedFleet, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without JavaScript: the budgets are those of `correct plan`, the events those that happened."""
    start, end = (rfc3339(at) for at in fleet.stretch)
    words = ["--from", start, "--to", end, "--model", "tested", "--prometheus", victoria]
    assert 0 == main(["correct", "plan", *words, "--json"])
    [group] = json.loads(capsys.readouterr().out)["groups"]
    trail = tmp_path / "trail"
    with pages(victoria, trail) as site, page_on(browser, java_script_enabled=False) as shown:
        page = shown.open(f"{site}/corrections")
        for name, value in (("From", start), ("To", end), ("Model", "tested")):
            page.get_by_label(name, exact=True).fill(value)
        page.get_by_role("button", name="Show the budgets").click()
        cells = page.locator("table").first.locator("tbody tr").all_inner_texts()
        assert not trail.exists()
        assert f"{group['error']:+,.0f}\t{group['total']:+,.0f}" in cells[0]
        for name, value in (("Reason", "load test"), ("Author", "anna"), ("Token", TOKEN)):
            page.get_by_label(name).fill(value)
        page.get_by_role("button", name="Write the correction").click()
        [entry] = Trail(trail).entries
        assert f"/correction?id={entry.id}" in page.url
        assert ("load test", "anna", "written") == (entry.reason, entry.author, Trail(trail).state(entry))
        assert {"labels": dict(entry.groups[0]["labels"]), "error": group["error"]}.items() <= group.items()
        again = requests.get(f"{site}/corrections", params={"from": start, "to": end}, timeout=20)
        assert f"corrected already, by {entry.id}" in text_of(again.text)
        assert {-round(events) for events in fleet_events(fleet)} == net(victoria)
        for name, value in (("Reason", "wrong day"), ("Author", "bert"), ("Token", TOKEN)):
            page.get_by_label(name).fill(value)
        page.get_by_role("button", name="Undo the correction").click()
        assert "undone" in page.locator("main").inner_text()
        assert 0 == page.get_by_role("button").count()

    assert {0} == net(victoria)
    assert ["undone", "written"] == [Trail(trail).state(entry) for entry in Trail(trail).entries]
    assert -entry.groups[0]["error"] == Trail(trail).entries[1].groups[0]["error"]


@pytest.mark.real
def test_a_new_objective_gets_its_history(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The page shows and writes what `replay plan` prints."""
    young = RecordedFleet(young=True, recorded=True)
    objectives = tmp_path / "objectives"
    objectives.mkdir()
    (objectives / "errors.yaml").write_text(yaml.safe_dump(OBJECTIVE.model_dump(exclude_unset=True)))
    with serve_victoria(openmetrics(young.series()), tmp_path) as url:
        words = ["replay", "plan", "--objectives", str(objectives), "--scrape-interval", "60s"]
        assert 0 == main([*words, "--prometheus", url, "--json"])
        groups = json.loads(capsys.readouterr().out)["groups"]
        with pages(url, tmp_path / "trail", objectives=(OBJECTIVE,)) as site:
            page = text_of(requests.get(f"{site}/corrections?history=errors", timeout=60).text)
            unknown = requests.get(f"{site}/corrections?history=other", timeout=60)
            made = sent(site, history="errors", **SIGNED)
        [entry] = Trail(tmp_path / "trail").entries

    assert (400, 303) == (unknown.status_code, made.status_code), text_of(made.text)
    assert "there is no objective 'other'" in text_of(unknown.text)
    for group in groups:
        assert f"{group['labels']['model']} 1 {group['error']:+,.0f} {group['total']:+,.0f}" in page
    assert ("history", 2) == (entry.kind, len(entry.groups))


def fleet_events(fleet: RecordedFleet) -> tuple[float, ...]:
    """Failures and requests of the load test."""
    pairs = zip(fleet.truth("tested"), fleet.truth("tested", without_test=True), strict=True)
    return tuple(every - without for every, without in pairs)


def net(url: str) -> set[int]:
    """Corrected events of a week, by kind."""
    with Prometheus(Access(url)) as prometheus:
        query = f"sum by (event) (sum_over_time({names.SLI_EVENTS_CORRECTION}[8d]))"
        return {round(sample.value) for sample in prometheus.instant(query)}


@pytest.mark.real
@pytest.mark.parametrize("device", DEVICES)
def test_everybody_can_use_the_page(
    browser: Browser, victoria: str, fleet: RecordedFleet, device: str, tmp_path: Path
) -> None:
    """axe-core finds nothing serious in preview, list and entry, and nothing is wider than the window."""
    stretch = {"from": rfc3339(fleet.stretch[0]), "to": rfc3339(fleet.stretch[1])}
    with pages(victoria, tmp_path, objectives=(OBJECTIVE,)) as site, page_on(browser, device) as shown:
        made = sent(site, **stretch, objective="errors", model="tested", version="", **SIGNED)
        assert 303 == made.status_code, text_of(made.text)
        undone = sent(
            site, made.headers["Location"], id=Trail(tmp_path).entries[0].id, action="undo", **SIGNED
        )
        assert 303 == undone.status_code, text_of(undone.text)
        query = "&".join(f"{name}={value}" for name, value in stretch.items())
        for name, path in (("", f"/corrections?{query}"), ("-one", made.headers["Location"])):
            page = shown.open(site + path)
            if PICTURES and not name:
                width = DEVICES[device]["viewport"]["width"]
                page.set_viewport_size({"width": width, "height": 1000 if device == "phone" else 800})
                page.screenshot(path=Path(PICTURES) / f"web-corrections-{device}.png".replace("-light", ""))

            assert [] == shown.complaints
            assert [] == shown.barriers()
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")

"""Test the web page in a real Chromium: on a fleet, and on the incident of one of its models."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from support import history, web_fleet
from support.bridge import CHANNEL, body_of
from support.browser import DEVICES, page_on
from support.recorded_group import group_labels, recorded_group
from support.tools import ROOT
from support.waiting import eventually
from triton_alerts.bridge.incidents.database import DATABASE_FILE
from triton_alerts.bridge.incidents.notification import parse
from triton_alerts.bridge.incidents.store import Store
from triton_slo import names
from triton_slo.prometheus import Prometheus
from triton_slo.server_access import Access
from tritonwatch.objective_files import ObjectiveFiles
from tritonwatch.web.sources import PrometheusReader, Sources

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.real
INCIDENT = "/objective?slo=latency&model=ranker&version=2"
PATHS = ("/?sort=forecast", INCIDENT)
HOSTILE = "<img src=x onerror=alert(1)>'\"../../etc"
PICTURED = {
    (PATHS[0], "light"): "web-overview.png",
    (INCIDENT, "dark"): "web-objective.png",
    (PATHS[0], "phone"): "web-phone.png",
}
PICTURES = os.environ.get("TRITONWATCH_PICTURES")
"""A folder to which the pictures of the documentation are written, if it is set."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the pages on a real Prometheus with a made fleet."""
    end = time.time() // 60 * 60
    series = [
        *web_fleet.fleet(1000 if PICTURES else 60, end),
        *web_fleet.incident(end),
        *web_fleet.broken(end),
        *web_fleet.repaired(end),
        *web_fleet.group(end, "latency", HOSTILE),
    ]
    folder = tmp_path_factory.mktemp("fleet")
    with (
        history.serve(history.openmetrics(series), folder, flags=web_fleet.LOOKBACK) as prometheus,
        web_fleet.pages(prometheus, objectives=ROOT / "slo" / "objectives", every=600) as (url, _),
    ):
        yield url


@pytest.mark.skipif(not PICTURES, reason="only for the documentation, with TRITONWATCH_PICTURES")
@pytest.mark.parametrize(("path", "device"), PICTURED, ids=PICTURED.values())
def test_pictures_of_the_documentation(browser: Browser, site: str, path: str, device: str) -> None:
    """Of the overview and an objective."""
    with page_on(browser, device) as shown:
        page = shown.open(site + path)
        width, height = DEVICES[device]["viewport"]["width"], 1150 if path == INCIDENT else 640
        page.set_viewport_size({"width": width, "height": height})
        page.screenshot(path=Path(str(PICTURES)) / PICTURED[path, device])


def test_the_overview_begins_with_what_is_broken(browser: Browser, site: str) -> None:
    """It counted alerts by severity, and did not say that a server was down; a model that is ready again is not there."""
    with page_on(browser) as shown:
        page = shown.open(site)
        lines = list(map(web_fleet.without_times, page.locator(".problems li").all_inner_texts()))
        title = page.locator("main h1").inner_text()
        page.locator(".problems a").last.click()
        objective = page.locator("main h1").inner_text()

    assert "Broken now" == title
    assert [
        "✖\ntriton-1:8000 does not answer since HH:MM UTC\nnothing serves embedder now\nranker: still served by 1 of 2 servers",
        "✖\nbroken failed to load on triton-0:8000 since DAY HH:MM UTC: nothing serves it now; reason: missing file",
        "✖\nranker version 2: 20 % of requests took over 500ms in the last 5 min, at most 1 % may",
        "▲\nNothing is known about triton-2:8000 since HH:MM UTC: its exporter does not answer",
    ] == lines
    assert objective.startswith("latency")


def test_a_model_begins_with_what_is_broken_of_it(browser: Browser, site: str) -> None:
    """Its only server was dead, and the page said "unknown" and a green "ok"; the purple of its bar was not explained."""
    with page_on(browser) as shown:
        page = shown.open(f"{site}/model?model=embedder")
        [line] = page.locator(".problems li").all_inner_texts()
        assert re.fullmatch(
            r"✖\ntriton-1:8000 does not answer since \d\d:\d\d UTC\nnothing serves embedder now", line
        )
        key = page.locator("figcaption .key", has_text="unknown: Triton does not answer")
        bar = page.locator("rect.model-state.unknown").first
        purple = bar.evaluate("bar => getComputedStyle(bar).fill")
        assert purple == key.evaluate("key => getComputedStyle(key).borderBottomColor")
        assert 0 == shown.open(f"{site}/model?model=repaired").locator(".problems").count()


def test_the_labels_of_a_time_axis_do_not_overlap_on_a_phone(browser: Browser, site: str) -> None:
    """Two dates side by side were read as one: 22 Nov23 Nov."""
    with page_on(browser, "phone") as shown:
        page = shown.open(f"{site}/model?model=embedder&last=7d")
        boxes = page.locator(".labels text").evaluate_all(
            "texts => texts.map(text => text.getBoundingClientRect()).filter(box => box.width).map(box => [box.left, box.right])"
        )

    assert 3 <= len(boxes)
    assert all(before[1] + 2 < after[0] for before, after in pairwise(boxes))


def test_everybody_can_use_the_overview(browser: Browser, site: str) -> None:
    """axe-core finds nothing serious, nothing is wider than the window, and the browser refuses nothing."""
    with page_on(browser) as shown:
        shown.open(f"{site}{PATHS[0]}&q=model-000")  # ten models, among them one in each state

        assert [] == shown.unusable()


def test_everybody_can_use_an_objective_whose_charts_are_drawn(browser: Browser, site: str) -> None:
    """Each figure has a canvas; the policy allowed all that the chart library did."""
    with page_on(browser) as shown:
        page = shown.open(site + INCIDENT)

        assert (
            page.locator("figure[data-chart]").count()
            == page.locator("figure[data-chart] canvas").count()
            == 3
        )
        assert "20.3x" in page.locator("dl.facts").inner_text()
        assert [] == shown.unusable()


def test_without_javascript_the_numbers_are_in_tables(browser: Browser, site: str) -> None:
    """Search, order and pages work as links and forms; every chart is a table."""
    with page_on(browser, java_script_enabled=False) as shown:
        page = shown.open(f"{site}/?sort=model")
        page.get_by_role("searchbox").fill("ranker")
        page.get_by_role("button", name="Show").click()
        page.get_by_role("link", name="latency").click()

        assert "latency of ranker version 2" == page.get_by_role("heading", level=1).inner_text()
        page.locator("summary", has_text="Burn rate by window as a table").click()
        assert "14.4x" in page.get_by_text("Limits:").inner_text()
        assert page.locator("figure[data-chart=burn] tbody tr").count() > 10


def test_the_page_is_used_by_keyboard(browser: Browser, site: str) -> None:
    """The first stop skips to the content; Enter sorts a column, and the address contains the order."""
    with page_on(browser) as shown:
        page = shown.open(site + "/")
        page.keyboard.press("Tab")
        assert "Skip to the content" == page.evaluate("document.activeElement.textContent")
        page.get_by_role("link", name="Burn 5m").focus()
        page.keyboard.press("Enter")
        page.wait_for_url("**/?sort=burn")

        assert "ascending" == page.locator("th[aria-sort]").get_attribute("aria-sort")


def test_a_moment_is_picked_in_utc(browser: Browser, site: str) -> None:
    """The browser's own picker, whatever its zone; the page shows that moment, and the picker keeps it."""
    with page_on(browser) as shown:
        page = shown.open(site + "/")
        picker = page.get_by_label("State at (UTC)")
        picker.fill("2026-05-01T09:30")
        page.get_by_role("button", name="Go").click()
        page.wait_for_url("**at=2026-05-01T09%3A30")

        assert "This is the state at 2026-05-01 09:30:00 UTC, not now." in page.locator("main").inner_text()
        assert "2026-05-01T09:30" == picker.input_value()
        page.goto(f"{site}/?at=1777627805")  # five seconds after: a link from elsewhere
        assert "2026-05-01T09:30" == picker.input_value()
        assert picker.evaluate("field => field.checkValidity()")


LONG = "m" * 500


@pytest.fixture(scope="module")
def long_names(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the pages of a model whose name has 500 characters, with its incident."""
    end = time.time() // 300 * 300
    folder = tmp_path_factory.mktemp("long")
    store = Store(folder / DATABASE_FILE, lambda _severity: CHANNEL)
    store.receive(parse(body_of(LONG, {LONG: end - 600}, {}, "critical", group=LONG)), end - 570)
    store.close()
    own = {names.SLO: LONG, names.INDICATOR: "latency"}
    series = [
        *web_fleet.group(end, LONG, LONG, spent=1.2, now=20.0),
        *web_fleet.objective(end, LONG, LONG),
        (names.INFO, {**own, "owner": LONG}, [(end - 60, 1.0), (end, 1.0)]),
        *recorded_group(
            group_labels(LONG, LONG, indicator="latency"),
            (end - 60, end),
            since=end - 600,
            events=(500 / 60, 900 / 60),
        ),
    ]
    with (
        history.serve(history.openmetrics(series), folder, flags=web_fleet.LOOKBACK) as prometheus,
        Prometheus(Access(prometheus)) as client,
        web_fleet.served(
            Sources(
                PrometheusReader(client, 600), ObjectiveFiles(ROOT / "slo" / "objectives"), bridge_data=folder
            )
        ) as url,
    ):
        yield url


@pytest.mark.parametrize(
    "path",
    [
        "/",
        f"/objective?slo={LONG}&model={LONG}&version=1",
        f"/model?model={LONG}",
        "/incidents",
        "/incident",
        "/report?period=this-month",
        f"/what-if?models={LONG}",
    ],
    ids=lambda path: path.partition("?")[0],
)
def test_a_name_of_500_characters_is_broken_and_no_page_is_wider(
    browser: Browser, long_names: str, path: str
) -> None:
    """On a phone and on a desk, nothing is scrolled sideways."""
    with page_on(browser) as shown:
        page = shown.open(long_names + (path if path != "/incident" else "/incidents"))
        if path == "/incident":
            page.get_by_role("link", name=LONG).first.click()
            page.wait_for_load_state("networkidle")

        assert LONG in page.locator("main").inner_text().replace("\n", "") or path.startswith("/what-if")
        for device in ("light", "phone"):
            page.set_viewport_size(DEVICES[device]["viewport"])
            # The charts follow a moment later.
            eventually(lambda: not shown.too_wide(), lambda: str(shown.too_wide()))


def test_a_hostile_model_name_does_nothing_in_a_browser(browser: Browser, site: str) -> None:
    """The name is text on the overview and on its own page; it creates no element and no request."""
    with page_on(browser) as shown:
        page = shown.open(f"{site}/?q={quote('onerror')}")
        assert 0 == page.locator("main img").count()
        page.get_by_role("link", name="latency").click()
        page.wait_for_load_state("networkidle")

        assert HOSTILE in page.get_by_role("heading", level=1).inner_text()
        assert 0 == page.locator("main img").count()
        assert [] == shown.complaints

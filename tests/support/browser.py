"""Open pages in a real Chromium, where the machine has one, and collect the errors of a page."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

DEVICES: dict[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 1280, "height": 900}},
    "dark": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 375, "height": 812}, "device_scale_factor": 2, "has_touch": True},
}
"""Window and color scheme of what a page is shown on."""
_PROGRAMS = ("chromium-headless-shell", "chromium", "google-chrome")
"""The first is the same browser without its own windows, which take more than half of the time of a page."""


def find_chromium() -> str | None:
    """Return the Chromium of this machine, None if there is none."""
    return os.environ.get("TRITONWATCH_CHROMIUM") or next(filter(None, map(shutil.which, _PROGRAMS)), None)


def chromium() -> str:
    """Return the Chromium of this machine; skip the test if there is none."""
    path = find_chromium()
    if path is None:
        pytest.skip(f"no Chromium here: apt-get install {_PROGRAMS[0]}, or name one in TRITONWATCH_CHROMIUM")
    return path


@dataclass
class BrowserPage:
    """A page in a browser, and every complaint of the browser about it."""

    page: Page
    complaints: list[str] = field(default_factory=list)

    def open(self, url: str) -> Page:
        """Go to an address and wait for what it loads."""
        self.page.goto(url)
        self.page.wait_for_load_state("networkidle")
        return self.page

    def unusable(self) -> list[str]:
        """Return what makes the page hard to use, here and in the dark on a phone."""
        found = self.barriers() + self.too_wide()
        self.page.emulate_media(color_scheme="dark")
        self.page.set_viewport_size(DEVICES["phone"]["viewport"])
        return found + self.barriers() + self.too_wide() + self.complaints

    def too_wide(self) -> list[str]:
        """Return the width of a page that is scrolled sideways."""
        width: int = self.page.evaluate("document.documentElement.scrollWidth")
        window: int = self.page.evaluate("innerWidth")
        return [f"{width} pixels wide in a window of {window}"] if width > window else []

    def barriers(self) -> list[str]:
        """Return the serious and critical findings of axe-core, which make a page unusable for some people."""
        from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]

        violations = Axe().run(self.page).response["violations"]
        return [
            f"{violation['id']}: {node['html'][:200]}"
            for violation in violations
            if violation["impact"] in ("serious", "critical")
            for node in violation["nodes"]
        ]


@contextmanager
def running_chromium() -> Iterator[Browser]:
    """Run Chromium."""
    # Not above: each worker of the tests imports this file, and few open a page.
    from playwright.sync_api import expect, sync_playwright

    executable = chromium()
    expect.set_options(timeout=60_000)
    with sync_playwright() as playwright:
        # Root, as in a container, has no sandbox.
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def page_on(browser: Browser, device: str = "light", **more: Any) -> Iterator[BrowserPage]:
    """Open a window of one of `DEVICES`."""
    context = browser.new_context(**DEVICES[device], **more)
    # Our pages load themselves again every 15 seconds: on a slow machine in the midst of a test.
    context.set_default_timeout(120_000)
    context.add_init_script("window.setInterval = () => 0")
    shown = BrowserPage(context.new_page())
    shown.page.on("console", lambda message: shown.complaints.append(message.text))
    shown.page.on("pageerror", lambda error: shown.complaints.append(str(error)))
    shown.page.on("requestfailed", lambda request: shown.complaints.append(f"failed: {request.url}"))
    try:
        yield shown
    finally:
        context.close()

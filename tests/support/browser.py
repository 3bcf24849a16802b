"""A real Chromium, where the machine has one: what a person sees of a page, and what it refuses."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser, Page, sync_playwright

LOOKS: dict[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 1280, "height": 900}},
    "dark": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 2, "has_touch": True},
}
"""How a page is looked at."""


def chromium() -> str:
    """The Chromium of this machine; skips the test where there is none."""
    found = (
        os.environ.get("TRITONWATCH_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    )
    if found is None:
        pytest.skip("no Chromium here: apt-get install chromium, or name one in TRITONWATCH_CHROMIUM")
    return found


@dataclass
class Shown:
    """A page in a browser, and every complaint of the browser about it."""

    page: Page
    complaints: list[str] = field(default_factory=list)

    def open(self, url: str) -> Page:
        """Go to an address and wait for what it loads."""
        self.page.goto(url)
        self.page.wait_for_load_state("networkidle")
        return self.page

    def barriers(self) -> list[str]:
        """The serious and critical findings of axe-core: what keeps people out."""
        found = Axe().run(self.page).response["violations"]
        return [
            f"{one['id']}: {node['html'][:200]}"
            for one in found
            if one["impact"] in ("serious", "critical")
            for node in one["nodes"]
        ]


@contextmanager
def browsing() -> Iterator[Browser]:
    """Run Chromium."""
    executable = chromium()
    with sync_playwright() as playwright:
        # Root, as in a container, has no sandbox.
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def looking(browser: Browser, look: str = "light", **more: Any) -> Iterator[Shown]:
    """Open a window of one of `LOOKS`."""
    context = browser.new_context(**LOOKS[look], **more)
    shown = Shown(context.new_page())
    shown.page.on("console", lambda message: shown.complaints.append(message.text))
    shown.page.on("pageerror", lambda error: shown.complaints.append(str(error)))
    shown.page.on("requestfailed", lambda request: shown.complaints.append(f"failed: {request.url}"))
    try:
        yield shown
    finally:
        context.close()

"""Test docs/alerts.md and the links in alerts against the catalogue."""

from __future__ import annotations

import re

from support.tools import ROOT
from triton_alerts import reference
from triton_alerts.catalogue import ALERTS
from triton_alerts.rules import texts
from triton_dashboards.generate import artifacts as dashboards
from triton_slo.artifact import Options

DOCS = ROOT / "docs"


def test_the_reference_agrees_with_the_catalogue() -> None:
    """docs/alerts.md is made by `python -m triton_alerts.reference > docs/alerts.md`."""
    assert (DOCS / "alerts.md").read_text() == reference.page()


def test_an_alerts_dashboard_exists_and_takes_its_variables() -> None:
    """The link of an alert opens a dashboard that we make, with variables that it has."""
    boards = {dashboard.name.removesuffix(".json"): dashboard.text for dashboard in dashboards((), Options())}
    for alert in ALERTS:
        url = texts(alert, Options(dashboard_url="https://grafana.example.com/"))["dashboard_url"]
        match = re.fullmatch(r"https://grafana\.example\.com/d/([\w-]+)(?:\?(.*))?", url)
        assert match is not None, alert.name
        assert match[1] in boards, alert.name
        for variable in re.findall(r"var-(\w+)=", match[2] or ""):
            assert f'"name": "{variable}"' in boards[match[1]], alert.name

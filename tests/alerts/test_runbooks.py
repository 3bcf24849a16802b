"""Test that every alert has a complete runbook, whose queries name series that exist."""

from __future__ import annotations

import re
from pathlib import Path

import promql_parser
import pytest

from support.tools import ROOT
from triton_alerts import lint
from triton_alerts.alert import Alert
from triton_alerts.catalogue import ALERTS
from triton_exporter.catalogue import METRICS
from triton_exporter.catalogue.external import stack
from triton_slo import bridge_series, expression, names
from triton_slo.indicators import BURN_ALERTS

RUNBOOKS = ROOT / "alerts" / "runbooks"
NAMES = (
    *(alert.name for alert in ALERTS),
    *BURN_ALERTS.values(),
    names.UNMEASURED_ALERT,
    *names.BUDGET_ALERTS,
)
PAGES = sorted(RUNBOOKS.glob("*.md"))


def sections(page: str) -> dict[str, str]:
    """Heading -> text below it."""
    parts = re.split(r"^(## .*)$", page, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def queries(page: str) -> list[str]:
    """Return the PromQL that a page asks the reader to run."""
    return re.findall(r"promtool query instant \"\$PROMETHEUS\" '([^']+)'", page)


def known_names() -> set[str]:
    """Every series that the stack exposes, with the suffixes of histograms and summaries."""
    names = {metric.name for metric in (*METRICS, *bridge_series.METRICS)} | {
        text for name, text in vars(stack).items() if name.isupper()
    }
    compound = [metric for metric in METRICS if metric.kind in {"histogram", "summary"}]
    return names | {f"{metric}{suffix}" for metric in compound for suffix in ("_sum", "_count", "_bucket")}


def test_every_alert_has_a_page_and_every_page_an_alert() -> None:
    """Each alert has a runbook, and each runbook an alert."""
    assert {f"{name}.md" for name in NAMES} | {"README.md"} == {page.name for page in PAGES}


@pytest.mark.parametrize(
    "alert", [alert for alert in ALERTS if alert.threshold], ids=lambda alert: alert.name
)
def test_a_page_states_the_default_of_its_threshold(alert: Alert) -> None:
    """The number of the catalogue, and where it is changed."""
    assert alert.threshold
    stated = f"Default threshold: {alert.threshold.condition} ({alert.threshold.of});"

    assert stated in sections((RUNBOOKS / f"{alert.name}.md").read_text())["## Meaning"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_queries_of_a_page_parse_and_name_known_series(page: Path) -> None:
    """A query for a series that does not exist would return nothing at 3 a.m."""
    recorded = re.compile(r"^slo:|^triton:|^ALERTS$")
    for query in queries(page.read_text()):
        selected = {
            selector.name or "" for selector in lint.selectors(expression.parts(promql_parser.parse(query)))
        }
        unknown = {name for name in selected - {""} if not recorded.match(name)} - known_names()
        assert unknown == set(), query

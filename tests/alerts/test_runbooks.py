"""Test that every alert has a complete runbook, whose queries name series that exist."""

from __future__ import annotations

import argparse
import re

from support.promtool import series_in
from support.tools import ROOT
from triton_alerts.catalogue import ALERTS
from triton_exporter.catalogue import METRICS
from triton_exporter.catalogue.external import headroom, stack
from triton_exporter.lifecycle.tracker import Lifecycle
from triton_exporter.lifecycle.views import report
from triton_exporter.snapshot import IndexEntry, Snapshot
from triton_slo import bridge_series, names
from triton_slo.indicators import BURN_ALERTS
from tritonwatch.usage import VERBS

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
    names = {metric.name for metric in (*METRICS, *headroom.METRICS, *bridge_series.METRICS)} | {
        text for name, text in vars(stack).items() if name.isupper()
    }
    compound = [metric for metric in METRICS if metric.kind in {"histogram", "summary"}]
    return names | {f"{metric}{suffix}" for metric in compound for suffix in ("_sum", "_count", "_bucket")}


def recorded_names() -> set[str]:
    """Every series that the rules record."""
    files = (ROOT / "alerts" / "generated" / "rules").glob("*.yml")
    return {name for file in files for name in re.findall(r"record: (\S+)", file.read_text())}


def test_every_alert_has_a_page_and_every_page_an_alert() -> None:
    """Each alert has a runbook, and each runbook an alert."""
    assert {f"{name}.md" for name in NAMES} | {"README.md"} == {page.name for page in PAGES}


def test_a_page_states_the_default_of_its_threshold() -> None:
    """The number of the catalogue, and where it is changed."""
    for alert in (alert for alert in ALERTS if alert.threshold):
        stated = f"Default threshold: {alert.threshold.condition} ({alert.threshold.of});"
        assert stated in sections((RUNBOOKS / f"{alert.name}.md").read_text())["## Meaning"], alert.name


def test_the_queries_of_a_page_parse_and_name_known_series() -> None:
    """A query for a series that does not exist would return nothing at 3 a.m."""
    exist = known_names() | recorded_names() | {names.ALERTS}
    for page in PAGES:
        for query in queries(page.read_text()):
            assert set() == series_in(query) - exist, (page.stem, query)


def test_what_the_text_of_a_page_names_exists() -> None:
    """Series, fields of `/state`, and verbs of tritonwatch with their options."""
    exist = known_names() | recorded_names()
    of_models = {field for field in report(_one_model(), None, "")["models"][0] if "last" in field}
    for page in PAGES:
        spans = re.findall(r"`([^`\n]+)`", page.read_text())
        series = {
            match[0] for span in spans if (match := re.match(r"(?:triton|nv|slo|DCGM)[_:][\w:]+", span))
        }
        assert set() == series - exist, page.stem
        fields = {field for span in spans for field in re.findall(r"\blast_\w+", span)}
        assert set() == fields - of_models, page.stem
        for verb, options in re.findall(r"\btritonwatch ([a-z]+)([^`\n|]*)", " ".join(spans)):
            parser = argparse.ArgumentParser()
            VERBS[verb].configure(parser)
            unknown = set(re.findall(r"--[a-z-]+", options)) - parser._option_string_actions.keys()
            assert set() == unknown, (page.stem, verb)


def _one_model() -> Lifecycle:
    lifecycle = Lifecycle()
    lifecycle.observe_snapshot(Snapshot(1.0, live=True, index=(IndexEntry("ranker", "1", "READY"),)))
    return lifecycle

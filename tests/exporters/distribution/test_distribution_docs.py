"""Test docs/distributions.md against the code."""

from __future__ import annotations

import argparse
import re

from support.tools import ROOT
from triton_exporter.catalogue import METRICS
from triton_exporter.catalogue.state import DISTRIBUTION_SOURCES
from tritonwatch.commands import exporter

PAGES = [(ROOT / "docs" / name).read_text() for name in ("distributions.md", "accuracy.md")]


def test_every_source_is_explained() -> None:
    """Both pages describe every source."""
    for page in PAGES:
        assert [] == [source for source in DISTRIBUTION_SOURCES if source not in page]


def test_every_series_on_the_page_is_in_the_catalogue() -> None:
    """Every series named is in the catalogue."""
    names = {name for page in PAGES for name in re.findall(r"`(triton_(?:model|exporter)_\w+)`", page)}

    assert len(names) >= 6
    assert names <= {metric.name for metric in METRICS}


def test_every_flag_on_the_page_exists() -> None:
    """Every flag of the exporter named on the page is one."""
    parser = argparse.ArgumentParser()
    exporter.configure(parser)
    usage = parser.format_help()
    flags = set(re.findall(r"`(--(?:otlp|govern|trace-file|buckets)[a-z-]*)", PAGES[0]))

    traces = {"--otlp-listen", "--otlp-allow-remote", "--govern-traces", "--trace-file"}
    assert traces | {"--buckets-from", "--buckets"} == flags
    assert all(flag in usage for flag in flags)

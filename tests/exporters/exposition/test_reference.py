"""Test the generated pages about series against the catalogue, and run every query on them."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
from pathlib import Path

import promql_parser
import pytest

from support.tools import ROOT, promtools
from triton_exporter.app.settings import Settings
from triton_exporter.catalogue import METRICS
from triton_slo.metrics_page import page
from tritonwatch.commands.exporter import settings_of

PAGE = (ROOT / "docs" / "howto.md").read_text()
QUERIES = [
    query for block in re.findall(r"```promql\n(.*?)\n```", PAGE, re.DOTALL) for query in block.split("\n\n")
]
SERIES = {name for metric in METRICS for name in (metric.name, metric.bucket, metric.sum, metric.count)}


def test_the_page_of_series_is_the_catalogue() -> None:
    """docs/metrics.md is what `make generate` writes."""
    assert page() == (ROOT / "docs" / "metrics.md").read_text(), "run `make generate`"


def test_every_query_uses_series_that_exist() -> None:
    """A question is answered with names of the catalogue only."""
    assert QUERIES
    for query in QUERIES:
        tree = promql_parser.parse(query)
        names = set(re.findall(r"\b(?:(?:triton|nv)_|vllm:)[a-z_]+", tree.prettify()))
        assert names, query
        assert set() == names - SERIES, query


@pytest.mark.parametrize("promtool", promtools(), ids=str)
def test_prometheus_takes_every_query(promtool: Path, tmp_path: Path) -> None:
    """Each query loads as a rule."""
    rules = [{"record": f"question:{number}", "expr": query} for number, query in enumerate(QUERIES)]
    path = tmp_path / "questions.json"
    path.write_text(json.dumps({"groups": [{"name": "questions", "rules": rules}]}))
    result = subprocess.run([promtool, "check", "rules", path], capture_output=True, text=True, timeout=30)

    assert len(QUERIES) > 20
    assert 0 == result.returncode, result.stderr


def test_a_default_in_the_help_is_the_one_that_applies() -> None:
    """Each default that the help shows, given as the value of its option, changes nothing."""
    shown = {
        name: re.findall(r"\(default: ([^ ,)]+)", option.help % {})[0]
        for name, option in Settings.options().items()
        if "{default}" in str(Settings.model_fields[name].description)
    }

    assert {
        "listen": "127.0.0.1:9401",
        "sampling_budget": "2%",
        "state_interval": "1s",
    }.items() <= shown.items()
    assert Settings.read({"triton": "t:8000"}, {}) == Settings.read({"triton": "t:8000", **shown}, {})


def test_the_settings_file_of_the_page_is_taken(tmp_path: Path) -> None:
    """The example in docs/exporter.md is a settings file without mistakes."""
    text = (ROOT / "docs" / "exporter.md").read_text()
    path = tmp_path / "exporter.yml"
    path.write_text(text.partition("```yaml\n")[2].partition("```")[0])
    settings = settings_of(argparse.Namespace(config=str(path)))

    assert {"embedder": (), "classifier": ("2",)} == settings.expected
    assert (("*",), ("llm-*",)) == (settings.probe, settings.probe_exclude)
    assert Path("/shared/triton.log") == settings.triton_log

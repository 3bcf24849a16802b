"""The pages about series: they cannot drift from the catalogue, and every query on them works."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import promql_parser
import pytest

from support.tools import promtools
from triton_exporter.catalogue import METRICS, Metric
from triton_exporter.reference import page

ROOT = Path(__file__).resolve().parents[2]
QUERIES = re.findall(r"```promql\n(.*?)\n```", (ROOT / "docs" / "questions.md").read_text(), re.DOTALL)
SERIES = {name for metric in METRICS for name in (metric.name, metric.bucket, metric.sum, metric.count)}


def test_the_page_of_series_is_the_catalogue() -> None:
    """docs/metrics.md is what `make generate` writes."""
    assert page() == (ROOT / "docs" / "metrics.md").read_text()


@pytest.mark.parametrize("metric", METRICS, ids=str)
def test_every_series_is_on_the_page_with_its_meaning(metric: Metric) -> None:
    """Nobody has to read code to know what a series means."""
    assert f"| `{metric}` | {metric.kind} |" in page()
    assert metric.help.endswith(".")
    assert metric.kind != "counter" or metric.name.startswith("nv_") or metric.name.endswith("_total")


@pytest.mark.parametrize("query", QUERIES)
def test_every_query_uses_series_that_exist(query: str) -> None:
    """A question is answered with names of the catalogue only."""
    tree = promql_parser.parse(query)
    names = set(re.findall(r"\b(?:triton|nv)_[a-z_]+", tree.prettify()))

    assert names
    assert names <= SERIES


@pytest.mark.parametrize("promtool", promtools(), ids=str)
def test_prometheus_takes_every_query(promtool: Path, tmp_path: Path) -> None:
    """Each query loads as a rule."""
    rules = [{"record": f"question:{number}", "expr": query} for number, query in enumerate(QUERIES)]
    path = tmp_path / "questions.json"
    path.write_text(json.dumps({"groups": [{"name": "questions", "rules": rules}]}))
    result = subprocess.run([promtool, "check", "rules", path], capture_output=True, text=True, timeout=30)

    assert len(QUERIES) > 20
    assert 0 == result.returncode, result.stderr

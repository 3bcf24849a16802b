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
from triton_exporter.catalogue import METRICS, Metric
from triton_exporter.catalogue.state import MODEL_STATES
from triton_exporter.reference import page
from tritonwatch.commands import exporter
from tritonwatch.exporter_options.chosen_settings import choose
from tritonwatch.exporter_options.declared_options import ExporterOptions, declare

QUERIES = re.findall(r"```promql\n(.*?)\n```", (ROOT / "docs" / "questions.md").read_text(), re.DOTALL)
SERIES = {name for metric in METRICS for name in (metric.name, metric.bucket, metric.sum, metric.count)}


def test_the_page_of_series_is_the_catalogue() -> None:
    """docs/metrics.md is what `make generate` writes."""
    assert page() == (ROOT / "docs" / "metrics.md").read_text(), "run `make generate`"


@pytest.mark.parametrize("metric", METRICS, ids=str)
def test_every_series_is_on_the_page_with_its_meaning(metric: Metric) -> None:
    """The page describes the meaning of every series."""
    assert f"| `{metric}` | {metric.kind} |" in page()
    assert metric.help.endswith(".")
    assert metric.kind != "counter" or metric.name.startswith("nv_") or metric.name.endswith("_total")


@pytest.mark.parametrize("query", QUERIES)
def test_every_query_uses_series_that_exist(query: str) -> None:
    """A question is answered with names of the catalogue only."""
    tree = promql_parser.parse(query)
    names = set(re.findall(r"\b(?:(?:triton|nv)_|vllm:)[a-z_]+", tree.prettify()))

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


def test_the_page_has_every_option_with_the_default_of_the_help() -> None:
    """The table of docs/exporter.md has each option with its value, each default, and no other options."""
    text = (ROOT / "docs" / "exporter.md").read_text()
    table = text.partition("## Options")[2].partition("```yaml")[0]
    rows = re.findall(r"^\| `(--.*?)` \| .* \| (.*) \|$", table, re.MULTILINE)
    parser = argparse.ArgumentParser(add_help=False)
    exporter.configure(parser)
    options = sorted(
        (" ".join([*action.option_strings, *_value(action)]), _default(action)) for action in parser._actions
    )

    assert options == sorted((option, default.replace("`", "")) for option, default in rows)


def _value(action: argparse.Action) -> list[str]:
    """Return what the help shows as the value of an option: one text, none for a switch."""
    choices = f"{{{','.join(action.choices)}}}" if action.choices else None
    value = action.metavar or choices
    return [str(value)] if value and action.nargs != 0 else []


def _default(action: argparse.Action) -> str:
    """Return the default that the help of an option names; `-` if it names none."""
    default = re.search(r"\(default: (.*?)\)", (action.help or "") % {})
    return default[1] if default else "-"


def test_every_option_of_the_exporter_has_its_help() -> None:
    """The help of an option is the docstring of its field."""
    assert [] == [key for key, field in ExporterOptions.model_fields.items() if not field.description]


def test_a_default_in_the_help_is_the_one_that_applies() -> None:
    """Each default that the help shows, given as the value of its option, changes nothing."""
    parser = argparse.ArgumentParser()
    declare(parser)
    helps = {action.dest: (action.help or "") % {} for action in parser._actions}
    shown = {
        key: re.findall(r"\(default: ([^ ,)]+)", helps[key])[0]
        for key, field in ExporterOptions.model_fields.items()
        if "{default}" in str(field.description)
    }

    assert {
        "listen": "127.0.0.1:9401",
        "sampling_budget": "2%",
        "state_interval": "1s",
    }.items() <= shown.items()
    assert choose({"triton": "t:8000"}, {}) == choose({"triton": "t:8000", **shown}, {})


def test_the_settings_file_of_the_page_is_taken(tmp_path: Path) -> None:
    """The example in docs/exporter.md is a settings file without mistakes."""
    text = (ROOT / "docs" / "exporter.md").read_text()
    path = tmp_path / "exporter.yml"
    path.write_text(text.partition("```yaml\n")[2].partition("```")[0])
    settings = choose({"config": str(path)}, {}).settings

    assert {"embedder": (), "classifier": ("2",)} == settings.expected
    assert (("*",), ("llm-*",)) == (settings.probe.models, settings.probe.exclude)
    assert Path("/shared/triton.log") == settings.triton_log


@pytest.mark.parametrize("state", MODEL_STATES)
def test_every_state_is_explained(state: str) -> None:
    """docs/exporter.md explains each state."""
    assert re.search(rf"^\| .*`{state}`.* \| \S", (ROOT / "docs" / "exporter.md").read_text(), re.MULTILINE)

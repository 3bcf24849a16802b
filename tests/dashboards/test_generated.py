"""Test that the committed dashboards equal the generated ones, and that one Grafana can have all of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.tools import ROOT
from triton_dashboards.generate import artifacts
from triton_slo.artifact import Options
from tritonwatch.cli import main

GENERATED = ROOT / "dashboards" / "generated"


def _made() -> dict[str, str]:
    return {
        artifact.name: artifact.text for artifact in artifacts((), Options()) if artifact.part == "dashboards"
    }


def test_committed_dashboards_have_not_drifted() -> None:
    """What is committed is what `make generate` would write: no file more, no byte different."""
    committed = {path.name: path.read_text(encoding="utf-8") for path in GENERATED.glob("*.json")}

    assert _made() == committed, "run `make generate`"


def test_uids_and_titles_are_unique() -> None:
    """One uid or title twice in a folder stops Grafana's provisioning of all of them."""
    models = [json.loads(text) for text in _made().values()]

    assert len(models) == len({model["uid"] for model in models})
    assert len(models) == len({model["title"] for model in models})


def test_generate_refuses_a_malformed_selector(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A slip in --selector would break every query in silence: it is wrong usage, and nothing is written."""
    out = tmp_path / "out"

    assert 2 == main(["generate", "--objectives", "unread", "--out", str(out), "--selector", 'a="b"}'])
    assert "is not a list of matchers" in capsys.readouterr().err
    assert not out.exists()

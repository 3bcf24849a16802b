"""Test that the committed dashboards equal the generated ones, and that one Grafana can have all of them."""

from __future__ import annotations

from support.tools import ROOT
from triton_dashboards.generate import artifacts
from triton_slo.artifact import Options

GENERATED = ROOT / "dashboards" / "generated"


def _made() -> dict[str, str]:
    return {
        artifact.name: artifact.text for artifact in artifacts((), Options()) if artifact.part == "dashboards"
    }


def test_committed_dashboards_have_not_drifted() -> None:
    """What is committed is what `make generate` would write: no file more, no byte different."""
    committed = {path.name: path.read_text(encoding="utf-8") for path in GENERATED.glob("*.json")}

    assert _made() == committed, "run `make generate`"

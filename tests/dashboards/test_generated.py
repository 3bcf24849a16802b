"""The committed dashboards are the ones that the code makes, and can live side by side in one Grafana."""

from __future__ import annotations

import json
from pathlib import Path

from triton_dashboards.generate import artifacts
from triton_slo.artifact import Options

GENERATED = Path(__file__).resolve().parents[2] / "dashboards" / "generated"


def _made() -> dict[str, str]:
    return {one.name: one.text for one in artifacts((), Options()) if one.part == "dashboards"}


def test_committed_dashboards_have_not_drifted() -> None:
    """What is committed is what `make generate` would write: no file more, no byte different."""
    committed = {path.name: path.read_text(encoding="utf-8") for path in GENERATED.glob("*.json")}

    assert _made() == committed


def test_generation_is_deterministic() -> None:
    """Grafana sees a change by checksum, so the same input gives the same bytes."""
    assert _made() == _made()


def test_uids_and_titles_are_unique() -> None:
    """One uid or title twice in a folder stops Grafana's provisioning of all of them."""
    models = [json.loads(text) for text in _made().values()]

    assert len(models) == len({one["uid"] for one in models})
    assert len(models) == len({one["title"] for one in models})


def test_file_is_named_after_the_uid() -> None:
    """A file and the address of its dashboard carry the same name."""
    assert [f"{json.loads(text)['uid']}.json" for text in _made().values()] == list(_made())

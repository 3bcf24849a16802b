"""Test docs/gpu.md against the code."""

from __future__ import annotations

import re

from support.tools import ROOT
from triton_exporter.catalogue import METRICS, gpu
from triton_exporter.gpu.xid import XIDS

PAGE = (ROOT / "docs" / "gpu.md").read_text()


def test_the_table_of_xids_is_the_one_in_the_code() -> None:
    """Every code stands on the page with its class and meaning, in order."""
    table = PAGE.partition("<!-- xids -->")[2].partition("<!-- /xids -->")[0].strip().splitlines()

    assert [f"| {xid.code} | {xid.cls} | {xid.name} |" for xid in XIDS] == table[2:]


def test_every_series_on_the_page_exists() -> None:
    """A name that the catalogue does not know is a mistake of the page."""
    named = set(re.findall(r"`(triton_(?:gpu|model_gpu)_[a-z_]+)`", PAGE))

    assert set() == named - {metric.name for metric in METRICS}
    assert 10 <= len(named)


def test_closed_sets_are_explained() -> None:
    """Sources, classes, problems and confidences stand on the page by name."""
    words = {
        *gpu.SOURCES,
        *gpu.XID_CLASSES,
        *(word for word in gpu.LABEL_PROBLEMS if word != "missing"),
        *("blank", "implausible", "unscaled"),
    }

    assert set() == {word for word in words if f"`{word}`" not in PAGE}
    assert all(word in PAGE for word in gpu.MAPPING_CONFIDENCES)

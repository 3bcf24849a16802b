"""Test the operator's list of models that should serve."""

from __future__ import annotations

from pathlib import Path

import pytest

from triton_exporter.lifecycle.expectations import ExpectedFile, parse_expected_file
from triton_exporter.lifecycle.tracker import Lifecycle
from triton_exporter.snapshot import Snapshot

_NOTHING = Snapshot(1.0)


def test_models_with_and_without_versions_and_comments() -> None:
    """One model a line; versions of one model add up."""
    text = "# of team search\nembedder\n\nclassifier:1  # old\nclassifier:2\n"

    assert {"embedder": (), "classifier": ("1", "2")} == parse_expected_file(text)


@pytest.mark.parametrize("line", ["model:", "model:latest", ":1"])
def test_an_invalid_line_is_reported_with_its_number(line: str) -> None:
    """The message names the line and the right form."""
    with pytest.raises(ValueError, match=r"line 2: .* is not a model or model:version, such as"):
        parse_expected_file(f"fine\n{line}\n")


def test_the_file_is_read_again_and_a_mistake_keeps_the_last_good_list(tmp_path: Path) -> None:
    """A change applies at the next poll; a broken or missing file changes nothing, and is logged."""
    path = tmp_path / "expected"
    path.write_text("a\n")
    lifecycle = Lifecycle()
    file = ExpectedFile(path, {"always": ()}, lifecycle)
    file.observe_snapshot(_NOTHING)
    assert {"always": (), "a": ()} == lifecycle.expected

    path.write_text("b:2\n")
    file.poll(2.0)
    file.observe_snapshot(_NOTHING)
    assert {"always": (), "b": ("2",)} == lifecycle.expected
    assert "" == file.problem

    path.write_text("b:two\n")
    file.poll(3.0)
    file.observe_snapshot(_NOTHING)
    assert {"always": (), "b": ("2",)} == lifecycle.expected
    assert file.problem.startswith("line 1: ")

    path.unlink()
    file.poll(4.0)
    assert "No such file or directory" == file.problem

"""Test the bounds of buckets, among them the thresholds of objectives."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.tools import ROOT
from triton_exporter.app.settings import Settings
from triton_exporter.common.duration import parse_seconds
from triton_exporter.common.problem import ProblemsError
from triton_exporter.distribution.buckets import Buckets, le, thresholds
from tritonwatch.parser import Parser, declare


def test_thresholds_of_a_folder(tmp_path: Path) -> None:
    """Thresholds of latency and queue objectives are found, overrides included."""
    (tmp_path / "a.yaml").write_text(
        "indicator: {kind: latency, threshold: 150ms}\noverrides:\n- {models: [x], threshold: 2s}\n"
    )
    (tmp_path / "b.yml").write_text("indicator: {kind: queue, threshold: 0.03s}\n")
    (tmp_path / "c.yaml").write_text("indicator: {kind: readiness}\n---\nindicator: {kind: errors}\n")

    assert {"request": (0.15, 2.0), "queue": (0.03,)} == thresholds(tmp_path)


def test_thresholds_of_a_list_of_objectives(tmp_path: Path) -> None:
    """A file with the list `objectives`, as `tritonwatch init` writes it, is read like one file for each."""
    (tmp_path / "proposed.yaml").write_text(
        "objectives:\n"
        "- {name: a, indicator: {kind: latency, threshold: 70ms}, overrides: [{threshold: 80ms}]}\n"
        "- {name: b, indicator: {kind: queue, threshold: 30ms}}\n"
    )

    assert {"request": (0.07, 0.08), "queue": (0.03,)} == thresholds(tmp_path)


def test_the_shipped_objectives_give_thresholds_for_both_signals() -> None:
    """The objectives the stack ships with give thresholds for both signals."""
    bounds = thresholds(ROOT / "slo" / "objectives")

    assert 1.0 in bounds["request"]
    assert 0.1 in bounds["queue"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("indicator: {kind: queue, threshold: soon}", "'soon' is not a duration such as 100ms"),
        ("indicator: {kind: queue, threshold: 5}", "'5' is not a duration such as 100ms"),
        ("indicator: [", "cannot be read as YAML"),
        ("indicator: !!bool maybe", "cannot be read as YAML: it contains a value that does not fit its tag"),
        ("indicator: 2026-13-01", "cannot be read as YAML: month must be in 1..12"),
    ],
)
def test_an_invalid_threshold_is_refused_with_its_file(tmp_path: Path, text: str, message: str) -> None:
    """A threshold that cannot be read is an error that names its file."""
    (tmp_path / "a.yaml").write_text(text)

    with pytest.raises(ProblemsError, match=message) as error:
        thresholds(tmp_path)
    assert str(tmp_path / "a.yaml") in str(error.value)


def test_a_folder_without_objectives_is_a_mistake(tmp_path: Path) -> None:
    """A folder without objectives is a mistake, not an empty answer."""
    with pytest.raises(ProblemsError, match="no objectives"):
        thresholds(tmp_path)


@pytest.mark.parametrize(
    ("text", "seconds"), [("100ms", 0.1), ("0.5s", 0.5), ("1m30s", 90.0), ("1h", 3600.0), ("3ms", 0.003)]
)
def test_durations_are_read_in_seconds_exactly(text: str, seconds: float) -> None:
    """Durations are read in seconds, without binary dust."""
    assert seconds == parse_seconds(text)


def test_bounds_ascend_with_the_thresholds_of_their_signal() -> None:
    """Bounds ascend, each once, with the thresholds of their own signal only."""
    buckets = Buckets(default=(1, 0.1), thresholds={"request": (0.1, 0.25)})

    assert (0.1, 0.25, 1.0) == buckets.bounds("m", "request")
    assert (0.1, 1.0) == buckets.bounds("m", "queue")


def options(*words: str) -> Settings:
    parser = Parser()
    declare(parser, Settings)
    return Settings.read(vars(parser.parse_args(["--triton", "http://127.0.0.1:8000", *words])), {})


def test_bounds_of_one_model(tmp_path: Path) -> None:
    """--buckets gives one model its own bounds; the thresholds of objectives are always among them."""
    (tmp_path / "a.yaml").write_text("indicator: {kind: latency, threshold: 150ms}\n")
    buckets = options("--buckets", "m=0.2,0.1", "--buckets-from", str(tmp_path)).bucket_bounds

    assert (0.1, 0.15, 0.2) == buckets.bounds("m", "request")
    assert 60.0 in buckets.bounds("other", "request")


@pytest.mark.parametrize("words", ["m", "m=", "m=fast", "=1", "m=0", "m=1,-1", "m=inf"])
def test_invalid_bounds_are_refused_with_the_right_form(words: str) -> None:
    """Invalid bounds are a mistake on the command line; the message shows the right form."""
    with pytest.raises(ProblemsError, match="MODEL=SECONDS"):
        options("--buckets", words)


def test_a_bound_is_written_as_a_float() -> None:
    """A bound is written as a float, as Prometheus 3 and OpenMetrics do."""
    assert ["0.1", "1.0", "60.0"] == [le(bound) for bound in (0.1, 1, 60)]

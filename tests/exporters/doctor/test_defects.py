"""Test the defects by release that `tritonwatch doctor` names: on two real releases, and on stand-ins for newer ones."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from exporters.faults import body, faulty
from support.repository import Repository
from support.tools import ROOT
from support.triton import live_triton
from triton_exporter.doctor.defects import DEFECTS
from triton_exporter.doctor.finding import TritonFacts
from triton_exporter.exposition.parse import parse
from triton_exporter.snapshot import (
    IndexEntry,
    InstanceGroup,
    ModelConfig,
    ModelVersion,
    QueuePolicy,
    Snapshot,
)
from triton_exporter.tracing.trace_setting import TraceSetting
from tritonwatch.cli import main
from tritonwatch.local import TritonServer, wheel_folder

_OLD = ROOT / ".cache" / "old-triton"
_OLD_STUB = _OLD / "pytriton/tritonserver/python_backend_stubs" / f"3.{sys.version_info.minor}"
TIMEOUT = "default_queue_policy { default_timeout_microseconds: 500000 max_queue_size: 4 }"
OF_EVERY_RELEASE = {
    "server/issues/8870": "(timeouts)",
    "core/pull/466": "(pipeline)",
    "python_backend/pull/439": "",
    "server/issues/8034": "",
    "core/pull/461": "",
    "server/issues/8604": "",
    "core/pull/449": "(cached)",
    "server/pull/8764": "",
}
"""Those that both releases have with these models: source, and the models that are named."""


def lines(capsys: pytest.CaptureFixture[str], *urls: str) -> dict[str, str]:
    """Return what the doctor says of each defect, by its source."""
    main(["doctor", *urls, "--gpu=none", "--watch=10ms", "--json"])
    found = [each for each in json.loads(capsys.readouterr().out) if "known defects" in each["title"]]
    said = found[0]["seen"].splitlines() if found else []
    return {line.rpartition(": https://github.com/triton-inference-server/")[2]: line for line in said}


@contextmanager
def with_every_setting(directory: Path) -> Iterator[TritonServer]:
    """Run a Triton with a model for each setting that a defect needs."""
    repository = Repository(directory / "models")
    repository.model("adder")
    repository.model("timeouts", config=f"dynamic_batching {{ {TIMEOUT} }}")
    repository.model("cached", config="response_cache { enable: true }")
    repository.model("sequence", config="sequence_batching { }")
    repository.model("stream", config="model_transaction_policy { decoupled: true }")
    repository.ensemble("pipeline", "adder", "timeouts")
    cache = [f"--cache-directory={wheel_folder() / 'caches'}", "--cache-config=local,size=1048576"]
    with live_triton(repository.path, directory, arguments=cache) as server:
        yield server


@pytest.mark.real
def test_the_defects_of_2_51(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Those fixed before it are gone, and those of a setting name its models; it is still exit code 0."""
    with with_every_setting(tmp_path) as server:
        found = lines(capsys, "--triton", server.http_url, "--triton-metrics", server.metrics_url)

    assert OF_EVERY_RELEASE.keys() | {"server/issues/7713"} == found.keys()
    assert all(models in found[source] for source, models in OF_EVERY_RELEASE.items())
    assert found["core/pull/449"].endswith(
        "(cached); fixed in 2.61 (25.09): https://github.com/triton-inference-server/core/pull/449"
    )


@pytest.mark.real
@pytest.mark.skipif(not _OLD_STUB.is_dir(), reason="no older Triton for this Python; try: make tools-next")
def test_the_defects_of_2_41(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has more, and not those that came with a later release."""
    monkeypatch.syspath_prepend(_OLD)
    with with_every_setting(tmp_path) as server:
        found = lines(capsys, "--triton", server.http_url, "--triton-metrics", server.metrics_url)

    older = {
        "core/pull/377": "(timeouts)",
        "core/pull/341": "(sequence)",
        "python_backend/pull/337": "(stream)",
    }
    assert OF_EVERY_RELEASE.keys() | older.keys() == found.keys()
    assert all(models in found[source] for source, models in older.items())


@pytest.mark.parametrize(
    ("version", "sources"),
    [
        ("2.69.0", {}),
        ("2.70.0", {"server/pull/8925": "2.73 (26.09)"}),
        ("2.73.0", {}),
        ("unknown", {}),
    ],
)
def test_a_defect_ends_with_the_release_that_fixed_it(
    version: str, sources: Mapping[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a model, only those that every server has; with an unknown version, none."""
    answer = json.dumps({"name": "triton", "version": version, "extensions": []}).encode()
    with faulty({"/v2": body(answer), "/metrics": body(b"nv_x 1\n")}) as server:
        found = lines(capsys, "--triton", server.url, "--triton-metrics", f"{server.url}/metrics")

    assert sources.keys() == found.keys()
    assert all(f"fixed in {fixed}" in found[source] for source, fixed in sources.items())


PYTHON = ModelConfig("m", backend="python", instance_groups=(InstanceGroup("KIND_CPU", 2),))
STREAM = ModelConfig("s", backend="onnxruntime", decoupled=True)


def facts(*configs: ModelConfig, page: str = "nv_x 1\n", **more: object) -> TritonFacts:
    """Return the facts about a Triton with these models."""
    known = {ModelVersion(config.model, "1"): config for config in configs}
    index = more.pop("index", ())
    return TritonFacts("", "", Snapshot(1.0, configs=known, index=index), first=parse(page.encode()), **more)


@pytest.mark.parametrize(
    ("source", "off", "on", "models"),
    [
        (
            "server/pull/8144",
            facts(),
            facts(traces=TraceSetting(True, 1, -1, "opentelemetry")),
            {"traced models"},
        ),
        ("server/issues/8663", facts(PYTHON), facts(PYTHON, page="nv_x 1\nrows 1\n"), {"m"}),
        ("python_backend/pull/439", facts(PYTHON), facts(PYTHON, STREAM), {"m"}),
        (
            "core/pull/388",
            facts(index=(IndexEntry("m", "1", "READY"), IndexEntry("m", "2", "UNAVAILABLE"))),
            facts(index=(IndexEntry("m", "1", "READY"), IndexEntry("m", "2", "READY"))),
            {"m"},
        ),
        (
            "server/issues/8766",
            facts(index=(IndexEntry("m", "1", "READY"),)),
            facts(index=(IndexEntry("m", "1", "LOADING"),)),
            {"m"},
        ),
        (
            "server/issues/8870",
            facts(ModelConfig("m", queue=QueuePolicy(timeout_microseconds=1))),
            facts(ModelConfig("m", dynamic_batching=True, queue=QueuePolicy(timeout_microseconds=1))),
            {"m"},
        ),
    ],
)
def test_a_defect_needs_its_setting(source: str, off: TritonFacts, on: TritonFacts, models: set[str]) -> None:
    """Settings that the real servers of this file do not have."""
    (defect,) = [each for each in DEFECTS if each.source == source]
    assert defect.concerned is not None
    assert (set(), models) == (set(defect.concerned(off)), set(defect.concerned(on)))


def test_every_row_can_be_read_and_checked() -> None:
    """A release that has an end has its container beside it, and a source is a thread of Triton's repositories."""
    assert len(DEFECTS) >= 10
    for defect in DEFECTS:
        assert re.fullmatch(r"|2\.\d\d \(2\d\.\d\d\)", defect.fixed), defect
        assert re.fullmatch(r"(server|core|python_backend)/(issues|pull)/\d+", defect.source), defect
        assert not defect.fixed or defect.since < defect.fixed, defect

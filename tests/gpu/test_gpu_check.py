"""Test the check of a real GPU here, up to the missing driver, and load its pages into a Prometheus.

$GPU_CHECK_RESULTS names the unpacked results.tar.gz of a run on a machine with a GPU; those of the last one are in
tests/captures/gpu, if there was any.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from gpu.check import COMPARED, Compared, is_close, number
from support.history import backfilled, record, running
from support.panels import MODELS, Grafana
from support.tools import ROOT
from triton_exporter.catalogue import EXPORTER_JOB, gpu

pytestmark = [pytest.mark.real, pytest.mark.thorough]  # `make gpu-check` tries the same before it is sent

CAPTURED = Path(os.environ.get("GPU_CHECK_RESULTS", ROOT / "tests" / "captures" / "gpu"))
RULES = ROOT / "alerts" / "generated" / "rules"
OF_GPUS = re.compile(r"triton_(model_)?gpu_|nv_gpu_|nv_energy")
ALWAYS_SHOWN = ("Busy", "Memory used", "Power", "Temperature", "SM clock", "Oldest data", "Hardware XIDs")
"""Panels of the GPU board that show something of any GPU."""
NEEDS_NO_GPU = (
    "Triton without GPU metrics",
    "load busy",
    "load idle",
    "load greedy",
    "reason of the load failure, --gpu nvml",
    "requests to busy",
    "execution time that Triton counts",
    "doctor --gpu nvml",
    "unload busy",
    "state of busy, --gpu nvml",
    "requests to a model without its process",
    "killed idle is not ready, --gpu nvml",
    "request to idle after the reload",
    "idle after the reload, --gpu nvml",
    "Triton killed, --gpu nvml",
)
"""Checks that run on any machine."""


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """Run the check without a GPU; returns what it prints, and its results."""
    out = tmp_path_factory.mktemp("gpu-check")
    environment = {"OUT": str(out), "GPU_CHECK_PYTHON": sys.executable, "GPU_CHECK_SECONDS": "4"}
    done = subprocess.run(
        ["bash", ROOT / "tests" / "gpu" / "check.sh"],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert 0 == done.returncode, done.stdout + done.stderr
    with tarfile.open(out / "results.tar.gz") as archive:
        archive.extractall(out / "results", filter="data")
    return done.stdout, out / "results"


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="a GPU is here: run make gpu-check")
def test_what_needs_no_gpu_passes(checked: tuple[str, Path]) -> None:
    """Without a driver every check that needs none passes, and each of the others says so."""
    printed, results = checked
    lines = [line for line in printed.splitlines() if line[:6].strip() in ("PASS", "FAIL", "SEEN", "NO GPU")]
    passed = {line[7:].partition(":")[0] for line in lines if line.startswith("PASS")}

    assert [] == [line for line in lines if line.startswith("FAIL")]
    assert set() == set(NEEDS_NO_GPU) - passed
    assert {str(compared.metric) for compared in COMPARED} <= {
        line[7:].partition(":")[0] for line in lines if line.startswith("NO GPU")
    }
    assert not (results / "errors.txt").exists()
    assert lines == (results / "summary.txt").read_text().splitlines()


@pytest.mark.parametrize(
    ("ours", "printed", "close"),
    [
        (0.95, "98", True),
        (0.5, "98", False),
        (None, "[N/A]", True),
        (None, "98", False),
        (0.5, "[N/A]", False),
    ],
)
def test_a_value_is_compared_with_what_nvidia_smi_prints(
    ours: float | None, printed: str, close: bool
) -> None:
    """Our base units against its percent; a value that it does not have must not be ours."""
    compared = Compared(gpu.UTILIZATION, "utilization.gpu", 0.01, absolute=0.1)

    assert close == is_close(compared, ours, number(printed))


def test_rules_and_boards_read_the_pages(
    request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each rule and each query of a board that reads GPU series works on the pages; the board shows a GPU."""
    results = CAPTURED if CAPTURED.exists() else request.getfixturevalue("checked")[1]
    pages = {
        name: {float(path.stem): path.read_text() for path in (results / "pages" / name).glob("[0-9]*.prom")}
        for name in ("nvml", "triton")
    }
    # What follows the samples of the minute are the kills.
    end = json.loads((results / "nvidia-smi.json").read_text())[-1][0] + 1
    series = [
        f'{name}{{job="{EXPORTER_JOB}",instance="{exporter}"{labels and ","}{labels}}} {value} {at:.3f}'
        for exporter, texts in pages.items()
        for at, text in sorted(texts.items())
        if at <= end
        for name, labels, value in re.findall(r"(?m)^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$", text)
    ]
    backfilled("\n".join(series) + "\n# EOF\n", tmp_path / "data")
    begin = min(at for texts in pages.values() for at in texts)
    for path in sorted(RULES.glob("*.yml")):
        if OF_GPUS.search(path.read_text()):
            record(path.read_text(), tmp_path, (begin, end, 5))
    with running(tmp_path) as url:
        grafana = Grafana(url, int(end), seconds=int(end - begin) + 1, step=5, scrape_seconds=5)
        rules = [rule for rule in _rules() if "alert" in rule and OF_GPUS.search(rule["expr"])]
        holding = {
            rule["alert"]
            for rule in rules
            if grafana.get("query", query=rule["expr"], time=end)["data"]["result"]
        }
        shown, asked = set(), set()
        for uid in ("triton-gpu", "triton-server", "triton-model"):
            wanted = {"model": "busy"} if uid == "triton-model" else {}
            for panel, answer in grafana.open(MODELS[uid], wanted).answers:
                if OF_GPUS.search(answer.expr):
                    asked.add(f"{uid}: {panel['title']}")
                    shown.update([f"{uid}: {panel['title']}"] if answer.series else [])
                    assert [] == answer.warnings
    has_gpu = any("triton_gpu_info{" in line for line in series)
    with capsys.disabled():  # what a person judges after a run with a GPU
        print(
            f"\nconditions that hold: {sorted(holding)}; shown: {sorted(shown)}; empty: {sorted(asked - shown)}"
        )

    assert rules
    always = {f"triton-gpu: {title}" for title in ALWAYS_SHOWN}
    assert (always if has_gpu else set()) == always & shown
    if not has_gpu:
        assert set() == holding


def _rules() -> Iterator[dict[str, str]]:
    for path in sorted(RULES.glob("*.yml")):
        for group in yaml.safe_load(path.read_text())["groups"]:
            yield from group["rules"]

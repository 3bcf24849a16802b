"""Test the real nvidia-ml-py with a driver library built for the test: from C to the page."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import requests

from support.exporter import ScrapedPage
from support.loopback import free_ports
from support.tools import ROOT
from support.waiting import eventually
from triton_exporter.catalogue import gpu

COMPILER = shutil.which("cc")
pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C compiler here")

_READ = """
import json, sys
from triton_exporter.gpu.nvml import NvmlSource
source = NvmlSource()
source.read(0.0)
reading = source.read(1.0)
source.close()
values = {f"{slot.metric} {slot.label}".strip(): value for slot, value in reading.values.items()}
json.dump({"values": values, "xids": [report.code for report in reading.xids]}, sys.stdout)
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return an environment in which the driver library is the test's."""
    folder: Path = tmp_path_factory.mktemp("driver")
    source = ROOT / "tests" / "exporters" / "fake_nvml.c"
    command = [str(COMPILER), "-shared", "-fPIC", "-w", "-o", str(folder / "libnvidia-ml.so.1"), str(source)]
    subprocess.run(command, check=True, timeout=60)
    return os.environ | {"LD_LIBRARY_PATH": str(folder)}


def test_the_real_bindings_carry_every_figure_over(environment: dict[str, str]) -> None:
    """Through the real structures and unions of nvidia-ml-py, the figures of the C library come out right."""
    done = subprocess.run(
        [sys.executable, "-c", _READ], env=environment, capture_output=True, timeout=30, check=True
    )
    read = json.loads(done.stdout)

    expected = {
        gpu.UTILIZATION: 0.4,
        gpu.POWER: 250.5,
        gpu.ENERGY: 5002.0,
        gpu.TEMPERATURE: 61,
        gpu.MEMORY_TEMPERATURE: 70,
        gpu.SM_CLOCK: 1.41e9,
        gpu.MEMORY_TOTAL: 80,
        gpu.MEMORY_USED: 20,
        gpu.MEMORY_FREE: 58,
        gpu.MEMORY_RESERVED: 2,
        gpu.ROW_REMAP_PENDING: 1,
        gpu.ROW_REMAP_FAILED: 0,
        # The library answers each question of activity with its number in percent.
        gpu.ENGINE_ACTIVE: 0.01,
        gpu.SM_ACTIVE: 0.02,
        gpu.SM_OCCUPANCY: 0.03,
        gpu.TENSOR_ACTIVE: 0.05,
        gpu.DRAM_ACTIVE: 0.10,
        # Questions 60 and 61, in MiB/s.
        gpu.NVLINK_THROUGHPUT: 121 * 2**20,
    }
    values = read["values"]
    assert pytest.approx({str(metric): value for metric, value in expected.items()}) == {
        name: value for name, value in values.items() if " " not in name
    }
    assert (2, 7) == (
        values[f"{gpu.ECC_ERRORS} uncorrected"],
        values[f"{gpu.ECC_ERRORS} corrected"],
    )
    assert (1, 0) == (
        values[f"{gpu.THROTTLE_REASON} sw_power_cap"],
        values[f"{gpu.THROTTLE_REASON} hw_thermal"],
    )
    assert 2.0 == values[f"{gpu.THROTTLED_SECONDS} thermal"]


def test_events_reach_the_reader(environment: dict[str, str]) -> None:
    """The XID events of the C library are in the first read that follows them."""
    script = _READ.replace("source.read(0.0)\nreading = source.read(1.0)", "reading = source.read(0.0)")
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, timeout=30, check=True
    )

    assert [31, 31] == json.loads(done.stdout)["xids"]


def test_the_command_shows_the_gpu_without_triton(environment: dict[str, str]) -> None:
    """`tritonwatch exporter --gpu nvml` shows the GPU, also while Triton is down."""
    port, nothing = free_ports(2)
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "tritonwatch", "exporter", "--triton", f"http://127.0.0.1:{nothing}"),
            *("--listen", f"127.0.0.1:{port}", "--gpu", "nvml", "--gpu-devices", "GPU-real"),
        ],
        env=environment,
        stderr=subprocess.PIPE,
    )
    try:
        page = _page(f"http://127.0.0.1:{port}/metrics")
    finally:
        process.terminate()
        _, log = process.communicate(timeout=10)

    assert 1 == page.value(gpu.SOURCE, source="nvml")
    assert 250.5 == page.value(gpu.POWER, gpu_uuid="GPU-real")
    assert b"Traceback" not in log


def _page(url: str) -> ScrapedPage:
    def measured() -> ScrapedPage | None:
        page = ScrapedPage(requests.get(url, timeout=10).text)
        return page if page.series(gpu.POWER) else None

    page = eventually(measured, "no power of a GPU")
    assert page is not None
    return page

"""The stack at load while things break: two minutes of what `make soak` does for thirty."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from support.soak import report, soaking
from support.tools import ROOT, alertmanagers, prometheuses

MINUTES = float(os.environ.get("SOAK_MINUTES", "1.5"))
SEED = int(os.environ.get("SOAK_SEED", "1"))
PAGE = ROOT / "docs" / "soak.md"


def _version(binary: Path) -> str:
    done = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True)
    return (done.stdout + done.stderr).split("version ")[1].split(" ")[0]


@pytest.mark.real
@pytest.mark.timeout(int(60 * MINUTES) + 600)
def test_nothing_dies_for_good_and_no_alert_is_lost(tmp_path: Path) -> None:
    """Whatever is killed comes back, on-call hears of every incident and of its end, memory stays flat."""
    with soaking(tmp_path, SEED) as soak:
        soak.run(60 * MINUTES)

        assert soak.record.incidents
        assert soak.record.answers > 0
        assert [] == soak.dead()
        assert [] == soak.untold()
        assert [] == soak.tracebacks()
        versions = {
            "Triton": "2.51",
            "Prometheus": _version(prometheuses()[-1]),
            "Alertmanager": _version(alertmanagers()[-1]),
        }
        page = report(soak, SEED, MINUTES, versions)
        print(page)
        if MINUTES >= 10:  # a shorter run says nothing of memory, and is no report
            PAGE.write_text(page)
            assert [] == [part for part in soak.record.memory if soak.growth(part) > 1.3]

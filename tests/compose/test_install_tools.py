"""The script that finds Prometheus' and Alertmanager's programs, or installs them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from support.tools import ROOT


@pytest.mark.parametrize("alertmanager", ["alertmanager", "prometheus-alertmanager"])
def test_the_versions_of_the_tools_that_are_found_are_one_line(tmp_path: Path, alertmanager: str) -> None:
    """Alertmanager is found under its own name and under Debian's."""
    for number, tool in enumerate(("prometheus", "promtool", alertmanager, "amtool")):
        program = tmp_path / tool
        # amtool and alertmanager of some versions write the version to standard error.
        program.write_text(f"#!/bin/sh\necho '{tool}, version 2.{number}.0 (branch: x)' >&2\necho more >&2\n")
        program.chmod(0o755)

    for needed in ("awk", "tr"):
        (tmp_path / needed).symlink_to(str(shutil.which(needed)))

    done = subprocess.run(
        ["/bin/sh", str(ROOT / "compose" / "install-tools.sh")],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (0, "") == (done.returncode, done.stderr)
    assert (
        "tritonwatch: found prometheus 2.0.0, promtool 2.1.0, alertmanager 2.2.0, amtool 2.3.0\n"
        == done.stdout
    )

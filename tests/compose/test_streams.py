"""Test closed, full and broken streams, and Ctrl-C: an exit code and one line at most, never a traceback."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from support.conversion import SLOTH
from support.tools import ROOT

TRITONWATCH = f"{sys.executable} -m tritonwatch"
READINESS = ROOT / "slo" / "objectives" / "readiness.yaml"


def shell(command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=180, check=False)


@pytest.mark.parametrize(
    ("command", "code", "printed"),
    [
        (f"check {READINESS} >&-", 0, ""),
        pytest.param(f"check {READINESS} <&- >&- 2>&-", 0, "", marks=pytest.mark.thorough),
        pytest.param(
            "check /nonexistent >&-",
            2,
            "tritonwatch check: /nonexistent: No such file or directory\n",
            marks=pytest.mark.thorough,
        ),
        (
            f"check {READINESS} >/dev/full",
            1,
            "tritonwatch: cannot write the output: No space left on device\n",
        ),
        ("dashboards list | true; exit ${PIPESTATUS[0]}", 1, ""),
    ],
)
def test_a_stream_that_takes_nothing_ends_no_verb_in_a_traceback(
    command: str, code: int, printed: str
) -> None:
    """A closed output is not an error; a full disk is, with a message."""
    done = shell(f"{TRITONWATCH} {command}")

    assert (code, printed) == (done.returncode, done.stderr)


def test_errors_never_land_in_the_output(tmp_path: Path) -> None:
    """With the error stream closed, what is printed stays what another program can read."""
    (tmp_path / "slos.yaml").write_text(f"{SLOTH}    color: blue\n")
    done = shell(f"{TRITONWATCH} convert --from sloth {tmp_path}/slos.yaml 2>&-")

    assert 3 == done.returncode
    assert "could not be converted" not in done.stdout


@pytest.mark.parametrize("verb", ["status", pytest.param("backtest", marks=pytest.mark.thorough)])
def test_interrupting_a_verb_prints_no_traceback(verb: str) -> None:
    """Ctrl-C while Prometheus does not answer: exit code 130, as of shells, and no output."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        process = subprocess.Popen(
            [sys.executable, "-m", "tritonwatch", verb, "--prometheus", url],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        silent.settimeout(180)
        connection, _ = silent.accept()
        with connection, process:
            process.send_signal(signal.SIGINT)

            assert (b"", b"") == process.communicate(timeout=120)
            assert 130 == process.returncode

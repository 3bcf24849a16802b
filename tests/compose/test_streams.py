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
from tritonwatch.cli import main

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


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (["--history", "FILE"], "FILE:1: not UTF-8 text (byte 3) (fix: save the file as UTF-8)"),
        (["--history", "FILE", "--incidents", "FILE"], "FILE:1: not UTF-8 text"),
        (["--prometheus", "http://127.0.0.1:1", "--at", "nan"], "nan is not in the years 1970 to 2199"),
        (["--prometheus", "http://127.0.0.1:1", "--at", "2199-01-01"], "2199-01-01 is in the future"),
        (
            ["--prometheus", "http://127.0.0.1:1", "--at", "soon"],
            "'soon' is not a time; write 2026-05-01T09:30Z",
        ),
        (["--prometheus", "http://127.0.0.1:1", "--timeout", "x"], "--timeout: 'x' is not a duration"),
        (
            ["--prometheus", "http://127.0.0.1:1", "--top", "-3"],
            "--top: -3 is not a whole number of 0 or more",
        ),
    ],
)
def test_an_argument_that_cannot_be_used_is_explained(
    words: list[str], printed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it was, and what it should be."""
    (tmp_path / "FILE").write_bytes(b"caf\xe9")

    words = [str(tmp_path / word) if word.startswith("FILE") else word for word in words]
    assert main(["backtest", *words]) in (1, 2)
    assert printed.replace("FILE", f"{tmp_path}/FILE") in capsys.readouterr().err

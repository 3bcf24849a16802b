"""Test the stack at load during faults: half a minute of what `make soak` runs for thirty."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from bench.measurements import record
from support.slack.workspace import Posted
from support.stack.soak import soaking
from support.stack.soak_page import report
from support.stack.soak_record import Record
from support.tools import alertmanagers, prometheuses

MINUTES = float(os.environ.get("SOAK_MINUTES", "0.5"))
SEED = int(os.environ.get("SOAK_SEED", "1"))
MAX_GROWTH = 1.3


def _version(binary: Path) -> str:
    done = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True)
    return (done.stdout + done.stderr).split("version ")[1].split(" ")[0]


@pytest.mark.real
@pytest.mark.thorough  # other tests have each part killed alone, and an alert's way into Slack
@pytest.mark.timeout(int(60 * MINUTES) + 1200)
def test_nothing_dies_for_good_and_no_alert_is_lost(tmp_path: Path) -> None:
    """Every killed part comes back, on-call is notified of every incident and of its end, memory stays flat."""
    with soaking(tmp_path, SEED, patient=MINUTES >= 10) as soak:
        soak.run(60 * MINUTES)
        soak.settle()

        assert soak.record.incidents
        assert soak.record.answers > 0
        assert [] == soak.record.ended
        assert [] == soak.tracebacks()
        versions = {
            "Triton": "2.51",
            "Prometheus": _version(prometheuses()[-1]),
            "Alertmanager": _version(alertmanagers()[-1]),
        }
        page = report(soak, SEED, MINUTES, versions)
        print(page)
        if MINUTES >= 10:  # a shorter run shows nothing about memory, and is not a report
            record("soak", "make soak", page, "Thirty minutes of faults")
            assert [] == [part for part in soak.record.memory if soak.record.growth(part) > MAX_GROWTH]


def test_an_alert_that_no_message_shows_counts_as_undelivered() -> None:
    """An alert that is shown at three polls needs a message that names it and its model, in any of its versions."""
    record = Record(seen={("A", "posted"): 3, ("A", "unposted"): 3, ("B", "posted"): 3, ("C", "blink"): 2})
    message = Posted("C0ALERTS", "1", 1.0, "over", [], history=[("A of posted", [])])

    assert [("A", "unposted"), ("B", "posted")] == record.undelivered([message])


def test_a_leak_is_growth_and_a_restart_is_none() -> None:
    """Memory that grows from 60 to 210 MiB in a run is over the bound; a dip while a part starts is not growth."""
    steady = [(float(at), 20.0 if at % 100 == 0 else 60.0) for at in range(0, 900, 2)]
    record = Record(memory={"leaky": [(float(at), 60 + at / 6) for at in range(0, 900, 2)], "steady": steady})

    assert record.growth("leaky") > MAX_GROWTH
    assert 1.0 == record.growth("steady")

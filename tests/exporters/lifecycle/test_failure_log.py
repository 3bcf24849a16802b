"""Test the exporter's log: each failed load once, and when Triton stops and starts to answer."""

from __future__ import annotations

import logging

import pytest

from triton_exporter.lifecycle.tracker import Lifecycle
from triton_exporter.lifecycle.views import QUIET_SECONDS, FailureLog, ReachabilityLog
from triton_exporter.snapshot import IndexEntry, Snapshot


class PolledLifecycle:
    """A lifecycle with its log, and the lines written so far."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.lifecycle = Lifecycle()
        self._log = FailureLog(self.lifecycle)
        self._caplog = caplog

    def poll(self, at: float, *entries: IndexEntry) -> list[str]:
        """Poll once, and return what the exporter logs."""
        self._caplog.clear()
        snapshot = Snapshot(at, live=True, index=entries)
        with self._caplog.at_level(logging.WARNING):
            self.lifecycle.observe_snapshot(snapshot)
            self._log.observe_snapshot(snapshot)
        return self._caplog.messages


@pytest.fixture
def polled(caplog: pytest.LogCaptureFixture) -> PolledLifecycle:
    return PolledLifecycle(caplog)


def _failed(text: str, model: str = "m") -> IndexEntry:
    return IndexEntry(model, "1", "UNAVAILABLE", text)


_LOADING = IndexEntry("m", "1", "LOADING")


def test_a_failure_is_one_line_with_its_class_and_text(polled: PolledLifecycle) -> None:
    """Model, version, class, and Triton's text without its line ends; nothing more while it lasts."""
    printed = polled.poll(1, _failed("Internal: RuntimeError: no\n\nAt:\n  model.py(3): initialize\n"))

    line = "model m version 1 failed to load (python_error): Internal: RuntimeError: no At: model.py(3): initialize"
    assert [line] == printed
    assert [] == polled.poll(2, _failed("Internal: RuntimeError: no\n\nAt:\n  model.py(3): initialize\n"))


def test_retries_with_the_same_text_are_logged_once_in_a_while(polled: PolledLifecycle) -> None:
    """Poll mode tries again and again; other words are news at once."""
    assert 1 == len(polled.poll(1, _failed("RuntimeError: no")))
    polled.poll(2, _LOADING)
    assert [] == polled.poll(3, _failed("RuntimeError: no"))
    polled.poll(4, _LOADING)
    assert ["model m version 1 failed to load (out_of_memory): CUDA out of memory"] == polled.poll(
        5, _failed("CUDA out of memory")
    )
    polled.poll(QUIET_SECONDS + 5, _LOADING)
    assert 1 == len(polled.poll(QUIET_SECONDS + 6, _failed("CUDA out of memory")))


def test_a_failure_from_tritons_log_is_logged_without_a_version(polled: PolledLifecycle) -> None:
    """A broken config has no version."""
    polled.lifecycle.load_failures.count_logged("m", "", "failed to read text proto from m/config.pbtxt", 1.0)

    assert [
        "model m failed to load (bad_config): failed to read text proto from m/config.pbtxt"
    ] == polled.poll(2)


def test_a_hostile_text_stays_one_plain_line(polled: PolledLifecycle) -> None:
    """No text can forge a line, steer a terminal, or fill the disk."""
    (line,) = polled.poll(1, _failed("\x1b[2J" + "x" * 5000 + "\nWARNING forged", "m\x1b\nERROR"))

    assert line.isprintable()
    assert len(line) < 2200
    assert r"m\x1b\nERROR" in line


def test_triton_going_away_and_coming_back_is_one_line_each(caplog: pytest.LogCaptureFixture) -> None:
    """The line names the address, the kind of failure and what to check; one that lasts adds no line, another reason does."""
    log = ReachabilityLog("http://triton:8000")
    with caplog.at_level(logging.INFO):
        for failure in ("", "", "refused", "refused", "timeout", "timeout", "", ""):
            log.observe_snapshot(Snapshot(1, failure, triton_version="" if failure else "2.51.0"))

    assert [
        "Triton 2.51.0 at http://triton:8000 answers",
        (
            "Triton at http://triton:8000 does not answer (refused): nothing listens there: check that Triton "
            "runs, that its models have loaded (its ports open after that), that it was started with HTTP "
            "(--allow-http=true, its default) or with gRPC as in --triton, and the port there"
        ),
        (
            "Triton at http://triton:8000 does not answer (timeout): check whether Triton's process is stopped, hung or "
            "short of CPU, and the network"
        ),
        "Triton 2.51.0 at http://triton:8000 answers again",
    ] == caplog.messages

"""Test models that Triton calls ready and that fail every request: when the counters show it."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from triton_exporter.catalogue import triton
from triton_exporter.exposition.parse import parse
from triton_exporter.lifecycle.tracker import (
    MEMORY_SECONDS,
    MIN_FAILURES,
    MIN_SECONDS,
    BackendFailures,
    Lifecycle,
)
from triton_exporter.snapshot import IndexEntry, ModelVersion, Snapshot

KEY = ModelVersion("m", "1")


class Server:
    """One model of a Triton by its counters and its index, and what the exporter makes of it."""

    def __init__(self) -> None:
        self.lifecycle = Lifecycle()
        self._part = BackendFailures(self.lifecycle)
        self._at = 0.0
        self._counters = {"SUCCESS": 0, "BACKEND": 0, "REJECTED": 0}
        self.answering()

    def answering(self, at: float | None = None, state: str = "READY", **grown: int) -> bool:
        """Whether the model is shown as ready after this second, or at that time, in which the counters grew."""
        self._at = self._at + 1 if at is None else at
        for name, count in grown.items():
            self._counters[name] += count
        self._part.observe(parse("".join(self._lines()).encode()), self._at)
        snapshot = Snapshot(self._at, live=True, index=(IndexEntry("m", "1", state),))
        self._part.observe_snapshot(snapshot)
        self.lifecycle.observe_snapshot(snapshot)
        return self.lifecycle.records[KEY].claim.ready

    def _lines(self) -> Iterable[str]:
        labels = 'model="m",version="1"'
        yield f"# TYPE {triton.REQUEST_SUCCESS} counter\n"
        yield f"{triton.REQUEST_SUCCESS}{{{labels}}} {self._counters['SUCCESS']}\n"
        yield f"# TYPE {triton.REQUEST_FAILURE} counter\n"
        for reason in ("BACKEND", "REJECTED"):
            yield f'{triton.REQUEST_FAILURE}{{{labels},reason="{reason}"}} {self._counters[reason]}\n'


def test_a_model_that_fails_every_request_is_not_answering_until_one_works() -> None:
    """The reason states it; it takes several failures over several seconds, and one success ends it."""
    server = Server()
    assert server.answering(SUCCESS=3)
    for _ in range(int(MIN_SECONDS)):
        assert server.answering(BACKEND=1)
    assert not server.answering(BACKEND=1)
    claim = server.lifecycle.records[KEY].claim
    assert ("ready", "metrics") == (claim.state, claim.source)
    assert claim.reason.startswith("not_answering: its last 6 requests failed in the backend")
    assert not server.answering()

    assert server.answering(SUCCESS=1)


@pytest.mark.parametrize(
    "grown",
    [
        pytest.param({"BACKEND": 9, "SUCCESS": 1}, id="some work"),
        pytest.param({"REJECTED": 9}, id="rejected ones"),
        pytest.param({}, id="no requests"),
    ],
)
def test_a_model_that_may_work_is_ready(grown: dict[str, int]) -> None:
    """Failures beside successes, a full queue or no requests do not show that the process is broken."""
    server = Server()

    assert all(server.answering(**grown) for _ in range(20))


def test_a_burst_of_failures_is_not_enough() -> None:
    """One client sends bad input for a moment, and no request follows."""
    server = Server()

    assert server.answering(BACKEND=10 * MIN_FAILURES)
    assert all(server.answering() for _ in range(20))


def test_failed_probes_alone_are_not_enough() -> None:
    """The prober has its own rules: a made-up input fails in a healthy model, too."""
    server = Server()
    for probes in range(1, 20):
        server.lifecycle.probe_failures = {KEY: probes}
        assert server.answering(BACKEND=1)


def test_without_requests_the_verdict_lapses_and_a_reload_ends_it() -> None:
    """It is unknown whether a model works that receives no requests, or that has been loaded again."""
    server = Server()
    for _ in range(10):
        server.answering(BACKEND=1)
    assert not server.answering(10 + MEMORY_SECONDS)
    assert server.answering(13 + MEMORY_SECONDS)

    for _ in range(10):
        server.answering(BACKEND=1)
    assert not server.answering()
    assert not server.answering(state="LOADING")
    assert server.answering()

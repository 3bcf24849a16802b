"""Test the states of a server of which only the metrics are known, and what ends that."""

from __future__ import annotations

import pytest

from triton_exporter.catalogue import state, triton
from triton_exporter.exposition.parse import parse
from triton_exporter.exposition.write import text_pieces
from triton_exporter.lifecycle.tracker import SERVES_SECONDS, BackendFailures, Lifecycle
from triton_exporter.lifecycle.views import ModelStates
from triton_exporter.snapshot import NO_API, IndexEntry, ModelVersion, Snapshot

START = 1_760_000_000.0
KEY = ModelVersion("m", "1")


class Server:
    """One model of a Triton by its counter and the answers of its API."""

    def __init__(self, **expected: tuple[str, ...]) -> None:
        self.lifecycle = Lifecycle(expected)
        self._part = BackendFailures(self.lifecycle)

    def read(self, at: float, successes: int | None) -> None:
        """Read the metrics; without a number, the model is gone."""
        line = "" if successes is None else f'{triton.REQUEST_SUCCESS}{{model="m",version="1"}} {successes}\n'
        self._part.observe(parse(f"# TYPE {triton.REQUEST_SUCCESS} counter\n{line}".encode()), START + at)

    def state(self, at: float, failure: str = NO_API) -> str:
        """Poll the API, which fails, and return the state of the model; empty where there is none."""
        self.lifecycle.observe_snapshot(Snapshot(START + at, api_failure=failure, ready=None))
        record = self.lifecycle.records.get(KEY)
        return record.claim.state if record else ""

    def shown(self) -> set[str]:
        """Return the names of the families that have a series of a model."""
        pages = (b"".join(text_pieces([family])) for family in ModelStates(self.lifecycle).families(0))
        return {page.decode().split()[2] for page in pages if b"model=" in page}


@pytest.mark.parametrize("failure", [NO_API, "not_triton", "refused", "timeout"])
def test_a_model_is_ready_while_its_requests_succeed(failure: str) -> None:
    """A count at the first reading says nothing of now; a minute without a success ends the state."""
    server = Server()
    server.read(0, 1000)
    states = [server.state(1, failure)]
    for at, successes in ((2, 1001), (2 + SERVES_SECONDS, 1001), (3 + SERVES_SECONDS, 1001)):
        server.read(at, successes)
        states.append(server.state(at, failure))
    server.read(100, None)
    states.append(server.state(100, failure))

    assert ["unknown", "ready", "ready", "unknown", ""] == states


def test_only_the_state_is_shown() -> None:
    """Nobody can say that the model should serve and does not, whatever its state was."""
    server = Server()
    for at, successes in ((0, 1), (1, 2), (200, 2)):
        server.read(at, successes)
        server.state(at)
        assert {str(state.MODEL_STATE)} == server.shown()
    assert server.lifecycle.records[KEY].not_ready_since is None
    assert not server.lifecycle.records[KEY].load_requested


def test_an_api_that_answers_ends_it_for_good() -> None:
    """All of the index then counts, and a later outage of the API is one."""
    server = Server()
    for at in (0, 1):
        server.read(at, at)
        server.state(at, "refused")
    server.lifecycle.observe_snapshot(
        Snapshot(START + 2, live=True, index=(IndexEntry("other", "1", "READY"),))
    )
    assert {"other"} == {key.model for key in server.lifecycle.records}
    assert {str(state.MODEL_READY), str(state.MODEL_EXPECTED)} <= server.shown()

    server.read(3, 3)
    assert "" == server.state(3, "timeout")
    assert ["unknown"] == [record.claim.state for record in server.lifecycle.records.values()]
    assert str(state.MODEL_READY) in server.shown()


def test_a_listed_model_is_missed_where_an_api_is_named() -> None:
    """An exporter that starts during an outage of the API still shows that the model should serve."""
    server = Server(m=())
    for at in (0, 1):
        server.read(at, at)
        server.state(at, "timeout")

    assert ["unknown"] == [record.claim.state for record in server.lifecycle.records.values()]
    assert {str(state.MODEL_READY), str(state.MODEL_EXPECTED)} <= server.shown()
    assert START == next(iter(server.lifecycle.records.values())).not_ready_since

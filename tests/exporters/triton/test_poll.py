"""Test one poll of Triton's APIs: how long it may take, and which models it asks about."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections import Counter
from random import Random

import pytest

from exporters.faults import Answer, FaultyServer, body, faulty, hang
from triton_exporter.http.client import Client, Limits
from triton_exporter.snapshot import ModelVersion, claims
from triton_exporter.triton import poll
from triton_exporter.triton.poll import PER_POLL, ApiPoller, parse_statistics


def poller(url: str, timeout: float = 60.0) -> ApiPoller:
    """Return a poller that a busy machine does not make late; where an endpoint hangs, the timeout is short."""
    return ApiPoller(Client(url, Limits(timeout)), time.time, lambda _endpoint, _reason: None)


def index(*models: str) -> Answer:
    return body(json.dumps([{"name": name, "version": "1", "state": "READY"} for name in models]).encode())


def once(then: Answer) -> Answer:
    """Return an empty 200 the first time, something else from then on."""
    asked = Counter[str]()

    def answer(connection: socket.socket, stop: threading.Event) -> None:
        asked["times"] += 1
        (body(b"") if asked["times"] == 1 else then)(connection, stop)

    return answer


def asked(target: FaultyServer) -> list[str]:
    return [path for _, path, _ in target.requests]


def test_a_poll_asks_a_silent_server_no_further() -> None:
    """A server that answers only its first question costs one timeout in all, and is then called away."""
    mute = ("/v2/health/ready", "/v2", "/v2/models/stats", "/v2/repository/index")
    with faulty({"/v2/health/live": once(hang), **dict.fromkeys(mute, hang)}) as target:
        failure = poller(target.url, timeout=1.0).poll().api_failure

    assert "timeout" == failure
    assert ["/v2/health/ready", "/v2/health/live", "/v2"] == asked(target)


def test_a_slow_index_is_not_an_outage() -> None:
    """Where only the index hangs, statistics still show which models serve, and the index is asked for once."""
    statistics = body(b'{"model_stats":[{"name":"a","version":"1"}]}')
    with faulty({"/v2/repository/index": hang, "/v2/models/stats": statistics}) as target:
        snapshot = poller(target.url, timeout=1.0).poll()

    assert 1 == asked(target).count("/v2/repository/index")
    assert ("", True, None) == (snapshot.api_failure, snapshot.live, snapshot.index)
    assert snapshot.statistics is not None


def test_one_slow_index_is_not_a_reason_for_a_pause() -> None:
    """Triton answers late while a load begins on a busy machine: a pause hid loads of a few seconds."""
    waits = iter([0.0, 1.0, 1.0])

    def answer(connection: socket.socket, stop: threading.Event) -> None:
        stop.wait(next(waits))
        index("a")(connection, stop)

    with faulty({"/v2/repository/index": answer}) as target:
        polling = poller(target.url)
        pauses = []
        for _ in range(3):
            polling.poll()
            pauses.append(polling.pause_seconds)

    assert pauses[1] < 4 * 1.0 <= pauses[2]


@pytest.mark.parametrize(
    ("listed", "states"),
    [
        ([{"name": "a", "version": "1", "state": "UNAVAILABLE", "reason": "unloaded"}], {"unloaded"}),
        pytest.param([], set(), id="deleted"),
    ],
)
def test_an_unload_within_a_poll_is_not_a_model_that_is_not_ready(
    listed: list[dict[str, str]], states: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index is read again once if a version has just stopped being ready, and not in the polls after that."""
    path = "/v2/models/a/versions/1/ready"
    monkeypatch.setattr(poll, "AGAIN_SECONDS", 0.0)
    with faulty({"/v2/repository/index": index("a")}) as target:

        def refuse(connection: socket.socket, stop: threading.Event) -> None:
            target.answers["/v2/repository/index"] = body(json.dumps(listed).encode())
            body(b"{}", "400 Bad Request")(connection, stop)

        polling = poller(target.url)
        polling.poll()
        target.answers[path] = refuse
        target.requests.clear()
        snapshot = polling.poll()
        counts = [asked(target).count("/v2/repository/index")]
        target.answers["/v2/repository/index"] = index("a")
        target.answers[path] = body(b"{}", "400 Bad Request")
        for _ in range(2):
            target.requests.clear()
            polling.poll()
            counts.append(asked(target).count("/v2/repository/index"))

    assert states == {claim.state for claim in claims(snapshot).values()}
    assert [2, 1, 1] == counts


def test_a_model_that_was_ready_is_asked_again_later_or_once_the_server_is_not() -> None:
    """Of two models only the one that is not ready is asked by the next poll, and both when the server drains."""
    refused = body(b"{}", "400 Bad Request")
    with faulty(
        {"/v2/repository/index": index("a", "b"), "/v2/models/b/versions/1/ready": refused}
    ) as target:
        polling = poller(target.url)
        polling.poll()
        target.requests.clear()
        polling.poll()
        again = [path for path in asked(target) if path.startswith("/v2/models/") and path.endswith("/ready")]
        target.answers |= {"/v2/health/ready": refused, "/v2/models/a/versions/1/ready": refused}
        draining = polling.poll()

    assert ["/v2/models/b/versions/1/ready"] == again
    assert {False} == set(draining.ready_versions.values())


def test_answers_that_are_as_before_are_the_same_objects() -> None:
    """What reads a snapshot sees at once that nothing moved; a request later the statistics are new."""

    def statistics(count: int) -> Answer:
        models = [
            {"name": name, "version": "1", "execution_count": done} for name, done in (("a", count), ("b", 7))
        ]
        return body(json.dumps({"model_stats": models}).encode())

    config = body(b'{"name":"a","max_batch_size":8}')
    answers = {"/v2/models/a/versions/1/config": config, "/v2/models/stats": statistics(1)}
    with faulty({"/v2/repository/index": index("a"), **answers}) as target:
        polling = poller(target.url)
        first = polling.poll()
        polling._next_statistics = 0.0  # asked for at each poll
        second = polling.poll()
        target.answers["/v2/models/stats"] = statistics(2)
        polling._next_statistics = 0.0
        third = polling.poll()

    version = ModelVersion("a", "1")
    assert first.index is second.index
    assert first.statistics is second.statistics is not None
    assert first.configs[version] is third.configs[version]
    assert third.statistics is not None
    assert (2, 7) == tuple(each.executions for each in third.statistics)
    assert third.statistics[1] is second.statistics[1]


def test_statistics_are_read_in_parts_as_if_read_whole() -> None:
    """A model whose text is as before is not read again; models that are written in another way are not mixed up."""
    random = Random(1)
    polling = poller("http://127.0.0.1:1")
    for _ in range(300):
        models = [
            {"name": f"m{n}", "execution_count": random.randrange(4)} for n in range(random.randrange(9))
        ]
        models += random.choice(
            [[], [{"x": {"name": "y"}, "name": "z"}], [{"name": "u", "x": {"name": "y"}}]]
        )
        models += random.choice([[], [{"version": "1", "name": "é\ud800"}], [{"version": "1"}, {"name": ""}]])
        random.shuffle(models)
        document = {"model_stats": models, **random.choice([{}, {"x": {"name": "y"}}])}
        text = json.dumps(document, separators=(",", random.choice([":", ": "]))).encode()

        assert parse_statistics(text) == polling._parse_statistics(text)


@pytest.mark.parametrize(("resting", "times"), [(60.0, 2), (0.0, 1)])
def test_only_statistics_that_rest_are_asked_for_less_often(
    resting: float, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Advice compares statistics that move with the counters of the same moment: each poll has new ones."""
    monkeypatch.setattr(poll, "RESTING_SECONDS", resting)
    statistics = body(b'{"model_stats":[{"name":"a","version":"1"}]}')
    with faulty({"/v2/repository/index": index("a"), "/v2/models/stats": statistics}) as target:
        polling = poller(target.url)
        polling.poll()
        time.sleep(1.0)
        polling.poll()

        assert times == asked(target).count("/v2/models/stats")


def test_a_model_that_leaves_the_index_is_searched_in_current_statistics() -> None:
    """Statistics that took long are cached for a while; those from before the model's load do not contain it."""

    def slow(connection: socket.socket, stop: threading.Event) -> None:
        stop.wait(0.2)
        body(b'{"model_stats":[]}')(connection, stop)

    with faulty({"/v2/repository/index": index("a"), "/v2/models/stats": slow}) as target:
        polling = poller(target.url)
        polling.poll()
        target.answers |= {
            "/v2/repository/index": index(),
            "/v2/models/stats": body(b'{"model_stats":[{"name":"a","version":"1"}]}'),
        }
        snapshot = polling.poll()

    assert snapshot.statistics is not None
    assert ["a"] == [statistic.model for statistic in snapshot.statistics]


def test_configurations_that_cannot_be_read_do_not_keep_others_from_being_read() -> None:
    """Forty models, of which the first thirty-two refuse: the others are known after two polls."""
    models = [f"m{number:02}" for number in range(40)]
    answers = {
        f"/v2/models/{name}/versions/1/config": body(b"{}", "400 Bad Request") for name in models[:PER_POLL]
    }
    for name in models[PER_POLL:]:
        answers[f"/v2/models/{name}/versions/1/config"] = body(json.dumps({"name": name}).encode())
    with faulty({"/v2/repository/index": index(*models), **answers}) as target:
        polling = poller(target.url)
        polling.poll()
        known = polling.poll().configs.keys()

    assert {ModelVersion(name, "1") for name in models[PER_POLL:]} == set(known)


@pytest.mark.parametrize("hung", ["config", "ready"])
def test_a_kind_of_question_that_hangs_does_not_keep_the_other_from_being_asked(hung: str) -> None:
    """Each second poll begins with the other kind: on a machine that is not busy, the second one knows both."""
    other = {"config": "ready", "ready": "config"}[hung]
    answers = {
        f"/v2/models/m/versions/1/{hung}": hang,
        f"/v2/models/m/versions/1/{other}": body(b'{"name":"m"}'),
    }
    with faulty({"/v2/repository/index": index("m"), **answers}) as target:
        polling = poller(target.url, timeout=1.0)
        for _ in range(20):
            snapshot = polling.poll()
            known = {"config": snapshot.configs, "ready": snapshot.ready_versions}[other]
            if known:
                break

    assert {ModelVersion("m", "1")} == known.keys()


def test_a_configuration_that_cannot_be_read_again_does_not_keep_others_from_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Known configurations are read again in turn, also behind those that have begun to refuse."""
    monkeypatch.setattr(poll, "AGAIN_SECONDS", 0.0)
    models = [f"m{number}" for number in range(6)]
    paths = {name: f"/v2/models/{name}/versions/1/config" for name in models}
    configs = {path: body(json.dumps({"name": name}).encode()) for name, path in paths.items()}
    with faulty({"/v2/repository/index": index(*models), **configs}) as target:
        polling = poller(target.url)
        polling.poll()
        for name in models[:2]:
            target.answers[paths[name]] = body(b"{}", "400 Bad Request")
        target.answers[paths["m5"]] = body(json.dumps({"name": "m5", "max_batch_size": 7}).encode())
        for _ in range(3):
            snapshot = polling.poll()

    assert 7 == snapshot.configs[ModelVersion("m5", "1")].max_batch_size

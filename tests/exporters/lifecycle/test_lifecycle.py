"""Test the rules that apply to every model at all times, for any answers of Triton in any order."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from triton_exporter.catalogue import state
from triton_exporter.exposition.scrape import Reading
from triton_exporter.exposition.write import text_pieces
from triton_exporter.family import Sample
from triton_exporter.lifecycle.load_failures import MEMORY_SECONDS
from triton_exporter.lifecycle.tracker import UNLOADED_SECONDS, Lifecycle
from triton_exporter.lifecycle.views import AT_ZERO_SECONDS, ModelStates, report
from triton_exporter.snapshot import IndexEntry, ModelStatistics, ModelVersion, Snapshot

_NAMES = st.sampled_from("abc")
_VERSIONS = st.sampled_from(["", "1", "2"])
_STATES = st.sampled_from(
    [
        ("", ""),
        ("READY", ""),
        ("LOADING", ""),
        ("UNLOADING", ""),
        ("UNAVAILABLE", "unloaded"),
        ("UNAVAILABLE", "CUDA out of memory"),
        ("UNAVAILABLE", "RuntimeError: no"),
        ("STRANGE", "new in a later version"),
    ]
)
_ENTRIES = st.builds(
    lambda name, version, state: IndexEntry(name, version, *state), _NAMES, _VERSIONS, _STATES
)
_INDEXES = st.none() | st.lists(_ENTRIES, max_size=5).map(tuple)
_STATISTICS = st.none() | st.lists(
    st.builds(ModelStatistics, _NAMES, st.sampled_from(["1", "2"])), max_size=2
).map(tuple)
_SNAPSHOTS = st.lists(
    st.one_of(
        st.builds(lambda reason: Snapshot(0, api_failure=reason), st.sampled_from(["refused", "timeout"])),
        st.builds(lambda index, stats: Snapshot(0, index=index, statistics=stats), _INDEXES, _STATISTICS),
    ),
    max_size=12,
)
_EXPECTED = st.dictionaries(_NAMES, st.sampled_from([(), ("1",), ("1", "2")]), max_size=2)


def _run(snapshots: Sequence[Snapshot], expected: dict[str, tuple[str, ...]]) -> Lifecycle:
    lifecycle = Lifecycle(expected)
    for number, snapshot in enumerate(snapshots, 1):
        lifecycle.observe_snapshot(_at(snapshot, number))
    return lifecycle


def _at(snapshot: Snapshot, at: float) -> Snapshot:
    return Snapshot(
        at, snapshot.api_failure, snapshot.live, index=snapshot.index, statistics=snapshot.statistics
    )


@given(_SNAPSHOTS, _EXPECTED)
def test_records_are_consistent_after_any_history(
    snapshots: list[Snapshot], expected: dict[str, tuple[str, ...]]
) -> None:
    """States come from the closed set; only a state of ready can be ready; times are not in the future."""
    lifecycle = Lifecycle(expected)
    for number, snapshot in enumerate(snapshots, 1):
        before = lifecycle.records
        counts = lifecycle.load_failures.counts
        failures = counts.copy()
        lifecycle.observe_snapshot(_at(snapshot, number))
        models = {key.model for key in lifecycle.records}
        assert expected.keys() <= models, "an expected model is always shown"
        for key, record in lifecycle.records.items():
            assert record.claim.state in state.MODEL_STATES
            assert record.claim.state == "ready" or not record.claim.ready
            assert record.since <= number
            assert not (record.claim.ready and record.not_ready_since is not None)
            if (
                key in before
                and before[key].not_ready_since is not None
                and record.not_ready_since is not None
            ):
                assert before[key].not_ready_since == record.not_ready_since, "an episode has one beginning"
            if record.load_requested and not record.claim.ready:
                assert record.not_ready_since is not None
        assert all(failures[key] <= counts[key] for key in failures), "counters never go back"
        if snapshot.api_failure:
            assert not any(record.claim.ready for record in lifecycle.records.values())


@given(_SNAPSHOTS, _EXPECTED)
def test_each_version_is_shown_in_exactly_one_state(
    snapshots: list[Snapshot], expected: dict[str, tuple[str, ...]]
) -> None:
    """No series is written twice, and for each version exactly one state is 1."""
    states = ModelStates(_run(snapshots, expected))
    written = list(states.families(100.0))
    families = {family.metric: family.samples for family in written}
    names = [sample.series for samples in families.values() for sample in samples]
    current = [sample.series for sample in families[state.MODEL_STATE] if sample.value]

    assert len(families) == len(written), "no family is written twice either"
    assert len(names) == len(set(names))
    assert len(states.lifecycle.records) == len(current)


def test_states_that_a_version_never_was_in_cost_no_series() -> None:
    """Only the current state is shown, and as 0 those before it: an alert sees them end."""
    states = ModelStates(Lifecycle())
    shown = []
    for at, word in enumerate(("LOADING", "READY", "READY"), 1):
        states.observe_snapshot(Snapshot(float(at), live=True, index=(IndexEntry("a", "1", word),)))
        (family,) = (each for each in states.families(float(at)) if each.metric is state.MODEL_STATE)
        shown.append({sample.series.split('"')[5]: sample.value for sample in family.samples})

    assert [{"loading": 1}, {"ready": 1, "loading": 0}, {"ready": 1, "loading": 0}] == shown


def _written(states: ModelStates, now: float) -> bytes:
    reading = Reading(b"", "", "", now, 0.0)
    state_page = json.dumps(report(states.lifecycle, reading, "http://triton"))
    return b"".join(text_pieces(states.families(now))) + state_page.encode()


_STEPS = st.lists(
    st.tuples(
        st.none() | _SNAPSHOTS.filter(len).map(lambda some: some[0]),  # None: the same answers once more
        st.sampled_from([1.0, 1.0, 5.0, 200.0, UNLOADED_SECONDS + 1, 700.0, MEMORY_SECONDS + 1]),
        st.sampled_from(
            ["", "", "", "logged", "ensemble", "backend", "probe", "works", "expected", "scrape"]
        ),
        _NAMES,
    ),
    max_size=15,
)


@given(_STEPS, _EXPECTED)
def test_polls_that_show_the_same_are_taken_in_at_once(
    steps: list[tuple[Snapshot | None, float, str, str]], expected: dict[str, tuple[str, ...]]
) -> None:
    """Pages are the same bytes as those of a lifecycle that takes in every poll in full, whatever happens when."""
    fast, full = ModelStates(Lifecycle(expected)), ModelStates(Lifecycle(expected))
    full.lifecycle.load_failures.observe_same = lambda at: False  # type: ignore[method-assign]
    now, snapshot = 0.0, Snapshot(0.0, live=True, index=(IndexEntry("a", "1", "READY"),), statistics=())
    for new, seconds, event, model in steps:
        now, snapshot = now + seconds, new or snapshot
        for states in (fast, full):
            lifecycle = states.lifecycle
            match event:
                case "logged":
                    lifecycle.load_failures.count_logged(model, "1", "CUDA out of memory", now)
                case "ensemble":
                    lifecycle.load_failures.count_ensemble(model, "depends on 'b'", now)
                case "backend":
                    lifecycle.failing_backends = {ModelVersion(model, "1"): "not_answering"}
                case "probe":
                    lifecycle.failed_probes = {ModelVersion(model, "1"): "its last probe failed"}
                case "works":
                    lifecycle.failing_backends, lifecycle.failed_probes = {}, {}
                case "expected":
                    lifecycle.expected = {model: ()}
                case "scrape":
                    states.note_scrape()
            states.observe_snapshot(replace(snapshot, at=now))
        assert _written(full, now) == _written(fast, now)


def test_a_model_that_left_is_forgotten_while_the_others_rest() -> None:
    """Its counters go after an hour, though every poll of that hour shows the same."""
    lifecycle = Lifecycle()
    both = (IndexEntry("a", "1", "READY"), IndexEntry("b", "1", "UNAVAILABLE", "RuntimeError: no"))
    lifecycle.observe_snapshot(Snapshot(1.0, live=True, index=both))
    rest = Snapshot(2.0, live=True, index=both[:1])
    for minute in range(70):
        lifecycle.observe_snapshot(replace(rest, at=2.0 + 60 * minute))
        left_for = 60 * minute + 1
        assert ({"a", "b"} if left_for <= MEMORY_SECONDS else {"a"}) == lifecycle.load_failures.models


def _failures(states: ModelStates, now: float) -> float:
    families = {family.metric: family.samples for family in states.families(now)}
    samples: Sequence[Sample] = families[state.MODEL_LOAD_FAILURES]
    return sum(sample.value for sample in samples)


_BROKEN = Snapshot(1.0, live=True, index=(IndexEntry("a", "1", "UNAVAILABLE", "RuntimeError: no"),))


def test_a_counter_waits_at_zero_for_prometheus() -> None:
    """A request by a person changes nothing; a scrape by Prometheus, or a while without any, lets the count go on."""
    scraped, unscraped = ModelStates(Lifecycle()), ModelStates(Lifecycle())
    for states in (scraped, unscraped):
        states.observe_snapshot(_BROKEN)
        assert [0, 0] == [_failures(states, at) for at in (1.0, 2.0)]
    scraped.note_scrape()
    assert [1, 0] == [_failures(states, 3.0) for states in (scraped, unscraped)]
    assert 1 == _failures(unscraped, 1.0 + AT_ZERO_SECONDS)


def test_models_that_come_and_go_leave_nothing_behind() -> None:
    """A server with ever new names does not fill the exporter's memory."""
    lifecycle = Lifecycle()
    states = ModelStates(lifecycle)
    for number in range(200):
        entry = IndexEntry(f"model-{number}", "1", "UNAVAILABLE", "RuntimeError: no")
        states.observe_snapshot(Snapshot(number * 100.0, live=True, index=(entry,)))
        list(states.families(number * 100.0))

    retained = MEMORY_SECONDS / 100 + 1
    assert len(lifecycle.load_failures.models) <= retained
    assert len(lifecycle.load_failures.counts) <= retained
    assert len(lifecycle.load_failures.last) <= retained


def test_a_timeout_is_not_taken_for_a_restart() -> None:
    """The same failure seen again after a slow answer is the same attempt; after a restart it is another."""
    lifecycle = Lifecycle()
    for snapshot in (_BROKEN, Snapshot(2, api_failure="timeout"), _at(_BROKEN, 3)):
        lifecycle.observe_snapshot(snapshot)
    assert 1 == lifecycle.load_failures.counts.total()

    for snapshot in (Snapshot(4, api_failure="refused"), _at(_BROKEN, 5)):
        lifecycle.observe_snapshot(snapshot)
    assert 2 == lifecycle.load_failures.counts.total()
    assert 1.0 == lifecycle.records[ModelVersion("a", "1")].not_ready_since


def test_a_superseded_version_is_not_missed() -> None:
    """Of an expected model without versions, the one in use is enough; when none is, the newest is missed."""
    lifecycle = Lifecycle({"a": ()})
    old, new = IndexEntry("a", "9", "UNAVAILABLE", "unloaded"), IndexEntry("a", "10", "READY")
    lifecycle.observe_snapshot(Snapshot(1, live=True, index=(old, new)))
    assert all(record.not_ready_since is None for record in lifecycle.records.values())

    lifecycle.observe_snapshot(
        Snapshot(2, live=True, index=(old, IndexEntry("a", "10", "UNAVAILABLE", "unloaded")))
    )
    missed = {key.version for key, record in lifecycle.records.items() if record.not_ready_since is not None}
    assert {"10"} == missed


def test_a_version_is_not_missed_after_a_restart_with_newer_ones() -> None:
    """The version is missing until another one of its model is ready, or as long as the list names it."""
    both = (IndexEntry("a", "1", "READY"), IndexEntry("a", "2", "READY"))
    starting = (IndexEntry("a", "2", "LOADING"), IndexEntry("a", "3", "LOADING"))
    rolled_out = (IndexEntry("a", "2", "READY"), IndexEntry("a", "3", "READY"))
    old = ModelVersion("a", "1")
    for expected, retained in (((), False), (("1",), True)):
        lifecycle = Lifecycle({"a": expected})
        for at, index in enumerate((both, None, starting), 1):
            lifecycle.observe_snapshot(
                Snapshot(at, live=True, index=index, api_failure="" if index else "refused")
            )
        assert "missing" == lifecycle.records[old].claim.state

        lifecycle.observe_snapshot(Snapshot(4, live=True, index=rolled_out))
        assert retained == (old in lifecycle.records)


def test_a_model_that_left_a_running_triton_is_shown_as_unloaded_until_it_is_scraped() -> None:
    """Files may be removed before a poll sees the unload; a restart or an empty index is not a decision."""
    left, retained = IndexEntry("left", "1", "READY"), IndexEntry("retained", "1", "READY")
    key = ModelVersion("left", "1")

    def after(*indexes: tuple[IndexEntry, ...] | None, at: float = 2.0) -> Lifecycle:
        lifecycle = Lifecycle()
        lifecycle.observe_snapshot(Snapshot(1.0, live=True, index=(left, retained), statistics=()))
        for number, index in enumerate(indexes):
            lifecycle.observe_snapshot(
                Snapshot(
                    at + number,
                    live=True,
                    index=index,
                    statistics=None if index is None else (),
                    api_failure="refused" if index is None else "",
                )
            )
        return lifecycle

    removed = after((retained,), (retained,))
    assert "unloaded" == removed.records[key].claim.state
    assert "left" not in removed.expected_models()
    assert removed.records[key].not_ready_since is None

    removed.observe_snapshot(Snapshot(3.0 + UNLOADED_SECONDS, live=True, index=(retained,), statistics=()))
    assert key not in removed.records

    assert "missing" == after(None, (retained,)).records[key].claim.state
    assert key not in after(()).records


def test_silence_of_one_source_is_not_the_end_of_its_models() -> None:
    """When only the index or only statistics answer, what the other one knew becomes unknown, not gone."""
    failed = IndexEntry("failed", "1", "UNAVAILABLE", "RuntimeError: no")
    listed, in_memory = IndexEntry("listed", "1", "READY"), ModelStatistics("memory", "1")
    statistics = (ModelStatistics("listed", "1"), in_memory)
    lifecycle = Lifecycle()

    def states(
        index: tuple[IndexEntry, ...] | None, stats: tuple[ModelStatistics, ...] | None
    ) -> dict[str, str]:
        lifecycle.observe_snapshot(
            Snapshot(lifecycle.snapshot.at + 1, live=True, index=index, statistics=stats)
        )
        return {key.model: record.claim.state for key, record in lifecycle.records.items()}

    whole = {"failed": "unavailable", "listed": "ready", "memory": "ready"}
    assert whole == states((failed, listed), statistics)
    assert {"failed": "unknown", "listed": "ready", "memory": "ready"} == states(None, statistics)
    assert {"failed": "unknown", "listed": "ready", "memory": "ready"} == states(None, statistics)
    assert whole == states((failed, listed), statistics)
    assert {"failed": "unavailable", "listed": "ready", "memory": "unknown"} == states((failed, listed), None)
    assert {"failed": "unavailable", "listed": "ready", "memory": "unknown"} == states((failed, listed), None)
    assert whole == states((failed, listed), statistics)
    assert 1 == lifecycle.load_failures.counts.total()
    assert 1.0 == lifecycle.records[ModelVersion("failed", "1")].not_ready_since


def test_only_a_load_from_which_nothing_is_lost_is_a_first_load() -> None:
    """Loading is a first load until the version served or failed; unloading it on purpose begins anew."""
    lifecycle, key = Lifecycle(), ModelVersion("a", "1")
    for at, (answered, reason, first) in enumerate(
        (
            ("LOADING", "", True),
            ("READY", "", False),
            ("LOADING", "", False),
            ("UNAVAILABLE", "RuntimeError: no", False),
            ("LOADING", "", False),
            ("UNLOADING", "", False),
            ("UNAVAILABLE", "unloaded", False),
            ("LOADING", "", True),
        ),
        1,
    ):
        lifecycle.observe_snapshot(Snapshot(at, live=True, index=(IndexEntry("a", "1", answered, reason),)))
        assert first == lifecycle.records[key].first_load, (at, answered)

    lifecycle.observe_snapshot(Snapshot(9, api_failure="timeout"))
    assert not lifecycle.records[key].first_load
    lifecycle.observe_snapshot(Snapshot(10, live=True, index=(IndexEntry("a", "1", "LOADING"),)))
    assert lifecycle.records[key].first_load


def test_a_load_that_takes_too_long_is_no_first_load() -> None:
    """It has ten minutes, or twice the time of the slowest load that was seen."""
    lifecycle, key = Lifecycle(), ModelVersion("new", "1")

    def first_load(at: float, slow: str, new: str) -> bool:
        index = (IndexEntry("slow", "1", slow), IndexEntry("new", "1", new))
        lifecycle.observe_snapshot(Snapshot(at, live=True, index=index))
        return lifecycle.records[key].first_load

    assert first_load(0, "UNAVAILABLE", "LOADING")
    assert first_load(600, "LOADING", "LOADING")
    assert not first_load(601, "LOADING", "LOADING")
    assert not first_load(1000, "READY", "UNAVAILABLE")
    lifecycle.observe_snapshot(
        Snapshot(1001, live=True, index=(IndexEntry("new", "1", "UNAVAILABLE", "unloaded"),))
    )
    assert first_load(1002, "READY", "LOADING")
    assert first_load(1800, "READY", "LOADING"), "the slow one took 400 s"
    assert not first_load(1803, "READY", "LOADING")

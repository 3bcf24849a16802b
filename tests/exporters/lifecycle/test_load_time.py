"""Test the duration of a load from snapshots: correct to within a poll, or not reported at all."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triton_exporter.catalogue import state
from triton_exporter.lifecycle.tracker import Lifecycle
from triton_exporter.lifecycle.views import ModelStates
from triton_exporter.snapshot import IndexEntry, ModelVersion, Snapshot

_KEY = ModelVersion("m", "1")


def _polled(at: float, *entry: str, failure: str = "") -> Snapshot:
    """One poll of a server that lists one model with these words, or none of whose ports answers."""
    return Snapshot(at, api_failure=failure, index=None if failure else (IndexEntry("m", *entry),))


def _seconds(*snapshots: Snapshot) -> float | None:
    lifecycle = Lifecycle()
    for snapshot in snapshots:
        lifecycle.observe_snapshot(snapshot)
    return lifecycle.records[_KEY].load.seconds


_BARE, _LOADING, _READY = (), ("1", "LOADING"), ("1", "READY")
_FAILED, _UNLOADED = ("1", "UNAVAILABLE", "RuntimeError"), ("1", "UNAVAILABLE", "unloaded")


@given(
    st.lists(st.floats(0.05, 5), min_size=5, max_size=40),
    st.floats(0.1, 40),
    st.floats(0.1, 40),
    st.sampled_from([_BARE, _FAILED, _UNLOADED]),
)
def test_the_estimate_is_off_by_one_poll_at_most(
    gaps: list[float], begins: float, lasts: float, before: tuple[str, ...]
) -> None:
    """At any rhythm of polls the error is below the longest time between two of them, or there is no value."""
    times = [0.0]
    for gap in gaps:
        times.append(times[-1] + gap)
    lifecycle = Lifecycle()
    for at in times:
        lifecycle.observe_snapshot(
            _polled(at, *(before if at < begins else _LOADING if at < begins + lasts else _READY))
        )
    estimate = lifecycle.records[_KEY].load.seconds if _KEY in lifecycle.records else None
    seen = any(begins <= at < begins + lasts for at in times[1:])

    assert (estimate is not None) == (seen and times[-1] >= begins + lasts)
    if estimate is not None:
        assert abs(estimate - lasts) <= max(b - a for a, b in pairwise(times)) + 1e-6


@pytest.mark.parametrize(
    ("why", "snapshots", "seconds"),
    [
        ("two attempts: the good one", [_BARE, _LOADING, _FAILED, _LOADING, _LOADING, _READY], 2.0),
        ("it goes on being shown", [_BARE, _LOADING, _READY, _READY], 1.0),
        ("a load under way at the first poll", [_LOADING, _LOADING, _READY], None),
        ("no poll fell into the load", [_BARE, _READY], None),
        ("a model that was always there", [_READY, _READY], None),
        ("a later load that no poll found", [_BARE, _LOADING, _READY, _UNLOADED, _READY], None),
        ("unloaded", [_BARE, _LOADING, _READY, _UNLOADED], None),
        ("Triton was mute for a poll while it loaded", [_BARE, _LOADING, None, _LOADING, _READY], None),
        ("Triton was mute for a poll afterwards", [_BARE, _LOADING, _READY, None, _READY], 1.0),
        ("a restart loaded it again, unseen", [_BARE, _LOADING, _READY, "refused", _READY], None),
        ("a load right after Triton was mute", [_BARE, None, _LOADING, _READY], None),
    ],
)
def test_a_load_that_was_not_seen_whole_has_no_duration(
    why: str, snapshots: list[tuple[str, ...] | str | None], seconds: float | None
) -> None:
    """After a missing poll no duration is reported, and never that of another load."""
    polled = [
        _polled(float(at), *answer)
        if isinstance(answer, tuple)
        else _polled(float(at), failure=answer or "timeout")
        for at, answer in enumerate(snapshots, 1)
    ]

    assert seconds == _seconds(*polled), why


def test_the_series_is_there_only_with_a_value() -> None:
    """One series for the version whose load was seen, none for the others."""
    states = ModelStates(Lifecycle())
    others = IndexEntry("other", "1", "READY")
    for at, entry in enumerate([_BARE, _LOADING, _READY], 1):
        states.observe_snapshot(Snapshot(at * 2.0, live=True, index=(IndexEntry("m", *entry), others)))
    families = {family.metric: family for family in states.families(9.0)}
    samples = families[state.MODEL_LOAD_DURATION_ESTIMATED].samples

    assert [(f'{state.MODEL_LOAD_DURATION_ESTIMATED}{{model="m",version="1"}}', 2.0)] == [
        (sample.series, sample.value) for sample in samples
    ]

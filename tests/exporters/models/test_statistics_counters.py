"""Test counters of executions through the reloads at which Triton starts its statistics again."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from triton_exporter.exposition.write import text_pieces
from triton_exporter.model_series import MEMORY_SECONDS, StatisticsCounters
from triton_exporter.snapshot import BatchStatistics, ModelStatistics, ModelVersion, Snapshot

_MODEL = ModelVersion("worker", "1")


def _executed(size: int, executions: int, seconds: float) -> ModelStatistics:
    batch = BatchStatistics(size, executions, 0, int(seconds * 1e9), 0)
    return ModelStatistics(*_MODEL, batches=(batch,))


def _shown(*polls: ModelStatistics) -> dict[str, float]:
    """Return what is shown after a first poll without work and then these."""
    counters = StatisticsCounters()
    for second, statistics in enumerate((ModelStatistics(*_MODEL), *polls)):
        counters.observe_snapshot(Snapshot(float(second), statistics=(statistics,)))
    lines = b"".join(text_pieces(counters.families(10.0))).decode().splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}


def test_a_reload_between_two_polls_is_seen_when_a_counter_has_passed_its_last_value() -> None:
    """Two executions, a hot reload and three more: the count of executions never fell, but their time did."""
    shown = _shown(_executed(1, 2, 0.1), _executed(1, 3, 0.03))

    assert 0.13 == shown['triton_model_busy_seconds_total{model="worker",version="1"}']


def test_a_reload_is_seen_when_batches_of_another_size_follow() -> None:
    """One execution of two requests that is no longer among the statistics was before a reload."""
    shown = _shown(_executed(2, 1, 0.05), _executed(3, 1, 0.06))

    assert 0.11 == shown['triton_model_busy_seconds_total{model="worker",version="1"}']


_STATISTICS = st.lists(
    st.builds(
        lambda model, executions: ModelStatistics(
            model, "1", float(executions), batches=(BatchStatistics(1, executions, 0, executions * 10**7, 0),)
        ),
        st.sampled_from("abc"),
        st.integers(0, 5),
    ),
    unique_by=lambda each: each.model,
    max_size=3,
).map(tuple)
_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["same", "same", "refused", "timeout"]) | _STATISTICS,
        st.sampled_from([1.0, 1.0, 300.0, MEMORY_SECONDS, MEMORY_SECONDS + 1]),
    ),
    max_size=12,
)


@given(_STEPS)
def test_statistics_that_have_not_moved_are_taken_in_at_once(
    steps: list[tuple[str | tuple[ModelStatistics, ...], float]],
) -> None:
    """Where a poll has the same object as the one before, the page is that of a copy, which is read in full."""
    fast, full = StatisticsCounters(), StatisticsCounters()
    now, statistics = 0.0, (_executed(1, 1, 0.1),)
    for step, seconds in steps:
        now += seconds
        if isinstance(step, tuple):
            statistics = step
        failed = step in ("refused", "timeout")
        snapshot = Snapshot(
            now, api_failure=str(step) if failed else "", statistics=None if failed else statistics
        )
        fast.observe_snapshot(snapshot)
        copy = tuple(replace(each) for each in statistics)
        full.observe_snapshot(snapshot if failed else replace(snapshot, statistics=copy))
        assert b"".join(text_pieces(full.families(now))) == b"".join(text_pieces(fast.families(now)))

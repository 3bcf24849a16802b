"""Test that XID errors are a true counter, for any behaviour of the source."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triton_exporter.gpu.gpu_reading import XidReport
from triton_exporter.gpu.xid import MAX_UNLISTED, XIDS, XidCounter, classify

A = "GPU-a"
LATER = 1e6


def last(code: int) -> XidReport:
    return XidReport(A, code, 1.0, "last")


def counted(*polls: list[XidReport]) -> dict[int, float]:
    """Codes with a count above 0 after these polls."""
    counter = XidCounter()
    for reports in polls:
        counter.update([A], reports, 0.0)
    return {code: count for (_, code), count in counter.counts(LATER).items() if count}


def test_known_codes_are_there_at_zero() -> None:
    """increase() needs a zero before the first event, so the codes of the table are there from the start."""
    counter = XidCounter()
    counter.update([A], [], 0.0)

    assert {(A, xid.code): 0.0 for xid in XIDS} == counter.counts(0.0)


def test_an_unlisted_code_is_zero_before_it_rises() -> None:
    """Prometheus sees the new series at 0 for a minute, then its count."""
    counter = XidCounter()
    counter.update([A], [last(0)], 0.0)
    counter.update([A], [last(777)], 100.0)

    assert [0.0, 0.0, 1.0] == [counter.counts(now)[A, 777] for now in (100.0, 159.0, 160.0)]


def test_nothing_is_shown_before_a_reading_proves_that_xids_are_watched() -> None:
    """In 4.x the first row may be the first XID: it is at 0 for a minute, so that increase() sees it."""
    counter = XidCounter()
    counter.update([A], [], 0.0, is_watched=False)
    before = counter.counts(10.0)
    counter.update([A], [last(79)], 100.0)
    counter.update([A], [], 300.0, is_watched=False)  # dcgm-exporter started again
    counter.update([A], [last(31)], 400.0)

    assert {} == before
    assert [0.0, 0.0, 1.0] == [counter.counts(now)[A, 79] for now in (100.0, 159.0, 160.0)]
    assert 1.0 == counter.counts(400.0)[A, 31], "later codes rise from a zero that was shown"


@pytest.mark.parametrize(
    ("case", "polls", "expected"),
    [
        ("a code that was there before the exporter is old news", [[last(79)], [last(79)]], {}),
        ("a new code is an event", [[last(0)], [last(79)], [last(79)]], {79: 1}),
        ("in 4.x there is no row before the first XID", [[], [last(79)]], {79: 1}),
        ("each change is an event", [[last(0)], [last(79)], [last(31)], [last(79)]], {31: 1, 79: 2}),
        ("a row that went away and came back is a new event", [[last(79)], [], [last(79)]], {79: 1}),
        (
            "instances of a GPU repeat its code",
            [[last(0), last(0)], [last(0), last(79)], [last(79), last(79)]],
            {79: 1},
        ),
    ],
)
def test_the_last_code_becomes_a_counter(
    case: str, polls: list[list[XidReport]], expected: dict[int, float]
) -> None:
    """Changes of the gauge are counted."""
    assert expected == counted(*polls), case


def test_a_window_counts_what_it_gains() -> None:
    """The windowed count falls as its window slides: only its rises are events."""
    polls = [[XidReport(A, 31, level, "window")] for level in (0.0, 2.0, 2.0, 1.0, 3.0)]

    assert {31: 4} == counted(*polls, [])


def test_a_total_that_starts_again_goes_on() -> None:
    """After a restart of dcgm-exporter its own counter starts at 0; ours does not fall."""
    polls = [[XidReport(A, 31, level, "total")] for level in (5.0, 7.0, 1.0, 2.0)]

    assert {31: 4} == counted(*polls)


def test_one_event_reported_twice_counts_once() -> None:
    """Gauge and counter report the same event, perhaps one poll apart."""
    polls = [[], [last(79)], [last(79), XidReport(A, 79, 1.0, "total")]]

    assert {79: 1} == counted(*polls)


def test_instances_that_repeat_a_count_do_not_multiply_it() -> None:
    """dcgm-exporter counts by GPU and repeats the count for each MIG instance."""
    polls = [[XidReport(A, 31, level, "window")] * 3 for level in (0.0, 2.0)]

    assert {31: 2} == counted(*polls)


def test_each_event_of_nvml_is_counted() -> None:
    """NVML's events are counted each."""
    event = XidReport(A, 63, 1.0, "event")

    assert {63: 3} == counted([], [event, event], [event])


def test_invented_codes_do_not_fill_the_memory() -> None:
    """Codes of no table are counted up to a limit, known ones always."""
    counter = XidCounter()
    counter.update([A], [], 0.0)
    counter.update([A], [XidReport(A, code, 1.0, "total") for code in range(1000)], 0.0)

    counted = {code for (_, code), count in counter.counts(LATER).items() if count}
    assert {xid.code for xid in XIDS} <= counted
    assert len(XIDS) + MAX_UNLISTED >= len(counted)


@given(
    st.lists(
        st.lists(
            st.builds(
                XidReport,
                st.sampled_from([A, "GPU-b"]),
                st.sampled_from([0, 13, 31, 79, 777]),
                st.floats(0, 50),
                st.sampled_from(["last", "window", "total", "event"]),
            ),
            max_size=6,
        ),
        max_size=8,
    )
)
def test_no_count_ever_falls(polls: list[list[XidReport]]) -> None:
    """For any reports in any order, every series only rises."""
    counter = XidCounter()
    before: dict[tuple[str, int], float] = {}
    for reports in polls:
        counter.update([A], reports, LATER)
        now = counter.counts(2 * LATER)
        assert all(now.get(key, 0.0) >= count for key, count in before.items())
        before = now


def test_the_table_is_valid() -> None:
    """No code stands twice, the codes everybody pages on are hardware."""
    assert len({xid.code for xid in XIDS}) == len(XIDS)
    assert {"hardware"} == {classify(code) for code in (48, 62, 64, 74, 79, 95, 119, 120)}
    assert {"application"} == {classify(code) for code in (13, 31, 43, 45)}
    assert ("contained", "informational", "unknown") == (classify(94), classify(63), classify(9999))

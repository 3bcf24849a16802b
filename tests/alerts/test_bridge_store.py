"""The bridge's database: what stays in it, for how long, and at what cost."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.bridge_world import CHANNEL, body_of
from triton_alerts.bridge.store import PRUNED_AT_ONCE, Store

DAY = 86_400.0
NOW = 1_700_000_000.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path / "bridge.sqlite", lambda _severity: CHANNEL)
    yield made
    made.close()


def fill(store: Store, count: int, *, closed_at: float | None = None) -> None:
    """So many incidents more, each with a chart; delivered in full when they are closed."""
    first = store.count_open().get("critical", 0)
    with store._transaction():  # one write to disk instead of thousands
        for number in range(first, first + count):
            name = f"g{number} {closed_at}"
            store.receive(body_of(name, {"m": NOW - 9 * DAY}, {}), "am", NOW - 9 * DAY)
            if closed_at is not None:
                store.receive(body_of(name, {}, {"m": (NOW - 9 * DAY, closed_at)}), "am", closed_at)
        for delivery in store.pending(CHANNEL):
            store.remember(f"chart {delivery.incident}", "")
            if delivery.closed_at is not None:
                store.finish(delivery, told_seq=delivery.last_seq)


def steps_of_pruning(store: Store) -> int:
    """How many hundreds of steps SQLite takes to prune once."""
    counted = 0

    def count() -> int:
        nonlocal counted
        counted += 1
        return 0

    store._connection.set_progress_handler(count, 100)
    store.prune(NOW - 7 * DAY)
    store._connection.set_progress_handler(None, 100)
    return counted


def test_the_cost_of_pruning_does_not_grow_with_the_incidents_that_stay(store: Store) -> None:
    """It holds the lock that a notification waits for."""
    fill(store, 100)
    few = steps_of_pruning(store)
    fill(store, 900)
    many = steps_of_pruning(store)

    assert 1000 == store.count_open()["critical"]
    assert many <= 2 * few + 10


def test_pruning_forgets_what_closed_long_ago_and_was_delivered(store: Store, tmp_path: Path) -> None:
    """Open incidents, recent ones and those with something to send stay, with their facts."""
    fill(store, 2, closed_at=NOW - 8 * DAY)
    fill(store, 2, closed_at=NOW - 6 * DAY)
    fill(store, 2)
    store.receive(body_of("late", {}, {"m": (NOW - 9 * DAY, NOW - 8 * DAY)}), "am", NOW - 8 * DAY)

    assert 2 == store.prune(NOW - 7 * DAY)
    with sqlite3.connect(tmp_path / "bridge.sqlite") as connection:
        counts = [
            connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for table in ("incidents", "deliveries", "facts")
        ]
    connection.close()
    assert [5, 5, 4] == counts


def test_pruning_takes_a_part_at_a_time(store: Store) -> None:
    """A notification must not wait for a week's incidents to be deleted."""
    fill(store, PRUNED_AT_ONCE + 5, closed_at=NOW - 8 * DAY)

    assert [PRUNED_AT_ONCE, 5, 0] == [store.prune(NOW - 7 * DAY) for _ in range(3)]

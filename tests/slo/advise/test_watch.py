"""Test when the headroom is computed again."""

from __future__ import annotations

import pytest

from slo.advise.made import BATCHING, STEP, Made, poisson, varying
from triton_slo.advise.measured import Configuration, Measured, Promise, Step
from triton_slo.advise.watch import Watch


def test_another_server_changes_the_headroom() -> None:
    """It has no traffic yet, so that no rate moved; autoscaling on the headroom of fewer would add ever more."""
    steps = Made(lambda requests, _: 0.04 + 0.005 * requests, batch=8).steps(poisson(20, 900))
    promises = (Promise("queue", "queue", 0.9, 0.1),)
    watch = Watch(60)
    for known in (steps, steps, [*steps, Step("b", steps[-1].at, STEP)]):
        watch.update([Measured("m", "1", BATCHING, tuple(known), promises)], 1000.0)

    assert 2 == watch.computations


def test_the_headroom_is_that_of_the_last_minutes() -> None:
    """Three times as much in the last minute is 3 % of the hour: nothing is computed again, and there is a third of the room."""
    promises = (Promise("queue", "queue", 0.9, 0.1),)
    watch, rooms = Watch(60), []
    for last in (10, 30):
        times = [*poisson(10, 3540), *(3540 + at for at in poisson(last, 60, seed=2))]
        steps = Made(varying(0.01)).steps([*times, 3600])
        watch.update([Measured("m", "1", Configuration(), tuple(steps), promises)], 1000.0)
        rooms += [sample.value for sample in watch.families(1000.0)[0].samples if "estimate" in sample.series]

    assert 1 == watch.computations
    assert rooms[0] / rooms[1] == pytest.approx(3, rel=0.15)

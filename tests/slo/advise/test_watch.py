"""Test when the headroom is computed again."""

from __future__ import annotations

from slo.advise.made import BATCHING, STEP, Made, poisson
from triton_slo.advise.measured import Measured, Promise, Step
from triton_slo.advise.watch import Watch


def test_another_server_changes_the_headroom() -> None:
    """It has no traffic yet, so that no rate moved; autoscaling on the headroom of fewer would add ever more."""
    steps = Made(lambda requests, _: 0.04 + 0.005 * requests, batch=8).steps(poisson(20, 900))
    promises = {("m", "1"): [Promise("queue", "queue", 0.9, 0.1)]}
    watch = Watch(60)
    for known in (steps, steps, [*steps, Step("b", steps[-1].at, STEP)]):
        watch.update([Measured("m", "1", BATCHING, tuple(known))], promises, 1000.0)

    assert 2 == watch.computations

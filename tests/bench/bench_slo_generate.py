"""Measure the generation of rules for many models with thresholds and targets of their own."""

from __future__ import annotations

import time

from triton_slo.artifact import Options
from triton_slo.generate import artifacts
from triton_slo.objective.model import Objective


def seconds(models: int) -> float:
    """Parse and generate one objective in which every model has its own target and threshold (best of three)."""
    overrides = [
        {"models": [f"model-{n}"], "threshold": f"{100 + n}ms", "target": 0.9 + n / (20 * models)}
        for n in range(models)
    ]
    best = float("inf")
    for _ in range(3):
        began = time.perf_counter()
        objective = Objective.model_validate(
            {
                "name": "latency",
                "target": "99%",
                "indicator": {"kind": "latency", "threshold": "1s"},
                "overrides": overrides,
            }
        )
        assert len(artifacts((objective,), Options())) > 1
        best = min(best, time.perf_counter() - began)
    return best


def test_the_cost_of_generation_grows_linearly() -> None:
    """Ten times the models cost at most fifteen times as much; the figures are printed."""
    took = {models: seconds(models) for models in (100, 1_000, 10_000)}
    print({models: f"{value:.3f} s" for models, value in took.items()})

    assert took[100] < 1
    assert took[1_000] < 15 * took[100]
    assert took[10_000] < 15 * took[1_000]

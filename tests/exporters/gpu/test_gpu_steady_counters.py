"""Test that counters of GPUs fall only when they really started again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triton_exporter.catalogue import gpu
from triton_exporter.gpu.gpu_reading import Device, Entity, GpuReading, Slot
from triton_exporter.gpu.gpus import SteadyCounters

U = "GPU-a"
ENERGY = Slot(gpu.ENERGY, Entity(U))
POWER = Slot(gpu.POWER, Entity(U))


def reading(source: str, joules: float, watts: float = 1.0) -> GpuReading:
    return GpuReading(source, 0.0, {U: Device(U)}, values={ENERGY: joules, POWER: watts})


def shown(*readings: GpuReading) -> list[float]:
    steady = SteadyCounters()
    return [steady.counters(reading, {U}).values[ENERGY] for reading in readings]


@pytest.mark.parametrize(
    ("case", "readings", "expected"),
    [
        ("it rises", [("dcgm", 10), ("dcgm", 15)], [10, 15]),
        (
            "dcgm-exporter reports a sample 30 s older than NVML's",
            [("nvml", 1000), ("dcgm", 990), ("dcgm", 1010)],
            [1000, 1000, 1010],
        ),
        ("the driver was loaded again", [("dcgm", 1000), ("dcgm", 3), ("dcgm", 5)], [1000, 3, 5]),
        (
            "Triton counts from its own start, so the counter is carried on",
            [("dcgm", 1e9), ("triton", 200), ("triton", 250), ("dcgm", 1e9 + 90), ("dcgm", 1e9 + 100)],
            [1e9, 1e9, 1e9 + 50, 1e9 + 50, 1e9 + 60],
        ),
        (
            "a restart after that is not negative",
            [("triton", 200), ("dcgm", 1e9), ("dcgm", 7)],
            [200, 200, 7],
        ),
    ],
)
def test_a_counter_falls_only_at_a_restart(
    case: str, readings: list[tuple[str, float]], expected: list[float]
) -> None:
    """Prometheus would take any other fall for one, and count everything again."""
    assert expected == shown(*(reading(source, joules) for source, joules in readings)), case


def test_gauges_are_left_alone() -> None:
    """Power may fall."""
    steady = SteadyCounters()
    steady.counters(reading("dcgm", 1, 300.0), {U})

    assert 100.0 == steady.counters(reading("dcgm", 2, 100.0), {U}).values[POWER]


@given(
    st.lists(
        st.tuples(st.sampled_from(["dcgm", "nvml", "triton"]), st.integers(0, 10**12)),
        min_size=1,
        max_size=20,
    )
)
def test_no_counter_is_negative_or_falls_a_little(readings: list[tuple[str, int]]) -> None:
    """For any sources, a counter is never below 0, and a fall is always to a restarted counter's own value."""
    values = shown(*(reading(source, joules) for source, joules in readings))

    assert all(value >= 0 for value in values)
    for before, after, (_, raw) in zip(values, values[1:], readings[1:], strict=False):
        assert after >= before or after == raw

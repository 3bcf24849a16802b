"""Test how a GPU is shared out to models: parts and remainder always add up to the whole."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from triton_exporter.catalogue import gpu
from triton_exporter.gpu.gpu_reading import Device, Entity, GpuReading, Slot
from triton_exporter.gpu.gpu_use import BusyMeter, GpuUse, Pair, share_utilization
from triton_exporter.gpu.mapping import GpuClaim
from triton_exporter.snapshot import BatchStatistics, ModelStatistics, ModelVersion

ratios = st.floats(0, 1)
busy = st.dictionaries(st.sampled_from("abcde"), st.floats(0, 1e4), max_size=5)
elapsed = st.floats(1e-3, 1e4)


@given(ratios, busy, elapsed)
def test_utilization_parts_and_remainder_are_the_device(
    utilization: float, spent: dict[str, float], seconds: float
) -> None:
    """For any activity of the models, their parts and the rest add up to the device's, and none is negative."""
    shares = share_utilization(utilization, spent, seconds)

    assert math.isclose(utilization, math.fsum([*shares.parts.values(), shares.rest]), abs_tol=1e-9)
    assert all(part >= 0 for part in [*shares.parts.values(), shares.rest])
    assert spent.keys() == shares.parts.keys()


@given(ratios, busy, elapsed)
def test_no_model_gets_more_than_it_executed(
    utilization: float, spent: dict[str, float], seconds: float
) -> None:
    """Execution time bounds what a model can have caused; who did not execute caused nothing."""
    shares = share_utilization(utilization, spent, seconds)

    for key, part in shares.parts.items():
        assert part <= spent[key] / seconds * (1 + 1e-9) + 1e-12
        assert part == 0 or spent[key] > 0


def test_another_process_is_not_blamed_on_a_model() -> None:
    """The GPU is 90 % busy while the only model executed 10 % of the time: 80 % are another process'."""
    shares = share_utilization(0.9, {"a": 1.0}, 10.0)

    assert pytest.approx({"a": 0.1}) == shares.parts
    assert pytest.approx(0.8) == shares.rest


def test_overlapping_instances_share_what_the_device_did() -> None:
    """Two instances that executed all the time share a half busy GPU; there is no rest."""
    shares = share_utilization(0.5, {"a": 10.0, "b": 30.0}, 10.0)

    assert pytest.approx({"a": 0.125, "b": 0.375}) == shares.parts
    assert pytest.approx(0.0) == shares.rest


def test_a_reload_neither_loses_nor_repeats_execution_time() -> None:
    """Triton's count starts at 0 after a reload; ours goes on."""
    meter: BusyMeter[str] = BusyMeter()

    assert [0.0, 2.0, 0.5, 1.0] == [meter.advance("a", round(n * 1e9)) for n in (5, 7, 0.5, 1.5)]


# --- The use of a GPU over time -----------------------------------------------------------------------------

G = Entity("GPU-a")
MODELS = [ModelVersion("a", "1"), ModelVersion("b", "1"), ModelVersion("b", "2")]
CLAIMS = tuple(GpuClaim(key, G, 1.0, "config", "likely") for key in MODELS)


def statistics(seconds: dict[ModelVersion, float]) -> list[ModelStatistics]:
    return [
        ModelStatistics(*key, batches=(BatchStatistics(8, 10, 999, int(value * 1e9), 999),))
        for key, value in seconds.items()
    ]


def sample(at: float, joules: float, utilization: float, watts: float) -> GpuReading:
    values = {
        Slot(gpu.ENERGY, G): joules,
        Slot(gpu.UTILIZATION, G): utilization,
        Slot(gpu.POWER, G): watts,
    }
    return GpuReading("dcgm", at, {G.uuid: Device(G.uuid)}, values=values)


class Accounts(RuleBasedStateMachine):
    """A GPU and its models over time: executions, samples, idle times, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.gpu_use = GpuUse()
        self.at = 0.0
        self.joules = 1e6
        self.used = 0.0
        self.utilization = 0.0
        self.seconds = dict.fromkeys(MODELS, 0.0)
        self.gpu_use.update(statistics(self.seconds), CLAIMS)
        self.gpu_use.share(sample(self.at, self.joules, 0.0, 100.0), [G.uuid])

    @rule(key=st.sampled_from(MODELS), seconds=st.floats(0, 20))
    def execute(self, key: ModelVersion, seconds: float) -> None:
        self.seconds[key] += seconds
        self.gpu_use.update(statistics(self.seconds), CLAIMS)

    @rule(key=st.sampled_from(MODELS))
    def reload(self, key: ModelVersion) -> None:
        self.seconds[key] = 0.0
        self.gpu_use.update(statistics(self.seconds), CLAIMS)

    @rule(seconds=st.floats(0.1, 60), watts=st.floats(1, 1000), utilization=ratios)
    def measure(self, seconds: float, watts: float, utilization: float) -> None:
        self.at += seconds
        self.joules += watts * seconds
        self.used += watts * seconds
        self.utilization = utilization
        self.gpu_use.share(sample(self.at, self.joules, utilization, watts), [G.uuid])

    @invariant()
    def utilization_adds_up(self) -> None:
        for shares in self.gpu_use.utilization.values():
            whole = math.fsum([*shares.parts.values(), shares.rest])
            assert math.isclose(self.utilization, whole, abs_tol=1e-9)


TestAccounts = Accounts.TestCase
TestAccounts.settings = settings(stateful_step_count=20)


def test_a_guess_gets_no_share() -> None:
    """A model whose GPU is only guessed stays in the unattributed rest."""
    gpu_use = GpuUse()
    key = MODELS[0]
    guess = (GpuClaim(key, G, 1.0, "config", "guess"),)
    gpu_use.update(statistics({key: 0.0}), guess)
    gpu_use.share(sample(0.0, 0.0, 0.0, 100.0), [G.uuid])
    gpu_use.update(statistics({key: 5.0}), guess)
    gpu_use.share(sample(10.0, 3000.0, 0.5, 300.0), [G.uuid])

    assert ({}, {}) == (gpu_use.busy, gpu_use.utilization[G].parts)
    assert 0.5 == gpu_use.utilization[G].rest


def test_a_model_on_two_gpus_is_split_by_its_instances() -> None:
    """Execution time goes to each GPU by the instances there and adds up to the model's."""
    gpu_use = GpuUse()
    key, other = MODELS[0], Entity("GPU-b")
    claims = (GpuClaim(key, G, 0.75, "config", "likely"), GpuClaim(key, other, 0.25, "config", "likely"))
    gpu_use.update(statistics({key: 0.0}), claims)
    gpu_use.update(statistics({key: 8.0}), claims)

    assert pytest.approx({Pair(key, G): 6.0, Pair(key, other): 2.0}) == gpu_use.busy


def test_a_model_that_is_gone_leaves_no_series() -> None:
    """After unloading it has no share; loaded again it starts at 0."""
    gpu_use = GpuUse()
    key = MODELS[0]
    gpu_use.update(statistics({key: 0.0}), CLAIMS[:1])
    gpu_use.update(statistics({key: 8.0}), CLAIMS[:1])
    gpu_use.update([], ())

    assert {} == gpu_use.busy

    gpu_use.update(statistics({key: 9.0}), CLAIMS[:1])

    assert {Pair(key, G): 0.0} == gpu_use.busy


def test_a_model_that_came_between_two_samples_gets_its_share() -> None:
    """What it executed since it was first seen counts in the sample that follows."""
    gpu_use = GpuUse()
    key = MODELS[0]
    gpu_use.share(sample(0.0, 0.0, 0.0, 100.0), [G.uuid])
    gpu_use.update(statistics({key: 0.0}), CLAIMS[:1])
    gpu_use.update(statistics({key: 5.0}), CLAIMS[:1])
    gpu_use.share(sample(10.0, 3000.0, 0.8, 300.0), [G.uuid])

    assert pytest.approx({Pair(key, G): 0.5}) == gpu_use.utilization[G].parts

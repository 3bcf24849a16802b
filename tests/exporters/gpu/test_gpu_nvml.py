"""Test NVML as a source: with a stand-in for its answers, and with the real library without a driver."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from exporters.nvml import DRIVER_NOT_LOADED, LOST, NO_PERMISSION, NOT_SUPPORTED, FakeGpu, FakeNvml, FakePart
from triton_exporter.catalogue import gpu
from triton_exporter.gpu.gpu_reading import Entity, Slot, SourceError, XidReport
from triton_exporter.gpu.nvml import NvmlSource, load_library

A, B = "GPU-aaaa", "GPU-bbbb"


def source(*gpus: FakeGpu) -> tuple[FakeNvml, NvmlSource]:
    library = FakeNvml(*gpus)
    return library, NvmlSource(lambda: library)


def test_everything_the_library_reports_is_in_base_units() -> None:
    """Milliwatts, millijoules, megahertz, percent, kilobytes and nanoseconds become base units."""
    _, nvml = source(FakeGpu(A))
    reading = nvml.read(5.0)

    whole = {(slot.metric, slot.label): value for slot, value in reading.values.items()}
    expected = {
        (gpu.UTILIZATION, ""): 0.4,
        (gpu.POWER, ""): 250.5,
        (gpu.POWER_LIMIT, ""): 700,
        (gpu.ENERGY, ""): 1000,
        (gpu.TEMPERATURE, ""): 61,
        (gpu.MEMORY_TEMPERATURE, ""): 70,
        (gpu.TEMPERATURE_MARGIN, ""): 26,
        (gpu.SM_CLOCK, ""): 1.41e9,
        (gpu.THROTTLED_SECONDS, "power"): 1,
        (gpu.THROTTLED_SECONDS, "thermal"): 2,
        (gpu.THROTTLED_SECONDS, "sync_boost"): 3,
        (gpu.THROTTLED_SECONDS, "board_limit"): 4,
        (gpu.THROTTLED_SECONDS, "low_utilization"): 5,
        (gpu.THROTTLED_SECONDS, "reliability"): 6,
        (gpu.ECC_ERRORS, "corrected"): 7,
        (gpu.ECC_ERRORS, "uncorrected"): 2,
        (gpu.REMAPPED_ROWS, "corrected"): 3,
        (gpu.REMAPPED_ROWS, "uncorrected"): 1,
        (gpu.ROW_REMAP_PENDING, ""): 0,
        (gpu.ROW_REMAP_FAILED, ""): 0,
        (gpu.PCIE_THROUGHPUT, "transmit"): 5e6,
        (gpu.PCIE_THROUGHPUT, "receive"): 7e6,
        (gpu.PCIE_REPLAYS, ""): 2,
        (gpu.MEMORY_TOTAL, ""): 80,
        (gpu.MEMORY_USED, ""): 20,
        (gpu.MEMORY_FREE, ""): 58,
        (gpu.MEMORY_RESERVED, ""): 2,
        **{
            (gpu.THROTTLE_REASON, reason): float(reason in ("sw_power_cap", "sw_thermal"))
            for reason in gpu.THROTTLE_REASONS
        },
    }
    assert expected == pytest.approx(whole)
    assert ("0", "NVIDIA Test", "590.48.01", "00000000:3b:00.0") == (
        reading.devices[A].index,
        reading.devices[A].name,
        reading.devices[A].driver_version,
        reading.devices[A].pci_bus_id,
    )


def test_a_reading_that_a_gpu_does_not_support_is_absent() -> None:
    """A refusal with any code removes that one figure and no other."""
    refused = {
        "nvmlDeviceGetPowerUsage": NOT_SUPPORTED,
        "nvmlDeviceGetTotalEccErrors": NO_PERMISSION,
        "nvmlDeviceGetMarginTemperature": NOT_SUPPORTED,
        "nvmlDeviceGetUtilizationRates": NOT_SUPPORTED,
    }
    _, nvml = source(FakeGpu(A, refused=refused))
    metrics = {slot.metric for slot in nvml.read(0.0).values}

    assert metrics.isdisjoint({gpu.POWER, gpu.ECC_ERRORS, gpu.TEMPERATURE_MARGIN, gpu.UTILIZATION})
    assert {gpu.ENERGY, gpu.TEMPERATURE, gpu.MEMORY_USED} <= metrics


def test_a_function_the_library_is_too_old_for_is_absent() -> None:
    """An old nvidia-ml-py lacks whole functions; the rest is still read."""

    class Old(FakeNvml):
        nvmlDeviceGetMarginTemperature = property()  # type: ignore[assignment]  # noqa: N815
        nvmlDeviceGetCurrentClocksEventReasons = property()  # type: ignore[assignment]  # noqa: N815

    reading = NvmlSource(lambda: Old(FakeGpu(A))).read(0.0)

    assert Slot(gpu.TEMPERATURE_MARGIN, Entity(A)) not in reading.values
    assert 1.0 == reading.values[Slot(gpu.THROTTLE_REASON, Entity(A), "sw_power_cap")]


def test_an_old_driver_reports_no_used_memory() -> None:
    """The first version of the memory call counts reserved as used, so used is left out."""
    _, nvml = source(FakeGpu(A, refused={"nvmlDeviceGetMemoryInfo_v2": NOT_SUPPORTED}))
    values = nvml.read(0.0).values

    assert 80 == values[Slot(gpu.MEMORY_TOTAL, Entity(A))]
    assert Slot(gpu.MEMORY_USED, Entity(A)) not in values


def test_a_lost_gpu_does_not_hide_the_others() -> None:
    """A GPU off the bus is no longer listed; its neighbour is."""
    _, nvml = source(FakeGpu(A, lost=True), FakeGpu(B, index=1))

    assert {B} == nvml.read(0.0).devices.keys()


def test_a_split_gpu_is_reported_by_instances() -> None:
    """Memory stands per GPU instance, though two compute instances share one; power for the board."""
    parts = [FakePart(gi=1, ci=0, used=4), FakePart(gi=1, ci=1, used=4), FakePart(gi=2, used=6)]
    _, nvml = source(FakeGpu(A, parts=parts, refused={"nvmlDeviceGetUtilizationRates": NOT_SUPPORTED}))
    reading = nvml.read(0.0)

    memory = {slot.entity: value for slot, value in reading.values.items() if slot.metric is gpu.MEMORY_USED}
    assert {Entity(A, "1"): 4, Entity(A, "2"): 6} == memory
    assert 250.5 == reading.values[Slot(gpu.POWER, Entity(A))]
    assert [("1", "0"), ("1", "1"), ("2", "0")] == [
        (part.entity.instance, part.compute_instance) for part in reading.instances
    ]
    assert {"1g.10gb"} == {part.profile for part in reading.instances}


def test_activity_is_between_two_samples_and_none_is_leaked() -> None:
    """Tensor and DRAM activity come with the second read; each sample is freed but the last."""
    library, nvml = source(FakeGpu(A, gpm={2: 80.0, 5: 50.0, 10: 25.0}))

    first = {slot.metric for slot in nvml.read(0.0).values}
    values = nvml.read(1.0).values
    for at in range(2, 20):
        nvml.read(float(at))

    assert first.isdisjoint({gpu.SM_ACTIVE, gpu.TENSOR_ACTIVE})
    assert (0.8, 0.5, 0.25) == tuple(
        values[Slot(metric, Entity(A))] for metric in (gpu.SM_ACTIVE, gpu.TENSOR_ACTIVE, gpu.DRAM_ACTIVE)
    )
    assert Slot(gpu.SM_OCCUPANCY, Entity(A)) not in values
    assert 1 == library.samples

    nvml.close()

    assert (0, 0) == (library.samples, library.open)


@pytest.mark.parametrize(
    ("rates", "shown"),
    [
        pytest.param({60: 3.0, 61: 1.0}, 4 * 2**20, id="both ways together, from MiB/s"),
        pytest.param({60: 3.0}, None, id="one way alone is not shown as both"),
    ],
)
def test_the_data_rate_of_the_links_is_both_directions(rates: dict[int, float], shown: float | None) -> None:
    """A card that reports both directions gives its NVLinks' traffic; a card that reports one gives none."""
    _, nvml = source(FakeGpu(A, gpm=rates))
    nvml.read(0.0)

    assert shown == nvml.read(1.0).values.get(Slot(gpu.NVLINK_THROUGHPUT, Entity(A)))


def test_activity_of_instances_is_sampled_by_instance() -> None:
    """On a split GPU the samples are the instances' own; the links are the board's, and no instance's."""
    _, nvml = source(FakeGpu(A, parts=[FakePart(gi=3)], gpm={1: 60.0, 60: 1.0, 61: 1.0}))
    nvml.read(0.0)
    values = nvml.read(1.0).values

    assert 0.6 == values[Slot(gpu.ENGINE_ACTIVE, Entity(A, "3"))]
    assert Slot(gpu.ENGINE_ACTIVE, Entity(A)) not in values
    assert {Entity(A)} == {slot.entity for slot in values if slot.metric is gpu.NVLINK_THROUGHPUT}


def test_a_failed_sample_is_given_back() -> None:
    """A sample that could not be taken does not stay allocated."""
    library, nvml = source(FakeGpu(A, gpm={1: 60.0}, refused={"nvmlGpmSampleGet": NO_PERMISSION}))
    nvml.read(0.0)

    assert 0 == library.samples


def test_xid_events_are_taken_as_they_come() -> None:
    """Two equal XIDs are two events; other events are not XIDs."""
    library, nvml = source(FakeGpu(A), FakeGpu(B, index=1))
    nvml.read(0.0)
    first, two = library.gpus
    for device, kind, code in ((first, 8, 79), (first, 8, 79), (two, 8, 31), (two, 16, 5)):
        library.events.append(SimpleNamespace(device=device, eventType=kind, eventData=code))
    reading = nvml.read(1.0)

    assert reading.watches_xids
    assert (
        XidReport(A, 79, 1.0, "event"),
        XidReport(A, 79, 1.0, "event"),
        XidReport(B, 31, 1.0, "event"),
    ) == reading.xids


def test_without_permission_for_events_xids_are_not_claimed_to_be_watched() -> None:
    """Absent is not zero: no XID series where XIDs cannot be seen."""
    _, nvml = source(FakeGpu(A, refused={"nvmlDeviceRegisterEvents": NO_PERMISSION}))

    assert not nvml.read(0.0).watches_xids


def test_a_driver_that_goes_away_and_comes_back_is_found_again() -> None:
    """A failing library is a reason, and the next read opens it afresh."""
    library, nvml = source(FakeGpu(A))
    nvml.read(0.0)
    library.broken = LOST
    with pytest.raises(SourceError) as caught:
        nvml.read(1.0)
    library.broken = 0

    assert "library" == caught.value.reason
    assert {A} == nvml.read(2.0).devices.keys()


@pytest.mark.parametrize(
    ("gpus", "broken", "reason"), [((), 0, "no_gpu"), ((), DRIVER_NOT_LOADED, "library")]
)
def test_no_gpu_and_no_driver_have_different_reasons(
    gpus: tuple[FakeGpu, ...], broken: int, reason: str
) -> None:
    """Two reasons of the closed set."""
    library, nvml = source(*gpus)
    library.broken = broken
    with pytest.raises(SourceError) as caught:
        nvml.read(0.0)

    assert reason == caught.value.reason


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has a driver")
def test_the_real_library_without_a_driver_is_a_reason() -> None:
    """nvidia-ml-py itself, where there is no driver: a reason, not a crash, again and again."""
    nvml = NvmlSource()
    for _ in range(2):
        with pytest.raises(SourceError) as caught:
            nvml.read(0.0)

        assert "library" == caught.value.reason
    nvml.close()


def test_every_function_and_constant_exists_in_the_real_library() -> None:
    """The stand-in answers nothing that nvidia-ml-py does not have, so a misspelt name cannot hide."""
    real = load_library()
    used = [name for name in vars(FakeNvml) if name.startswith(("nvml", "NVML", "c_nvml"))]

    assert [] == [name for name in used if not hasattr(real, name)]
    constants = [name for name in used if isinstance(vars(FakeNvml)[name], int)]
    assert {name: vars(FakeNvml)[name] for name in constants} == {
        name: getattr(real, name) for name in constants
    }

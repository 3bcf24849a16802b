"""Test GPUs on the exporter's page: source, age, withdrawal, and that no fault breaks a scrape."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from exporters.dcgm import DIALECTS, Card, Part, serving, write
from support.exporter import ScrapedPage, exporting
from triton_exporter.catalogue import Metric, gpu, triton
from triton_exporter.exposition.parse import parse
from triton_exporter.exposition.write import text_pieces
from triton_exporter.gpu import native
from triton_exporter.gpu.dcgm import DcgmSource
from triton_exporter.gpu.gpu_reading import (
    PATIENCE,
    RETRY_SECONDS,
    Device,
    Entity,
    GpuReading,
    Slot,
    SourceChoice,
    SourceError,
)
from triton_exporter.gpu.gpus import MAX_GPUS, Freshness, GpuOptions, Gpus
from triton_exporter.snapshot import (
    BatchStatistics,
    InstanceGroup,
    MemoryUse,
    ModelConfig,
    ModelStatistics,
    ModelVersion,
    Snapshot,
)

CARD = Card()
U = CARD.uuid
M = ModelVersion("m", "1")
QUIET = b"nv_x 1\n"
"""A page of Triton without GPU series."""


class FixedSource:
    """A source with the answer that a test sets."""

    def __init__(self, name: str, answer: GpuReading | None = None) -> None:
        self.name = name
        self.answer = answer
        self.asked: list[float] = []

    def read(self, at: float) -> GpuReading:
        self.asked.append(at)
        if self.answer is None:
            raise SourceError("refused", "by the test")
        return GpuReading(self.name, at, self.answer.devices, values=self.answer.values)


def reading(joules: float = 1.0, **more: float) -> GpuReading:
    values = {Slot(gpu.ENERGY, Entity(U)): joules, Slot(gpu.TEMPERATURE, Entity(U)): 50.0}
    return GpuReading("fixed", 0.0, {U: Device(U, "0", "Test")}, values=values)


def page(part: Gpus, now: float) -> ScrapedPage:
    return ScrapedPage(b"".join(text_pieces(part.families(now))).decode())


def gpus(*sources: FixedSource, wanted: Iterable[str] = (), **options: object) -> Gpus:
    chosen = GpuOptions(**options)  # type: ignore[arg-type]
    part = Gpus(SourceChoice(sources, frozenset(wanted)), native.NativeSource(120), chosen)
    part.observe(parse(QUIET), -60.0)
    return part


# --- Which source -------------------------------------------------------------------------------------------


def test_the_best_source_that_answers_is_used_and_named() -> None:
    """auto takes dcgm before nvml before triton, and reports which."""
    first, second = FixedSource("dcgm"), FixedSource("nvml", reading())
    part = gpus(first, second)
    part.poll(0.0)

    seen = page(part, 0.0)
    assert {"dcgm": 0, "nvml": 1, "triton": 0, "none": 0} == {
        name: seen.value(gpu.SOURCE, source=name) for name in gpu.SOURCES
    }
    assert 50 == seen.value(gpu.TEMPERATURE, gpu_uuid=U)


def test_the_lack_of_any_source_is_reported() -> None:
    """Without any GPU the page reports no source, no GPU series and no failures of sources nobody asked for."""
    part = gpus(FixedSource("dcgm"), FixedSource("nvml"))
    for at in range(5):
        part.poll(float(at))

    seen = page(part, 5.0)
    assert 1 == seen.value(gpu.SOURCE, source="none")
    assert {} == seen.series(gpu.SOURCE_FAILURES_TOTAL)
    assert {} == seen.series(gpu.DATA_AGE)


def test_a_source_the_operator_named_counts_its_failures() -> None:
    """A dcgm-exporter that was asked for and is not there is a failure from the first poll on."""
    part = gpus(FixedSource("dcgm"), wanted=["dcgm"])
    part.poll(0.0)
    part.poll(5.0)

    assert 2 == page(part, 5.0).value(gpu.SOURCE_FAILURES_TOTAL, source="dcgm", reason="refused")


def test_a_short_failure_changes_no_source() -> None:
    """The source in use may miss a few reads; only then a worse one is asked."""
    first, second = FixedSource("dcgm", reading()), FixedSource("nvml", reading())
    choice = SourceChoice((first, second))
    choice.read(0.0)
    first.answer = None
    used = []
    for at in range(1, PATIENCE + 1):
        actual = choice.read(float(at))
        used.append(actual.source if actual else None)

    assert [None] * (PATIENCE - 1) + ["nvml"] == used
    assert PATIENCE == choice.failures["dcgm", "refused"]


def test_a_better_source_is_taken_up_when_it_comes() -> None:
    """A dcgm-exporter that starts later is found, without being asked at every poll."""
    first, second = FixedSource("dcgm"), FixedSource("nvml", reading())
    choice = SourceChoice((first, second))
    choice.read(0.0)
    first.answer = reading()
    for at in range(1, int(RETRY_SECONDS)):
        choice.read(float(at))

    assert ("nvml", [0.0]) == (choice.current, first.asked)

    choice.read(RETRY_SECONDS)

    assert "dcgm" == choice.current


# --- Age ----------------------------------------------------------------------------------------------------


def test_data_that_stopped_moving_grow_old_and_are_withdrawn() -> None:
    """An exporter that answers 200 with its last sample for ever is seen by the age of the data."""
    source = FixedSource("dcgm", reading(joules=1.0))
    part = gpus(source, max_age_seconds=120)
    for at in range(0, 200, 5):
        part.poll(float(at))
    young, old = page(part, 115.0), page(part, 195.0)

    assert (115, 195) == (young.value(gpu.DATA_AGE, gpu_uuid=U), old.value(gpu.DATA_AGE, gpu_uuid=U))
    assert 50 == young.value(gpu.TEMPERATURE, gpu_uuid=U)
    assert {} == old.series(gpu.TEMPERATURE)
    assert {} == old.series(gpu.INFO)

    source.answer = reading(joules=2.0)
    part.poll(200.0)
    again = page(part, 201.0)

    assert (1, 50) == (again.value(gpu.DATA_AGE, gpu_uuid=U), again.value(gpu.TEMPERATURE, gpu_uuid=U))


def test_a_dead_source_leaves_the_last_data_until_they_are_old() -> None:
    """A gap of one poll hides nothing; a source that stays away is shown by age and by none."""
    source = FixedSource("dcgm", reading())
    part = gpus(source, max_age_seconds=20)
    part.poll(0.0)
    source.answer = None
    for at in (5.0, 10.0, 15.0):
        part.poll(at)

    assert 50 == page(part, 15.0).value(gpu.TEMPERATURE, gpu_uuid=U)
    late = page(part, 25.0)
    assert {} == late.series(gpu.TEMPERATURE)
    assert (25, 1) == (late.value(gpu.DATA_AGE, gpu_uuid=U), late.value(gpu.SOURCE, source="none"))


def test_a_gpu_without_an_energy_counter_is_as_young_as_the_last_read() -> None:
    """A vGPU has nothing that always moves; constant values are not a sign of age there."""
    still = GpuReading("dcgm", 0.0, {U: Device(U)}, values={Slot(gpu.TEMPERATURE, Entity(U)): 50.0})
    part = gpus(FixedSource("dcgm", still), max_age_seconds=20)
    for at in range(0, 100, 5):
        part.poll(float(at))

    seen = page(part, 97.0)
    assert (2, 50) == (seen.value(gpu.DATA_AGE, gpu_uuid=U), seen.value(gpu.TEMPERATURE, gpu_uuid=U))


def test_a_gpu_that_falls_off_ages_while_the_others_stay_young() -> None:
    """The age of a GPU that its source no longer lists grows, so that the loss is visible."""
    other = "GPU-b"
    both = GpuReading("dcgm", 0.0, {U: Device(U), other: Device(other)})
    source = FixedSource("dcgm", both)
    part = gpus(source)
    part.poll(0.0)
    source.answer = GpuReading("dcgm", 0.0, {other: Device(other)})
    part.poll(60.0)

    seen = page(part, 61.0)
    assert (61, 1) == (seen.value(gpu.DATA_AGE, gpu_uuid=U), seen.value(gpu.DATA_AGE, gpu_uuid=other))
    assert {other} == seen.labels(gpu.INFO, "gpu_uuid")


def test_invented_gpus_do_not_fill_the_memory() -> None:
    """A source that names new GPUs at every poll is remembered up to a limit."""
    freshness = Freshness()
    for at in range(10):
        named = [f"GPU-{at}-{number}" for number in range(100)]
        freshness.note(GpuReading("dcgm", float(at), {uuid: Device(uuid) for uuid in named}))

    assert MAX_GPUS == len(freshness.ages(10.0))


# --- Whose GPUs ---------------------------------------------------------------------------------------------

OTHER = "GPU-00000000-0000-4000-8000-00000000000f"


def two_gpus(pod: str = "") -> GpuReading:
    values = {
        Slot(metric, Entity(uuid)): value
        for uuid in (U, OTHER)
        for metric, value in ((gpu.TEMPERATURE, 50.0), (gpu.ENERGY, 1.0), (gpu.MEMORY_USED, 5.0))
    }
    devices = {uuid: Device(uuid, name="Test") for uuid in (U, OTHER)}
    pods = {pod: frozenset({Entity(U)})} if pod else {}
    return GpuReading("dcgm", 0.0, devices, values=values, pods=pods, watches_xids=True)


class Node(FixedSource):
    """A dcgm-exporter of a node with two GPUs."""

    def read(self, at: float) -> GpuReading:
        assert self.answer is not None
        return replace(self.answer, at=at)


def shown(part: Gpus, now: float) -> set[str]:
    """GPUs that have any series."""
    return {
        series.labels["gpu_uuid"]
        for family in parse(b"".join(text_pieces(part.families(now)))).families.values()
        for series in family.series
        if "gpu_uuid" in series.labels
    }


def node(source: Node | None = None, **options: object) -> Gpus:
    chosen = GpuOptions(**options)  # type: ignore[arg-type]
    return Gpus(SourceChoice((source or Node("dcgm", two_gpus()),)), native.NativeSource(120), chosen)


def test_only_tritons_gpus_are_shown_where_they_are_known() -> None:
    """A GPU of the node that belongs to somebody else has no series, however Triton's GPUs are known."""
    by_operator, by_triton = node(devices=(U,)), node()
    by_pod = node(Node("dcgm", two_gpus("triton-0")), pod="triton-0")
    for part in (by_operator, by_pod, by_triton):
        part.poll(0.0)
    by_triton.observe(parse(triton_page(1000.0)), 1.0)

    assert [{U}] * 3 == [shown(part, 2.0) for part in (by_operator, by_pod, by_triton)]


def test_all_are_shown_where_nothing_distinguishes_them() -> None:
    """A Triton without GPU series, or a wrong list of the operator's, hides no GPU."""
    silent, mistaken = node(), node(devices=("GPU-typo",))
    for part in (silent, mistaken):
        part.poll(0.0)
        part.observe(parse(QUIET), 1.0)

    assert [{U, OTHER}] * 2 == [shown(part, 2.0) for part in (silent, mistaken)]


def test_no_gpu_is_shown_that_will_soon_turn_out_to_be_anothers() -> None:
    """Before Triton reported its GPUs none is shown, so that none seems lost later; after a minute all are."""
    part = node()
    part.poll(0.0)
    early = shown(part, 1.0)
    part.poll(59.0)
    still = shown(part, 59.0)
    part.poll(60.0)
    late = shown(part, 60.0)
    part.observe(parse(triton_page(1000.0)), 61.0)

    assert (set(), set(), {U, OTHER}) == (early, still, late)
    assert {U, OTHER} == shown(part, 62.0)


def test_a_lost_gpu_of_tritons_is_not_forgotten() -> None:
    """A GPU that falls off stays Triton's: its age is shown."""
    source = Node("dcgm", two_gpus())
    part = node(source, devices=(U,))
    part.poll(0.0)
    source.answer = GpuReading("dcgm", 0.0, {OTHER: Device(OTHER)})
    part.poll(300.0)

    assert 300 == page(part, 300.0).value(gpu.DATA_AGE, gpu_uuid=U)
    assert {} == page(part, 300.0).series(gpu.TEMPERATURE)


# --- Triton's own series ------------------------------------------------------------------------------------


def triton_page(total: float, power: float = 70.5, model_label: str = f'gpu_uuid="{U}",') -> bytes:
    own = f'{{gpu_uuid="{U}"}}'
    return (
        f"{triton.GPU_UTILIZATION}{own} 0.25\n{triton.GPU_MEMORY_TOTAL_BYTES}{own} {total}\n"
        f"{triton.GPU_MEMORY_USED_BYTES}{own} {total / 4}\n{triton.GPU_POWER_USAGE}{own} {power}\n"
        f"{triton.GPU_POWER_LIMIT}{own} 0\n{triton.ENERGY_CONSUMPTION}{own} 1234.5\n"
        f'{triton.REQUEST_SUCCESS}{{{model_label}model="m",version="1"}} 3\n'
    ).encode()


def test_tritons_own_series_are_the_last_source() -> None:
    """Triton's values of its GPUs are in the canonical series; 0 W is not a reading."""
    actual = native.read(parse(triton_page(1000.0, power=0)), 0.0)

    values = {slot.metric: value for slot, value in actual.values.items()}
    assert {
        gpu.UTILIZATION: 0.25,
        gpu.MEMORY_TOTAL: 1000,
        gpu.MEMORY_USED: 250,
        gpu.ENERGY: 1234.5,
    } == values
    assert {"blank": 2} == actual.dropped


def test_a_gpu_that_triton_gave_up_has_no_values() -> None:
    """After three failed reads all its series stay 0: none of them is shown as a reading."""
    frozen = native.read(parse(triton_page(0.0)), 0.0)

    assert ({U}, {}) == (set(frozen.devices), frozen.values)

    own = native.NativeSource(max_age_seconds=60)
    own.put(frozen)
    with pytest.raises(SourceError) as caught:
        own.read(1.0)
    assert "no_gpu" == caught.value.reason


def test_old_series_of_triton_are_not_a_source() -> None:
    """When Triton's metrics are gone, its GPU series are too."""
    own = native.NativeSource(max_age_seconds=60)
    own.put(native.read(parse(triton_page(1000.0)), 0.0))

    assert {U} == own.read(59.0).devices.keys()
    with pytest.raises(SourceError):
        own.read(61.0)


# --- Models -------------------------------------------------------------------------------------------------


def snapshot(at: float, seconds: float) -> Snapshot:
    return Snapshot(
        at,
        statistics=(
            ModelStatistics(
                *M,
                batches=(BatchStatistics(4, 1, 0, int(seconds * 1e9), 0),),
                memory=(MemoryUse("GPU", 0, 300),),
            ),
        ),
        configs={M: ModelConfig("m", "onnxruntime", instance_groups=(InstanceGroup("KIND_GPU", 2, (0,)),))},
    )


def test_models_are_shown_on_their_gpus_with_remainders() -> None:
    """A model's info, busy seconds, shares of utilization, energy and memory, and what is left over."""
    own = Entity(U)

    def at(joules: float, watts: float, utilization: float) -> GpuReading:
        values = {
            Slot(gpu.ENERGY, own): joules,
            Slot(gpu.POWER, own): watts,
            Slot(gpu.UTILIZATION, own): utilization,
            Slot(gpu.MEMORY_USED, own): 1000.0,
        }
        return GpuReading("dcgm", 0.0, {U: Device(U, "0", "Test")}, values=values)

    source = FixedSource("dcgm", at(1.0, 100.0, 0.0))
    part = gpus(source)
    part.poll(0.0)
    part.observe_snapshot(snapshot(0.0, 0.0))
    source.answer = at(1001.0, 100.0, 0.0)
    part.poll(10.0)
    part.observe_snapshot(snapshot(10.0, 4.0))
    source.answer = at(4001.0, 300.0, 0.5)
    part.poll(20.0)

    seen = page(part, 20.0)
    model = {"model": "m", "version": "1", "gpu_uuid": U}
    assert 1 == seen.value(gpu.MODEL_GPU_INFO, **model, source="single_gpu", confidence="certain")
    assert 4 == seen.value(gpu.MODEL_BUSY, **model)
    assert pytest.approx(0.4) == seen.value(gpu.MODEL_UTILIZATION, **model)
    assert pytest.approx(0.1) == seen.value(gpu.UTILIZATION_UNATTRIBUTED, gpu_uuid=U)
    assert 300 == seen.value(gpu.MODEL_MEMORY, **model)


def test_a_wrong_label_of_triton_is_shown() -> None:
    """Triton's gpu_uuid of a model that is not one of its GPUs gives a series; a right one gives none."""
    part = gpus(FixedSource("dcgm", reading()))
    part.poll(0.0)
    part.observe(parse(triton_page(1000.0, model_label='gpu_uuid="GPU-other",')), 0.0)
    part.observe_snapshot(snapshot(0.0, 0.0))
    wrong = page(part, 0.0)
    part.observe(parse(triton_page(1000.0)), 10.0)
    part.observe_snapshot(snapshot(10.0, 0.0))
    right = page(part, 10.0)
    part.observe(parse(triton_page(1000.0, model_label="")), 20.0)
    part.observe_snapshot(snapshot(20.0, 0.0))
    missing = page(part, 20.0)

    assert {"unknown_gpu"} == wrong.labels(gpu.MODEL_LABEL_PROBLEM, "problem")
    assert set() == right.labels(gpu.MODEL_LABEL_PROBLEM, "problem")
    assert {"missing"} == missing.labels(gpu.MODEL_LABEL_PROBLEM, "problem")


# --- On the page of a running exporter ----------------------------------------------------------------------


def part_of(url: str, timeout_seconds: float = 0.3) -> Gpus:
    source = DcgmSource(url, timeout_seconds)
    options = GpuOptions(interval_seconds=0.1, max_age_seconds=60.0)
    part = Gpus(SourceChoice((source,), frozenset({source.name})), native.NativeSource(60.0), options)
    part.observe(parse(QUIET), -60.0)
    return part


@pytest.fixture
def no_triton() -> str:
    with serving() as stub:
        pass
    return stub.url


FAULTS = {
    "hang": "timeout",
    "drip": "timeout",
    "500": "http_error",
    "redirect": "http_error",
    "huge": "too_large",
    "bomb": "too_large",
    "nonsense": "bad_response",
    "garbage": "no_gpu",
    "empty": "no_gpu",
}


def test_no_fault_of_dcgm_exporter_breaks_a_scrape(no_triton: str) -> None:
    """Through nine kinds of misbehaviour every scrape answers and counts; then the GPU is back."""
    with (
        serving(write("4.x", [CARD])) as stub,
        exporting(no_triton, no_triton, parts=[part_of(stub.url)]) as at,
    ):
        at.wait(lambda seen: seen.value(gpu.POWER, gpu_uuid=U))
        for fault, reason in FAULTS.items():
            labels = {"source": "dcgm", "reason": reason}
            before = at.scrape(1).value(gpu.SOURCE_FAILURES_TOTAL, **labels) or 0
            stub.fault = fault
            assert at.scrape(1).series(gpu.SOURCE)
            # Twice, so that a failure that was under way before this fault cannot be taken for its own.
            at.wait(lambda seen: (seen.value(gpu.SOURCE_FAILURES_TOTAL, **labels) or 0) >= before + 2)  # noqa: B023
        at.wait(lambda seen: seen.value(gpu.SOURCE, source="none"))
        stub.body, stub.fault = write("4.x", [Card(joules=2_000_000)]), ""
        at.wait(lambda seen: seen.value(gpu.ENERGY, gpu_uuid=U) == 2e6)


def test_every_family_shown_is_of_the_catalogue_with_its_labels(no_triton: str) -> None:
    """For any source, name, type and labels on the page are those of the catalogue: no dialect reaches a dashboard."""
    catalogue = {metric.name: metric for metric in vars(gpu).values() if isinstance(metric, Metric)}
    split = Card(parts=(Part("7"), Part("9")))
    shown = set()
    for card in (Card(xid=79), split):
        for dialect in DIALECTS:
            with serving(write(dialect, [card])) as stub:
                part = part_of(stub.url)
                part.poll(1.0)
            part.observe_snapshot(snapshot(1.0, 0.0))
            text = b"".join(text_pieces(part.families(1.0))).decode()
            for family in parse(text.encode()).families.values():
                metric = catalogue[family.name]
                shown.add(family.name)
                assert metric.kind == family.kind
                assert all(series.labels.keys() <= set(metric.labels) for series in family.series)
            assert {} == parse(text.encode()).faults
    assert {gpu.POWER.name, gpu.XID_ERRORS.name, gpu.INSTANCE_INFO.name, gpu.MODEL_BUSY.name} <= shown


@pytest.mark.parametrize("labelled", [True, False])
def test_models_stand_on_the_gpus_that_tritons_page_names(labelled: bool) -> None:
    """Four models on four GPUs whose UUIDs sort in another order: on the right ones, or called a guess."""
    uuids = [f"GPU-{letter}" for letter in "dbca"]  # by ordinal
    lines = [f"# TYPE {triton.GPU_MEMORY_TOTAL_BYTES} gauge"]
    lines += [f'{triton.GPU_MEMORY_TOTAL_BYTES}{{gpu_uuid="{uuid}"}} 8e10' for uuid in uuids]
    lines += [f"# TYPE {triton.REQUEST_SUCCESS} counter"]
    for number, uuid in enumerate(uuids):
        label = f'gpu_uuid="{uuid}",' if labelled else ""
        lines.append(f'{triton.REQUEST_SUCCESS}{{{label}model="m{number}",version="1"}} 1')
    own = native.NativeSource(120)
    part = Gpus(SourceChoice((own,)), own, GpuOptions())
    part.observe(parse("\n".join([*lines, ""]).encode()), 0.0)
    part.poll(0.0)
    configs = {
        ModelVersion(f"m{number}", "1"): ModelConfig(
            f"m{number}", "onnxruntime", instance_groups=(InstanceGroup("KIND_GPU", 1, (number,)),)
        )
        for number in range(4)
    }
    part.observe_snapshot(Snapshot(1.0, configs=configs))
    series = {
        (labels["model"], labels["gpu_uuid"], labels["confidence"])
        for labels in map(dict, page(part, 1.0).series(gpu.MODEL_GPU_INFO))
    }

    if labelled:
        assert {(f"m{number}", uuid, "likely") for number, uuid in enumerate(uuids)} == series
    else:
        assert {"guess"} == {confidence for _, _, confidence in series}

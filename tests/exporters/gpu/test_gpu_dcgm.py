"""Test how rows of dcgm-exporter become canonical series: every dialect and every known fault."""

from __future__ import annotations

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporters.captures import bodies
from exporters.dcgm import DIALECTS, Card, Part, line, serving, write
from triton_exporter.catalogue import Metric, gpu
from triton_exporter.catalogue.external import dcgm
from triton_exporter.exposition.parse import parse
from triton_exporter.gpu.dcgm import MAX_GPUS, DcgmSource, is_blank, read
from triton_exporter.gpu.gpu_reading import Entity, GpuReading, Slot, SourceError

CARD = Card()
GPU = Entity(CARD.uuid)
MIB = 1024 * 1024

COMMON: dict[tuple[Metric, str], float] = {
    (gpu.UTILIZATION, ""): 0.40,
    (gpu.ENGINE_ACTIVE, ""): 0.375,
    (gpu.TENSOR_ACTIVE, ""): 0.125,
    (gpu.DRAM_ACTIVE, ""): 0.25,
    (gpu.MEMORY_USED, ""): 20480 * MIB,
    (gpu.MEMORY_FREE, ""): 60416 * MIB,
    (gpu.POWER, ""): 250.5,
    (gpu.ENERGY, ""): 1e6,
    (gpu.TEMPERATURE, ""): 61,
    (gpu.MEMORY_TEMPERATURE, ""): 70,
    (gpu.SM_CLOCK, ""): 1.41e9,
    (gpu.PCIE_REPLAYS, ""): 2,
    (gpu.PCIE_THROUGHPUT, "transmit"): 5e6,
    (gpu.PCIE_THROUGHPUT, "receive"): 7e6,
    (gpu.NVLINK_THROUGHPUT, ""): 2_048_000,
    (gpu.LAST_XID, ""): 31,
}
"""What every dialect reports of the same card with an XID."""

NEWER = COMMON | {
    (gpu.MEMORY_RESERVED, ""): 1024 * MIB,
    (gpu.MEMORY_TOTAL, ""): (20480 + 60416 + 1024) * MIB,
    (gpu.REMAPPED_ROWS, "uncorrected"): 1,
    (gpu.REMAPPED_ROWS, "corrected"): 0,
    (gpu.ROW_REMAP_FAILED, ""): 0,
}
"""What the dialects after 1.x report in addition."""


def read_text(text: str) -> GpuReading:
    return read(parse(text.encode("utf-8", "surrogatepass")), 0.0)


def rows(*lines: str) -> GpuReading:
    return read_text("".join(f"{text}\n" for text in lines))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_form_of_dcgm_metrics_gives_the_same_series(dialect: str) -> None:
    """MHz or Hz, mJ or J, % or ratio, MiB or bytes: the same canonical series, and no others."""
    reading = read_text(write(dialect, [Card(xid=31)]))

    expected = COMMON if dialect == "1.x" else NEWER
    assert expected == pytest.approx({(slot.metric, slot.label): v for slot, v in reading.values.items()})
    assert {GPU} == {slot.entity for slot in reading.values}
    assert dialect == reading.dialect
    assert {} == reading.dropped


@pytest.mark.parametrize("dialect", DIALECTS[1:])
def test_info_of_a_card_is_read(dialect: str) -> None:
    """Index, name, driver and PCI id are reported where the dialect has them, in one spelling."""
    device = read_text(write(dialect, [CARD])).devices[CARD.uuid]

    assert ("0", "NVIDIA Test 80GB") == (device.index, device.name)
    newer = dialect.startswith("4")
    assert ("590.48.01" if newer else "") == device.driver_version
    assert ("00000000:3b:00.0" if newer else "") == device.pci_bus_id


def test_every_name_of_the_table_is_read() -> None:
    """Each alias alone, with the value 1 in its own unit, gives its series in base units."""
    for alias in dcgm.ALIASES:
        reading = rows(f'{alias.name}{{gpu="0",UUID="{CARD.uuid}"}} 1')

        expected = {} if alias.scale is None else {Slot(alias.metric, GPU, alias.label): alias.scale}
        actual = {slot: value for slot, value in reading.values.items() if slot.metric is alias.metric}
        assert expected == actual, alias.name


@pytest.mark.parametrize(
    ("evidence", "row", "expected"),
    [
        ("a field that only DCGM 4.7 has", "DCGM_FI_DEV_SM_CLOCK_HERTZ{U} 1410000000\nX{U} 1\n", 1.0),
        ("a number with a fraction is a double, and only the ratio is one", "X{U} 1.000000\n", 1.0),
        ("HELP says percent", "# HELP X GPU utilization (in %).\nX{U} 1\n", 0.01),
        ("HELP says ratio", "# HELP X GPU utilization ratio.\nX{U} 1\n", 1.0),
        ("the driver label of 4.9", 'X{U,DCGM_FI_SYSTEM_DRIVER_VERSION="590"} 1\n', 1.0),
        ("37 is not a ratio", "X{U} 37\n", 0.37),
        ("1 alone could be either", "X{U} 1\n", None),
        (
            "proof beats a HELP that was never changed",
            "# HELP X GPU utilization (in %).\nX{U} 1.000000\n",
            1.0,
        ),
    ],
)
def test_the_ambiguous_utilization_is_scaled_by_evidence(
    evidence: str, row: str, expected: float | None
) -> None:
    """The same name is a percentage in DCGM 4.6 and a ratio in 4.7; without evidence it is left out."""
    text = row.replace("X", dcgm.UTILIZATION_RATIO).replace("{U", '{UUID="' + CARD.uuid + '"')
    reading = read_text(text)

    assert expected == reading.values.get(Slot(gpu.UTILIZATION, GPU)), evidence
    assert (1 if expected is None else 0) == reading.dropped.get("unscaled", 0)


@pytest.mark.parametrize(
    "value",
    [
        "9223372036854775792",
        "9223372036854775794",
        "9223372036854775795",
        "2147483632",
        "2147483635",
        "140737488355328.000000",
        "140737488355331.000000",
    ],
)
def test_blank_values_of_nvidia_are_not_readings(value: str) -> None:
    """Each blank value of DCGM is dropped and counted, in integer and double fields."""
    reading = rows(f'DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{UUID="{CARD.uuid}"}} {value}')

    assert {} == reading.values
    assert {"blank": 1} == reading.dropped
    assert not is_blank(2147483631.0)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("DCGM_FI_DEV_MEMORY_TEMP{U} 0", "blank"),
        ("DCGM_FI_DEV_POWER_USAGE{U} 0.000000", "blank"),
        ("DCGM_FI_DEV_GPU_UTIL{U} NaN", "malformed"),
        ("DCGM_FI_DEV_GPU_UTIL{U} +Inf", "malformed"),
        ("DCGM_FI_DEV_GPU_UTIL{U} 4000", "implausible"),
        ("DCGM_FI_DEV_GPU_TEMP{U} 4000", "implausible"),
        ("DCGM_FI_DEV_FB_USED{U} -1", "implausible"),
        ("DCGM_FI_DEV_XID_ERRORS{U} 31.5", "malformed"),
        ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS{U} -4", "malformed"),
        ('DCGM_FI_DEV_GPU_UTIL{gpu="0"} 40', "no_uuid"),
        ('DCGM_FI_DEV_GPU_UTIL{UUID="<<<NULL>>>"} 40', "no_uuid"),
        ('DCGM_FI_DEV_GPU_UTIL{UUID="a"b"} 40', "malformed"),
    ],
)
def test_a_row_that_cannot_be_true_is_left_out_and_counted(row: str, reason: str) -> None:
    """Absent is not zero: what is not a reading gives no series."""
    reading = rows(row.replace("{U}", f'{{UUID="{CARD.uuid}"}}'))

    assert {} == reading.values
    assert {reason: 1} == reading.dropped


def test_memory_total_needs_all_parts() -> None:
    """Used and free alone are not the total: the reserved part is missing."""
    used, free = (
        f'DCGM_FI_DEV_FB_USED{{UUID="{CARD.uuid}"}} 1',
        f'DCGM_FI_DEV_FB_FREE{{UUID="{CARD.uuid}"}} 2',
    )
    reserved = f'DCGM_FI_DEV_FB_RESERVED{{UUID="{CARD.uuid}"}} 4'

    assert Slot(gpu.MEMORY_TOTAL, GPU) not in rows(used, free).values
    assert 7 * MIB == rows(used, free, reserved).values[Slot(gpu.MEMORY_TOTAL, GPU)]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_split_gpu_is_reported_by_its_instances(dialect: str) -> None:
    """The value of an instance counts for it alone, the value of the board for the board, nothing twice."""
    card = Card(parts=(Part("7", engine=0.5, used_mib=1000), Part("11", engine=0.25, used_mib=3000)))
    reading = read_text(write(dialect, [card]))

    first, second = Entity(card.uuid, "7"), Entity(card.uuid, "11")
    values = reading.values
    assert (0.5, 0.25) == (values[Slot(gpu.ENGINE_ACTIVE, first)], values[Slot(gpu.ENGINE_ACTIVE, second)])
    assert (0.5, 0.25) == (values[Slot(gpu.UTILIZATION, first)], values[Slot(gpu.UTILIZATION, second)])
    assert 4000 * MIB == sum(value for slot, value in values.items() if slot.metric is gpu.MEMORY_USED)
    assert Slot(gpu.ENGINE_ACTIVE, GPU) not in values
    assert 250.5 == values[Slot(gpu.POWER, GPU)]
    assert {first, second} == {instance.entity for instance in reading.instances}
    assert {"1g.10gb"} == {instance.profile for instance in reading.instances}


@pytest.mark.parametrize(
    ("sent", "metric", "expected", "dropped"),
    [
        pytest.param(
            ('TOTAL_ENERGY_CONSUMPTION{U,GPU_I_ID="3"} 5001025', 'TOTAL_ENERGY_CONSUMPTION{U,GPU_I_ID="4"} 5006318'),
            gpu.ENERGY, 5006.318, {}, id="each instance repeats the board's energy a moment apart",
        ),
        pytest.param(
            ('POWER_USAGE{U,GPU_I_ID="3"} 260', "POWER_USAGE{U} 250"),
            gpu.POWER, 250, {}, id="the board's own row goes before an instance's copy, higher or not",
        ),
        pytest.param(('GPU_UTIL{U,pod="a"} 70',), gpu.UTILIZATION, 0.7, {}, id="a pod's copy is better than none"),
        pytest.param(
            ("GPU_UTIL{U} 70", "GPU_UTIL{U} 70"), gpu.UTILIZATION, 0.7, {"duplicate": 1}, id="sent twice, counted once",
        ),
        pytest.param(
            (
                'NVLINK_BANDWIDTH_TOTAL{nvlink="0",gpu="0",gpu_U} 2',
                'NVLINK_BANDWIDTH_TOTAL{nvlink="1",gpu="0",gpu_U} 3',
                'NVLINK_BANDWIDTH_TOTAL{nvlink="1",nvswitch="0"} 99',
                'GPU_TEMP{cpu="0",hostname="node"} 45',
            ),
            gpu.NVLINK_THROUGHPUT, 5 * 1_024_000, {}, id="links are added up; switches and CPUs are not GPUs",
        ),
        pytest.param(
            ("POWER_MGMT_LIMIT{U} 700", "ENFORCED_POWER_LIMIT{U} 500"),
            gpu.POWER_LIMIT, 500, {}, id="of two names, the enforced limit goes before the requested",
        ),
    ],
)  # fmt: skip
def test_several_rows_of_one_thing_give_one_value(
    sent: tuple[str, ...], metric: Metric, expected: float, dropped: dict[str, int]
) -> None:
    """Copies do not replace the truth and are not added up."""
    named = (
        row.replace("gpu_U", f'gpu_uuid="{CARD.uuid}"').replace("{U", f'{{UUID="{CARD.uuid}"') for row in sent
    )
    reading = rows(*(f"DCGM_FI_DEV_{row}" for row in named))

    assert pytest.approx({Slot(metric, GPU): expected}) == reading.values
    assert dropped == reading.dropped


def test_pods_rows_do_not_replace_the_devices() -> None:
    """With time slicing each pod has a row of its own beside the device's; the device's is the truth."""
    reading = rows(
        f'DCGM_FI_DEV_GPU_UTIL{{UUID="{CARD.uuid}",pod="a",namespace="x",container="c",vgpu="0"}} 90',
        f'DCGM_FI_DEV_GPU_UTIL{{UUID="{CARD.uuid}",pod="",namespace="",container=""}} 70',
        f'DCGM_FI_DEV_GPU_UTIL{{UUID="{CARD.uuid}",pod="b",namespace="x",container="c",vgpu="1"}} 20',
    )

    assert pytest.approx({Slot(gpu.UTILIZATION, GPU): 0.7}) == reading.values
    assert {"a": frozenset({GPU}), "b": frozenset({GPU})} == reading.pods


@pytest.mark.parametrize("name", dcgm.THROTTLE_MASKS)
def test_the_throttle_mask_is_decoded(name: str) -> None:
    """Every reason has a series, 1 where its bit is set; an unknown bit is ignored."""
    reading = rows(f'{name}{{UUID="{CARD.uuid}"}} {0x4 | 0x40 | 0x8000}')

    on = {slot.label for slot, value in reading.values.items() if value}
    assert {"sw_power_cap", "hw_thermal"} == on
    assert set(gpu.THROTTLE_REASONS) == {slot.label for slot in reading.values}


def test_a_uuid_without_its_prefix_is_the_same_gpu() -> None:
    """Some exporters write the UUID bare; it is one GPU."""
    reading = rows(
        f'DCGM_FI_DEV_GPU_UTIL{{uuid="{CARD.uuid.removeprefix("GPU-")}"}} 70',
        f'DCGM_FI_DEV_GPU_TEMP{{UUID="{CARD.uuid}"}} 50',
    )

    assert {CARD.uuid} == reading.devices.keys()


def test_a_source_that_invents_gpus_is_cut_off() -> None:
    """A thousand UUIDs are not a machine; what is over the limit is dropped and counted."""
    reading = rows(*(f'DCGM_FI_DEV_GPU_UTIL{{UUID="GPU-{number}"}} 1' for number in range(1000)))

    assert MAX_GPUS == len(reading.devices)
    assert 1000 - MAX_GPUS == reading.dropped["malformed"]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                [
                    *[alias.name for alias in dcgm.ALIASES],
                    *dcgm.THROTTLE_MASKS,
                    *dcgm.XID_LAST,
                    dcgm.XID_WINDOW,
                    dcgm.XID_TOTAL,
                ]
            ),
            st.dictionaries(
                st.sampled_from(["UUID", "uuid", "gpu", "GPU_I_ID", "pod", "nvlink", "xid", "nvswitch"]),
                st.text(max_size=8),
            ),
            st.one_of(st.floats(), st.integers(-(2**70), 2**70), st.text(max_size=6)),
        ),
        max_size=20,
    )
)
def test_every_value_of_any_body_is_a_valid_reading(rows: list[tuple[str, dict[str, str], object]]) -> None:
    """For any rows, no exception is raised, and every value is finite and within its unit."""
    text = "".join(line(name, labels, value) for name, labels, value in rows)
    reading = read_text(text)

    for slot, value in reading.values.items():
        assert math.isfinite(value)
        assert slot.metric is gpu.TEMPERATURE_MARGIN or slot.metric.unit == "C" or value >= 0
        assert slot.metric.unit != "ratio" or value <= 1
        assert slot.entity.uuid in reading.devices


@given(st.binary(max_size=400))
def test_any_bytes_are_survived(body: bytes) -> None:
    """Bytes that are not an exposition give a reading without GPUs, never an error."""
    assert {} == read(parse(body), 0.0).values


def test_captures_of_real_exporters_are_read() -> None:
    """Every GPU row of published scrapes gives a series or is counted; what is known to be there is found."""
    actual = {name[:2]: read_text(body.decode()) for name, body in bodies("dcgm", "*.prom")}

    assert ("4.x", 1) == (actual["01"].dialect, len(actual["01"].devices))
    assert ("1.x", 1) == (actual["17"].dialect, len(actual["17"].devices))
    assert 5 == len(actual["18"].devices)
    assert {"3", "4", "5", "6"} == {instance.entity.instance for instance in actual["16"].instances}
    assert {"duplicate": 1} == actual["15"].dropped
    assert 1 == actual["09"].dropped["blank"]
    (l4,) = actual["01"].devices
    assert 24151851008 == actual["01"].values[Slot(gpu.MEMORY_TOTAL, Entity(l4))]
    assert pytest.approx(4742.776) == actual["01"].values[Slot(gpu.ENERGY, Entity(l4))]
    assert Slot(gpu.MEMORY_TEMPERATURE, Entity(l4)) not in actual["01"].values


# --- Over HTTP ----------------------------------------------------------------------------------------------


def test_a_url_without_a_path_means_metrics() -> None:
    """Both spellings of the URL ask for the same page."""
    with serving(write("4.x", [CARD])) as stub:
        for url in (stub.url, f"{stub.url}/metrics", f"{stub.url}/"):
            assert {CARD.uuid} == DcgmSource(url).read(0.0).devices.keys()

    assert {"/metrics"} == set(stub.requests)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("hang", "timeout"),
        ("drip", "timeout"),
        ("500", "http_error"),
        ("redirect", "http_error"),
        ("huge", "too_large"),
        ("bomb", "too_large"),
        ("nonsense", "bad_response"),
        ("garbage", "no_gpu"),
        ("empty", "no_gpu"),
    ],
)
def test_a_hostile_dcgm_exporter_is_a_reason_not_a_crash(fault: str, reason: str) -> None:
    """For any behaviour, the read ends in time with a reason."""
    with serving(write("4.x", [CARD])) as stub:
        stub.fault = fault
        source = DcgmSource(stub.url, timeout_seconds=0.5 if reason == "timeout" else 10)
        started = time.monotonic()
        with pytest.raises(SourceError) as caught:
            source.read(0.0)

    assert reason == caught.value.reason
    assert 15 > time.monotonic() - started


def test_nobody_there_is_refused() -> None:
    """A dead dcgm-exporter has a reason of its own."""
    with serving() as stub:
        pass
    with pytest.raises(SourceError) as caught:
        DcgmSource(stub.url, timeout_seconds=1).read(0.0)

    assert "refused" == caught.value.reason


def test_an_answer_that_breaks_off_is_read_as_far_as_it_came() -> None:
    """Half a page is half the series; the cut line is not taken."""
    with serving(write("4.x", [CARD])) as stub:
        stub.fault = "cut"
        half = DcgmSource(stub.url, timeout_seconds=1).read(0.0)

    whole = read_text(write("4.x", [CARD]))
    assert 0 < len(half.values) < len(whole.values)
    assert half.values.items() <= whole.values.items()

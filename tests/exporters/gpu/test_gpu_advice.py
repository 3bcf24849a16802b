"""Test what the exporter advises about GPUs."""

from __future__ import annotations

import json

import pytest

from exporters.dcgm import Card, serving, write
from support.loopback import free_ports
from triton_exporter.catalogue import gpu
from triton_exporter.catalogue.external import dcgm
from triton_exporter.doctor.finding import Finding
from triton_exporter.exposition.parse import parse
from triton_exporter.gpu.advice import GpuFacts, advise
from triton_exporter.gpu.dcgm import read
from triton_exporter.gpu.gpu_reading import Device, Entity, GpuReading
from triton_exporter.gpu.mapping import GpuClaim
from triton_exporter.snapshot import InstanceGroup, ModelConfig, ModelVersion
from tritonwatch.cli import main

M = ModelVersion("embedder", "1")
ON_GPU = {M: ModelConfig("embedder", instance_groups=(InstanceGroup("KIND_GPU", 1, (0,)),))}


def about(findings: tuple[Finding, ...], word: str) -> list[Finding]:
    return [advice for advice in findings if word in advice.seen]


def read_text(text: str) -> GpuReading:
    return read(parse(text.encode()), 0.0)


def test_a_machine_without_gpus_needs_no_advice() -> None:
    """CPU models and no source need no advice."""
    on_cpu = {M: ModelConfig("embedder", instance_groups=(InstanceGroup("KIND_CPU", 1),))}

    assert () == advise(GpuFacts(configs=on_cpu))


def test_gpu_models_without_gpu_data_are_reported_with_what_was_tried() -> None:
    """The finding names the models and why each source failed; the remedy names the flag."""
    (advice,) = advise(GpuFacts(details={"dcgm": "refused", "nvml": "no driver"}, configs=ON_GPU))

    assert "embedder want a GPU" in advice.seen
    assert "dcgm: refused; nvml: no driver" in advice.seen
    assert "--dcgm-url" in advice.do


def test_tritons_own_data_are_the_poorest() -> None:
    """With Triton as the source the better one is named, and what following the advice takes away."""
    (advice,) = advise(GpuFacts("triton"))

    assert gpu.SM_ACTIVE.name in advice.seen
    assert gpu.MODEL_GPU_INFO.name in advice.cost


def test_missing_fields_are_given_as_lines_of_the_exporters_own_form() -> None:
    """Each line is one of a collector file, by the name that this dcgm-exporter knows."""
    old, new = (
        about(advise(GpuFacts("dcgm", reading=read_text(write(dialect, [Card()])))), "does not report")[0]
        for dialect in ("4.x", "4.9+")
    )

    assert "\nDCGM_FI_PROF_SM_ACTIVE, gauge, " in old.do
    assert "\nDCGM_FI_PROF_SM_UTIL_RATIO, gauge, " in new.do
    assert f"\n{dcgm.THROTTLE_MASKS[0]}, gauge, " in old.do
    assert gpu.ENGINE_ACTIVE.name not in old.seen


def test_an_unscaled_ratio_is_explained() -> None:
    """A ratio that is left out for lack of evidence is named, with the way to provide it."""
    reading = read_text(f'{dcgm.UTILIZATION_RATIO}{{UUID="GPU-a"}} 1\n')

    assert 1 == len(about(advise(GpuFacts("dcgm", reading=reading)), dcgm.UTILIZATION_RATIO))


def test_stale_data_a_frozen_triton_wrong_labels_and_guesses_are_reported() -> None:
    """Each has its finding."""
    frozen = GpuReading("triton", 0.0, {"GPU-a": Device("GPU-a")})
    guess = GpuClaim(M, Entity("GPU-a"), 1.0, "config", "guess")
    actual = advise(
        GpuFacts(
            "nvml",
            ages={"GPU-a": 91.0},
            triton=frozen,
            claims=(guess,),
            problems={M: "disagrees"},
            configs=ON_GPU,
        )
    )

    assert 4 == len(actual)
    for word in ("not changed for 91 s", "gave up reading", "another GPU", "only be guessed"):
        assert 1 == len(about(actual, word)), word


def test_what_is_fine_is_not_mentioned() -> None:
    """Fresh data from NVML and a certain mapping give no advice."""
    sure = GpuClaim(M, Entity("GPU-a"), 1.0, "config", "certain")

    assert () == advise(GpuFacts("nvml", ages={"GPU-a": 2.0}, claims=(sure,), configs=ON_GPU))


def test_a_device_that_is_not_there_is_named() -> None:
    """A typing mistake in --gpu-devices is reported with what there is."""
    reading = GpuReading("nvml", 0.0, {"GPU-a": Device("GPU-a")})
    (advice,) = advise(GpuFacts("nvml", reading=reading, devices=("GPU-a/3", "GPU-typo")))

    assert "GPU-typo" in advice.seen
    assert "GPU-a" not in advice.seen
    assert "GPU-a" in advice.do


def test_a_source_that_was_asked_for_and_fails_is_a_problem() -> None:
    """The source that the operator chose does not answer: a problem, even if another source serves."""
    (finding,) = advise(GpuFacts("nvml", details={"dcgm": "refused"}, wanted=frozenset({"dcgm"})))

    assert ("problem", "dcgm: refused") == (finding.grade, finding.seen)


def test_the_doctor_command_reads_gpus(capsys: pytest.CaptureFixture[str]) -> None:
    """`tritonwatch doctor --dcgm-url` names what a dcgm-exporter leaves out, with the lines to paste."""
    (closed,) = free_ports(1)
    with serving(write("4.x", [Card()])) as stub:
        main(["doctor", "--json", "--dcgm-url", stub.url, "--triton", f"http://127.0.0.1:{closed}"])
    printed = capsys.readouterr()
    actual = {finding["title"]: finding for finding in json.loads(printed.out)}

    assert "DCGM_FI_PROF_SM_ACTIVE, gauge" in actual["dcgm-exporter leaves out useful fields"]["do"]
    assert "" == printed.err

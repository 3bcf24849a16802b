"""Recommend what makes GPUs more observable: each finding with the line or flag to use, and its cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from triton_exporter.catalogue import Metric, gpu
from triton_exporter.catalogue.external import dcgm
from triton_exporter.common.printable import listed
from triton_exporter.doctor.finding import Finding
from triton_exporter.gpu.gpu_reading import GpuReading, canonical_uuid
from triton_exporter.gpu.mapping import GUESS, GpuClaim
from triton_exporter.snapshot import ModelConfig, ModelVersion

_NAMED = 5
_STALE_SECONDS = 90.0
"""Three of dcgm-exporter's default intervals."""


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """Facts about the GPUs at one moment.

    `details` has why each source that was asked failed, or its dialect; `ages` are seconds by GPU;
    `devices` and `wanted` sources are what the operator named.
    """

    source: str = "none"
    details: Mapping[str, str] = field(default_factory=dict)
    reading: GpuReading | None = None
    triton: GpuReading | None = None
    ages: Mapping[str, float] = field(default_factory=dict)
    configs: Mapping[ModelVersion, ModelConfig] = field(default_factory=dict)
    claims: tuple[GpuClaim, ...] = ()
    problems: Mapping[ModelVersion, str] = field(default_factory=dict)
    devices: tuple[str, ...] = ()
    wanted: frozenset[str] = frozenset()


def advise(facts: GpuFacts) -> tuple[Finding, ...]:
    """Return all findings, the most useful first; none where no model wants a GPU."""
    return tuple(finding for check in _CHECKS for finding in check(facts))


def _check_source(facts: GpuFacts) -> Iterator[Finding]:
    wanting = sorted(
        {
            key.model
            for key, config in facts.configs.items()
            if any(group.kind in ("KIND_GPU", "KIND_MODEL") for group in config.instance_groups)
        }
    )
    reasons = "; ".join(f"{name}: {why}" for name, why in facts.details.items() if why)
    if facts.source == "none" and wanting:
        yield Finding(
            "advice",
            "No source of GPU data answers",
            f"{listed(wanting, _NAMED)} want a GPU, but no source of GPU data answers ({reasons or 'none asked'})",
            "run dcgm-exporter beside Triton and name it with --dcgm-url, or give the exporter the GPU and "
            "install 'tritonwatch[exporter]'",
            "dcgm-exporter: one more container, 100 to 500 MiB of memory; NVML: nothing",
        )
    if facts.source == "triton":
        yield Finding(
            "advice",
            "GPU data come from Triton itself",
            f"GPU data come from Triton itself, which knows no {gpu.SM_ACTIVE}, temperature, clocks or XID "
            f"errors ({reasons})",
            "run dcgm-exporter beside Triton and name it with --dcgm-url; Triton can then be started with "
            "--allow-gpu-metrics=false",
            "without its GPU metrics Triton puts no gpu_uuid on any series; "
            f"{gpu.MODEL_GPU_INFO} is where models run",
        )


def _check_operator(facts: GpuFacts) -> Iterator[Finding]:
    for name in sorted(facts.wanted - {facts.source}):
        yield Finding(
            "problem",
            "The source of GPU data that was asked for does not answer",
            f"{name}: {facts.details.get(name, 'was not asked')}",
            "check --gpu and --dcgm-url",
            "nothing",
        )
    there = facts.reading.devices if facts.reading else {}
    unknown = [name for name in facts.devices if canonical_uuid(name.partition("/")[0]) not in there]
    if there and unknown:
        yield Finding(
            "problem",
            "--gpu-devices names GPUs that are not there",
            f"--gpu-devices names {listed(unknown, _NAMED)}, which {facts.source} does not know",
            f"name GPUs by their UUID; there are {listed(sorted(there), _NAMED)}",
            "nothing",
        )


def _check_age(facts: GpuFacts) -> Iterator[Finding]:
    for uuid, age in sorted(facts.ages.items()):
        if age > _STALE_SECONDS:
            yield Finding(
                "problem",
                "GPU data are stale",
                f"the data of {uuid} have not changed for {age:.0f} s",
                "check whether dcgm-exporter's engine hangs (it goes on answering 200) or the GPU has fallen "
                "off the bus; else lower its --collect-interval",
                "a restart of dcgm-exporter",
            )


def _check_fields(facts: GpuFacts) -> Iterator[Finding]:
    reading = facts.reading
    if facts.source != "dcgm" or reading is None:
        return
    if reading.dropped.get("unscaled"):
        yield Finding(
            "advice",
            "GPU utilization is left out",
            f"{dcgm.UTILIZATION_RATIO} is left out: it is unknown whether it is a ratio or a percentage",
            "write '(in %)' or 'ratio' in its HELP in dcgm-exporter's collector file",
            "nothing",
        )
    there = {slot.metric for slot in reading.values}
    missing = [metric for metric in _WORTH_HAVING if metric not in there]
    # The file is split at commas.
    lines = [
        f"{_field_name(metric, reading.dialect)}, gauge, {metric.help.replace(',', ';')}"
        for metric in missing
    ]
    if gpu.SM_ACTIVE in missing or gpu.ENGINE_ACTIVE in missing:
        cost = "profiling fields need Volta or newer; before Hopper only one program at a time can read them"
    else:
        cost = "a few more rows"
    if missing:
        yield Finding(
            "advice",
            "dcgm-exporter leaves out useful fields",
            "dcgm-exporter does not report " + ", ".join(str(metric) for metric in missing),
            "add to its collector file:\n" + "\n".join(lines),
            cost,
        )
    last = dcgm.XID_LAST[0 if reading.dialect == "4.9+" else 1]
    if not reading.watches_xids:
        yield Finding(
            "advice",
            "XID errors may not be watched",
            "dcgm-exporter reports no XID row: its collector file has none or, from 4.0 on, no GPU has had an XID "
            f"error since it started. Until there is one, {gpu.XID_ERRORS} is absent and its alerts cannot fire",
            f"make sure that its collector file has:\n{last}, gauge, Last XID code.\n"
            f"{dcgm.XID_TOTAL}, counter, XIDs. (from 4.8.3 on)",
            "a few more rows",
        )
    elif not any(report.kind in ("total", "window") for report in reading.xids or ()):
        yield Finding(
            "advice",
            "Repeated XID errors are invisible",
            f"XID errors are counted from {dcgm.XID_LAST[1]}, where a repeat of the same code is invisible",
            f"from dcgm-exporter 4.8.3 on, add to its collector file:\n{dcgm.XID_TOTAL}, counter, XIDs.",
            "a few more rows",
        )


def _check_triton(facts: GpuFacts) -> Iterator[Finding]:
    if facts.triton is None:
        return
    reported = {slot.entity.uuid for slot in facts.triton.values}
    for uuid in sorted(facts.triton.devices.keys() - reported):
        yield Finding(
            "advice",
            "Triton gave up reading a GPU",
            f"Triton gave up reading {uuid}: all its own GPU series of it stay 0 until it restarts",
            "do not use them; they are left out here. On MIG and some vGPUs it cannot be fixed",
            "nothing",
        )


def _check_models(facts: GpuFacts) -> Iterator[Finding]:
    for problem, words in _PROBLEMS.items():
        models = sorted({key.model for key, its_problem in facts.problems.items() if its_problem == problem})
        if models:
            yield Finding(
                "advice",
                "Triton's own gpu_uuid cannot be trusted",
                f"Triton's own series of {listed(models, _NAMED)} {words}",
                f"never join on gpu_uuid of Triton's series; join with {gpu.MODEL_GPU_INFO}",
                "nothing",
            )
    guessed = sorted({claim.key.model for claim in facts.claims if claim.confidence == GUESS})
    if guessed:
        yield Finding(
            "advice",
            "Where models run is a guess",
            f"on which GPU {listed(guessed, _NAMED)} run can only be guessed, so they get no share of it",
            "name Triton's devices in CUDA's order with --gpu-devices, and Python models that really use "
            "theirs with --gpu-models",
            "nothing",
        )


_PROBLEMS = {
    "missing": "carry no gpu_uuid (so it is for models loaded at start-up)",
    "unknown_gpu": "name a GPU that is not Triton's",
    "disagrees": "name another GPU than their config does",
}

_WORTH_HAVING = (
    gpu.ENGINE_ACTIVE,
    gpu.SM_ACTIVE,
    gpu.MEMORY_TOTAL,
    gpu.POWER_LIMIT,
    gpu.TEMPERATURE_MARGIN,
    gpu.THROTTLE_REASON,
    gpu.ROW_REMAP_PENDING,
)


def _field_name(metric: Metric, dialect: str) -> str:
    """Return what the field is called in the collector file of this dialect."""
    if metric is gpu.THROTTLE_REASON:
        return dcgm.THROTTLE_MASKS[0 if dialect.startswith("4") else 1]
    names = [alias.name for alias in dcgm.ALIASES if alias.metric is metric]
    return names[0] if dialect == "4.9+" or len(names) == 1 else names[1]


_CHECKS = (_check_operator, _check_age, _check_source, _check_fields, _check_triton, _check_models)

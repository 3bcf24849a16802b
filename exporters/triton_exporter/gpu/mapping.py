"""Which model runs on which GPU: what Triton's config means by a number, and how sure that is.

A config names GPUs by CUDA ordinal, which counts the devices Triton's process can see, in CUDA's order. No
API of Triton tells that order, so it is inferred here and every claim carries its source and confidence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import NamedTuple

from triton_exporter.catalogue.gpu import MAPPING_CONFIDENCES
from triton_exporter.gpu.reading import Entity, Reading, canonical_uuid
from triton_exporter.snapshot import ModelConfig, ModelStatistics, ModelVersion

CERTAIN, LIKELY, GUESS = MAPPING_CONFIDENCES

_TENSORRT_LLM_DEVICES = "gpu_device_ids"
"""Parameter in which TensorRT-LLM models, which say KIND_CPU, name their GPUs."""


@dataclass(frozen=True, slots=True)
class Visible:
    """GPUs that Triton's process can see, in the order of its CUDA ordinals, as far as one can tell.

    `known` says that these are Triton's, and not just all there are.
    """

    order: tuple[Entity, ...] = ()
    confidence: str = GUESS
    source: str = "config"
    known: bool = False

    def pick(self, ordinals: Iterable[int]) -> tuple[Entity, ...]:
        """The GPUs of these ordinals; one that is out of range names none."""
        return tuple(self.order[ordinal] for ordinal in ordinals if 0 <= ordinal < len(self.order))


class Claim(NamedTuple):
    """A model version runs on a GPU with `weight` of its instances there (weights of a model add up to 1)."""

    key: ModelVersion
    entity: Entity
    weight: float
    source: str
    confidence: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that is known about models and GPUs at one moment."""

    configs: Mapping[ModelVersion, ModelConfig] = field(default_factory=dict)
    statistics: tuple[ModelStatistics, ...] = ()
    labels: Mapping[ModelVersion, frozenset[str]] = field(default_factory=dict)
    triton_gpus: frozenset[str] = frozenset()
    sure_models: tuple[str, ...] = ()


def visible(
    operator: tuple[str, ...], reading: Reading | None, triton_gpus: frozenset[str], pod: str = ""
) -> Visible:
    """Find Triton's devices in CUDA's order.

    `operator` is the order the operator gave (`GPU-...`, or `GPU-.../3` for a MIG instance) and settles it.
    Otherwise the GPUs on Triton's own series, else those of its pod, else all that the source knows: one GPU
    leaves no doubt, several are taken in PCI order, which is CUDA's where all cards are alike.
    """
    if operator:
        order = tuple(_parse(text) for text in operator)
        there = reading is not None and any(entity.uuid in reading.devices for entity in order)
        return Visible(order, CERTAIN, "operator", there)
    if reading is None or not reading.devices:
        return Visible()
    everything = _in_pci_order(reading)
    mine = [entity for entity in everything if entity.uuid in triton_gpus]
    known = bool(mine)
    if not mine and pod in reading.pods:
        mine = [entity for entity in everything if entity in reading.pods[pod]]
        known = bool(mine)
    order = tuple(mine or everything)
    if len(order) == 1:
        return Visible(order, CERTAIN, "single_gpu", known)
    alike = len({reading.devices[entity.uuid].name for entity in order}) == 1
    split = any(entity.instance for entity in order)
    return Visible(order, LIKELY if known and alike and not split else GUESS, known=known)


def claims(evidence: Evidence, seen: Visible) -> tuple[Claim, ...]:
    """What each model version runs on; a model that runs on no GPU, or none that can be named, has none."""
    memory = {
        ModelVersion(row.model, row.version): tuple(
            sorted({use.device for use in row.memory if use.kind == "GPU" and use.bytes > 0})
        )
        for row in evidence.statistics
    }
    found: list[Claim] = []
    for key, config in evidence.configs.items():
        if not config.is_ensemble:
            found.extend(_claim(key, config, memory.get(key, ()), evidence, seen))
    return tuple(found)


def _claim(
    key: ModelVersion,
    config: ModelConfig,
    memory_devices: tuple[int, ...],
    evidence: Evidence,
    seen: Visible,
) -> list[Claim]:
    claim = _claim_config(key, config, seen)
    if not claim or (claim[0].confidence == GUESS and memory_devices):
        claim = _spread(key, dict.fromkeys(seen.pick(memory_devices), 1.0), seen, "statistics") or claim
    if not claim:
        named = sorted(evidence.labels.get(key, frozenset()) & evidence.triton_gpus)
        claim = _spread(key, dict.fromkeys(map(Entity, named), 1.0), seen, "triton_label", GUESS)
    if any(fnmatchcase(key.model, pattern) for pattern in evidence.sure_models):
        return [one._replace(source="operator", confidence=CERTAIN) for one in claim]
    return claim


def label_problems(evidence: Evidence, found: Iterable[Claim], seen: Visible) -> dict[ModelVersion, str]:
    """Model versions on a GPU whose own series name no GPU, one that is not Triton's, or another one.

    Triton asks DCGM for the CUDA ordinal as if it were DCGM's number, and leaves the label out for models
    loaded at start-up (server issues 6815 and 7479).
    """
    expected: dict[ModelVersion, set[str]] = {}
    for claim in found:
        if claim.confidence != GUESS and claim.source != "triton_label":
            expected.setdefault(claim.key, set()).add(claim.entity.uuid)
    known = evidence.triton_gpus or {entity.uuid for entity in seen.order}
    problems = {}
    for key, uuids in expected.items():
        said = evidence.labels.get(key, frozenset())
        if not said:
            problems[key] = "missing"
        elif not said <= known:
            problems[key] = "unknown_gpu"
        elif not said <= uuids:
            problems[key] = "disagrees"
    return problems


def _claim_config(key: ModelVersion, config: ModelConfig, seen: Visible) -> list[Claim]:
    weights: dict[Entity, float] = {}
    for group in config.instance_groups:
        for entity in seen.pick(group.gpus) if group.kind == "KIND_GPU" else ():
            weights[entity] = weights.get(entity, 0.0) + group.count
    if weights:
        # The Python backend claims every GPU for a model whose config names no instances at all, even for
        # one that never touches a GPU.
        defaulted = config.backend == "python" and len(weights) == len(seen.order)
        return _spread(key, weights, seen, seen.source, GUESS if defaulted else seen.confidence)
    listed = config.parameters.get(_TENSORRT_LLM_DEVICES, "")
    ordinals = [int(text) for text in listed.replace(",", " ").split() if text.isdigit()]
    if ordinals:
        return _spread(key, dict.fromkeys(seen.pick(ordinals), 1.0), seen, seen.source)
    if any(group.kind == "KIND_MODEL" for group in config.instance_groups):
        alone = len(seen.order) == 1
        return _spread(
            key,
            dict.fromkeys(seen.order, 1.0),
            seen,
            "single_gpu" if alone else "all_visible",
            LIKELY if alone else GUESS,
        )
    return []


def _spread(
    key: ModelVersion, weights: Mapping[Entity, float], seen: Visible, source: str, confidence: str = ""
) -> list[Claim]:
    whole = sum(weights.values())
    return [
        Claim(key, entity, weight / whole, source, confidence or seen.confidence)
        for entity, weight in weights.items()
    ]


def _parse(text: str) -> Entity:
    uuid, _, instance = text.strip().partition("/")
    return Entity(canonical_uuid(uuid), instance)


def _in_pci_order(reading: Reading) -> list[Entity]:
    parts: dict[str, list[Entity]] = {}
    for instance in reading.instances:
        if instance.entity not in parts.setdefault(instance.entity.uuid, []):
            parts[instance.entity.uuid].append(instance.entity)
    devices = sorted(
        reading.devices.values(),
        key=lambda device: (device.pci_bus_id, device.index.rjust(6), device.uuid),
    )
    return [
        entity
        for device in devices
        for entity in sorted(parts.get(device.uuid, []), key=lambda part: part.instance.rjust(6))
        or [Entity(device.uuid)]
    ]

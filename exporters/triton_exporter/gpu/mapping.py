"""Map models to GPUs: resolve the GPU numbers in Triton's configurations, each with its confidence.

A config names GPUs by CUDA ordinal, which counts the devices Triton's process can see, in CUDA's order. No
API of Triton reports that order, so it is inferred here and every claim carries its source and confidence: from
Triton's own labels of models whose configuration names their GPUs, and from the positions of the cards.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import NamedTuple

from triton_exporter.catalogue.gpu import MAPPING_CONFIDENCES
from triton_exporter.gpu.gpu_reading import Entity, GpuReading, canonical_uuid
from triton_exporter.snapshot import ModelConfig, ModelStatistics, ModelVersion

CERTAIN, LIKELY, GUESS = MAPPING_CONFIDENCES

_TENSORRT_LLM_DEVICES = "gpu_device_ids"
"""Parameter in which TensorRT-LLM models, which are configured as KIND_CPU, name their GPUs."""


@dataclass(frozen=True, slots=True)
class VisibleGpus:
    """GPUs that Triton's process can see, in the order of its CUDA ordinals, as far as it is known.

    `known`: these are Triton's, and not just all there are; `guessed` are those whose place is a
    guess although the others have `confidence`.
    """

    order: tuple[Entity, ...] = ()
    confidence: str = GUESS
    source: str = "config"
    known: bool = False
    guessed: frozenset[Entity] = frozenset()

    def confidence_of(self, entities: Collection[Entity]) -> str:
        """Return the confidence that these are the GPUs of their ordinals."""
        return GUESS if self.guessed.intersection(entities) else self.confidence

    def pick(self, ordinals: Iterable[int]) -> tuple[Entity, ...]:
        """Return the GPUs of these ordinals; one that is out of range names none."""
        return tuple(self.order[ordinal] for ordinal in ordinals if 0 <= ordinal < len(self.order))


class GpuClaim(NamedTuple):
    """A model version runs on a GPU with `weight` of its instances there (weights of a model add up to 1)."""

    key: ModelVersion
    entity: Entity
    weight: float
    source: str
    confidence: str


@dataclass(frozen=True, slots=True)
class GpuEvidence:
    """All that is known about models and GPUs at one moment."""

    configs: Mapping[ModelVersion, ModelConfig] = field(default_factory=dict)
    statistics: tuple[ModelStatistics, ...] = ()
    labels: Mapping[ModelVersion, frozenset[str]] = field(default_factory=dict)
    triton_gpus: frozenset[str] = frozenset()
    trusted_models: tuple[str, ...] = ()


def labelled_ordinals(evidence: GpuEvidence) -> dict[int, str]:
    """Return CUDA ordinals with the GPU that Triton's own series name for them.

    A model whose config names as many ordinals as its series name GPUs shows which those are; one GPU follows
    by exclusion. Nothing follows where a label names a GPU that is not Triton's, or two labels contradict each
    other: then Triton asked DCGM for other GPUs than it used (see `label_problems`).
    """
    rows: list[tuple[set[int], set[str]]] = []
    for key, config in evidence.configs.items():
        labels = evidence.labels.get(key, frozenset())
        if not labels <= evidence.triton_gpus:
            return {}
        ordinals = {gpu for group in config.instance_groups if group.kind == "KIND_GPU" for gpu in group.gpus}
        if len(ordinals) == len(labels):
            rows.append((ordinals, set(labels)))
    named: dict[int, str] = {}
    while True:
        resolved = {}
        for ordinals, uuids in rows:
            open_ordinals = ordinals - named.keys()
            open_uuids = uuids - {named[ordinal] for ordinal in ordinals & named.keys()}
            if len(open_ordinals) != len(open_uuids):
                return {}
            if len(open_ordinals) == 1:
                resolved[open_ordinals.pop()] = open_uuids.pop()
        if not resolved:
            return named if len(set(named.values())) == len(named) else {}
        named |= resolved


def visible_gpus(
    given_order: tuple[str, ...],
    reading: GpuReading | None,
    triton_gpus: frozenset[str],
    pod: str = "",
    named: Mapping[int, str] | None = None,
) -> VisibleGpus:
    """Find Triton's devices in CUDA's order.

    `given_order` is the order that the operator gave (`GPU-...`, or `GPU-.../3` for a MIG instance) and settles it.
    Otherwise the GPUs on Triton's own series, else those of its pod, else all that the source knows: one GPU
    leaves no doubt. Several are placed by `named` (see `labelled_ordinals`) and by PCI order or the source's
    index, which is CUDA's order where all cards are alike; without either it is a guess.
    """
    if given_order:
        order = tuple(_parse(text) for text in given_order)
        there = reading is not None and any(entity.uuid in reading.devices for entity in order)
        return VisibleGpus(order, CERTAIN, "operator", there)
    if reading is None or not reading.devices:
        return VisibleGpus()
    everything = _in_pci_order(reading)
    of_triton = [entity for entity in everything if entity.uuid in triton_gpus]
    known = bool(of_triton)
    if not of_triton and pod in reading.pods:
        of_triton = [entity for entity in everything if entity in reading.pods[pod]]
        known = bool(of_triton)
    order = tuple(of_triton or everything)
    whole = triton_gpus <= {entity.uuid for entity in order}  # else the ordinals count GPUs that are not here
    if len(order) == 1 and whole:
        return VisibleGpus(order, CERTAIN, "single_gpu", known)
    split = any(entity.instance for entity in order)
    return _placed(order, reading, {} if split else named or {}, known=known, certain=whole and not split)


def _placed(
    order: tuple[Entity, ...], reading: GpuReading, named: Mapping[int, str], *, known: bool, certain: bool
) -> VisibleGpus:
    """Settle the order of several GPUs, which are sorted by position; `certain`: all are there."""
    devices = [reading.devices[entity.uuid] for entity in order]
    models = {device.name for device in devices}
    # CUDA puts the fastest card first; a source without names leaves that open.
    unlike, alike = len(models - {""}) > 1, len(models) == 1 and "" not in models
    has_positions = all(device.pci_bus_id for device in devices) or all(device.index for device in devices)
    positioned = alike and has_positions
    by_name = {entity.uuid: entity for entity in order}
    by_ordinal = {ordinal: by_name[uuid] for ordinal, uuid in named.items() if uuid in by_name}
    if any(ordinal >= len(order) for ordinal in by_ordinal):
        by_ordinal = {}
    agreed = all(order[ordinal] == entity for ordinal, entity in by_ordinal.items())
    are_indices = all(
        reading.devices[entity.uuid].index == str(ordinal) for ordinal, entity in by_ordinal.items()
    )
    if positioned and not agreed and are_indices:
        # Triton's known mistake (see `label_problems`): the ordinal was taken for the number on the node.
        by_ordinal, agreed = {}, True
    if not known or not certain or unlike or (positioned and not agreed):
        return VisibleGpus(_rearranged(order, by_ordinal), GUESS, known=known)
    if positioned:
        return VisibleGpus(order, LIKELY, known=known)
    if not by_ordinal:
        return VisibleGpus(order, GUESS, known=known)
    guessed = frozenset(order).difference(by_ordinal.values())
    return VisibleGpus(_rearranged(order, by_ordinal), LIKELY, known=known, guessed=guessed)


def _rearranged(order: tuple[Entity, ...], by_ordinal: Mapping[int, Entity]) -> tuple[Entity, ...]:
    """Put each GPU of `by_ordinal` at its ordinal, and the others, in their order, at the places that are left."""
    others = iter(entity for entity in order if entity not in by_ordinal.values())
    return tuple(by_ordinal.get(ordinal) or next(others) for ordinal in range(len(order)))


def gpu_claims(evidence: GpuEvidence, visible: VisibleGpus) -> tuple[GpuClaim, ...]:
    """Return what each model version runs on; a model that runs on no GPU, or none that can be named, has none."""
    memory = {
        row.key: tuple(sorted({use.device for use in row.memory if use.kind == "GPU" and use.bytes > 0}))
        for row in evidence.statistics
    }
    claimed: list[GpuClaim] = []
    for key, config in evidence.configs.items():
        if not config.is_ensemble:
            claimed.extend(_claims_of(key, config, memory.get(key, ()), evidence, visible))
    return tuple(claimed)


def _claims_of(
    key: ModelVersion,
    config: ModelConfig,
    memory_devices: tuple[int, ...],
    evidence: GpuEvidence,
    visible: VisibleGpus,
) -> list[GpuClaim]:
    claims = _claim_config(key, config, visible)
    if not claims or claims[0].confidence == GUESS:
        in_memory = dict.fromkeys(visible.pick(memory_devices), 1.0)
        claims = _shared_claims(key, in_memory, visible, "statistics") or claims
    # Labels name whole GPUs: they replace a guess of as many, and none of MIG instances.
    named = sorted(evidence.labels.get(key, frozenset()) & evidence.triton_gpus)
    is_guess_of_gpus = len(named) == len(claims) and all(
        claim.confidence == GUESS and not claim.entity.instance for claim in claims
    )
    if named and (not claims or is_guess_of_gpus):
        claims = _shared_claims(key, dict.fromkeys(map(Entity, named), 1.0), visible, "triton_label", GUESS)
    if any(fnmatchcase(key.model, pattern) for pattern in evidence.trusted_models):
        return [claim._replace(source="operator", confidence=CERTAIN) for claim in claims]
    return claims


def label_problems(
    evidence: GpuEvidence, claimed: Iterable[GpuClaim], visible: VisibleGpus
) -> dict[ModelVersion, str]:
    """Return model versions on a GPU whose series name no GPU, one that is not Triton's, or another one.

    Triton asks DCGM for the CUDA ordinal as if it were DCGM's number, and leaves the label out for models
    loaded at start-up (server issues 6815 and 7479).
    """
    expected: dict[ModelVersion, set[str]] = {}
    for claim in claimed:
        if claim.confidence != GUESS and claim.source != "triton_label":
            expected.setdefault(claim.key, set()).add(claim.entity.uuid)
    known = evidence.triton_gpus or {entity.uuid for entity in visible.order}
    problems = {}
    for key, uuids in expected.items():
        named = evidence.labels.get(key, frozenset())
        if not named:
            problems[key] = "missing"
        elif not named <= known:
            problems[key] = "unknown_gpu"
        elif not named <= uuids:
            problems[key] = "disagrees"
    return problems


def _claim_config(key: ModelVersion, config: ModelConfig, visible: VisibleGpus) -> list[GpuClaim]:
    weights: dict[Entity, float] = {}
    for group in config.instance_groups:
        for entity in visible.pick(group.gpus) if group.kind == "KIND_GPU" else ():
            weights[entity] = weights.get(entity, 0.0) + group.count
    if weights:
        # The Python backend claims every GPU for a model whose config names no instances at all, even for
        # one that never touches a GPU.
        defaulted = config.backend == "python" and len(weights) == len(visible.order)
        return _shared_claims(key, weights, visible, visible.source, GUESS if defaulted else "")
    listed = config.parameters.get(_TENSORRT_LLM_DEVICES, "")
    ordinals = [int(text) for text in listed.replace(",", " ").split() if text.isdigit()]
    if ordinals:
        return _shared_claims(key, dict.fromkeys(visible.pick(ordinals), 1.0), visible, visible.source)
    if any(group.kind == "KIND_MODEL" for group in config.instance_groups):
        source, confidence = ("single_gpu", LIKELY) if len(visible.order) == 1 else ("all_visible", GUESS)
        return _shared_claims(key, dict.fromkeys(visible.order, 1.0), visible, source, confidence)
    return []


def _shared_claims(
    key: ModelVersion,
    weights: Mapping[Entity, float],
    visible: VisibleGpus,
    source: str,
    confidence: str = "",
) -> list[GpuClaim]:
    whole = sum(weights.values())
    return [
        GpuClaim(key, entity, weight / whole, source, confidence or visible.confidence_of(weights))
        for entity, weight in weights.items()
    ]


def _parse(text: str) -> Entity:
    uuid, _, instance = text.strip().partition("/")
    return Entity(canonical_uuid(uuid), instance)


def _in_pci_order(reading: GpuReading) -> list[Entity]:
    parts: dict[str, list[Entity]] = {}
    for instance in reading.instances:
        if instance.entity not in parts.setdefault(instance.entity.uuid, []):
            parts[instance.entity.uuid].append(instance.entity)
    by_bus = all(device.pci_bus_id for device in reading.devices.values())
    devices = sorted(
        reading.devices.values(),
        key=lambda device: (device.pci_bus_id if by_bus else "", device.index.rjust(6), device.uuid),
    )
    return [
        entity
        for device in devices
        for entity in sorted(parts.get(device.uuid, []), key=lambda part: part.instance.rjust(6))
        or [Entity(device.uuid)]
    ]

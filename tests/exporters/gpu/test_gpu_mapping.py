"""Test the mapping of models to GPUs, its evidence, and the faults of Triton's own labels."""

from __future__ import annotations

from dataclasses import replace

import pytest

from triton_exporter.gpu.gpu_reading import Device, Entity, GpuReading, Instance
from triton_exporter.gpu.mapping import (
    GpuClaim,
    GpuEvidence,
    VisibleGpus,
    gpu_claims,
    label_problems,
    labelled_ordinals,
    visible_gpus,
)
from triton_exporter.snapshot import (
    EnsembleStep,
    InstanceGroup,
    MemoryUse,
    ModelConfig,
    ModelStatistics,
    ModelVersion,
)

A, B, C = Entity("GPU-a"), Entity("GPU-b"), Entity("GPU-c")
M = ModelVersion("m", "1")


def node(*devices: Device, instances: tuple[Instance, ...] = (), **pods: frozenset[Entity]) -> GpuReading:
    return GpuReading("dcgm", 0.0, {device.uuid: device for device in devices}, instances, pods=pods)


def card(entity: Entity, bus: str, name: str = "H100") -> Device:
    return Device(entity.uuid, name=name, pci_bus_id=f"00000000:{bus}:00.0")


def model(
    *groups: InstanceGroup, backend: str = "onnxruntime", **parameters: str
) -> dict[ModelVersion, ModelConfig]:
    return {M: ModelConfig("m", backend, instance_groups=groups, parameters=parameters)}


def on(*claims: GpuClaim) -> list[tuple[Entity, str, str]]:
    return [(claim.entity, claim.source, claim.confidence) for claim in claims]


def gpus(*ordinals: int, count: int = 1) -> InstanceGroup:
    return InstanceGroup("KIND_GPU", count, ordinals)


SURE = VisibleGpus((A, B), "certain", "operator")


# --- The order of Triton's devices --------------------------------------------------------------------------


def test_the_operators_order_is_certain() -> None:
    """The operator's order is used as given, including a bare UUID and a MIG instance."""
    seen = visible_gpus(("GPU-b", "a", "GPU-c/3"), node(card(A, "01")), frozenset())

    assert VisibleGpus((B, A, Entity("GPU-c", "3")), "certain", "operator", known=True) == seen


def test_one_gpu_leaves_no_doubt() -> None:
    """Where the node has one GPU, or Triton's own series show one, every ordinal 0 is that one."""
    alone = VisibleGpus((A,), "certain", "single_gpu")

    assert alone == visible_gpus((), node(card(A, "01")), frozenset())
    known = replace(alone, known=True)
    assert known == visible_gpus((), node(card(B, "01"), card(A, "02")), frozenset({"GPU-a"}))
    assert known == visible_gpus(
        (), node(card(B, "01"), card(A, "02"), triton=frozenset({A})), frozenset(), "triton"
    )


@pytest.mark.parametrize(
    ("case", "names", "own", "confidence"),
    [
        ("Triton lists its GPUs and they are alike", ("H100", "H100"), {"GPU-a", "GPU-b"}, "likely"),
        ("CUDA puts the fastest first when cards differ", ("H100", "L4"), {"GPU-a", "GPU-b"}, "guess"),
        ("it is unknown which of the node's GPUs are Triton's", ("H100", "H100"), set(), "guess"),
    ],
)
def test_several_gpus_are_taken_in_pci_order(
    case: str, names: tuple[str, str], own: set[str], confidence: str
) -> None:
    """PCI order is CUDA's for cards that are alike; how sure that is depends on what is known."""
    reading = node(card(A, "9b", names[0]), card(B, "1b", names[1]))

    assert VisibleGpus((B, A), confidence, known=bool(own)) == visible_gpus((), reading, frozenset(own)), case


X, Y, Z = (ModelVersion(name, "1") for name in "xyz")


def placed(**groups: InstanceGroup) -> dict[ModelVersion, ModelConfig]:
    """Models by name, each with one instance group."""
    return {
        ModelVersion(name, "1"): ModelConfig(name, "onnxruntime", instance_groups=(group,))
        for name, group in groups.items()
    }


def reported(configs: dict[ModelVersion, ModelConfig], own: str = "abc", **labels: str) -> GpuEvidence:
    """Return what Triton reports: GPUs and labels are written by their letters."""
    named = {
        ModelVersion(name, "1"): frozenset(f"GPU-{line}" for line in text) for name, text in labels.items()
    }
    return GpuEvidence(configs, labels=named, triton_gpus=frozenset(f"GPU-{uuid}" for uuid in own))


def bare(*entities: Entity) -> GpuReading:
    """Return what Triton itself reports about GPUs: UUIDs and nothing else."""
    return GpuReading("triton", 0.0, {entity.uuid: Device(entity.uuid) for entity in entities})


@pytest.mark.parametrize(
    ("case", "evidence", "named"),
    [
        (
            "one GPU each",
            reported(placed(x=gpus(0), y=gpus(1), z=gpus(2)), x="c", y="a", z="b"),
            {0: "GPU-c", 1: "GPU-a", 2: "GPU-b"},
        ),
        ("by exclusion", reported(placed(x=gpus(0), y=gpus(0, 1)), x="c", y="ca"), {0: "GPU-c", 1: "GPU-a"}),
        ("two at once stay open", reported(placed(y=gpus(0, 1)), y="ca"), {}),
        (
            "a model loaded at start-up has no label",
            reported(placed(x=gpus(0), y=gpus(1)), x="c", y=""),
            {0: "GPU-c"},
        ),
        ("a GPU that is not Triton's", reported(placed(x=gpus(0), y=gpus(1)), x="c", y="d"), {}),
        ("one ordinal on two GPUs", reported(placed(x=gpus(0), y=gpus(0)), x="c", y="a"), {}),
        ("one GPU for two ordinals", reported(placed(x=gpus(0), y=gpus(1)), x="c", y="c"), {}),
        ("the labels of before a reload", reported(placed(x=gpus(1)), x="ca"), {}),
    ],
)
def test_ordinals_are_inferred_from_labels_and_configurations(
    case: str, evidence: GpuEvidence, named: dict[int, str]
) -> None:
    """A model on GPU 1 whose series name one GPU identifies GPU 1; contradicting labels identify nothing."""
    assert named == labelled_ordinals(evidence), case


def test_ordinals_are_never_invented_from_the_order_of_uuids() -> None:
    """Where no source reports positions the mapping is a guess, unless Triton's own labels name the GPU."""
    every = frozenset({"GPU-a", "GPU-b", "GPU-c"})

    assert "guess" == visible_gpus((), bare(A, B, C), every).confidence
    assert VisibleGpus((C, A, B), "likely", known=True) == visible_gpus(
        (), bare(A, B, C), every, named={0: "GPU-c", 1: "GPU-a", 2: "GPU-b"}
    )
    part = visible_gpus((), bare(A, B, C), every, named={1: "GPU-a"})
    assert VisibleGpus((B, A, C), "likely", known=True, guessed=frozenset({B, C})) == part
    claimed = gpu_claims(GpuEvidence(placed(x=gpus(0), y=gpus(1), z=gpus(0, 1))), part)
    assert ["guess", "likely", "guess", "guess"] == [claim.confidence for claim in claimed]


def test_gpus_of_unknown_models_are_not_taken_for_equal() -> None:
    """An index gives CUDA's order only where the cards are known to be alike."""
    every = frozenset({"GPU-a", "GPU-b"})
    named = node(Device("GPU-a", "1", "H100"), Device("GPU-b", "0", "H100"))
    nameless = node(Device("GPU-a", "1"), Device("GPU-b", "0"))

    assert VisibleGpus((B, A), "likely", known=True) == visible_gpus((), named, every)
    assert VisibleGpus((B, A), "guess", known=True) == visible_gpus((), nameless, every)


@pytest.mark.parametrize(
    ("case", "cards", "named", "expected"),
    [
        ("both agree", (card(A, "01"), card(B, "02")), {0: "GPU-a"}, ((A, B), "likely")),
        ("they contradict each other", (card(A, "01"), card(B, "02")), {0: "GPU-b"}, ((B, A), "guess")),
        (
            "Triton took its ordinal 1 for GPU 1 of the node",
            (replace(card(A, "01"), index="1"), replace(card(B, "02"), index="2")),
            {1: "GPU-a"},
            ((A, B), "likely"),
        ),
        ("cards differ", (card(A, "01"), card(B, "02", "L4")), {0: "GPU-a"}, ((A, B), "guess")),
    ],
)
def test_labels_are_compared_with_positions(
    case: str, cards: tuple[Device, ...], named: dict[int, str], expected: tuple[tuple[Entity, ...], str]
) -> None:
    """Two sources that agree are likely; a contradiction is a guess, except for Triton's known mistake."""
    seen = visible_gpus((), node(*cards), frozenset({"GPU-a", "GPU-b"}), named=named)

    assert expected == (seen.order, seen.confidence), case


def test_a_label_beyond_tritons_gpus_is_ignored() -> None:
    """Ordinal 5 of two GPUs contradicts itself, so that every place stays a guess."""
    every = frozenset({"GPU-a", "GPU-b"})

    assert VisibleGpus((A, B), "guess", known=True) == visible_gpus((), bare(A, B), every, named={5: "GPU-b"})


def test_gpus_that_the_source_does_not_know_leave_the_others_a_guess() -> None:
    """An ordinal counts all of Triton's GPUs, also one that dcgm-exporter does not list."""
    every = frozenset({"GPU-a", "GPU-b", "GPU-c"})

    assert "guess" == visible_gpus((), node(card(A, "01"), card(C, "03")), every).confidence
    assert "guess" == visible_gpus((), node(card(C, "03")), every).confidence


def test_a_guessed_model_is_on_the_gpus_that_its_labels_name() -> None:
    """Labels that do not distinguish ordinals still name the model's GPUs better than a guessed order does."""
    evidence = reported(placed(z=gpus(0, 1)), z="bc")
    claimed = gpu_claims(evidence, VisibleGpus((A, B, C), "guess", known=True))

    assert [(B, "triton_label", "guess"), (C, "triton_label", "guess")] == on(*claimed)


def test_mig_instances_are_devices_of_their_own() -> None:
    """Of a split GPU Triton sees instances; several are only guessed at."""
    first, second = Entity("GPU-a", "2"), Entity("GPU-a", "11")
    reading = node(
        card(A, "01"),
        instances=(Instance(second), Instance(first), Instance(first)),
        triton=frozenset({second}),
    )

    assert VisibleGpus((first, second), "guess") == visible_gpus((), reading, frozenset())
    assert VisibleGpus((second,), "certain", "single_gpu", True) == visible_gpus(
        (), reading, frozenset(), "triton"
    )


def test_nothing_known_maps_nothing() -> None:
    """Without a source and without the operator there is no device and no claim."""
    assert VisibleGpus() == visible_gpus((), None, frozenset())
    assert () == gpu_claims(GpuEvidence(model(gpus(0))), VisibleGpus())


# --- Models -------------------------------------------------------------------------------------------------


def test_instances_are_placed_by_the_config() -> None:
    """Each ordinal of the config names a device, weighted by the instances there."""
    claimed = gpu_claims(GpuEvidence(model(gpus(0, count=3), gpus(1))), SURE)

    assert [(A, "operator", "certain"), (B, "operator", "certain")] == on(*claimed)
    assert [0.75, 0.25] == [claim.weight for claim in claimed]


def test_an_ordinal_that_is_not_there_names_no_gpu() -> None:
    """A config for a machine with more GPUs than are known does not invent one."""
    assert [] == on(*gpu_claims(GpuEvidence(model(gpus(7))), SURE))


def test_models_without_a_gpu_have_none() -> None:
    """CPU models and ensembles run on no GPU."""
    assert () == gpu_claims(GpuEvidence(model(InstanceGroup("KIND_CPU", 4))), SURE)
    ensemble = {M: ModelConfig("m", platform="ensemble", steps=(EnsembleStep("x", -1),))}
    assert () == gpu_claims(GpuEvidence(ensemble), SURE)


def test_a_python_model_on_every_gpu_is_a_guess() -> None:
    """The Python backend reports KIND_GPU with all GPUs for a model that named none, even a tokenizer."""
    config = model(gpus(0, 1), backend="python")

    assert ["guess", "guess"] == [claim.confidence for claim in gpu_claims(GpuEvidence(config), SURE)]
    assert ["certain"] == [
        claim.confidence for claim in gpu_claims(GpuEvidence(model(gpus(1), backend="python")), SURE)
    ]


def test_the_operator_can_vouch_for_a_model() -> None:
    """A model whose name matches a pattern is certain."""
    config = model(gpus(0, 1), backend="python")
    claimed = gpu_claims(GpuEvidence(config, trusted_models=("x*", "m*")), SURE)

    assert [(A, "operator", "certain"), (B, "operator", "certain")] == on(*claimed)


def test_tensorrt_llm_names_its_gpus_in_a_parameter() -> None:
    """KIND_CPU with gpu_device_ids is a GPU model."""
    config = model(InstanceGroup("KIND_CPU", 1), gpu_device_ids="0, 1")

    assert [(A, "operator", "certain"), (B, "operator", "certain")] == on(
        *gpu_claims(GpuEvidence(config), SURE)
    )


def test_a_model_that_places_itself_may_be_anywhere() -> None:
    """KIND_MODEL (vLLM) is on some of the visible GPUs: likely the one there is, else a guess."""
    config = model(InstanceGroup("KIND_MODEL", 1), backend="vllm")

    assert [(A, "all_visible", "guess"), (B, "all_visible", "guess")] == on(
        *gpu_claims(GpuEvidence(config), SURE)
    )
    alone = VisibleGpus((A,), "certain", "single_gpu")
    assert [(A, "single_gpu", "likely")] == on(*gpu_claims(GpuEvidence(config), alone))


def test_memory_in_the_statistics_settles_a_guess() -> None:
    """A model that uses memory on device 1 runs there, whatever its kind."""
    held = (ModelStatistics("m", "1", memory=(MemoryUse("CPU", 0, 9), MemoryUse("GPU", 1, 5))),)

    for config in (model(InstanceGroup("KIND_MODEL", 1)), model(InstanceGroup("KIND_CPU", 1))):
        assert [(B, "statistics", "certain")] == on(*gpu_claims(GpuEvidence(config, held), SURE))


def test_tritons_label_is_the_last_resort() -> None:
    """Triton's gpu_uuid, if it is one of Triton's GPUs, is used only without other evidence."""
    config = model(InstanceGroup("KIND_CPU", 1))
    evidence = GpuEvidence(
        config, labels={M: frozenset({"GPU-c", "GPU-x"})}, triton_gpus=frozenset({"GPU-c"})
    )

    assert [(C, "triton_label", "guess")] == on(*gpu_claims(evidence, SURE))


@pytest.mark.parametrize(
    ("printed", "own", "problem"),
    [
        (set(), {"GPU-a", "GPU-b"}, "missing"),
        ({"GPU-x"}, {"GPU-a", "GPU-b"}, "unknown_gpu"),
        ({"GPU-x"}, set(), "unknown_gpu"),
        ({"GPU-b"}, {"GPU-a", "GPU-b"}, "disagrees"),
        ({"GPU-a"}, {"GPU-a", "GPU-b"}, None),
    ],
)
def test_a_wrong_or_missing_label_is_found(printed: set[str], own: set[str], problem: str | None) -> None:
    """Triton's gpu_uuid of a model is compared with better evidence."""
    evidence = GpuEvidence(model(gpus(0)), labels={M: frozenset(printed)}, triton_gpus=frozenset(own))
    claimed = gpu_claims(evidence, SURE)

    assert ({M: problem} if problem else {}) == label_problems(evidence, claimed, SURE)


def test_a_guess_accuses_nobody() -> None:
    """Where the mapping itself is a guess, Triton's label is not called wrong."""
    guess = VisibleGpus((A, B), "guess")
    evidence = GpuEvidence(model(gpus(0)), labels={M: frozenset({"GPU-b"})}, triton_gpus=frozenset({"GPU-b"}))

    assert {} == label_problems(evidence, gpu_claims(evidence, guess), guess)

"""The result of one poll of Triton's HTTP API, parsed once and frozen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class ModelVersion(NamedTuple):
    """A model and its version, which is empty where Triton names none."""

    model: str
    version: str


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One line of the repository index; `version` and `state` are empty for a model without a version."""

    model: str
    version: str = ""
    state: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class InstanceGroup:
    """Instances of one kind (KIND_GPU, KIND_CPU, KIND_MODEL): `count` on each of `gpus` (CUDA ordinals)."""

    kind: str
    count: int
    gpus: tuple[int, ...] = ()

    @property
    def instances(self) -> int:
        """Number of instances: `count` per GPU for KIND_GPU, else `count`."""
        return self.count * (max(1, len(self.gpus)) if self.kind == "KIND_GPU" else 1)


@dataclass(frozen=True, slots=True)
class QueuePolicy:
    """Limits of one queue; 0 means none."""

    max_queue_size: int = 0
    timeout_microseconds: int = 0
    timeout_action: str = ""


@dataclass(frozen=True, slots=True)
class EnsembleStep:
    """One step of an ensemble; `version` is -1 for the latest."""

    model: str
    version: int


@dataclass(frozen=True, slots=True)
class InputTensor:
    """One input as configured: dims without the batch, -1 for a free one."""

    name: str
    datatype: str
    dims: tuple[int, ...]
    optional: bool = False
    is_shape_tensor: bool = False


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The normalised configuration of one ready model version."""

    model: str
    backend: str = ""
    platform: str = ""
    max_batch_size: int = 0
    instance_groups: tuple[InstanceGroup, ...] = ()
    dynamic_batching: bool = False
    sequence_batching: bool = False
    max_queue_delay_microseconds: int = 0
    queue: QueuePolicy = QueuePolicy()
    priority_queues: Mapping[int, QueuePolicy] = field(default_factory=dict)
    response_cache: bool = False
    decoupled: bool = False
    inputs: tuple[InputTensor, ...] = ()
    steps: tuple[EnsembleStep, ...] = ()
    parameters: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_ensemble(self) -> bool:
        return bool(self.steps) or self.platform == "ensemble"


@dataclass(frozen=True, slots=True)
class BatchStatistics:
    """Executions of one batch size; durations are per execution, not per request."""

    size: int
    executions: int
    input_ns: int
    infer_ns: int
    output_ns: int

    @property
    def busy_ns(self) -> int:
        return self.input_ns + self.infer_ns + self.output_ns


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Load-time estimate of a model's memory of one kind (CPU, CPU_PINNED, GPU) on one device id."""

    kind: str
    device: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ModelStatistics:
    """Cumulative statistics of one ready model version; a reload starts them again at 0."""

    model: str
    version: str
    last_inference_seconds: float = 0.0
    executions: int = 0
    success: int = 0
    batches: tuple[BatchStatistics, ...] = ()
    memory: tuple[MemoryUse, ...] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One poll of Triton at Unix time `at`; None means that Triton did not answer that part, or refused it.

    `api_failure` is one of DOWN_REASONS when the HTTP API did not answer at all, or another server than Triton did;
    `api_failure_text` has the details, if there are any.
    """

    at: float
    api_failure: str = ""
    live: bool = False
    ready: bool | None = False
    triton_version: str = ""
    index: tuple[IndexEntry, ...] | None = None
    statistics: tuple[ModelStatistics, ...] | None = None
    configs: Mapping[ModelVersion, ModelConfig] = field(default_factory=dict)
    ready_versions: Mapping[ModelVersion, bool] = field(default_factory=dict)
    api_failure_text: str = ""

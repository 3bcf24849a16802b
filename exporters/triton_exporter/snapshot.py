"""The result of one poll of Triton's API, parsed once and frozen, and what it claims of each model version.

The claims are the union of index, statistics and ready endpoints.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
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
    preferred_batch_sizes: tuple[int, ...] = ()
    priority_levels: int = 0
    rate_limiter: bool = False
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
    executions: int = 0
    success: int = 0
    batches: tuple[BatchStatistics, ...] = ()
    memory: tuple[MemoryUse, ...] = ()
    key: ModelVersion = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", ModelVersion(self.model, self.version))


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One poll of Triton at Unix time `at`; None means that Triton did not answer that part, or refused it.

    `api_failure` is one of DOWN_REASONS when the API did not answer at all, or another server than Triton did,
    and NO_API where there is none to ask; `api_failure_text` has the details, if there are any.
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


NO_API = "no_api"
"""The `api_failure` of every poll of a Triton of which the operator named the metrics alone."""

# The exporter's words for Triton's states: ModelReadyState in core's src/model_lifecycle.h.
_STATES = {"READY": "ready", "LOADING": "loading", "UNLOADING": "unloading"}

UNLOADED = "unloaded"
"""The one reason of UNAVAILABLE that is not a failure."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The state of one model version (a word of MODEL_STATES), whether it serves, and the source.

    `reason` is Triton's own text. An unversioned claim stands for a model that Triton lists without a version.
    """

    state: str
    ready: bool = False
    reason: str = ""
    source: str = "index"

    @property
    def is_unversioned(self) -> bool:
        return self.state == "not_loaded"


def claims(snapshot: Snapshot) -> dict[ModelVersion, Claim]:
    """Return every model version that Triton lists, with its state."""
    current = {ModelVersion(entry.model, entry.version): _claim_of(entry) for entry in snapshot.index or ()}
    for statistics in snapshot.statistics or ():
        # Statistics list ready versions only, and also those the index misses: loaded from memory, or
        # with a directory deleted since.
        key = statistics.key
        if key not in current or current[key].is_unversioned:
            current[key] = Claim("ready", ready=True, source="statistics")
    for key, answer in snapshot.ready_versions.items():
        claim = current.get(key)
        if claim is not None and claim.ready and not answer:
            current[key] = replace(
                claim, ready=False, reason="its ready endpoint does not answer 200", source="health"
            )
    versioned = {key.model for key in current if key.version}
    return {
        key: claim for key, claim in current.items() if not (claim.is_unversioned and key.model in versioned)
    }


def _claim_of(entry: IndexEntry) -> Claim:
    if not entry.state:
        return Claim("not_loaded")
    if entry.state == "UNAVAILABLE":
        state = "unloaded" if entry.reason == UNLOADED else "unavailable"
        return Claim(state, reason=entry.reason)
    state = _STATES.get(entry.state, "unknown")
    return Claim(state, ready=state == "ready", reason=entry.reason)


_CHECKS = {
    "refused": "nothing listens there: check that Triton runs, that its models have loaded (its ports open after "
    "that), that it was started with HTTP (--allow-http=true, its default) or with gRPC as in --triton, and the port there",
    "unreachable": "check the network between the exporter and Triton, and the address in --triton",
    "timeout": "check whether Triton's process is stopped, hung or short of CPU, and the network",
    "dns": "the host name does not resolve: check --triton and the name server",
    "tls": "check the certificates of Triton and of the exporter (--triton-ca-file, --triton-cert-file)",
    "http_error": "put the header that is wanted there into --triton-headers-file (401, 403), or check what stands "
    "in front of Triton (5xx)",
    "bad_response": "the connection broke off, as when Triton ends, or another server answers there: check that "
    "Triton runs, and the address in --triton: http://HOST:8000 (--http-port), or grpc://HOST:8001 (--grpc-port)",
}
_OTHERWISE = (
    "another server answers there: check the address in --triton; where Triton has no API (an OpenAI front end without "
    "--enable-kserve-frontends), give --triton-metrics alone"
)


def what_to_check(reason: str) -> str:
    """Explain what a reason of `Snapshot.api_failure` means, and what to check."""
    return _CHECKS.get(reason, _OTHERWISE)

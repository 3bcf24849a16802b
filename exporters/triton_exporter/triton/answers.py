"""Read Triton's JSON answers into frozen values; what is missing or of the wrong type becomes its default."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from triton_exporter.snapshot import (
    BatchStatistics,
    EnsembleStep,
    IndexEntry,
    InputTensor,
    InstanceGroup,
    MemoryUse,
    ModelConfig,
    ModelStatistics,
    QueuePolicy,
)

_PAST_ANY = 2**64
"""No number of Triton's is this large: one that is would not fit a float."""

_MAX_DIGITS = len(str(-_PAST_ANY))


class AnswerError(ValueError):
    """The body is not a response of this endpoint."""


def parse_index(body: bytes) -> tuple[IndexEntry, ...]:
    """Return the repository index. Entries without a name are dropped; raises AnswerError when it is not a list."""
    entries = _json(body)
    if not isinstance(entries, list):
        raise AnswerError("the repository index is not a list")
    return tuple(
        IndexEntry(
            _string(entry, "name"),
            _string(entry, "version"),
            _string(entry, "state"),
            _string(entry, "reason"),
        )
        for entry in _objects(entries)
        if _string(entry, "name")
    )


def parse_statistics(body: bytes) -> tuple[ModelStatistics, ...]:
    """Return the statistics of every ready model version. Raises AnswerError."""
    answer = _json(body)
    if not isinstance(answer, dict) or not isinstance(answer.get("model_stats"), list):
        raise AnswerError("the statistics hold no list model_stats")
    return tuple(
        _model_statistics(model) for model in _objects(answer["model_stats"]) if _string(model, "name")
    )


def parse_config(body: bytes) -> ModelConfig:
    """Return the normalised configuration of one model version. Raises AnswerError."""
    config = _json(body)
    if not isinstance(config, dict):
        raise AnswerError("the configuration is not an object")
    dynamic = _object(config, "dynamic_batching")
    sequence = _object(config, "sequence_batching")
    oldest = _object(sequence, "oldest")
    return ModelConfig(
        model=_string(config, "name"),
        backend=_string(config, "backend"),
        platform=_string(config, "platform"),
        max_batch_size=_integer(config, "max_batch_size"),
        instance_groups=tuple(_instance_group(group) for group in _object_list(config, "instance_group")),
        dynamic_batching="dynamic_batching" in config,
        sequence_batching="sequence_batching" in config,
        max_queue_delay_microseconds=_integer(dynamic, "max_queue_delay_microseconds")
        or _integer(oldest, "max_queue_delay_microseconds"),
        queue=_queue_policy(_object(dynamic, "default_queue_policy")),
        priority_queues={
            int(level): _queue_policy(policy)
            for level, policy in _object(dynamic, "priority_queue_policy").items()
            if level.isdecimal() and isinstance(policy, dict)
        },
        response_cache=_object(config, "response_cache").get("enable") is True,
        decoupled=_object(config, "model_transaction_policy").get("decoupled") is True,
        inputs=tuple(_input(tensor) for tensor in _object_list(config, "input")),
        steps=tuple(
            EnsembleStep(_string(step, "model_name"), _integer(step, "model_version"))
            for step in _object_list(_object(config, "ensemble_scheduling"), "step")
        ),
        parameters={
            name: _string(value, "string_value")
            for name, value in _object(config, "parameters").items()
            if isinstance(value, dict)
        },
    )


def parse_server(body: bytes) -> str:
    """Return the version of the server. Raises AnswerError if it is not a Triton."""
    answer = _json(body)
    if not isinstance(answer, dict):
        raise AnswerError("the server metadata is not an object")
    extensions = answer.get("extensions")
    # `tritonserver --id` changes the name, and other servers of this protocol have none of these extensions.
    if (name := _string(answer, "name")) != "triton" and not (
        isinstance(extensions, list) and "model_configuration" in extensions
    ):
        raise AnswerError(f"the server is named {name[:40]!r}")
    return _string(answer, "version")


def error_text(body: bytes) -> str:
    """Return Triton's own error text, or empty."""
    try:
        answer = _json(body)
    except AnswerError:
        return ""
    return _string(answer, "error") if isinstance(answer, dict) else ""


def _model_statistics(model: dict[str, Any]) -> ModelStatistics:
    totals = _object(model, "inference_stats")
    return ModelStatistics(
        model=_string(model, "name"),
        version=_string(model, "version"),
        last_inference_seconds=_integer(model, "last_inference") / 1000,
        executions=_integer(model, "execution_count"),
        success=_integer(_object(totals, "success"), "count"),
        batches=tuple(_batch(batch) for batch in _object_list(model, "batch_stats")),
        memory=tuple(
            MemoryUse(_string(use, "type"), _integer(use, "id"), _integer(use, "byte_size"))
            for use in _object_list(model, "memory_usage")
        ),
    )


def _batch(batch: dict[str, Any]) -> BatchStatistics:
    infer = _object(batch, "compute_infer")
    return BatchStatistics(
        size=_integer(batch, "batch_size"),
        executions=_integer(infer, "count"),
        input_ns=_integer(_object(batch, "compute_input"), "ns"),
        infer_ns=_integer(infer, "ns"),
        output_ns=_integer(_object(batch, "compute_output"), "ns"),
    )


def _instance_group(group: dict[str, Any]) -> InstanceGroup:
    gpus = group.get("gpus")
    ordinals = gpus if isinstance(gpus, list) else []
    return InstanceGroup(
        _string(group, "kind"),
        _integer(group, "count"),
        tuple(gpu for gpu in ordinals if isinstance(gpu, int)),
    )


def _input(tensor: dict[str, Any]) -> InputTensor:
    dims = tensor.get("dims")
    return InputTensor(
        _string(tensor, "name"),
        # The configuration has TYPE_STRING where requests have BYTES.
        _string(tensor, "data_type").removeprefix("TYPE_").replace("STRING", "BYTES"),
        tuple(_as_integer(size) for size in dims) if isinstance(dims, list) else (),
        tensor.get("optional") is True,
        tensor.get("is_shape_tensor") is True,
    )


def _queue_policy(policy: dict[str, Any]) -> QueuePolicy:
    return QueuePolicy(
        _integer(policy, "max_queue_size"),
        _integer(policy, "default_timeout_microseconds"),
        _string(policy, "timeout_action"),
    )


def _json(body: bytes) -> Any:
    """Return the document, with text that can be written as UTF-8: a model folder's name can be any bytes."""
    try:
        answer = json.loads(body.decode("utf-8", "replace"))
        if b"\\u" in body:  # an escape can name half a character, which no page and no path can contain
            answer = json.loads(json.dumps(answer, ensure_ascii=False).encode("utf-8", "replace"))
        return answer
    except (ValueError, RecursionError) as error:
        raise AnswerError(f"not JSON: {error}") from error


def _objects(values: list[Any]) -> Iterator[dict[str, Any]]:
    return (value for value in values if isinstance(value, dict))


def _object(value: dict[str, Any], name: str) -> dict[str, Any]:
    member = value.get(name)
    return member if isinstance(member, dict) else {}


def _object_list(value: dict[str, Any], name: str) -> list[dict[str, Any]]:
    member = value.get(name)
    return list(_objects(member)) if isinstance(member, list) else []


def _string(value: dict[str, Any], name: str) -> str:
    member = value.get(name)
    return member if isinstance(member, str) else ""


def _integer(value: dict[str, Any], name: str) -> int:
    """Return a whole number; gRPC's JSON writes 64-bit ones as strings."""
    return _as_integer(value.get(name))


def _as_integer(value: object) -> int:
    if isinstance(value, str) and len(value) <= _MAX_DIGITS and value.removeprefix("-").isdecimal():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        return 0
    return value if abs(value) < _PAST_ANY else 0

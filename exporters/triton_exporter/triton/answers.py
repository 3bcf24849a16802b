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
    ResponseStatistics,
)

_PAST_ANY = 2**64
"""No number of Triton's is this large: one that is would not fit a float."""

_LONGEST = len(str(-_PAST_ANY))


class AnswerError(ValueError):
    """The body is not a response of this endpoint."""


def parse_index(body: bytes) -> tuple[IndexEntry, ...]:
    """Return the repository index. Entries without a name are dropped; raises AnswerError when it is not a list."""
    entries = _json(body)
    if not isinstance(entries, list):
        raise AnswerError("the repository index is not a list")
    return tuple(
        IndexEntry(
            _text(entry, "name"), _text(entry, "version"), _text(entry, "state"), _text(entry, "reason")
        )
        for entry in _objects(entries)
        if _text(entry, "name")
    )


def parse_statistics(body: bytes) -> tuple[ModelStatistics, ...]:
    """Statistics of every ready model version. Raises AnswerError."""
    answer = _json(body)
    if not isinstance(answer, dict) or not isinstance(answer.get("model_stats"), list):
        raise AnswerError("the statistics hold no list model_stats")
    return tuple(_statistics(model) for model in _objects(answer["model_stats"]) if _text(model, "name"))


def parse_config(body: bytes) -> ModelConfig:
    """Return the normalised configuration of one model version. Raises AnswerError."""
    config = _json(body)
    if not isinstance(config, dict):
        raise AnswerError("the configuration is not an object")
    dynamic = _object(config, "dynamic_batching")
    sequence = _object(config, "sequence_batching")
    oldest = _object(sequence, "oldest")
    return ModelConfig(
        model=_text(config, "name"),
        backend=_text(config, "backend"),
        platform=_text(config, "platform"),
        max_batch_size=_whole(config, "max_batch_size"),
        instance_groups=tuple(_group(group) for group in _list(config, "instance_group")),
        dynamic_batching="dynamic_batching" in config,
        sequence_batching="sequence_batching" in config,
        max_queue_delay_microseconds=_whole(dynamic, "max_queue_delay_microseconds")
        or _whole(oldest, "max_queue_delay_microseconds"),
        queue=_policy(_object(dynamic, "default_queue_policy")),
        priority_levels=_whole(dynamic, "priority_levels"),
        priority_queues={
            int(level): _policy(policy)
            for level, policy in _object(dynamic, "priority_queue_policy").items()
            if level.isdecimal() and isinstance(policy, dict)
        },
        response_cache=_object(config, "response_cache").get("enable") is True,
        decoupled=_object(config, "model_transaction_policy").get("decoupled") is True,
        inputs=tuple(_input(tensor) for tensor in _list(config, "input")),
        steps=tuple(
            EnsembleStep(_text(step, "model_name"), _whole(step, "model_version"))
            for step in _list(_object(config, "ensemble_scheduling"), "step")
        ),
        parameters={
            name: _text(value, "string_value")
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
    if (name := _text(answer, "name")) != "triton" and not (
        isinstance(extensions, list) and "model_configuration" in extensions
    ):
        raise AnswerError(f"the server is named {name[:40]!r}")
    return _text(answer, "version")


def error_text(body: bytes) -> str:
    """Triton's own error text, or empty."""
    try:
        answer = _json(body)
    except AnswerError:
        return ""
    return _text(answer, "error") if isinstance(answer, dict) else ""


def _statistics(model: dict[str, Any]) -> ModelStatistics:
    totals = _object(model, "inference_stats")
    fail = _object(totals, "fail")
    return ModelStatistics(
        model=_text(model, "name"),
        version=_text(model, "version"),
        last_inference_seconds=_whole(model, "last_inference") / 1000,
        executions=_whole(model, "execution_count"),
        success=_whole(_object(totals, "success"), "count"),
        fail=_whole(fail, "count"),
        fail_ns=_whole(fail, "ns"),
        batches=tuple(_batch(batch) for batch in _list(model, "batch_stats")),
        memory=tuple(
            MemoryUse(_text(use, "type"), _whole(use, "id"), _whole(use, "byte_size"))
            for use in _list(model, "memory_usage")
        ),
        responses=tuple(
            _responses(index, counts)
            for index, counts in _object(model, "response_stats").items()
            if isinstance(counts, dict)
        ),
    )


def _batch(batch: dict[str, Any]) -> BatchStatistics:
    infer = _object(batch, "compute_infer")
    return BatchStatistics(
        size=_whole(batch, "batch_size"),
        executions=_whole(infer, "count"),
        input_ns=_whole(_object(batch, "compute_input"), "ns"),
        infer_ns=_whole(infer, "ns"),
        output_ns=_whole(_object(batch, "compute_output"), "ns"),
    )


def _responses(index: str, counts: dict[str, Any]) -> ResponseStatistics:
    return ResponseStatistics(
        index,
        *(_whole(_object(counts, name), "count") for name in ("success", "fail", "empty_response", "cancel")),
    )


def _group(group: dict[str, Any]) -> InstanceGroup:
    gpus = group.get("gpus")
    ordinals = gpus if isinstance(gpus, list) else []
    return InstanceGroup(
        _text(group, "kind"),
        _whole(group, "count"),
        tuple(gpu for gpu in ordinals if isinstance(gpu, int)),
    )


def _input(tensor: dict[str, Any]) -> InputTensor:
    dims = tensor.get("dims")
    return InputTensor(
        _text(tensor, "name"),
        # The configuration has TYPE_STRING where requests have BYTES.
        _text(tensor, "data_type").removeprefix("TYPE_").replace("STRING", "BYTES"),
        tuple(_number(size) for size in dims) if isinstance(dims, list) else (),
        tensor.get("optional") is True,
        tensor.get("is_shape_tensor") is True,
    )


def _policy(policy: dict[str, Any]) -> QueuePolicy:
    return QueuePolicy(
        _whole(policy, "max_queue_size"),
        _whole(policy, "default_timeout_microseconds"),
        _text(policy, "timeout_action"),
    )


def _json(body: bytes) -> Any:
    """Return the document, with text that can be written as UTF-8: a model folder's name can be any bytes."""
    try:
        answer = json.loads(body.decode("utf-8", "replace"))
        if b"\\u" in body:  # an escape can name half a character, which no page and no path can hold
            answer = json.loads(json.dumps(answer, ensure_ascii=False).encode("utf-8", "replace"))
        return answer
    except (ValueError, RecursionError) as error:
        raise AnswerError(f"not JSON: {error}") from error


def _objects(values: list[Any]) -> Iterator[dict[str, Any]]:
    return (value for value in values if isinstance(value, dict))


def _object(value: dict[str, Any], name: str) -> dict[str, Any]:
    member = value.get(name)
    return member if isinstance(member, dict) else {}


def _list(value: dict[str, Any], name: str) -> list[dict[str, Any]]:
    member = value.get(name)
    return list(_objects(member)) if isinstance(member, list) else []


def _text(value: dict[str, Any], name: str) -> str:
    member = value.get(name)
    return member if isinstance(member, str) else ""


def _whole(value: dict[str, Any], name: str) -> int:
    """Return a whole number; gRPC's JSON writes 64-bit ones as strings."""
    return _number(value.get(name))


def _number(value: object) -> int:
    if isinstance(value, str) and len(value) <= _LONGEST and value.removeprefix("-").isdecimal():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        return 0
    return value if abs(value) < _PAST_ANY else 0

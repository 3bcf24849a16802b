"""Payload of a probe: inputs made from the model's configuration, or the operator's own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from triton_exporter.common.problem import Problem, ProblemsError

if TYPE_CHECKING:
    from triton_exporter.snapshot import ModelConfig

DATATYPES = (
    "BOOL",
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "UINT8",
    "UINT16",
    "UINT32",
    "UINT64",
    "FP16",
    "FP32",
    "FP64",
    "BF16",
    "BYTES",
)
MAX_ELEMENTS = 1 << 24
"""A model with larger inputs is not probed without a payload: 16 million zeros are not a cheap inference."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """One input; without values it is all zeros, false or empty strings."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    values: tuple[Any, ...] | None = None


class NoPayloadError(Exception):
    """No input can be made up for this model; the message is stateful, datatype, too_large or no_grpc."""


def made_up(config: ModelConfig) -> tuple[Tensor, ...]:
    """Return inputs that fit a model: batch 1, every free dimension 1, optional inputs left out.

    Raises NoPayloadError.
    """
    if config.sequence_batching:
        # A sequence has a beginning and an end; half a sequence takes a slot from users.
        raise NoPayloadError("stateful")
    tensors = []
    for tensor in config.inputs:
        if tensor.optional:
            continue
        datatype = tensor.datatype
        if datatype not in DATATYPES:
            raise NoPayloadError("datatype")
        shape = tuple(1 if size < 0 else size for size in tensor.dims)
        batch = (1,) if config.max_batch_size > 0 and not tensor.is_shape_tensor else ()
        if prod(shape) > MAX_ELEMENTS:
            raise NoPayloadError("too_large")
        tensors.append(Tensor(tensor.name, datatype, (*batch, *shape)))
    return tuple(tensors)


def load_payloads(folder: Path) -> Mapping[str, tuple[Tensor, ...]]:
    """Read `<model>.json` of every file of a folder. Raises ProblemsError with all mistakes."""
    payloads, problems = {}, []
    try:
        files = sorted(file for file in folder.iterdir() if file.suffix == ".json")
        for file in files:
            try:
                payloads[file.stem] = parse_payload(file.read_text(encoding="utf-8"))
            except ProblemsError as error:
                problems += [
                    Problem(f"{file}: {each.place}".removesuffix(": "), each.reason, each.fix)
                    for each in error.problems
                ]
            except ValueError as error:  # not UTF-8
                problems.append(Problem(str(file), str(error)))
    except OSError as error:
        fix = "name a folder of <model>.json files"
        raise ProblemsError(Problem(str(folder), str(error.strerror), fix)) from error
    if problems:
        raise ProblemsError(*problems)
    return payloads


def parse_payload(text: str) -> tuple[Tensor, ...]:
    """Read the inputs of a KServe v2 inference request. Raises ProblemsError, with places in the text."""
    try:
        request = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ProblemsError(Problem("", f"not JSON: {error}")) from error
    inputs = request.get("inputs") if isinstance(request, dict) else None
    if not isinstance(inputs, list) or not inputs:
        raise ProblemsError(Problem("", "has no list `inputs`", "write a KServe v2 inference request"))
    problems = [
        problem for place, tensor in enumerate(inputs) for problem in _problems(f"inputs[{place}]", tensor)
    ]
    if problems:
        raise ProblemsError(*problems)
    return tuple(
        Tensor(tensor["name"], tensor["datatype"], tuple(tensor["shape"]), tuple(_flat(tensor["data"])))
        for tensor in inputs
    )


def _problems(place: str, tensor: Any) -> list[Problem]:
    if not isinstance(tensor, dict):
        return [Problem(place, "is not an object")]
    problems = []
    if not isinstance(tensor.get("name"), str) or not tensor["name"]:
        problems.append(Problem(f"{place}.name", "is not a name"))
    if tensor.get("datatype") not in DATATYPES:
        problems.append(Problem(f"{place}.datatype", f"is not one of {', '.join(DATATYPES)}"))
    shape, data = tensor.get("shape"), tensor.get("data")
    if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
        problems.append(
            Problem(f"{place}.shape", "is not a list of sizes", "a free dimension needs a size too")
        )
    elif not isinstance(data, list) or len(_flat(data)) != prod(shape):
        problems.append(
            Problem(f"{place}.data", f"does not hold the {prod(shape)} values that its shape asks for")
        )
    elif tensor.get("datatype") in DATATYPES and not all(
        _fits(value, tensor["datatype"]) for value in _flat(data)
    ):
        problems.append(Problem(f"{place}.data", f"does not hold {tensor['datatype']} values only"))
    return problems


def _fits(value: Any, datatype: str) -> bool:
    if datatype == "BYTES":
        return isinstance(value, str)
    if datatype == "BOOL":
        return isinstance(value, bool)
    whole = isinstance(value, int) and not isinstance(value, bool)
    if datatype.startswith("UINT"):
        return whole and 0 <= value < 1 << int(datatype[4:])
    if datatype.startswith("INT"):
        half = 1 << int(datatype[3:]) - 1
        return whole and -half <= value < half
    return whole or isinstance(value, float)


def _flat(data: Any) -> list[Any]:
    if not isinstance(data, list):
        return [data]
    return [value for part in data for value in _flat(part)]

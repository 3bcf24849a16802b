"""Sort Triton's load errors into a closed set of classes; the text itself is never a label."""

from __future__ import annotations

import re

NOT_LISTED = "Triton does not list the model: its directory is missing, or contains no version"
"""Reason that the exporter gives for an expected model that Triton has never listed."""

# First match wins, so the more specific pattern comes first: a Python traceback that ends in "CUDA out of
# memory" is a lack of memory.
_PATTERNS: dict[str, tuple[str, ...]] = {
    "out_of_memory": (
        "out of memory",
        "OutOfMemory",
        "MemoryError",
        "OUT_OF_MEMORY",
        "bad_alloc",
        "cannot allocate",
        "failed to allocate",
        "insufficient (gpu |device )?memory",
        # A container has 64 MB of it unless it asks for more.
        "shared memory (key|region|pool)",
        "dev/shm",
    ),
    "dependency_failed": ("depends on '", "ensemble .* no loaded version", "contains models that are not"),
    "missing_backend": (
        "unable to find .*backend",
        "backend library",
        "unable to load shared library",
        r"failed to load .*\.so",
        "must specify 'platform'.*'backend'",
    ),
    "missing_file": (
        "No such file",
        "file not found",
        "FileNotFoundError",
        "permission denied",
        "MetaData for",  # of an object or bucket on S3
        "failed to stat file",
        "unable to find '",
        "does( not|n't) exist",
        "failed to open",
        "unable to (open|read)",
    ),
    "bad_config": (
        "invalid argument",
        r"config\.pbtxt",
        "model configuration",
        "autofill",
        "instance group",
        "two or more repositories",
        "at least one version",
        "unexpected directory name",
        "version policy",
        "failed to poll",
        "unable to get the .* model config",
        "^in ensemble ",
        "^ensemble .* allows maximum batch size",
        "circular dependency",
    ),
    "invalid_model": (
        "TensorRT engine",
        "onnx ?runtime error",
        "Protobuf parsing failed",
        "PytorchStreamReader",
    ),
    "python_error": (r"model\.py", "stub process", "Traceback", r"\wError\b", r"\wException\b", "At:\n"),
}

_CLASSES = {reason: re.compile("|".join(words), re.IGNORECASE) for reason, words in _PATTERNS.items()}

_HALF = 4096
"""Characters read at each end: a pattern with `.*` takes time that grows with the square of the length."""


def classify(text: str) -> str:
    """Return the class of a load error: one of the catalogue's LOAD_FAILURE_REASONS, `other` when none fits."""
    if len(text) > 2 * _HALF:
        text = f"{text[:_HALF]}\n{text[-_HALF:]}"
    return next((reason for reason, pattern in _CLASSES.items() if pattern.search(text)), "other")

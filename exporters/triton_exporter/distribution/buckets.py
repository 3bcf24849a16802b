"""Bounds of the histograms' buckets, with the thresholds of objectives among them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from triton_exporter.common.duration import parse_seconds
from triton_exporter.common.problem import Problem, ProblemsError
from triton_exporter.common.yaml_files import YAML_FAULTS, fault, read_all

Signal = Literal["request", "queue"]
"""A measured time: of a request from end to end inside Triton, or of its wait in the queue."""

SIGNALS: tuple[Signal, ...] = ("request", "queue")

DEFAULT_BOUNDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds in seconds: a 1-2-5 series, since most thresholds that people choose are of it."""

_SIGNAL_OF_KIND: Mapping[str, Signal] = {"latency": "request", "first_response": "request", "queue": "queue"}


@dataclass(frozen=True, slots=True)
class Buckets:
    """Bounds in seconds: the default or the model's own, and always every threshold of the signal."""

    default: tuple[float, ...] = DEFAULT_BOUNDS
    per_model: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    thresholds: Mapping[Signal, tuple[float, ...]] = field(default_factory=dict)

    def bounds(self, model: str, signal: Signal) -> tuple[float, ...]:
        """Return the finite upper bounds of one model's histogram, ascending."""
        chosen = self.per_model.get(model, self.default)
        return tuple(sorted({float(bound) for bound in (*chosen, *self.thresholds.get(signal, ()))}))

    def with_stated_error(self, model: str, signal: Signal) -> tuple[float, ...]:
        """Return the bounds for which the error of an estimate is stated: the thresholds, or all without any."""
        return self.thresholds.get(signal) or self.bounds(model, signal)


def le(bound: float) -> str:
    """Write a bound as the label `le` of the exporter's histograms: always a float, as in 1.0."""
    return repr(float(bound))


def thresholds(objectives: Path) -> dict[Signal, tuple[float, ...]]:
    """Read the thresholds of all objectives in a folder, overrides included, in seconds by signal.

    Raises ProblemsError. Only thresholds are read; whether an objective is valid is
    checked by `tritonwatch check`.
    """
    limits: dict[Signal, set[float]] = {"request": set(), "queue": set()}
    files = sorted(path for path in objectives.glob("*") if path.suffix in {".yaml", ".yml"})
    if not files:
        raise ProblemsError(
            Problem(str(objectives), "no objectives (*.yaml) here", "name the folder that holds them")
        )
    for path in files:
        for signal, seconds in _read_thresholds(path):
            limits[signal].add(seconds)
    return {signal: tuple(sorted(seconds)) for signal, seconds in limits.items()}


def _objectives(documents: Iterable[object]) -> Iterable[object]:
    """Yield each objective: a document of its own, or one of the list `objectives`."""
    for document in documents:
        several = document.get("objectives") if isinstance(document, dict) else None
        yield from several if isinstance(several, list) else [document]


def _read_thresholds(path: Path) -> Iterable[tuple[Signal, float]]:
    try:
        documents = read_all(path)
    except (OSError, *YAML_FAULTS) as error:
        raise ProblemsError(Problem(str(path), f"cannot be read as YAML: {fault(error)}")) from error
    for document in _objectives(documents):
        if not isinstance(document, dict) or not isinstance(document.get("indicator"), dict):
            continue
        indicator = document["indicator"]
        signal = _SIGNAL_OF_KIND.get(str(indicator.get("kind")))
        if signal is None:
            continue
        overrides = document.get("overrides") or ()
        holders = [indicator, *(override for override in overrides if isinstance(override, dict))]
        for text in [holder["threshold"] for holder in holders if holder.get("threshold") is not None]:
            try:
                yield signal, parse_seconds(str(text))
            except ValueError as error:
                raise ProblemsError(Problem(str(path), f"threshold: {error}")) from error

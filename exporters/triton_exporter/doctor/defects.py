"""Defects of Triton by release: what happens, the release that ended it, where that is written.

A row is a fact that somebody read at its `source`; one that concerns a setting is shown only where the setting is on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from triton_exporter.doctor.finding import Finding, TritonFacts, first_names
from triton_exporter.snapshot import ModelConfig

_GITHUB = "https://github.com/triton-inference-server"

Concerned = Callable[[TritonFacts], Iterable[str]]
"""Returns the models that a defect can hit: none where its setting is off."""


@dataclass(frozen=True, slots=True)
class Defect:
    """One defect; `fixed` is empty while it is open, `since` where the source does not say when it began."""

    symptom: str
    fixed: str
    source: str
    since: str = ""
    concerned: Concerned | None = None
    """None: every server, whatever its settings."""

    def is_in(self, release: tuple[int, int]) -> bool:
        """Return whether a release has it."""
        return _release(self.since) <= release and (not self.fixed or release < _release(self.fixed))


def _release(text: str) -> tuple[int, int]:
    match = re.match(r"(\d+)\.(\d+)", text)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _with(setting: Callable[[ModelConfig], bool]) -> Concerned:
    return lambda facts: {key.model for key, config in facts.snapshot.configs.items() if setting(config)}


def _is_python(config: ModelConfig) -> bool:
    return config.backend in ("python", "vllm")


def _has_queue_timeout(config: ModelConfig) -> bool:
    return any(queue.timeout_microseconds > 0 for queue in (config.queue, *config.priority_queues.values()))


def _ensembles_over_bounded_queues(facts: TritonFacts) -> Iterable[str]:
    bounded = set(_with(lambda config: config.queue.max_queue_size > 0)(facts))
    return _with(lambda config: any(step.model in bounded for step in config.steps))(facts)


def _callers_of_streams(facts: TritonFacts) -> Iterable[str]:
    # Which model a Python model calls is in its code alone.
    return _with(_is_python)(facts) if any(_with(lambda config: config.decoupled)(facts)) else ()


def _owners_of_metrics(facts: TritonFacts) -> Iterable[str]:
    if facts.first is None or all(name.startswith("nv_") for name in facts.first.families):
        return ()
    return _with(lambda c: _is_python(c) and sum(group.instances for group in c.instance_groups) > 1)(facts)


def _loading(facts: TritonFacts) -> Iterable[str]:
    return {entry.model for entry in facts.snapshot.index or () if entry.state == "LOADING"}


def _with_versions(facts: TritonFacts) -> Iterable[str]:
    ready = [entry.model for entry in facts.snapshot.index or () if entry.state == "READY"]
    return {model for model in ready if ready.count(model) > 1}


def _traced(facts: TritonFacts) -> Iterable[str]:
    settings = (facts.traces, *facts.model_traces.values())
    return {"traced models"} if any(setting is not None and setting.is_in_use for setting in settings) else ()


# What ends or blocks requests first, then what hides it, then memory and speed.
DEFECTS = (
    Defect(
        "with a queue timeout, the batcher forgets idle instances and serves ever fewer requests; a reload of the "
        "model repairs it until the next time",
        "2.72 (26.08)",
        "server/issues/8870",
        "2.37",
        _with(lambda config: config.dynamic_batching and _has_queue_timeout(config)),
    ),
    Defect(
        "a request of an ensemble can wait for ever after the queue of a step was full",
        "2.66 (26.02)",
        "core/pull/466",
        concerned=_ensembles_over_bounded_queues,
    ),
    Defect(
        "a Python model that calls a streaming model (BLS) can block for ever",
        "2.71 (26.07)",
        "python_backend/pull/439",
        concerned=_callers_of_streams,
    ),
    Defect(
        "Triton can crash while it traces requests", "2.57 (25.04)", "server/pull/8144", concerned=_traced
    ),
    Defect("Triton can crash when a gRPC client cancels a request", "2.57 (25.04)", "server/issues/8034"),
    Defect(
        "Triton ends when a request's header Inference-Header-Content-Length is larger than an integer",
        "2.73 (26.09)",
        "server/pull/8925",
        "2.70",
    ),
    Defect(
        "Triton can crash when a model with metrics of its own and several instances is reloaded",
        "",
        "server/issues/8663",
        concerned=_owners_of_metrics,
    ),
    Defect(
        "a Python model without its model.py stays LOADING until Triton is restarted, and the server is not ready",
        "",
        "server/issues/8766",
        "2.51",
        _loading,
    ),
    Defect(
        "a model whose Python process has died is ready to Triton, and gets requests",
        "2.64 (25.12)",
        "core/pull/461",
        concerned=_with(_is_python),
    ),
    Defect(
        "a server with a model whose Python process has died is ready (/v2/health/ready)",
        "2.68 (26.04)",
        "server/issues/8604",
        concerned=_with(_is_python),
    ),
    Defect(
        "error responses of Python models are counted as successes",
        "",
        "server/issues/7713",
        "2.47",
        _with(_is_python),
    ),
    Defect(
        "requests that time out in the queue are counted nowhere",
        "2.48 (24.07)",
        "core/pull/377",
        concerned=_with(_has_queue_timeout),
    ),
    Defect(
        "a cancelled request of a sequence releases its slot twice: a later sequence with the same id can be lost",
        "2.46 (24.05)",
        "core/pull/341",
        concerned=_with(lambda config: config.sequence_batching),
    ),
    Defect(
        "to load a new version of a model reloads its other versions, too",
        "2.49 (24.08)",
        "core/pull/388",
        concerned=_with_versions,
    ),
    Defect(
        "memory grows with each request that the response cache does not answer",
        "2.61 (25.09)",
        "core/pull/449",
        concerned=_with(lambda config: config.response_cache),
    ),
    Defect(
        "streaming Python models leak shared memory",
        "2.43 (24.02)",
        "python_backend/pull/337",
        concerned=_with(lambda config: _is_python(config) and config.decoupled),
    ),
    Defect(
        "memory of compressed HTTP requests that fail is not given back",
        "2.69 (26.05)",
        "server/pull/8764",
    ),
    Defect(
        "responses of Python models take a detour, which costs throughput",
        "2.51 (24.10)",
        "python_backend/pull/381",
        "2.47",
        _with(_is_python),
    ),
)


def check_defects(facts: TritonFacts) -> Iterator[Finding]:
    """Report the known defects of this release that its settings do not rule out."""
    if facts.release == (0, 0):
        return
    lines, fixes = [], []
    for defect in DEFECTS:
        concerned = None if defect.concerned is None else sorted(defect.concerned(facts))
        if concerned == [] or not defect.is_in(facts.release):
            continue
        whose = f" ({first_names(concerned)})" if concerned else ""
        end = f"fixed in {defect.fixed}" if defect.fixed else "open in 2.73 (26.09)"
        lines.append(f"- {defect.symptom}{whose}; {end}: {_GITHUB}/{defect.source}")
        fixes.append(defect.fixed)
    if lines:
        newest = max(fixes, key=_release)
        yield Finding(
            "advice",
            f"Triton {facts.snapshot.triton_version} has known defects that can occur here",
            "\n".join(lines),
            f"Triton {newest} or later" if newest else "",
            "an upgrade" if newest else "",
        )

"""Propose objectives for a live Triton: text with comments for a person to change.

Objectives cover all models without listing any; only models that measurably need another threshold get an
override. A threshold is what was measured times a headroom, rounded up to a bucket of the exporter.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from triton_exporter.common.duration import measured_text, time_text
from triton_exporter.distribution.buckets import DEFAULT_BOUNDS
from triton_exporter.snapshot import UNLOADED, IndexEntry, ModelConfig
from triton_slo.artifact import scalar
from triton_slo.indicators import Latency, Queue
from triton_slo.problem_words import count

P99_HEADROOM = 1.5
"""Ratio of a threshold to the measured 99th percentile."""
P90_HEADROOM = 3.0
"""Largest ratio of a threshold to the measured 90th percentile: a few slow requests must not become the promise."""
MEAN_HEADROOM = 5.0
"""Ratio of a threshold to the measured mean, where there is no percentile. Of exponentially distributed times, 0.7 %
are longer; a few percent of much slower requests are seen."""
QUEUE_MEAN_HEADROOM = 10.0
"""As MEAN_HEADROOM, for waits: most requests of a server with time to spare wait for nothing, so its mean is low."""
QUEUED_REQUESTS = 5.0
"""Largest queue threshold, in times that one request takes: the wait of a saturated model must not be the promise."""
QUEUE_DELAY_HEADROOM = 5.0
"""Least ratio of a queue threshold to the delay that the model's batcher is configured to wait."""
_MIN_SECONDS = 0.01
"""Smallest threshold from a percentile: a short pause of the machine exceeds a smaller one."""
_MIN_SECONDS_FROM_MEAN = 0.1
"""Smallest threshold from a mean: the mean of an idle server does not show how long requests take in a burst."""
_ERRORS_TARGET = 0.999
_MAX_COMMENT = 200


@dataclass(frozen=True, slots=True)
class Timing:
    """Times that one model's requests took so far, in seconds; None was not measured."""

    requests: float = 0.0
    mean: float | None = None
    p90: float | None = None
    p99: float | None = None

    def threshold(self, default: float, mean_headroom: float = MEAN_HEADROOM) -> float:
        """Return a threshold with headroom above what was measured, at a bucket's bound."""
        if self.p99 is not None:
            most = math.inf if self.p90 is None else self.p90 * P90_HEADROOM
            return round_up(max(_MIN_SECONDS, min(self.p99 * P99_HEADROOM, most)))
        if self.mean is None:
            return default
        return round_up(max(_MIN_SECONDS_FROM_MEAN, self.mean * mean_headroom))

    def __str__(self) -> str:
        if self.p99 is not None:
            return f"p99 {measured_text(self.p99)}"
        return (
            "no requests measured yet, so the threshold is a guess; "
            "run init --force again once there are some"
            if self.mean is None
            else f"mean {measured_text(self.mean)} of {self.requests:.0f} requests"
        )


@dataclass(frozen=True, slots=True)
class ObservedModel:
    """One model with all its versions: its configuration, measured times and failures."""

    name: str
    versions: tuple[IndexEntry, ...] = ()
    config: ModelConfig | None = None
    request: Timing = Timing()
    queue: Timing = Timing()
    failed: float = 0.0


@dataclass(frozen=True, slots=True)
class MeasurementSource:
    """The source of the measurements, in words for the comments."""

    triton_version: str = ""
    latencies: str = "no measurements"
    has_api: bool = True
    """Whether anything but Triton's metrics was read: without, nobody knows which model is ready."""


def round_up(seconds: float) -> float:
    """Return the next bucket bound of the exporter; above the largest one, the next whole minute."""
    for bound in DEFAULT_BOUNDS:
        if seconds <= bound * (1 + 1e-9):
            return bound
    return float(math.ceil(seconds / 60) * 60)


def propose(models: Sequence[ObservedModel], source: MeasurementSource) -> str:
    """Write an objectives file (YAML with comments) for these models."""
    return (
        "\n".join(
            [
                *_head_lines(models, source),
                "objectives:",
                *(_readiness_lines(models) if source.has_api else _NO_READINESS),
                *_errors_lines(models),
                *_latency_lines(models),
                *_queue_lines(models),
            ]
        )
        + "\n"
    )


def _head_lines(models: Sequence[ObservedModel], source: MeasurementSource) -> Iterator[str]:
    version = f" {source.triton_version}" if source.triton_version else ""
    yield f"# Proposed by `tritonwatch init` for a Triton{version} with {count(len(models), 'model')}."
    yield "# Read it, change what users would not agree with, then: tritonwatch check THIS_FILE"
    yield f"# Thresholds come from {source.latencies}; a model without traffic gets the default."
    yield (
        f"# A threshold is {P99_HEADROOM:g} times the measured 99th percentile, at most {P90_HEADROOM:g} times the 90th "
        f"(at least {time_text(_MIN_SECONDS)}),\n# or {MEAN_HEADROOM:g} times the measured mean (of waits "
        f"{QUEUE_MEAN_HEADROOM:g} times; at least {time_text(_MIN_SECONDS_FROM_MEAN)}),"
    )
    bounds = [time_text(bound) for bound in DEFAULT_BOUNDS]
    yield (
        f"# rounded up to a bucket of the exporter: {', '.join(bounds[:4])}, ..., {', '.join(bounds[-3:])}, "
        "then whole minutes."
    )
    most = time_text(Queue.default_seconds)
    yield f"# Measured waiting raises a queue threshold to at most {most}, or the time of {QUEUED_REQUESTS:g} requests; only the"
    yield "# configured delay of the model's batcher raises it further."
    yield "# A mean hides the tail: with a day of history, run init --force --prometheus URL."


_NO_READINESS = (
    "  # No readiness: only Triton's metrics were read, which do not say whether a model is ready.",
)


def _readiness_lines(models: Sequence[ObservedModel]) -> Iterator[str]:
    yield from _objective_lines("readiness", "Models that should serve are loaded and ready.", "99.9%")
    for model in models:
        for entry in model.versions:
            if entry.state != "READY":
                state = (
                    entry.state or "listed without a version: never loaded, or its configuration is broken"
                )
                # Not the reason itself: people commit this file, and the text of a model's error may hold secrets.
                failed = entry.reason not in ("", UNLOADED)
                why = ": failed to load; /state of the exporter says why" if failed else ""
                yield _comment(f"not ready now: {model.name} {entry.version} {state}{why}")
    yield "    indicator: readiness"


def _errors_lines(models: Sequence[ObservedModel]) -> Iterator[str]:
    yield from _objective_lines("errors", "Requests do not fail.", f"{_ERRORS_TARGET:.1%}")
    yield _comment("counted: REJECTED, BACKEND, OTHER; what the client cancelled is not")
    for model in models:
        answered = model.failed + model.request.requests
        if model.failed > answered * (1 - _ERRORS_TARGET):
            yield _comment(
                f"{model.name}: {model.failed:.0f} of {answered:.0f} requests failed since Triton's start: "
                "more than the target allows, and this alerts from the start if it goes on"
            )
    yield "    indicator: errors"


def _latency_lines(models: Sequence[ObservedModel]) -> Iterator[str]:
    # No threshold in the words, which messages show of every model: each model may have its own.
    yield from _objective_lines("latency", "Requests are answered in time.", "99%")
    chosen = {model.name: model.request.threshold(Latency.default_seconds) for model in models}
    for model in models:
        slow = _slow_note(model.request, chosen[model.name])
        yield _comment(f"{model.name}: {model.request}{slow}{_kind_note(model.config)}")
    yield from _threshold_lines("latency", Latency.default_seconds, chosen)


def _queue_lines(models: Sequence[ObservedModel]) -> Iterator[str]:
    yield from _objective_lines("queue", "Requests do not wait long for a free instance.", "99%")
    chosen = {model.name: queue_threshold(model) for model in models}
    for model in models:
        slow = _slow_note(model.queue, chosen[model.name], QUEUE_MEAN_HEADROOM)
        yield _comment(f"{model.name}: {model.queue}{slow}{_batching_note(model.config)}")
    yield from _threshold_lines("queue", Queue.default_seconds, chosen)


def queue_threshold(model: ObservedModel) -> float:
    """Return a threshold above the batcher's own delay and above what was measured, below the queue's timeout."""
    delay = 0.0 if model.config is None else model.config.max_queue_delay_microseconds / 1e6
    wanted = model.queue.threshold(Queue.default_seconds, QUEUE_MEAN_HEADROOM)
    takes = (model.request.mean or 0.0) - (model.queue.mean or 0.0)
    most = max(Queue.default_seconds, QUEUED_REQUESTS * takes)
    return round_up(max(delay * QUEUE_DELAY_HEADROOM, min(wanted, most)))


def _slow_note(timing: Timing, threshold: float, mean_headroom: float = MEAN_HEADROOM) -> str:
    measured = timing.mean if timing.p99 is None else timing.p99
    is_near = timing.p99 is None and timing.threshold(threshold, mean_headroom) > threshold
    if measured is None or not (measured > threshold or is_near):
        return ""
    size = "longer than" if measured > threshold else "near"
    return f": {size} the threshold, so this alerts from the start; raise the threshold if it is meant to be"


def _objective_lines(name: str, description: str, target: str) -> Iterator[str]:
    yield f"  - name: {name}"
    yield f"    description: {scalar(description)}"
    yield "    owner: ml-platform"
    yield f"    target: {target}"
    yield "    window: 30d"


def _threshold_lines(kind: str, default: float, chosen: Mapping[str, float]) -> Iterator[str]:
    yield "    indicator:"
    yield f"      kind: {kind}"
    yield f"      threshold: {time_text(default)}"
    others: dict[float, list[str]] = defaultdict(list)
    for name, seconds in chosen.items():
        if seconds != default:
            others[seconds].append(name)
    if others:
        yield "    overrides:"
    for seconds, names in sorted(others.items()):
        yield f"      - models: [{', '.join(map(scalar, sorted(names)))}]"
        yield f"        threshold: {time_text(seconds)}"


def _kind_note(config: ModelConfig | None) -> str:
    if config is None:
        return ""
    if config.is_ensemble:
        return f" (ensemble of {', '.join(step.model for step in config.steps)}: their times are in it)"
    if config.decoupled:
        return (
            " (decoupled: the whole stream, or next to nothing of a backend that sends later, as vLLM's; consider "
            "first_response, or of a language model first_token, inter_token and end_to_end)"
        )
    return ""


def _batching_note(config: ModelConfig | None) -> str:
    if config is None:
        return ""
    if config.is_ensemble:
        return " (ensemble: its parts queue, it does not)"
    facts = []
    if delay := config.max_queue_delay_microseconds:
        facts.append(f"its batcher waits up to {time_text(delay / 1e6)}")
    if size := config.queue.max_queue_size:
        facts.append(f"at most {size} requests queue, and what is turned away beyond is counted nowhere")
    if timeout := config.queue.timeout_microseconds:
        facts.append(f"requests time out after {time_text(timeout / 1e6)}")
    return f" ({'; '.join(facts)})" if facts else ""


def _comment(text: str, spaces: int = 4) -> str:
    """Return a comment of one line, whatever the text contains: a model's name must not become YAML."""
    line = "".join(part if part.isprintable() else " " for part in text)
    line = " ".join(line.split())
    return f"{' ' * spaces}# {line if len(line) <= _MAX_COMMENT else line[:_MAX_COMMENT] + '...'}"


def observed_models(
    index: Iterable[IndexEntry],
    configs: Mapping[str, ModelConfig],
    requests: Mapping[str, Timing],
    queues: Mapping[str, Timing],
    failed: Mapping[str, float],
) -> tuple[ObservedModel, ...]:
    """Return the models with all that is known of each, in the order of their names."""
    versions: dict[str, list[IndexEntry]] = defaultdict(list)
    for entry in index:
        versions[entry.model].append(entry)
    return tuple(
        ObservedModel(
            model,
            tuple(numbers),
            configs.get(model),
            requests.get(model, Timing()),
            queues.get(model, Timing()),
            failed.get(model, 0.0),
        )
        for model, numbers in sorted(versions.items())
    )

"""Show how each ready model is configured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from triton_exporter.catalogue import Metric, models
from triton_exporter.exposition.write import CachedSamples
from triton_exporter.family import Family, Sample, series
from triton_exporter.snapshot import ModelConfig, ModelVersion, QueuePolicy, Snapshot

_METRICS = (
    models.INFO,
    models.MAX_BATCH_SIZE,
    models.INSTANCES,
    models.MAX_QUEUE_DELAY,
    models.QUEUE_SIZE_LIMIT,
    models.QUEUE_TIMEOUT,
    models.RESPONSE_CACHE,
    models.DECOUPLED,
    models.ENSEMBLE_STEP,
)


class Configurations:
    """SnapshotObserver and Collector: rendered again only when a configuration changes."""

    def __init__(self) -> None:
        self._configs: Mapping[ModelVersion, ModelConfig] = {}
        self._families: tuple[Family, ...] = _families({})

    def observe_snapshot(self, snapshot: Snapshot) -> None:
        """Take in the configurations of one poll."""
        if snapshot.configs != self._configs:
            self._configs = snapshot.configs
            self._families = _families(snapshot.configs)

    def families(self, now: float) -> Iterable[Family]:
        """Return every configuration series of every ready model."""
        return self._families


def _families(configs: Mapping[ModelVersion, ModelConfig]) -> tuple[Family, ...]:
    samples: dict[Metric, list[Sample]] = {metric: [] for metric in _METRICS}
    for key, config in sorted(configs.items()):
        for metric, labels, value in _describe(config):
            samples[metric].append(Sample(series(metric, *key, *labels), value))
    return tuple(Family(metric, CachedSamples(values)) for metric, values in samples.items())


def _describe(config: ModelConfig) -> Iterator[tuple[Metric, tuple[str, ...], float]]:
    yield models.INFO, (config.backend, config.platform), 1
    yield models.MAX_BATCH_SIZE, (), config.max_batch_size
    for (kind, gpu), count in sorted(_instances(config).items()):
        yield models.INSTANCES, (kind, gpu), count
    if config.dynamic_batching or config.sequence_batching:
        yield models.MAX_QUEUE_DELAY, (), config.max_queue_delay_microseconds / 1e6
    yield from _limits("", config.queue)
    for level, policy in sorted(config.priority_queues.items()):
        yield from _limits(str(level), policy)
    yield models.RESPONSE_CACHE, (), config.response_cache
    yield models.DECOUPLED, (), config.decoupled
    for position, step in enumerate(config.steps, 1):
        yield models.ENSEMBLE_STEP, (str(position), step.model, str(step.version)), 1


def _limits(priority: str, policy: QueuePolicy) -> Iterator[tuple[Metric, tuple[str, ...], float]]:
    if policy.max_queue_size > 0:
        yield models.QUEUE_SIZE_LIMIT, (priority,), policy.max_queue_size
    if policy.timeout_microseconds > 0:
        labels = (priority, policy.timeout_action.lower())
        yield models.QUEUE_TIMEOUT, labels, policy.timeout_microseconds / 1e6


def _instances(config: ModelConfig) -> Counter[tuple[str, str]]:
    counts: Counter[tuple[str, str]] = Counter()
    for group in config.instance_groups:
        kind = group.kind.removeprefix("KIND_").lower()
        for gpu in group.gpus if group.kind == "KIND_GPU" and group.gpus else ("",):
            counts[kind, str(gpu)] += group.count
    return counts

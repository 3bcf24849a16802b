"""Show how each ready model is configured, and what it did: counters that no reload of Triton's turns back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from triton_exporter.catalogue import Metric, models
from triton_exporter.exposition.write import CachedSamples
from triton_exporter.family import Family, Sample, series, series_once
from triton_exporter.snapshot import ModelConfig, ModelStatistics, ModelVersion, QueuePolicy, Snapshot


class Configurations:
    """SnapshotObserver and Collector: rendered again only when a configuration changes."""

    def __init__(self) -> None:
        self._configs: Mapping[ModelVersion, ModelConfig] = {}
        self._families: tuple[Family, ...] = _families({})

    def observe_snapshot(self, snapshot: Snapshot) -> None:
        """Take in the configurations of one poll."""
        if snapshot.configs is not self._configs:
            self._configs = snapshot.configs
            self._families = _families(snapshot.configs)

    def families(self, now: float) -> Iterable[Family]:
        """Return every configuration series of every ready model."""
        return self._families


def _families(configs: Mapping[ModelVersion, ModelConfig]) -> tuple[Family, ...]:
    samples: dict[Metric, list[Sample]] = {metric: [] for metric in models.CONFIGURATION}
    for key, config in sorted(configs.items()):
        for metric, labels, value in _described(config):
            samples[metric].append(Sample(series_once(metric, *key, *labels), value))
    return tuple(Family(metric, CachedSamples(values)) for metric, values in samples.items())


def _described(config: ModelConfig) -> Iterator[tuple[Metric, tuple[str, ...], float]]:
    yield models.INFO, (config.backend, config.platform), 1
    scheduler = (
        "ensemble"
        if config.is_ensemble
        else "sequence"
        if config.sequence_batching
        else "dynamic"
        if config.dynamic_batching
        else "none"
    )
    preferred = ",".join(map(str, config.preferred_batch_sizes))
    levels = str(config.priority_levels) if config.priority_levels else ""
    limiter = "on" if config.rate_limiter else ""
    yield models.SCHEDULER_INFO, (scheduler, preferred, levels, limiter), 1
    yield models.MAX_BATCH_SIZE, (), config.max_batch_size
    instances: Counter[tuple[str, str]] = Counter()
    for group in config.instance_groups:
        kind = group.kind.removeprefix("KIND_").lower()
        for gpu in group.gpus if group.kind == "KIND_GPU" and group.gpus else ("",):
            instances[kind, str(gpu)] += group.count
    for labels, count in sorted(instances.items()):
        yield models.INSTANCES, labels, count
    if config.dynamic_batching or config.sequence_batching:
        yield models.MAX_QUEUE_DELAY, (), config.max_queue_delay_microseconds / 1e6
    yield from _limits("", config.queue)
    for level, policy in sorted(config.priority_queues.items()):
        yield from _limits(str(level), policy)
    if config.response_cache:
        yield models.RESPONSE_CACHE, (), 1
    if config.decoupled:
        yield models.DECOUPLED, (), 1
    for position, step in enumerate(config.steps, 1):
        yield models.ENSEMBLE_STEP, (str(position), step.model, str(step.version)), 1


def _limits(priority: str, policy: QueuePolicy) -> Iterator[tuple[Metric, tuple[str, ...], float]]:
    if policy.max_queue_size > 0:
        yield models.QUEUE_SIZE_LIMIT, (priority,), policy.max_queue_size
    if policy.timeout_microseconds > 0:
        labels = (priority, policy.timeout_action.lower())
        yield models.QUEUE_TIMEOUT, labels, policy.timeout_microseconds / 1e6


MEMORY_SECONDS = 900.0
"""Time for which the counters of a model are shown after Triton was first seen without it."""


@dataclass(slots=True)
class _Account:
    """The work of one model version: Triton's last values, and the total shown."""

    left: float = 0.0  # Unix time of the first poll without it; 0 while it is there
    busy_ns: int = 0
    executions: Mapping[int, int] = field(default_factory=dict)  # by batch size
    total_ns: int = 0
    squares: int = 0  # of batch sizes, shown

    def restart(self) -> None:
        """Triton counts from 0 again."""
        self.busy_ns, self.executions = 0, {}


class StatisticsCounters:
    """SnapshotObserver and Collector: counters that outlive reloads, at which Triton sets its statistics back to 0.

    What Triton counted before the first poll is not shown: after a restart of the exporter Prometheus would
    otherwise add all of it again.
    """

    def __init__(self) -> None:
        self._accounts: dict[ModelVersion, _Account] = {}
        self._polled = False
        self._statistics: tuple[ModelStatistics, ...] = ()
        self._families: Sequence[Family] | None = None

    def observe_snapshot(self, snapshot: Snapshot) -> None:
        """Take in the statistics of one poll."""
        if snapshot.api_failure == "refused":
            # The server's process has ended: whatever comes next counts from 0.
            for account in self._accounts.values():
                account.restart()
            self._statistics = ()
        statistics = snapshot.statistics
        if statistics is None:
            return
        if statistics is not self._statistics:
            known = set(map(id, self._statistics))
            for each in statistics:
                if id(each) not in known:  # a model that rests has the same object as in the last poll
                    account = self._accounts.setdefault(each.key, _Account())
                    _update_account(account, each, baseline=not self._polled)
            self._families = None
        self._statistics, self._polled = statistics, True
        if len(self._accounts) > len(statistics):
            for key in self._accounts.keys() - {each.key for each in statistics}:
                account = self._accounts[key]
                account.restart()  # unloaded: it counts from 0 when it comes back
                account.left = account.left or snapshot.at
                if snapshot.at - account.left > MEMORY_SECONDS:
                    del self._accounts[key]
                    self._families = None

    def families(self, now: float) -> Iterable[Family]:
        """Return the time that each model was busy, and the squares of its batch sizes."""
        if self._families is None:
            accounts = sorted(self._accounts.items())
            busy = [
                Sample(series(models.BUSY_SECONDS, *key), account.total_ns / 1e9) for key, account in accounts
            ]
            squares = [
                Sample(series(models.BATCH_SIZE_SQUARES, *key), account.squares) for key, account in accounts
            ]
            self._families = (
                Family(models.BUSY_SECONDS, CachedSamples(busy)),
                Family(models.BATCH_SIZE_SQUARES, CachedSamples(squares)),
            )
        return self._families


def _update_account(account: _Account, statistics: ModelStatistics, *, baseline: bool) -> None:
    busy_ns = sum(batch.busy_ns for batch in statistics.batches)
    executions = {batch.size: batch.executions for batch in statistics.batches}
    # The time alone does not show every reload: it may already have passed its last value.
    fell = any(executions.get(size, 0) < count for size, count in account.executions.items())
    if fell or busy_ns < account.busy_ns:
        account.restart()
    if not baseline:
        account.total_ns += busy_ns - account.busy_ns
        account.squares += sum(
            size * size * (count - account.executions.get(size, 0)) for size, count in executions.items()
        )
    account.busy_ns, account.executions, account.left = busy_ns, executions, 0.0

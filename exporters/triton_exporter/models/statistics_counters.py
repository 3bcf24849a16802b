"""Show what each model did, from its statistics: counters that no reload of Triton's turns back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from triton_exporter.catalogue import Metric, models
from triton_exporter.exposition.write import CachedSamples
from triton_exporter.family import Family, Sample, series
from triton_exporter.snapshot import ModelStatistics, ModelVersion, Snapshot

MEMORY_SECONDS = 900.0
"""Time for which the counters of a model are shown after it has left Triton."""

_BATCH = "batch"  # first word of the identity of a batch size's executions


def _response_counts(statistics: ModelStatistics) -> Iterator[tuple[tuple[str, ...], float]]:
    for response in statistics.responses:
        yield (response.index, "success"), response.success
        yield (response.index, "fail"), response.fail
        yield (response.index, "empty"), response.empty
        yield (response.index, "cancel"), response.cancel


_COUNTERS: Mapping[Metric, Callable[[ModelStatistics], Iterable[tuple[tuple[str, ...], float]]]] = {
    models.BUSY_SECONDS: lambda statistics: [((), sum(batch.busy_ns for batch in statistics.batches) / 1e9)],
    models.FAILED_REQUESTS: lambda statistics: [((), statistics.fail)],
    models.FAILED_SECONDS: lambda statistics: [((), statistics.fail_ns / 1e9)],
    models.RESPONSES: _response_counts,
}
"""Values of each counter with its further labels; batch sizes are a histogram of their own."""
_NAMED = {metric.name: metric for metric in _COUNTERS}
_METRICS = (*_COUNTERS, models.BATCH_SIZE, models.LAST_INFERENCE, models.MEMORY)

# A counter within one model version: a metric's name with further labels, or a batch size.
_Identity = tuple[str, tuple[str, ...]]


@dataclass(slots=True)
class _Account:
    """The counters of one model version: Triton's last values, and the totals shown."""

    seen: float = 0.0
    last: dict[_Identity, float] = field(default_factory=dict)
    totals: dict[_Identity, float] = field(default_factory=dict)
    last_inference: float = 0.0
    bounds: tuple[int, ...] = ()
    current: ModelStatistics | None = None
    batch_series: tuple[str, ...] = ()


class StatisticsCounters:
    """SnapshotObserver and Collector: counters that outlive reloads, at which Triton sets its statistics back to 0.

    What Triton counted before the first poll is not shown: after a restart of the exporter Prometheus would
    otherwise add all of it again.
    """

    def __init__(self) -> None:
        self._accounts: dict[ModelVersion, _Account] = {}
        self._polled = False
        self._statistics: tuple[ModelStatistics, ...] | None = None
        self._families: Sequence[Family] | None = None

    def observe_snapshot(self, snapshot: Snapshot) -> None:
        """Take in the statistics of one poll."""
        if snapshot.api_failure == "refused":
            # The server's process has ended: whatever comes next counts from 0.
            for account in self._accounts.values():
                account.last.clear()
                account.current = None
            self._statistics = self._families = None
        if snapshot.statistics is None or snapshot.statistics is self._statistics:
            return
        self._statistics, self._families = snapshot.statistics, None
        current = {ModelVersion(each.model, each.version): each for each in snapshot.statistics}
        for key, statistics in current.items():
            account = self._accounts.setdefault(key, _Account())
            config = snapshot.configs.get(key)
            if config is not None:
                account.bounds = account.bounds or batch_bounds(config.max_batch_size)
            _update_account(account, statistics, snapshot.at, baseline=not self._polled)
        for key in self._accounts.keys() - current.keys():
            # Unloaded: it counts from 0 when it comes back.
            self._accounts[key].last.clear()
            self._accounts[key].current = None
            if snapshot.at - self._accounts[key].seen > MEMORY_SECONDS:
                del self._accounts[key]
        self._polled = True

    def families(self, now: float) -> Iterable[Family]:
        """Return counters of work, batch sizes, and the last inference and memory of what is loaded."""
        if self._families is None:
            shown: dict[Metric, list[Sample]] = {metric: [] for metric in _METRICS}
            for key, account in sorted(self._accounts.items()):
                for metric, sample in _account_samples(key, account):
                    shown[metric].append(sample)
            self._families = [Family(metric, CachedSamples(samples)) for metric, samples in shown.items()]
        return self._families


def batch_bounds(max_batch_size: int) -> tuple[int, ...]:
    """Return powers of two up to the largest batch, which is always a bound itself."""
    largest = max(1, max_batch_size)
    powers = [1 << power for power in range(largest.bit_length()) if 1 << power < largest]
    return (*powers, largest)


def _update_account(account: _Account, statistics: ModelStatistics, at: float, *, baseline: bool) -> None:
    account.seen = at
    if account.current is statistics:
        return
    account.current = statistics
    # A hot reload forgets the time of the last inference though the model goes on.
    account.last_inference = max(account.last_inference, statistics.last_inference_seconds)
    counters = _counters(statistics)
    # A reload starts all counters again: one that fell shows it for the others, too.
    if any(counters.get(identity, 0.0) < value for identity, value in account.last.items()):
        account.last.clear()
    for identity, value in counters.items():
        before = account.last.get(identity, value if baseline else 0.0)
        account.totals[identity] = account.totals.get(identity, 0.0) + value - before
    account.last = counters


def _counters(statistics: ModelStatistics) -> dict[_Identity, float]:
    values_by_series: dict[_Identity, float] = {
        (_BATCH, (str(batch.size),)): batch.executions for batch in statistics.batches
    }
    for metric, values in _COUNTERS.items():
        values_by_series |= {(metric.name, labels): value for labels, value in values(statistics)}
    return values_by_series


def _account_samples(key: ModelVersion, account: _Account) -> Iterator[tuple[Metric, Sample]]:
    for (name, labels), total in account.totals.items():
        metric = _NAMED.get(name)
        if metric is not None:
            yield metric, Sample(series(metric, *key, *labels), total)
    yield from ((models.BATCH_SIZE, sample) for sample in _batches(key, account))
    if account.last_inference:
        yield (
            models.LAST_INFERENCE,
            Sample(series(models.LAST_INFERENCE, *key), account.last_inference),
        )
    for use in account.current.memory if account.current is not None else ():
        yield (
            models.MEMORY,
            Sample(series(models.MEMORY, *key, use.kind, str(use.device)), use.bytes),
        )


def _batches(key: ModelVersion, account: _Account) -> Iterator[Sample]:
    if not account.bounds:
        return
    if not account.batch_series:
        metric = models.BATCH_SIZE
        bounds = (*(f"{bound}.0" for bound in account.bounds), "+Inf")
        account.batch_series = (
            *(series(metric, *key, suffix="_bucket", le=le) for le in bounds),
            series(metric, *key, suffix="_sum"),
            series(metric, *key, suffix="_count"),
        )
    sizes = {int(labels[0]): count for (name, labels), count in account.totals.items() if name == _BATCH}
    below = [sum(count for size, count in sizes.items() if size <= bound) for bound in account.bounds]
    count = sum(sizes.values())
    total = sum(size * count for size, count in sizes.items())
    for name, value in zip(account.batch_series, (*below, count, total, count), strict=True):
        yield Sample(name, value)

"""Show what each model did, from its statistics: counters that no reload of Triton's turns back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from triton_exporter.catalogue import model as catalogue
from triton_exporter.family import Family, Sample, series
from triton_exporter.snapshot import ModelStatistics, ModelVersion, Snapshot

MEMORY_SECONDS = 900.0
"""How long the counters of a model that has left are still shown."""

_BATCH = "batch"  # first word of the identity of a batch size's executions
_COUNTERS = (
    catalogue.BUSY_SECONDS,
    catalogue.FAILED_REQUESTS,
    catalogue.FAILED_SECONDS,
    catalogue.RESPONSES,
)

# What a counter is called within one model version: a metric's name with further labels, or a batch size.
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


class Executions:
    """Watcher and Collector. Triton sets the statistics of a version back to 0 at every reload, hot ones too.

    What had been counted before the exporter first looked is not shown: its own restart would otherwise look
    to Prometheus like all of it happening again.
    """

    def __init__(self) -> None:
        self._accounts: dict[ModelVersion, _Account] = {}
        self._looked = False

    def see(self, snapshot: Snapshot) -> None:
        """Take in the statistics of one look."""
        if snapshot.api_failure == "refused":
            # The server's process has ended: whatever comes next counts from 0.
            for account in self._accounts.values():
                account.last.clear()
                account.current = None
        if snapshot.statistics is None:
            return
        current = {ModelVersion(one.model, one.version): one for one in snapshot.statistics}
        for key, statistics in current.items():
            account = self._accounts.setdefault(key, _Account())
            config = snapshot.configs.get(key)
            if config is not None:
                account.bounds = account.bounds or batch_bounds(config.max_batch_size)
            _take(account, statistics, snapshot.at, baseline=not self._looked)
        for key in self._accounts.keys() - current.keys():
            # Unloaded: it counts from 0 when it comes back.
            self._accounts[key].last.clear()
            self._accounts[key].current = None
            if snapshot.at - self._accounts[key].seen > MEMORY_SECONDS:
                del self._accounts[key]
        self._looked = True

    def families(self, now: float) -> Iterable[Family]:
        """Counters of work, batch sizes, and the last inference and memory of what is loaded."""
        accounts = sorted(self._accounts.items())
        for metric in _COUNTERS:
            yield Family(
                metric,
                [
                    Sample(series(metric, *key, *labels), total)
                    for key, account in accounts
                    for (name, labels), total in account.totals.items()
                    if name == metric.name
                ],
            )
        yield Family(
            catalogue.BATCH_SIZE, [sample for key, account in accounts for sample in _batches(key, account)]
        )
        yield Family(
            catalogue.LAST_INFERENCE,
            [
                Sample(series(catalogue.LAST_INFERENCE, *key), account.last_inference)
                for key, account in accounts
                if account.last_inference
            ],
        )
        yield Family(
            catalogue.MEMORY,
            [
                Sample(series(catalogue.MEMORY, *key, use.kind, str(use.device)), use.bytes)
                for key, account in accounts
                if account.current is not None
                for use in account.current.memory
            ],
        )


def batch_bounds(max_batch_size: int) -> tuple[int, ...]:
    """Powers of two up to the largest batch, which is always a bound itself."""
    largest = max(1, max_batch_size)
    powers = [1 << power for power in range(largest.bit_length()) if 1 << power < largest]
    return (*powers, largest)


def _take(account: _Account, statistics: ModelStatistics, at: float, *, baseline: bool) -> None:
    account.seen = at
    if account.current is statistics:
        return
    account.current = statistics
    # A hot reload forgets the time of the last inference though the model goes on.
    account.last_inference = max(account.last_inference, statistics.last_inference_seconds)
    for identity, value in _counters(statistics).items():
        before = account.last.get(identity, value if baseline else 0.0)
        account.last[identity] = value
        grown = value - before if value >= before else value
        account.totals[identity] = account.totals.get(identity, 0.0) + grown


def _counters(statistics: ModelStatistics) -> Mapping[_Identity, float]:
    return dict(_walk(statistics))


def _walk(statistics: ModelStatistics) -> Iterator[tuple[_Identity, float]]:
    yield (catalogue.BUSY_SECONDS.name, ()), sum(batch.busy_ns for batch in statistics.batches) / 1e9
    yield (catalogue.FAILED_REQUESTS.name, ()), statistics.fail
    yield (catalogue.FAILED_SECONDS.name, ()), statistics.fail_ns / 1e9
    for batch in statistics.batches:
        yield (_BATCH, (str(batch.size),)), batch.executions
    for response in statistics.responses:
        yield (catalogue.RESPONSES.name, (response.index, "success")), response.success
        yield (catalogue.RESPONSES.name, (response.index, "fail")), response.fail
        yield (catalogue.RESPONSES.name, (response.index, "empty")), response.empty
        yield (catalogue.RESPONSES.name, (response.index, "cancel")), response.cancel


def _batches(key: ModelVersion, account: _Account) -> Iterator[Sample]:
    if not account.bounds:
        return
    metric = catalogue.BATCH_SIZE
    sizes = {int(labels[0]): count for (name, labels), count in account.totals.items() if name == _BATCH}
    for bound in account.bounds:
        below = sum(count for size, count in sizes.items() if size <= bound)
        yield Sample(series(metric, *key, suffix="_bucket", le=f"{bound}.0"), below)
    total = sum(sizes.values())
    yield Sample(series(metric, *key, suffix="_bucket", le="+Inf"), total)
    yield Sample(series(metric, *key, suffix="_sum"), sum(size * count for size, count in sizes.items()))
    yield Sample(series(metric, *key, suffix="_count"), total)

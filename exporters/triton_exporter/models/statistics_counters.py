"""Show what each model did, from its statistics: a counter that no reload of Triton's turns back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from triton_exporter.catalogue import models
from triton_exporter.exposition.write import CachedSamples
from triton_exporter.family import Family, Sample, series
from triton_exporter.snapshot import ModelStatistics, ModelVersion, Snapshot

MEMORY_SECONDS = 900.0
"""Time for which the counters of a model are shown after it has left Triton."""


@dataclass(slots=True)
class _Account:
    """The work of one model version: Triton's last values, and the total shown."""

    seen: float = 0.0
    busy_ns: int = 0
    executions: Mapping[int, int] = field(default_factory=dict)  # by batch size
    total_ns: int = 0
    last_inference: float = 0.0
    current: ModelStatistics | None = None

    def restart(self) -> None:
        """Triton counts from 0 again."""
        self.busy_ns, self.executions, self.current = 0, {}, None


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
                account.restart()
            self._statistics = self._families = None
        if snapshot.statistics is None or snapshot.statistics is self._statistics:
            return
        self._statistics, self._families = snapshot.statistics, None
        current = {ModelVersion(each.model, each.version): each for each in snapshot.statistics}
        for key, statistics in current.items():
            account = self._accounts.setdefault(key, _Account())
            _update_account(account, statistics, snapshot.at, baseline=not self._polled)
        for key in self._accounts.keys() - current.keys():
            # Unloaded: it counts from 0 when it comes back.
            self._accounts[key].restart()
            if snapshot.at - self._accounts[key].seen > MEMORY_SECONDS:
                del self._accounts[key]
        self._polled = True

    def families(self, now: float) -> Iterable[Family]:
        """Return the time that each model was busy, and when it last was."""
        if self._families is None:
            accounts = sorted(self._accounts.items())
            busy = [
                Sample(series(models.BUSY_SECONDS, *key), account.total_ns / 1e9) for key, account in accounts
            ]
            last = [
                Sample(series(models.LAST_INFERENCE, *key), account.last_inference)
                for key, account in accounts
                if account.last_inference
            ]
            self._families = (
                Family(models.BUSY_SECONDS, CachedSamples(busy)),
                Family(models.LAST_INFERENCE, CachedSamples(last)),
            )
        return self._families


def _update_account(account: _Account, statistics: ModelStatistics, at: float, *, baseline: bool) -> None:
    account.seen = at
    if account.current is statistics:
        return
    # A hot reload forgets the time of the last inference though the model goes on.
    account.last_inference = max(account.last_inference, statistics.last_inference_seconds)
    busy_ns = sum(batch.busy_ns for batch in statistics.batches)
    executions = {batch.size: batch.executions for batch in statistics.batches}
    # The time alone does not show every reload: it may already have passed its last value.
    fell = any(executions.get(size, 0) < count for size, count in account.executions.items())
    if fell or busy_ns < account.busy_ns:
        account.restart()
    if not baseline:
        account.total_ns += busy_ns - account.busy_ns
    account.busy_ns, account.executions, account.current = busy_ns, executions, statistics

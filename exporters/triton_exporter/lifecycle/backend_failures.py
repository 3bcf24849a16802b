"""Find models that Triton calls ready and whose backend fails every request, as with a dead python process."""

from __future__ import annotations

from dataclasses import dataclass

from triton_exporter.catalogue import triton
from triton_exporter.distribution.counters import Increases, version_of
from triton_exporter.exposition.exposition_values import Exposition
from triton_exporter.exposition.series_text import Series
from triton_exporter.lifecycle.tracker import Lifecycle
from triton_exporter.snapshot import ModelVersion, Snapshot
from triton_exporter.triton.claims import claims

MIN_FAILURES = 5
"""Number of failed requests, without a successful one, from which a model counts as not answering."""

MIN_SECONDS = 5.0
"""Minimum time between the first and the last of these failures."""

MEMORY_SECONDS = 600.0
"""Time for which a model's failures are shown after the last: without requests it is unknown whether it works."""


@dataclass(slots=True)
class _Row:
    """Failures of one model version since a request last worked, and failed probes before them."""

    began: float
    last: float
    probes: int
    failures: float = 0.0


class BackendFailures:
    """MetricsObserver and SnapshotObserver (see `app.parts`); comes before the lifecycle.

    It reads Triton's metrics because its statistics count rejected and cancelled requests among the failures.
    """

    observed = frozenset({triton.REQUEST_SUCCESS.name, triton.REQUEST_FAILURE.name})

    def __init__(self, lifecycle: Lifecycle) -> None:
        self._lifecycle = lifecycle
        self._failed = Increases(_version_of_failure)
        self._worked = Increases(version_of)
        self._rows: dict[ModelVersion, _Row] = {}

    def observe(self, exposition: Exposition, now: float) -> None:
        """Take in one body of Triton's /metrics."""
        families = exposition.families
        if not families.keys() >= self.observed:
            return
        worked = self._worked.update(families[triton.REQUEST_SUCCESS.name], complete=True)
        failed = self._failed.update(families[triton.REQUEST_FAILURE.name], complete=True)
        for key in [key for key in self._rows if worked.get(key)]:
            del self._rows[key]
        for key, count in failed.items():
            if count and not worked.get(key):
                row = self._rows.setdefault(key, _Row(now, now, self._failed_probes(key)))
                row.failures += count
                row.last = now

    def observe_snapshot(self, snapshot: Snapshot) -> None:
        """Report what does not answer to the lifecycle."""
        if snapshot.index is None and snapshot.api_failure != "refused":
            return  # not known; a server that refuses has ended
        ready = {key for key, claim in claims(snapshot).items() if claim.ready} if self._rows else set()
        self._rows = {
            key: row
            for key, row in self._rows.items()
            if key in ready and snapshot.at - row.last <= MEMORY_SECONDS
        }
        self._lifecycle.failing_backends = {
            key: f"not_answering: its last {row.failures:.0f} requests failed in the backend and none worked; "
            "check the model's process and Triton's log"
            for key, row in self._rows.items()
            if row.failures - (self._failed_probes(key) - row.probes) >= MIN_FAILURES
            and row.last - row.began >= MIN_SECONDS
        }

    def _failed_probes(self, key: ModelVersion) -> int:
        """Return how many probes failed: a probe can be wrong where the model is not."""
        return self._lifecycle.probe_failures.get(key, 0)


def _version_of_failure(series: Series) -> ModelVersion | None:
    return version_of(series) if series.labels.get("reason") == "BACKEND" else None

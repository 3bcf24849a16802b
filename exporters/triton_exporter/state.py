"""Show the lifecycle of all models as series."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from triton_exporter.catalogue import Metric
from triton_exporter.catalogue import state as catalogue
from triton_exporter.family import Family, Sample, series
from triton_exporter.lifecycle import Lifecycle
from triton_exporter.snapshot import Snapshot

HOLD_SECONDS = 15.0
"""How long a failure counter stays at 0 after it first appears, unless Prometheus has taken the 0 before: a
counter that appears with 1 shows Prometheus no increase."""


@dataclass
class ModelStates:
    """Watcher and Collector over one Lifecycle."""

    lifecycle: Lifecycle
    _first_shown: dict[str, float] = field(default_factory=dict, init=False)
    _zero_taken: set[str] = field(default_factory=set, init=False)

    def see(self, snapshot: Snapshot) -> None:
        """Take in one look."""
        self.lifecycle.see(snapshot)

    def scraped(self) -> None:
        """Prometheus has taken a whole page: counters it saw at 0 may now move."""
        self._zero_taken.update(self._first_shown)

    def families(self, now: float) -> Iterable[Family]:
        """Liveness, readiness, state, expectation, load failures and episodes."""
        yield _single(catalogue.SERVER_LIVE, self.lifecycle.snapshot.live)
        yield _single(catalogue.SERVER_READY, self.lifecycle.snapshot.ready)
        records = sorted(self.lifecycle.records.items())
        models = sorted({key.model for key, _ in records})
        yield Family(
            catalogue.MODEL_READY,
            [Sample(series(catalogue.MODEL_READY, *key), record.claim.ready) for key, record in records],
        )
        yield Family(
            catalogue.MODEL_STATE,
            [
                Sample(series(catalogue.MODEL_STATE, *key, state), state == record.claim.state)
                for key, record in records
                for state in catalogue.MODEL_STATES
            ],
        )
        expected = self.lifecycle.expected_models()
        yield Family(
            catalogue.MODEL_EXPECTED,
            [Sample(series(catalogue.MODEL_EXPECTED, model), model in expected) for model in models],
        )
        lifecycle = self.lifecycle
        yield Family(
            catalogue.MODEL_LOAD_FAILURES,
            self._failures(catalogue.MODEL_LOAD_FAILURES, lifecycle.failures, models, now),
        )
        if lifecycle.log_read:
            yield Family(
                catalogue.MODEL_RELOAD_FAILURES,
                self._failures(catalogue.MODEL_RELOAD_FAILURES, lifecycle.reload_failures, models, now),
            )
        yield Family(
            catalogue.MODEL_NOT_READY_SINCE,
            [
                Sample(series(catalogue.MODEL_NOT_READY_SINCE, *key), record.not_ready_since)
                for key, record in records
                if record.not_ready_since is not None
            ],
        )

    def _failures(
        self, metric: Metric, failures: Mapping[tuple[str, str], int], models: Iterable[str], now: float
    ) -> list[Sample]:
        samples = []
        # A model that has left keeps its counter: its failures happened.
        for model in sorted({*models, *(model for model, _ in failures)}):
            shown = self._first_shown.setdefault(model, now)
            held = model not in self._zero_taken and now - shown < HOLD_SECONDS
            for reason in catalogue.LOAD_FAILURE_REASONS:
                value = 0 if held else failures.get((model, reason), 0)
                samples.append(Sample(series(metric, model, reason), value))
        return samples


def _single(metric: Metric, value: float) -> Family:
    return Family(metric, [Sample(metric.name, value)])

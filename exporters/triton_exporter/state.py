"""Show the lifecycle of all models as series."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from triton_exporter.catalogue import Metric
from triton_exporter.catalogue import state as catalogue
from triton_exporter.family import Chunk, Chunks, Family, Sample, chunk, series
from triton_exporter.lifecycle import Lifecycle
from triton_exporter.snapshot import ModelVersion, Snapshot

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
            Chunks([_ready(key, bool(record.claim.ready)) for key, record in records]),
        )
        yield Family(
            catalogue.MODEL_STATE,
            Chunks([_states(key, record.claim.state) for key, record in records]),
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
    ) -> Chunks:
        chunks = []
        # A model that has left keeps its counter: its failures happened.
        for model in sorted({*models, *(model for model, _ in failures)}):
            shown = self._first_shown.setdefault(model, now)
            held = model not in self._zero_taken and now - shown < HOLD_SECONDS
            counts = (
                0 if held else failures.get((model, reason), 0) for reason in catalogue.LOAD_FAILURE_REASONS
            )
            chunks.append(_counts(metric.name, model, tuple(counts)))
        return Chunks(chunks)


# A fleet's states hardly change from page to page; at 1,000 models they are 16,000 lines of each page.
_CACHED = 1 << 14


@lru_cache(_CACHED)
def _ready(key: ModelVersion, ready: bool) -> Chunk:
    return chunk(Sample(series(catalogue.MODEL_READY, *key), ready))


@lru_cache(_CACHED)
def _states(key: ModelVersion, current: str) -> Chunk:
    names = ((state, series(catalogue.MODEL_STATE, *key, state)) for state in catalogue.MODEL_STATES)
    return chunk(*(Sample(name, state == current) for state, name in names))


@lru_cache(_CACHED)
def _counts(name: str, model: str, counts: tuple[int, ...]) -> Chunk:
    metric = _BY_NAME[name]
    pairs = zip(catalogue.LOAD_FAILURE_REASONS, counts, strict=True)
    return chunk(*(Sample(series(metric, model, reason), count) for reason, count in pairs))


_BY_NAME = {
    metric.name: metric for metric in (catalogue.MODEL_LOAD_FAILURES, catalogue.MODEL_RELOAD_FAILURES)
}


def _single(metric: Metric, value: float) -> Family:
    return Family(metric, [Sample(metric.name, value)])

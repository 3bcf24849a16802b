"""Show the lifecycle of all models as series."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from triton_exporter.catalogue import Metric, state
from triton_exporter.exposition.write import CachedSamples
from triton_exporter.family import Family
from triton_exporter.lifecycle.tracker import Lifecycle, Record
from triton_exporter.snapshot import ModelVersion, Snapshot

AT_ZERO_SECONDS = 15.0
"""Time for which a failure counter stays at 0 after it first appears, unless Prometheus has taken the 0 before: a
counter that appears with 1 shows Prometheus no increase."""

_Records = Sequence[tuple[ModelVersion, Record]]


@dataclass
class ModelStates:
    """SnapshotObserver and Collector over one Lifecycle."""

    lifecycle: Lifecycle
    _zero_since: dict[str, float] = field(default_factory=dict, init=False)
    """Models whose counters are shown as 0, and since when (Unix seconds)."""
    _shown: set[str] = field(default_factory=set, init=False)
    """Models whose counters have been shown."""
    _written: tuple[object, Sequence[Family]] = field(default=(None, ()), init=False)

    def observe_snapshot(self, snapshot: Snapshot) -> None:
        """Take in one poll."""
        self.lifecycle.observe_snapshot(snapshot)

    def note_scrape(self) -> None:
        """Note that Prometheus has scraped a whole page: counters that it saw at 0 may now grow."""
        self._zero_since.clear()

    def families(self, now: float) -> Iterable[Family]:
        """Yield readiness, state, expectation, load failures, episodes and load times of models."""
        self._note_zeros(now)
        # At 1,000 models these families are a megabyte, and change a few times a day.
        current = (self.lifecycle.revision, frozenset(self._zero_since))
        if self._written[0] != current:
            self._written = (current, self._families())
        yield from self._written[1]

    def _note_zeros(self, now: float) -> None:
        models = self.lifecycle.load_failures.models
        self._zero_since = {
            model: since for model, since in self._zero_since.items() if now - since < AT_ZERO_SECONDS
        }
        self._zero_since |= dict.fromkeys(models - self._shown, now)
        self._shown = set(models)

    def _families(self) -> Sequence[Family]:
        lifecycle = self.lifecycle
        records = sorted(lifecycle.records.items())
        expected = lifecycle.expected_models()
        families = [
            _cached_family(state.MODEL_READY, ((key, record.claim.ready) for key, record in records)),
            _cached_family(state.MODEL_STATE, _state_values(records)),
            _cached_family(
                state.MODEL_EXPECTED,
                (((model,), model in expected) for model in sorted({key.model for key, _ in records})),
            ),
            _cached_family(state.MODEL_LOAD_FAILURES, self._failures(lifecycle.load_failures.counts)),
            _cached_family(
                state.MODEL_NOT_READY_SINCE,
                (
                    (key, record.not_ready_since)
                    for key, record in records
                    if record.not_ready_since is not None
                ),
            ),
            _cached_family(
                state.MODEL_FIRST_LOAD, ((key, 1) for key, record in records if record.first_load)
            ),
            _cached_family(
                state.MODEL_LOAD_DURATION_ESTIMATED,
                ((key, record.load.seconds) for key, record in records if record.load.seconds is not None),
            ),
        ]
        if lifecycle.load_failures.log_read:
            families.append(
                _cached_family(state.MODEL_RELOAD_FAILURES, self._failures(lifecycle.load_failures.reloads))
            )
        return families

    def _failures(self, failures: Mapping[tuple[str, str], int]) -> Iterable[tuple[tuple[str, ...], float]]:
        for model in sorted(self.lifecycle.load_failures.models):
            for reason in state.LOAD_FAILURE_REASONS:
                yield (model, reason), 0 if model in self._zero_since else failures.get((model, reason), 0)


def _state_values(records: _Records) -> Iterable[tuple[tuple[str, ...], float]]:
    for key, record in records:
        for name in state.MODEL_STATES:
            yield (*key, name), name == record.claim.state


def _cached_family(metric: Metric, values: Iterable[tuple[tuple[str, ...], float]]) -> Family:
    return Family(metric, CachedSamples(Family.of(metric, values).samples))

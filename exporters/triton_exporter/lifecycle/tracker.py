"""Follow every model version over time: its state, since when it is not ready, and how long loads take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from triton_exporter.lifecycle.load_failures import LoadFailures
from triton_exporter.lifecycle.load_time import NEVER_SEEN, LoadTime, next_load_time
from triton_exporter.lifecycle.reasons import NOT_LISTED
from triton_exporter.snapshot import ModelVersion, Snapshot
from triton_exporter.triton.claims import UNLOADED, Claim, claims

_UNKNOWN = Claim("unknown", reason="Triton's HTTP API does not report it", source="none")
FIRST_LOAD_SECONDS = 600.0
"""Least time after which a load that does not end is no first load any more."""
UNLOADED_SECONDS = 300.0
"""Time for which a model that left a running Triton is shown as unloaded: some scrapes, even slow ones."""

_NEVER_POLLED = Snapshot(0.0, api_failure="refused")
_LISTED_WITHOUT_VERSION = (
    "Triton lists it without a version: it was never asked to load, or its configuration cannot be read, "
    "or a part of the ensemble failed (see Triton's log)"
)
_REMOVED = Claim(UNLOADED, reason="Triton does not list it any more: it was unloaded and its files removed")


@dataclass(frozen=True, slots=True)
class Record:
    """One model version as last seen, and what is remembered about it; times are Unix seconds."""

    claim: Claim
    since: float
    load_requested: bool = False  # asked to load, and not unloaded on purpose since
    not_ready_since: float | None = None
    last_failure: str = ""  # Triton's text of the last load failure seen
    load: LoadTime = NEVER_SEEN
    fresh: bool = True  # neither served nor failed since it appeared or was unloaded on purpose

    @property
    def first_load(self) -> bool:
        """True if the version is being loaded for the first time."""
        return self.fresh and self.claim.state == "loading"


@dataclass
class Lifecycle:
    """The lifecycle of all models of one server, from successive polls.

    `expected` maps a model that should serve to the versions that must (empty: any); it may be replaced at
    any time.
    """

    expected: Mapping[str, Sequence[str]] = field(default_factory=dict)
    snapshot: Snapshot = field(default=_NEVER_POLLED, init=False)
    records: dict[ModelVersion, Record] = field(default_factory=dict, init=False)
    load_failures: LoadFailures = field(default_factory=LoadFailures, init=False)
    failing_backends: Mapping[ModelVersion, str] = field(default_factory=dict, init=False)
    """Reason why a version that Triton calls ready fails, by Triton's metrics."""
    failed_probes: Mapping[ModelVersion, str] = field(default_factory=dict, init=False)
    """Reason why a version that Triton calls ready fails, by probes."""
    probe_failures: Mapping[ModelVersion, int] = field(default_factory=dict, init=False)
    """Number of failed probes of a version."""
    was_live: bool = field(default=False, init=False)
    has_closed: bool = field(default=False, init=False)
    """Whether its port was closed since it was last live."""
    start_failure: str = field(default="", init=False)
    """Errors of Triton's log since it was last live, and not what it wrote while it serves."""
    _changes: int = field(default=0, init=False)  # of records and expectations
    _expected_before: Mapping[str, Sequence[str]] = field(default_factory=dict, init=False)
    _polled: bool = field(default=False, init=False)
    _had_index: bool = field(default=False, init=False)  # the poll before this one returned an index
    _restarted: bool = field(default=False, init=False)
    _slowest_load: float = field(default=0.0, init=False)  # seconds

    @property
    def revision(self) -> int:
        """A number that grows whenever anything shown has changed."""
        return self._changes + self.load_failures.changes

    def observe_snapshot(self, snapshot: Snapshot) -> None:
        """Take in one poll: move every record to its new state and count the load failures it shows."""
        self._had_index = self.snapshot.index is not None
        self.snapshot = snapshot
        if snapshot.live:
            self.was_live, self.has_closed = True, False
        self.has_closed |= snapshot.api_failure == "refused"
        # Triton closes its port at once when it ends, and opens it when all start-up loads have ended.
        self._restarted |= snapshot.api_failure == "refused"
        current = self._current_claims(snapshot)
        wanted = self._wanted(current)
        records = {
            key: self._next_record(key, claim, snapshot.at, wanted=key in wanted)
            for key, claim in current.items()
        }
        self.load_failures.observe(current, snapshot.at)
        if records != self.records or self.expected != self._expected_before:
            self._changes += 1
        self.records, self._expected_before = records, self.expected
        if not snapshot.api_failure:
            self._restarted = False
            self._polled = True

    def expected_models(self) -> frozenset[str]:
        """Return models that should serve: configured, or asked to load and not unloaded on purpose."""
        requested = {key.model for key, record in self.records.items() if record.load_requested}
        return frozenset(requested | self.expected.keys())

    def _current_claims(self, snapshot: Snapshot) -> dict[ModelVersion, Claim]:
        if snapshot.api_failure or (snapshot.index is None and snapshot.statistics is None):
            return dict.fromkeys(_without_superseded(self.records.keys() | self._absent({})), _UNKNOWN)
        current = claims(snapshot)
        current |= self._unanswered(snapshot, current)
        current |= _refuted(current, self.failing_backends, "metrics")
        current |= _refuted(current, self.failed_probes, "probe")
        current |= {
            key: replace(claim, reason=self.load_failures.last[key.model].text, source="log")
            for key, claim in current.items()
            if claim.state == "loading" and key.model in self.load_failures.not_serving
        }
        absent = self._absent(current)
        unversioned = {key.model for key, claim in current.items() if claim.is_unversioned}
        gone = {key.model for key in absent}
        listed = {
            key: claim for key, claim in current.items() if not (claim.is_unversioned and key.model in gone)
        }
        removed = self._removed(snapshot, current.keys() | absent)
        missing = {
            key: Claim("missing", reason=self._why_missing(key.model, listed=key.model in unversioned))
            for key in absent
        }
        return listed | dict.fromkeys(removed, _REMOVED) | missing

    def _removed(self, snapshot: Snapshot, known: Set[ModelVersion]) -> set[ModelVersion]:
        """Return versions that left a running Triton: unloaded, and their files removed before a poll saw it.

        They are shown for a while, so that Prometheus sees that it was a decision. Where Triton lists nothing
        any more, its repository may be lost.
        """
        if self._restarted or not snapshot.index or snapshot.statistics is None:
            return set()
        models = {key.model for key in known}
        return {
            key
            for key, record in self.records.items()
            if key.version
            and key.model not in models
            and (
                record.claim.state in ("ready", "unloading")
                or (record.claim.state == "unloaded" and snapshot.at - record.since < UNLOADED_SECONDS)
            )
        }

    def _unanswered(
        self, snapshot: Snapshot, current: Mapping[ModelVersion, Claim]
    ) -> dict[ModelVersion, Claim]:
        """Return versions whose source did not answer this time: they may still be there."""
        return {
            key: replace(_UNKNOWN, source=record.claim.source)
            for key, record in self.records.items()
            if key not in current
            and (
                snapshot.index is None
                or (snapshot.statistics is None and record.claim.source == "statistics")
            )
        }

    def _why_missing(self, model: str, *, listed: bool) -> str:
        if model in self.load_failures.not_serving:
            return self.load_failures.last[model].text
        return _LISTED_WITHOUT_VERSION if listed else NOT_LISTED

    def _absent(self, current: Mapping[ModelVersion, Claim]) -> set[ModelVersion]:
        """Return versions that should serve and that Triton does not list, or lists without a version."""
        listed = {key for key, claim in current.items() if not claim.is_unversioned}
        unversioned = {key.model for key, claim in current.items() if claim.is_unversioned}
        absent = {
            ModelVersion(model, version)
            for model, versions in self.expected.items()
            for version in versions
            if ModelVersion(model, version) not in listed
        }
        # Gone across a restart: it served before, and now Triton does not load it. Gone from a running server
        # without a trace: it was removed, for a model does not leave on its own. A version is not missed
        # once another one of its model is ready: that is how a rollout ends.
        replaced = {key.model for key, claim in current.items() if claim.ready}
        absent |= {
            key
            for key, record in self.records.items()
            if record.load_requested
            and key.model not in replaced
            and (self._restarted or key.model in unversioned or record.claim.state == "missing")
        } - listed
        absent = _without_superseded(listed | absent) - listed
        nowhere = (self.expected.keys() | self.load_failures.not_serving) - {
            key.model for key in listed | absent
        }
        return absent | {ModelVersion(model, "") for model in nowhere}

    def _wanted(self, current: Mapping[ModelVersion, Claim]) -> set[ModelVersion]:
        """Return versions that must serve because they are on the operator's list."""
        wanted = set()
        by_model: dict[str, list[ModelVersion]] = {}
        for key in current:
            by_model.setdefault(key.model, []).append(key)
        for model, versions in self.expected.items():
            keys = by_model.get(model, [])
            # Without versions in the list, superseded versions may rest as long as another one is in use.
            in_use = [key for key in keys if current[key].state not in ("unloaded", "unloading")]
            newest = sorted(keys, key=lambda key: int(key.version) if key.version.isdecimal() else -1)[-1:]
            wanted |= {key for key in keys if key.version in versions} if versions else set(in_use or newest)
        return wanted

    def _next_record(self, key: ModelVersion, claim: Claim, at: float, *, wanted: bool) -> Record:
        before = self.records.get(key)
        requested = _load_requested(before, claim) or key.model in self.load_failures.not_serving
        if claim.state == "unavailable" and self._is_new_failure(before, claim):
            self.load_failures.count_seen(key, claim.reason, at, first_poll=not self._polled)
        since = before.since if before is not None and before.claim.state == claim.state else at
        not_ready_before = before.not_ready_since if before is not None else None
        waiting = (requested or wanted) and not claim.ready
        last_failure = before.last_failure if before is not None else ""
        load = self._load(before, claim.state, at)
        self._slowest_load = max(self._slowest_load, load.seconds or 0.0)
        hangs = claim.state == "loading" and (
            bool(claim.reason) or at - since > max(FIRST_LOAD_SECONDS, 2 * self._slowest_load)
        )
        return Record(
            claim=claim,
            since=since,
            load_requested=requested,
            not_ready_since=(at if not_ready_before is None else not_ready_before) if waiting else None,
            last_failure=claim.reason if claim.state == "unavailable" else last_failure,
            fresh=_is_fresh(before, claim) and not hangs,
            load=load,
        )

    def _load(self, before: Record | None, state: str, at: float) -> LoadTime:
        if before is None:
            return next_load_time(NEVER_SEEN, "not_loaded" if self._had_index else "unknown", state, at)
        # A version that was ready before a restart of Triton has been loaded again between two polls.
        was = "not_loaded" if self._restarted and state == "ready" else before.claim.state
        return next_load_time(before.load, was, state, at)

    def _is_new_failure(self, before: Record | None, claim: Claim) -> bool:
        """Return whether this UNAVAILABLE is of an attempt that was not counted yet."""
        if before is None or self._restarted or before.claim.state not in ("unavailable", "unknown"):
            return True
        return before.last_failure != claim.reason


def _refuted(
    current: Mapping[ModelVersion, Claim], failing: Mapping[ModelVersion, str], source: str
) -> dict[ModelVersion, Claim]:
    """Return claims for versions that Triton calls ready and that `failing` has a reason against."""
    return {
        key: replace(current[key], ready=False, reason=text, source=source)
        for key, text in failing.items()
        if key in current and current[key].ready
    }


def _without_superseded(keys: Set[ModelVersion]) -> set[ModelVersion]:
    """Leave out models without a version once a version of them is known: they were fixed."""
    known = {key.model for key in keys if key.version}
    return {key for key in keys if key.version or key.model not in known}


def _load_requested(before: Record | None, claim: Claim) -> bool:
    if claim.state in ("ready", "loading", "unavailable"):
        return True
    if claim.state in ("unloading", "unloaded"):
        return False
    return before is not None and before.load_requested


def _is_fresh(before: Record | None, claim: Claim) -> bool:
    if claim.state in ("unloaded", "unloading", "not_loaded"):
        return True
    if claim.state in ("ready", "unavailable", "missing"):
        return False
    return before is None or before.fresh

"""Follow every model version over time: its state, since when it is not ready, and how long loads take.

`BackendFailures` finds models that Triton calls ready and whose backend fails every request, as with a dead python
process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from triton_exporter.catalogue import triton
from triton_exporter.distribution.counters import Increases, version_of
from triton_exporter.exposition.parse import Exposition
from triton_exporter.lifecycle.load_failures import NOT_LISTED, LastFailure, LoadFailures
from triton_exporter.snapshot import UNLOADED, Claim, ModelVersion, Snapshot, claims


@dataclass(frozen=True, slots=True)
class LoadTime:
    """`began`: Unix time of the first poll during a load; `seconds`: the last load that ended well.

    Both are None where no poll found it, rather than a guess: a load between two polls, or one that was under
    way when the exporter started or while Triton did not answer.
    """

    began: float | None = None
    seconds: float | None = None


NEVER_SEEN = LoadTime()


def next_load_time(before: LoadTime, was: str, state: str, at: float) -> LoadTime:
    """Return the load time after a poll: `was` is the state at the poll before (`unknown`: no answer)."""
    if state == "loading":
        if was == "unknown":
            return NEVER_SEEN
        return LoadTime(before.began if was == "loading" else at)
    if state == "ready" and was == "loading":
        return LoadTime(seconds=None if before.began is None else at - before.began)
    # Triton may not have answered for a moment; whatever else happened between, this is another load.
    return before if state in ("ready", "unknown") and was in ("ready", "unknown") else NEVER_SEEN


_UNKNOWN = Claim("unknown", reason="Triton's API does not report it", source="none")
_SERVES = Claim("ready", ready=True, reason="its requests succeed", source="metrics")
_NO_SUCCESS = Claim(
    "unknown", reason="only metrics are read, and no request succeeded lately", source="metrics"
)
SERVES_SECONDS = 60.0
"""Time after the last successful request for which a model counts as ready, where only metrics are read."""
FIRST_LOAD_SECONDS = 600.0
"""Least time after which a load that does not end is no first load any more."""
UNLOADED_SECONDS = 300.0
"""Time for which a model that left a running Triton is shown as unloaded: some scrapes, even slow ones."""

_NEVER_POLLED = Snapshot(0.0, api_failure="refused")
LISTED_WITHOUT_VERSION = (
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
    unproven: Mapping[ModelVersion, str] = field(default_factory=dict, init=False)
    """Reason why a version that should be probed is not known to work: no probe of it has worked yet."""
    probe_failures: Mapping[ModelVersion, int] = field(default_factory=dict, init=False)
    """Number of failed probes of a version."""
    probe_errors: Mapping[ModelVersion, LastFailure] = field(default_factory=dict, init=False)
    """The last failed probe of a version: its result and the answer."""
    request_errors: Mapping[str, LastFailure] = field(default_factory=dict, init=False)
    """The exception of the last failed request of each Python model, by Triton's log."""
    succeeded: dict[ModelVersion, float] | None = field(default=None, init=False)
    """The versions in Triton's metrics, and when a request of each last succeeded (Unix seconds; 0: not seen)."""
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
    _settled: object = field(default=None, init=False)
    """What the last poll showed, if to take it in once more changes nothing, whenever that is; else None."""

    @property
    def metrics_only(self) -> bool:
        """True if all that is known comes from Triton's metrics: no API has answered so far, or a certificate is wrong.

        Where the operator lists models that should serve, an API that never answers is an outage of theirs.
        """
        failure = self.snapshot.api_failure
        never_answered = bool(failure) and not self._polled and not self.expected
        return (never_answered or failure == "tls") and self.succeeded is not None

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
        shown = (
            snapshot.api_failure,
            snapshot.index,
            snapshot.statistics and [each.key for each in snapshot.statistics],
            [version for version, is_ready in snapshot.ready_versions.items() if not is_ready],
            self.expected,
            self.failing_backends,
            self.failed_probes,
            self.load_failures.changes,
        )
        # Most polls show what the one before showed, and at 1,000 models all of this takes ten milliseconds.
        if shown == self._settled and self.load_failures.observe_same(snapshot.at):
            return
        current = self._current_claims(snapshot)
        wanted = set() if self.metrics_only else self._wanted(current)
        records = {
            key: self._next_record(key, claim, snapshot.at, wanted=key in wanted)
            for key, claim in current.items()
        }
        # Of models that only the metrics show, a count of 0 would say that no load failed.
        self.load_failures.observe({} if self.metrics_only else current, snapshot.at)
        changed = records != self.records or self.expected != self._expected_before
        self._changes += changed
        # A load that hangs, and a version that was removed, change with time alone.
        in_time = any(each.claim.state == "loading" or each.claim == _REMOVED for each in records.values())
        self._settled = None if changed or in_time or snapshot.api_failure or self._restarted else shown
        self.records, self._expected_before = records, self.expected
        if not snapshot.api_failure:
            self._restarted = False
            self._polled = True

    def note_request_errors(self, errors: Mapping[str, LastFailure]) -> None:
        """Take in the exceptions of Triton's log; those of models that are not there any more are forgotten."""
        known = {key.model for key in self.records}
        self.request_errors = {
            model: error for model, error in {**self.request_errors, **errors}.items() if model in known
        }

    def expected_models(self) -> frozenset[str]:
        """Return models that should serve: configured, or asked to load and not unloaded on purpose."""
        requested = {key.model for key, record in self.records.items() if record.load_requested}
        return frozenset(requested | self.expected.keys())

    def _current_claims(self, snapshot: Snapshot) -> dict[ModelVersion, Claim]:
        if snapshot.api_failure or (snapshot.index is None and snapshot.statistics is None):
            if self.metrics_only:
                succeeded = self.succeeded or {}
                served = (key for key, at in succeeded.items() if snapshot.at - at <= SERVES_SECONDS)
                known = succeeded.keys() | (self.records.keys() if self._polled else set())
                return dict.fromkeys(known, _NO_SUCCESS) | dict.fromkeys(served, _SERVES)
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
            key: Claim("missing", reason=LISTED_WITHOUT_VERSION if key.model in unversioned else NOT_LISTED)
            for key in absent
        }
        for key in absent:
            if key.model in self.load_failures.not_serving:
                missing[key] = Claim("missing", reason=self.load_failures.last[key.model].text)
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
        if self.metrics_only:
            requested = before is not None and before.load_requested
        # An attempt that was not counted yet: the last poll was answered and showed another state, or another text.
        is_new = (
            before is None
            or self._restarted
            or before.claim.state not in ("unavailable", "unknown")
            or before.last_failure != claim.reason
        )
        if claim.state == "unavailable" and is_new:
            self.load_failures.count_seen(key, claim.reason, at, first_poll=not self._polled)
        since = before.since if before is not None and before.claim.state == claim.state else at
        not_ready_before = before.not_ready_since if before is not None else None
        waiting = (requested or wanted) and not claim.ready and not self.metrics_only
        last_failure = before.last_failure if before is not None else ""
        if before is None:
            was = "not_loaded" if self._had_index else "unknown"
        else:
            # A version that was ready before a restart of Triton has been loaded again between two polls.
            was = "not_loaded" if self._restarted and claim.state == "ready" else before.claim.state
        load = next_load_time(NEVER_SEEN if before is None else before.load, was, claim.state, at)
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
    """MetricsObserver, MetricsLossObserver and SnapshotObserver (see `app.exporter`); comes before the lifecycle.

    It reads Triton's metrics because its statistics count rejected and cancelled requests among the failures.
    """

    observed = frozenset({triton.REQUEST_SUCCESS.name, triton.REQUEST_FAILURE.name})

    def __init__(self, lifecycle: Lifecycle) -> None:
        self._lifecycle = lifecycle
        self._failed = Increases(
            lambda series: version_of(series) if series.labels.get("reason") == "BACKEND" else None
        )
        self._worked = Increases(version_of)
        self._rows: dict[ModelVersion, _Row] = {}

    def observe(self, exposition: Exposition, now: float) -> None:
        """Take in one body of Triton's /metrics."""
        families = exposition.families
        worked = self._worked.update(families.get(triton.REQUEST_SUCCESS.name), complete=True)
        before = self._lifecycle.succeeded or {}
        if before.keys() != self._worked.present:
            before = {key: before.get(key, 0.0) for key in self._worked.present}
        self._lifecycle.succeeded = before
        before.update((key, now) for key, count in worked.items() if count)
        if not families.keys() >= self.observed:
            return
        failed = self._failed.update(families[triton.REQUEST_FAILURE.name], complete=True)
        for key in [key for key in self._rows if worked.get(key)]:
            del self._rows[key]
        for key, count in failed.items():
            if count and not worked.get(key):
                row = self._rows.setdefault(key, _Row(now, now, self._failed_probes(key)))
                row.failures += count
                row.last = now

    def metrics_lost(self, reason: str) -> None:
        """A success counts only while Triton answers: it may have ended, and the next one has loaded nothing yet.

        With both its ports closed it has ended; the next one need not have an API.
        """
        if reason == self._lifecycle.snapshot.api_failure == "refused":
            self._lifecycle.was_live = False
        if self._lifecycle.succeeded is not None:
            self._lifecycle.succeeded = dict.fromkeys(self._lifecycle.succeeded, 0.0)

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

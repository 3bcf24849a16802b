"""Follow every model version over time: its state, since when it is not ready, how often a load failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from triton_exporter.lifecycle.load_time import NEVER_SEEN, LoadTime, follow
from triton_exporter.lifecycle.reasons import NOT_LISTED, classify
from triton_exporter.snapshot import ModelVersion, Snapshot
from triton_exporter.triton.claims import UNLOADED, Claim, claims

_UNKNOWN = Claim("unknown", reason="Triton's HTTP API does not report it", source="none")
MEMORY_SECONDS = 3600.0
"""The failures of a model that has left are still counted and shown for so long."""
UNLOADED_SECONDS = 300.0
"""A model that left a running Triton is still shown as unloaded for so long: some scrapes, even slow ones."""

_NEVER_POLLED = Snapshot(0.0, api_failure="refused")
_LISTED_BARE = (
    "Triton lists it without a version: it was never asked to load, or its configuration cannot be read, "
    "or a part of the ensemble failed (see Triton's log)"
)
_UNAVAILABLE_STEPS = " contains models that are not available or ambiguous: "
_REMOVED = Claim(UNLOADED, reason="Triton does not list it any more: it was unloaded and its files removed")


@dataclass(frozen=True, slots=True)
class Failure:
    """The last failed load of a model: when it was seen (Unix seconds), Triton's text, and its source."""

    at: float
    version: str
    text: str
    source: str


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
    failures: Counter[tuple[str, str]] = field(default_factory=Counter, init=False)
    reload_failures: Counter[tuple[str, str]] = field(default_factory=Counter, init=False)
    last_failures: dict[str, Failure] = field(default_factory=dict, init=False)
    log_read: bool = False
    version: int = field(default=0, init=False)  # grows whenever anything shown has changed
    # Why versions that Triton calls ready are not, by what found it out; and how many probes failed at all.
    failing_backends: Mapping[ModelVersion, str] = field(default_factory=dict, init=False)
    failed_probes: Mapping[ModelVersion, str] = field(default_factory=dict, init=False)
    probe_failures: Mapping[ModelVersion, int] = field(default_factory=dict, init=False)
    _logged: set[str] = field(default_factory=set, init=False)  # models that failed in the log
    _failing: set[str] = field(default_factory=set, init=False)  # of these, what was not seen to serve since
    _ensemble_texts: dict[str, str] = field(default_factory=dict, init=False)  # as counted since it served
    _last_named: dict[str, float] = field(default_factory=dict, init=False)
    _expected_before: Mapping[str, Sequence[str]] = field(default_factory=dict, init=False)
    _polled: bool = field(default=False, init=False)
    _had_index: bool = field(default=False, init=False)  # the poll before this one returned an index
    _restarted: bool = field(default=False, init=False)

    def observe_snapshot(self, snapshot: Snapshot) -> None:
        """Take in one poll: move every record to its new state and count the load failures it shows."""
        self._had_index = self.snapshot.index is not None
        self.snapshot = snapshot
        # Triton closes its port at once when it ends, and opens it when all start-up loads are over.
        self._restarted |= snapshot.api_failure == "refused"
        current = self._current(snapshot)
        wanted = self._wanted(current)
        records = {
            key: self._moved(key, claim, snapshot.at, wanted=key in wanted) for key, claim in current.items()
        }
        self._forget(records, snapshot.at)
        if records != self.records or self.expected != self._expected_before:
            self.version += 1
        self.records, self._expected_before = records, self.expected
        self._failing -= {
            key.model for key, claim in current.items() if claim.ready or claim.state == "unloaded"
        }
        for key, claim in current.items():
            if claim.ready:
                self._ensemble_texts.pop(key.model, None)
        if not snapshot.api_failure:
            self._restarted = False
            self._polled = True

    def expected_models(self) -> frozenset[str]:
        """Models that should serve: configured, or asked to load and not unloaded on purpose."""
        requested = {key.model for key, record in self.records.items() if record.load_requested}
        return frozenset(requested | self.expected.keys())

    def counted_models(self) -> frozenset[str]:
        """Models whose load failures are counted: those that are there, and those that left of late."""
        return frozenset(self._last_named)

    def count_logged(self, model: str, version: str, text: str, at: float) -> None:
        """Count one failed load from Triton's log; no API may show it."""
        serving = self._serving_versions(model)
        if version in serving or (serving and not version):
            self.reload_failures[model, classify(text)] += 1
        self._count_in_log(model, version, text, at)

    def count_ensemble(self, model: str, text: str, at: float) -> None:
        """Count an ensemble that Triton could not put together from its steps, once for each text.

        Triton writes the same line again whenever it loads one of the steps, and one when a step is unloaded
        on purpose.
        """
        if self._names_unloaded(text) or text == self._ensemble_texts.get(model):
            return
        self._ensemble_texts[model] = text
        self._count_in_log(model, "", text, at)

    def note_failure(self, model: str, version: str, text: str, at: float) -> None:
        """Remember why a model failed to load before the exporter started, without counting it again."""
        if self._names_unloaded(text) or model in self.last_failures:
            return
        self.version += 1
        self._last_named.setdefault(model, at)
        self._ensemble_texts[model] = text
        self.last_failures[model] = Failure(at, version, text, "log")
        if not self._serving_versions(model):
            self._failing.add(model)

    def _count_in_log(self, model: str, version: str, text: str, at: float) -> None:
        self.version += 1
        self.failures[model, classify(text)] += 1
        self._last_named[model] = at
        self.last_failures[model] = Failure(at, version, text, "log")
        self._logged.add(model)
        if not self._serving_versions(model):
            self._failing.add(model)

    def _serving_versions(self, model: str) -> set[str]:
        return {
            key.version for key, record in self.records.items() if key.model == model and record.claim.ready
        }

    def _names_unloaded(self, text: str) -> bool:
        """Return whether the steps that Triton does not find are all loaded until now, or unloaded on purpose."""
        _, marker, names = text.partition(_UNAVAILABLE_STEPS)
        loaded = {
            key.model
            for key, record in self.records.items()
            if record.claim.state in ("ready", "unloading", "unloaded")
        }
        return bool(marker) and loaded.issuperset(names.split(", "))

    def _current(self, snapshot: Snapshot) -> dict[ModelVersion, Claim]:
        if snapshot.api_failure or (snapshot.index is None and snapshot.statistics is None):
            return dict.fromkeys(_without_superseded(self.records.keys() | self._absent({})), _UNKNOWN)
        current = claims(snapshot)
        current |= self._unanswered(snapshot, current)
        for source, refuted in (("metrics", self.failing_backends), ("probe", self.failed_probes)):
            for key, text in refuted.items():
                claim = current.get(key)
                if claim is not None and claim.ready:
                    current[key] = replace(claim, ready=False, reason=text, source=source)
        absent = self._absent(current)
        bare = {key.model for key, claim in current.items() if claim.bare}
        gone = {key.model for key in absent}
        listed = {key: claim for key, claim in current.items() if not (claim.bare and key.model in gone)}
        removed = self._removed(snapshot, current.keys() | absent)
        return (
            listed
            | dict.fromkeys(removed, _REMOVED)
            | {
                key: Claim("missing", reason=self._why_missing(key.model, listed=key.model in bare))
                for key in absent
            }
        )

    def _removed(self, snapshot: Snapshot, known: Set[ModelVersion]) -> set[ModelVersion]:
        """Versions that left a running Triton: they were unloaded, and their files removed before a poll saw it.

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

    def _forget(self, records: Mapping[ModelVersion, Record], at: float) -> None:
        """Forget models that left long ago: a server with ever new names would fill the memory."""
        self._last_named |= dict.fromkeys({key.model for key in records}, at)
        gone = {model for model, named in self._last_named.items() if at - named > MEMORY_SECONDS}
        if not gone:
            return
        self.version += 1
        for model in gone:
            del self._last_named[model]
            self.last_failures.pop(model, None)
            self._ensemble_texts.pop(model, None)
        self._logged -= gone
        self._failing -= gone
        for counter in (self.failures, self.reload_failures):
            for key in [key for key in counter if key[0] in gone]:
                del counter[key]

    def _unanswered(
        self, snapshot: Snapshot, current: Mapping[ModelVersion, Claim]
    ) -> dict[ModelVersion, Claim]:
        """Versions whose source did not answer this time: they may still be there."""
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
        if model in self._failing:
            return self.last_failures[model].text
        return _LISTED_BARE if listed else NOT_LISTED

    def _absent(self, current: Mapping[ModelVersion, Claim]) -> set[ModelVersion]:
        """Versions that should serve and that Triton does not list, or lists bare."""
        listed = {key for key, claim in current.items() if not claim.bare}
        bare = {key.model for key, claim in current.items() if claim.bare}
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
            and (self._restarted or key.model in bare or record.claim.state == "missing")
        } - listed
        absent = _without_superseded(listed | absent) - listed
        nowhere = (self.expected.keys() | self._failing) - {key.model for key in listed | absent}
        return absent | {ModelVersion(model, "") for model in nowhere}

    def _wanted(self, current: Mapping[ModelVersion, Claim]) -> set[ModelVersion]:
        """Versions that must serve because they are on the operator's list."""
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

    def _moved(self, key: ModelVersion, claim: Claim, at: float, *, wanted: bool) -> Record:
        before = self.records.get(key)
        requested = _load_requested(before, claim) or key.model in self._failing
        if claim.state == "unavailable" and self._is_new_failure(before, claim):
            self._count_seen(key, claim.reason, at)
        since = before.since if before is not None and before.claim.state == claim.state else at
        episode = before.not_ready_since if before is not None else None
        waiting = (requested or wanted) and not claim.ready
        last_failure = before.last_failure if before is not None else ""
        return Record(
            claim=claim,
            since=since,
            load_requested=requested,
            not_ready_since=(at if episode is None else episode) if waiting else None,
            last_failure=claim.reason if claim.state == "unavailable" else last_failure,
            fresh=_fresh(before, claim),
            load=self._load(before, claim.state, at),
        )

    def _load(self, before: Record | None, state: str, at: float) -> LoadTime:
        if before is None:
            return follow(NEVER_SEEN, "not_loaded" if self._had_index else "unknown", state, at)
        # A version that was ready before a restart of Triton has been loaded again between two polls.
        was = "not_loaded" if self._restarted and state == "ready" else before.claim.state
        return follow(before.load, was, state, at)

    def _count_seen(self, key: ModelVersion, text: str, at: float) -> None:
        # The log reports every attempt, once it is read: what failed before the exporter started is counted
        # from the index, what fails later from the log.
        if not self.log_read or not (self._polled or key.model in self._logged):
            self.version += 1
            self.failures[key.model, classify(text)] += 1
            self.last_failures[key.model] = Failure(at, key.version, text, "index")

    def _is_new_failure(self, before: Record | None, claim: Claim) -> bool:
        """Return whether this UNAVAILABLE is of an attempt that was not counted yet."""
        if before is None or self._restarted or before.claim.state not in ("unavailable", "unknown"):
            return True
        return before.last_failure != claim.reason


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


def _fresh(before: Record | None, claim: Claim) -> bool:
    if claim.state in ("unloaded", "unloading", "not_loaded"):
        return True
    if claim.state in ("ready", "unavailable", "missing"):
        return False
    return before is None or before.fresh

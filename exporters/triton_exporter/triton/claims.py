"""Claims of Triton about each model version: the union of index, statistics and ready endpoints."""

from __future__ import annotations

from dataclasses import dataclass, replace

from triton_exporter.snapshot import IndexEntry, ModelVersion, Snapshot

# The exporter's words for Triton's states: ModelReadyState in core's src/model_lifecycle.h.
_STATES = {"READY": "ready", "LOADING": "loading", "UNLOADING": "unloading"}

UNLOADED = "unloaded"
"""The one reason of UNAVAILABLE that is not a failure."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The state of one model version (a word of MODEL_STATES), whether it serves, and the source.

    `reason` is Triton's own text. An unversioned claim stands for a model that Triton lists without a version.
    """

    state: str
    ready: bool = False
    reason: str = ""
    source: str = "index"

    @property
    def is_unversioned(self) -> bool:
        return self.state == "not_loaded"


def claims(snapshot: Snapshot) -> dict[ModelVersion, Claim]:
    """Return every model version that Triton lists, with its state."""
    current = {ModelVersion(entry.model, entry.version): _claim_of(entry) for entry in snapshot.index or ()}
    for statistics in snapshot.statistics or ():
        # Statistics list ready versions only, and also those the index misses: loaded from memory, or
        # with a directory deleted since.
        key = ModelVersion(statistics.model, statistics.version)
        if key not in current or current[key].is_unversioned:
            current[key] = Claim("ready", ready=True, source="statistics")
    for key, answer in snapshot.ready_versions.items():
        claim = current.get(key)
        if claim is not None and claim.ready and not answer:
            current[key] = replace(
                claim, ready=False, reason="its ready endpoint does not answer 200", source="health"
            )
    versioned = {key.model for key in current if key.version}
    return {
        key: claim for key, claim in current.items() if not (claim.is_unversioned and key.model in versioned)
    }


def _claim_of(entry: IndexEntry) -> Claim:
    if not entry.state:
        return Claim("not_loaded")
    if entry.state == "UNAVAILABLE":
        state = "unloaded" if entry.reason == UNLOADED else "unavailable"
        return Claim(state, reason=entry.reason)
    state = _STATES.get(entry.state, "unknown")
    return Claim(state, ready=state == "ready", reason=entry.reason)

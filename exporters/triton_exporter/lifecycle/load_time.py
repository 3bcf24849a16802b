"""Estimate the duration of a load from polls of the repository index.

Triton reports it from 24.11 on, for all but ensembles; before, its index is the only source. Loads at the
start of a server are never seen: its ports are closed until they have ended.
"""

from __future__ import annotations

from dataclasses import dataclass


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

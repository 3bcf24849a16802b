"""How long a load took, as far as looks at the repository index can tell.

Triton says so itself from 24.11 on, for all but ensembles; before, its index is the only witness. Loads at the
start of a server are never seen: its ports are closed until they have ended.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LoadTime:
    """`began`: Unix time of the first look at a load under way; `seconds`: the last load that ended well.

    Both are None where no look saw it, rather than a guess: a load between two looks, or one that was under
    way when the exporter started or while Triton did not answer.
    """

    began: float | None = None
    seconds: float | None = None


NEVER_SEEN = LoadTime()


def follow(before: LoadTime, was: str, state: str, at: float) -> LoadTime:
    """Go on from the state of the last look (`unknown`: it told nothing) to the one of this look."""
    if state == "loading":
        if was == "unknown":
            return NEVER_SEEN
        return LoadTime(before.began if was == "loading" else at)
    if state == "ready" and was == "loading":
        return LoadTime(seconds=None if before.began is None else at - before.began)
    # Triton may not have answered for a moment; whatever else lies between, this is another load.
    return before if state in ("ready", "unknown") and was in ("ready", "unknown") else NEVER_SEEN

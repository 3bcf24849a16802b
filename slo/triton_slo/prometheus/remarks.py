"""Remarks that a Prometheus, or another server with its HTTP API, adds to the answers to queries."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import requests

WARNS = "Prometheus warns: "
"""Beginning of a line with a warning."""
_REMARKED = re.compile(rb'"(?:warnings|infos)"|"isPartial"\s*:\s*true')
"""Found in answers that may have remarks; parsing every answer a second time would take long."""
_PARTIAL = (
    "the answer is partial (isPartial): a part of the storage did not answer, and its series are missing"
)
"""Words of a warning that we add: a vmselect marks such an answer without one."""
_INFO = "PromQL info:"
"""Infos begin so; Thanos has them among its warnings."""
_NOT_A_COUNTER = "metric might not be a counter"
"""An info of newer versions on every rate of a counter of Triton, whose names do not end in _total."""


@dataclass(frozen=True, slots=True)
class Remarks:
    """Remarks that a server adds to its answers: warnings limit them, infos do not. Each is there once."""

    warnings: list[str] = field(default_factory=list)
    infos: list[str] = field(default_factory=list)

    def add(self, other: Remarks) -> None:
        """Add the remarks of another, each once."""
        for mine, theirs in ((self.warnings, other.warnings), (self.infos, other.infos)):
            mine[:] = dict.fromkeys([*mine, *theirs])

    @property
    def lines(self) -> tuple[str, ...]:
        """All remarks as lines for people."""
        infos = (f"Prometheus notes: {info}" for info in self.infos)
        return (*(f"{WARNS}{warning}" for warning in self.warnings), *infos)


def remarks_of(response: requests.Response) -> Remarks:
    """Return the remarks in an answer; none where there are none, or where it is not JSON."""
    if not _REMARKED.search(response.content):
        return Remarks()
    try:
        body = response.json()
    except requests.RequestException:
        return Remarks()
    warned, infos = _texts(body, "warnings"), _texts(body, "infos")
    warnings = [text for text in warned if not text.startswith(_INFO)]
    infos += [text for text in warned if text.startswith(_INFO)]
    if isinstance(body, dict) and body.get("isPartial") is True:
        warnings.insert(0, _PARTIAL)
    return Remarks(warnings, [info for info in infos if _NOT_A_COUNTER not in info])


def _texts(body: object, kind: str) -> list[str]:
    texts = body.get(kind) if isinstance(body, dict) else None
    return [" ".join(str(text).split())[:300] for text in texts] if isinstance(texts, list) else []

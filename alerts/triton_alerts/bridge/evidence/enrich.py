"""Query facts that the alerts of an incident do not contain; a page waits for them for a limited time.

Each source is a function from an incident to its facts. All sources are queried at the same time; the facts of a
source that does not respond in time are left out.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial

from triton_alerts.bridge.incidents.incident import Evidence, Incident, SourceFacts
from triton_alerts.bridge.incidents.store import ChangedIncident, Store

EVIDENCE_TIMEOUT_SECONDS = 1.5
"""Timeout of all sources together; a first message waits for it, too."""
FRESH_SECONDS = 60.0
"""Age from which the evidence of an open incident is queried again."""
CLOSED_SECONDS = 10.0
"""Time after the end of an incident in which its sources are queried once more: does the model serve again?"""
AT_ONCE = 20
"""Incidents enriched per second; in a storm the most urgent ones come first."""
WARNING_SECONDS = 60.0
"""Least time between two lines of the log about one source: in a storm it fails for many incidents a second."""

Source = Callable[[Incident], SourceFacts]

log = logging.getLogger(__name__)


@dataclass
class Enricher:
    """Chore that attaches evidence to open incidents.

    `failed` receives the name of a source that did not respond; `addresses` are those of the sources, for the log.
    """

    store: Store
    sources: Mapping[str, Source]
    failed: Callable[[str], None] = lambda _name: None
    wake: Callable[[], None] = lambda: None
    addresses: Mapping[str, str] = field(default_factory=dict)
    _warned_at: dict[str, float] = field(default_factory=dict)
    """Source -> the last time that the log named its fault."""
    _pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(8, "enrich"))

    def __call__(self, now: float) -> None:
        stale = [
            (number, incident)
            for number, incident in self.store.incidents.open(now - CLOSED_SECONDS)
            if incident.evidence_is_due or (incident.open and self._is_old(incident, now))
        ]
        stale.sort(
            key=lambda pair: (pair[1].evidence is not None, pair[1].severity != "critical", pair[1].opened_at)
        )
        for number, incident in stale[:AT_ONCE]:
            evidence = self.gather(incident, now)
            self.store.change(number, partial(_attach, evidence))
            self.wake()

    def _is_old(self, incident: Incident, now: float) -> bool:
        return incident.evidence is None or now - incident.evidence.at >= FRESH_SECONDS

    def gather(self, incident: Incident, now: float) -> Evidence:
        """Return the facts of all sources that respond in time."""
        asked: dict[str, Future[SourceFacts]] = {
            name: self._pool.submit(source, incident) for name, source in self.sources.items()
        }
        wait(asked.values(), EVIDENCE_TIMEOUT_SECONDS)
        known = SourceFacts()
        for name, future in asked.items():
            late = future.cancel() or not future.done()
            if fault := f"no answer within {EVIDENCE_TIMEOUT_SECONDS:g} s" if late else future.exception():
                self.failed(name)
                if not 0 <= now - self._warned_at.get(name, -math.inf) < WARNING_SECONDS:
                    self._warned_at[name] = now
                    where = self.addresses.get(name, "no address")
                    log.warning(
                        "no evidence from %s (%s) for incident %s: %s", name, where, incident.name, fault
                    )
                continue
            known = known.and_newer(future.result())
        return Evidence.of(known, now)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


def _attach(evidence: Evidence, before: Incident) -> ChangedIncident:
    """Add newer facts; earlier ones stay, because Triton often drops the reason when the model is repaired."""
    if before.evidence is not None:
        evidence = Evidence.of(before.evidence.and_newer(evidence), evidence.at)
    return before.model_copy(update={"evidence": evidence}), ()

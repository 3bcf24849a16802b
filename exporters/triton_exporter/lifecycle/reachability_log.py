"""Write into the exporter's log when Triton's HTTP API stops answering and when it answers again."""

from __future__ import annotations

import logging

from triton_exporter.snapshot import Snapshot
from triton_exporter.triton.unreachable import what_to_check

_LOG = logging.getLogger(__name__)


class ReachabilityLog:
    """Watcher (see `family`): one line for each change."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._answered: bool | None = None

    def see(self, snapshot: Snapshot) -> None:
        """Write whether this poll was answered, if the last one was not, or the other way round."""
        before, self._answered = self._answered, not snapshot.api_failure
        if self._answered == before:
            return
        if snapshot.api_failure:
            check = what_to_check(snapshot.api_failure)
            _LOG.warning("Triton at %s does not answer (%s): %s", self._url, snapshot.api_failure, check)
        else:
            again = "" if before is None else " again"
            _LOG.info("Triton %s at %s answers%s", snapshot.triton_version, self._url, again)

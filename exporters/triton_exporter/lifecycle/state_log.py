"""Write failed loads, with the text that is too long for a label, and unreachability of Triton into the log."""

from __future__ import annotations

import logging

from triton_exporter.common.printable import printable
from triton_exporter.lifecycle.load_failures import LastFailure
from triton_exporter.lifecycle.reasons import classify
from triton_exporter.lifecycle.tracker import Lifecycle
from triton_exporter.snapshot import Snapshot
from triton_exporter.triton.unreachable import what_to_check

_LOG = logging.getLogger(__name__)

QUIET_SECONDS = 600.0
"""Time for which the same words about a model are not repeated: poll mode tries again every few seconds."""

_MAX_TEXT = 1000


class FailureLog:
    """SnapshotObserver (see `app.parts`); comes after the lifecycle it reads."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        self._lifecycle = lifecycle
        self._logged: dict[str, LastFailure] = {}

    def observe_snapshot(self, _snapshot: Snapshot) -> None:
        """Log what failed since the last poll."""
        failures = self._lifecycle.load_failures.last
        self._logged = {model: logged for model, logged in self._logged.items() if model in failures}
        for model, failure in failures.items():
            if _is_due(failure, self._logged.get(model)):
                self._logged[model] = failure
                _log(model, failure)


def _is_due(failure: LastFailure, logged: LastFailure | None) -> bool:
    if logged is None or (failure.version, failure.text) != (logged.version, logged.text):
        return True
    return failure.at >= logged.at + QUIET_SECONDS


def _log(model: str, failure: LastFailure) -> None:
    version = f" version {_log_text(failure.version)}" if failure.version else ""
    text = _log_text(" ".join(failure.text.split()))
    _LOG.warning(
        "model %s%s failed to load (%s): %s", _log_text(model), version, classify(failure.text), text
    )


def _log_text(text: str) -> str:
    """Return the text in one line that cannot steer a terminal."""
    return printable(text[:_MAX_TEXT])


class ReachabilityLog:
    """SnapshotObserver (see `app.parts`): one line for each change."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._answered: bool | None = None

    def observe_snapshot(self, snapshot: Snapshot) -> None:
        """Write whether this poll was answered, if the last one was not, or the other way round."""
        before, self._answered = self._answered, not snapshot.api_failure
        if self._answered == before:
            return
        if snapshot.api_failure:
            check = what_to_check(snapshot.api_failure)
            seen = _log_text(snapshot.api_failure_text or snapshot.api_failure)
            _LOG.warning("Triton at %s does not answer (%s): %s", self._url, seen, check)
        else:
            again = "" if before is None else " again"
            _LOG.info("Triton %s at %s answers%s", snapshot.triton_version, self._url, again)

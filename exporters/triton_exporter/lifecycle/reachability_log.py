"""Write into the exporter's log when Triton's HTTP API stops answering and when it answers again."""

from __future__ import annotations

import logging

from triton_exporter.snapshot import Snapshot

_LOG = logging.getLogger(__name__)

_CHECKS = {
    "refused": "nothing listens there: check that Triton runs, that its models have loaded (its ports open after "
    "that), and the port in --triton",
    "unreachable": "check the network between the exporter and Triton, and the address in --triton",
    "timeout": "check whether Triton's process is stopped, hung or short of CPU, and the network",
    "dns": "the host name does not resolve: check --triton and the name server",
    "tls": "check the certificates of Triton and of the exporter (--triton-ca-file, --triton-cert-file)",
    "bad_response": "the connection broke off, as when Triton ends, or another server answers there: check that "
    "Triton runs, and the address in --triton",
}
_OTHERWISE = "another server answers there: check the address in --triton"


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
            check = _CHECKS.get(snapshot.api_failure, _OTHERWISE)
            _LOG.warning("Triton at %s does not answer (%s): %s", self._url, snapshot.api_failure, check)
        else:
            again = "" if before is None else " again"
            _LOG.info("Triton %s at %s answers%s", snapshot.triton_version, self._url, again)

"""The incidents of a bridge: of its folder, or of its address where it is on another machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import requests

from triton_alerts.bridge.incidents.history import RecordedIncident, from_json
from triton_alerts.bridge.receiver import INCIDENTS_PATH
from triton_slo.server_access import Access, innermost_reason, session_for
from tritonwatch.command_error import CommandError
from tritonwatch.review.bridge_data import recorded_incidents

_TIMEOUT_SECONDS = 5.0
_MAX_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class BridgeAddress:
    """Address of a bridge, and the CA that is trusted instead of the system's.

    `token` returns the bearer token, or raises CommandError; each time, so that it can be replaced.
    """

    url: str
    token: Callable[[], str]
    ca_file: str = ""


def incidents_of(bridge: Path | BridgeAddress, option: str) -> list[RecordedIncident]:
    """Return the incidents, the oldest first. Raises CommandError, which names the option that gave the folder."""
    return _incidents_at(bridge) if isinstance(bridge, BridgeAddress) else recorded_incidents(bridge, option)


def _incidents_at(bridge: BridgeAddress) -> list[RecordedIncident]:
    where = f"the bridge at {bridge.url}"
    access = Access(bridge.url, bearer=bridge.token(), ca_file=bridge.ca_file)
    try:
        with (
            session_for(access) as session,
            # No redirect: it would get the token.
            session.get(
                bridge.url.rstrip("/") + INCIDENTS_PATH,
                timeout=_TIMEOUT_SECONDS,
                stream=True,
                allow_redirects=False,
            ) as response,
        ):
            body = bytearray()
            for part in response.iter_content(65_536):
                body += part
                if len(body) > _MAX_BYTES:
                    raise CommandError(f"{where} sends more than {_MAX_BYTES // 2**20} MiB")
    except requests.RequestException as error:
        raise CommandError(f"{where} is not reachable: {innermost_reason(error)}") from error
    if response.status_code in (401, 403):
        raise CommandError(
            f"{where} refuses the token (HTTP {response.status_code}); --bridge-token-file has the one of its "
            "--token-file"
        )
    if response.status_code != 200:
        raise CommandError(f"{where} answers HTTP {response.status_code}; is it a bridge of this version?")
    try:
        return from_json(bytes(body))
    except ValueError as error:
        raise CommandError(f"{where} does not send incidents; is it a bridge of this version?") from error

"""The incidents of a bridge, by the options that name its folder, or its address where it is on another machine."""

from __future__ import annotations

import argparse
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import requests

from triton_alerts.bridge.incidents.database import OtherSchemaError
from triton_alerts.bridge.incidents.history import (
    RecordedIncident,
    from_json,
    list_incidents,
)
from triton_alerts.bridge.receiver import INCIDENTS_PATH
from triton_exporter.common.problem import Problem, ProblemsError
from triton_slo.server_access import Access, innermost_reason, read_secret, session_for


def recorded_incidents(data: Path, option: str = "--data") -> list[RecordedIncident]:
    """Return the incidents, the oldest first. Raises ProblemsError, which names the option that gave the folder."""
    place = f"{option} {data}"
    if not data.is_dir():
        fix = "give the folder that the bridge was given as --data"
        raise ProblemsError(Problem(place, "is not a folder", fix))
    try:
        return list_incidents(data)
    except OtherSchemaError as error:
        fix = "use the tritonwatch of the bridge"
        raise ProblemsError(Problem(place, str(error), fix), code=1) from error
    except sqlite3.Error as error:
        raise ProblemsError(Problem(place, f"the database cannot be read: {error}"), code=1) from error


_TIMEOUT_SECONDS = 5.0
_MAX_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class BridgeAddress:
    """Address of a bridge, and the CA that is trusted instead of the system's.

    `token` returns the bearer token, or raises ProblemsError; each time, so that it can be replaced.
    """

    url: str
    token: Callable[[], str]
    ca_file: str = ""


def incidents_of(bridge: Path | BridgeAddress, option: str) -> list[RecordedIncident]:
    """Return the incidents, the oldest first. Raises ProblemsError, which names the option that gave the folder."""
    return _incidents_at(bridge) if isinstance(bridge, BridgeAddress) else recorded_incidents(bridge, option)


def _incidents_at(bridge: BridgeAddress) -> list[RecordedIncident]:
    place = f"the bridge at {bridge.url}"
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
                    raise ProblemsError(Problem(place, f"sends more than {_MAX_BYTES // 2**20} MiB"))
    except requests.RequestException as error:
        raise ProblemsError(Problem(place, f"is not reachable: {innermost_reason(error)}")) from error
    if response.status_code in (401, 403):
        fix = "--bridge-token-file needs the token of its --token-file"
        raise ProblemsError(Problem(place, f"refuses the token (HTTP {response.status_code})", fix))
    other_version = "name a bridge of this version"
    if response.status_code != 200:
        raise ProblemsError(Problem(place, f"answers HTTP {response.status_code}", other_version))
    try:
        return from_json(bytes(body))
    except ValueError as error:
        raise ProblemsError(Problem(place, "does not send incidents", other_version)) from error


DATA_OPTION = "--bridge-data"
TOKEN_OPTION = "--bridge-token-file"  # noqa: S105 # the name of an option


def bridge_of(args: argparse.Namespace) -> Path | BridgeAddress | None:
    """Return the bridge that the options name: by its folder if it is on this machine, else by its URL.

    The project file has the URL for Alertmanager, too: without a token it is of no use here. Raises ProblemsError.
    """
    folder: Path | None = args.bridge_data
    if folder and "bridge_url" not in args.flags and ("bridge_data" in args.flags or folder.is_dir()):
        return folder
    if not args.bridge_url or not (args.bridge_token_file or "bridge_url" in args.flags):
        return None
    if not args.bridge_token_file:
        fix = f"give the bridge's own --token-file as {TOKEN_OPTION}"
        raise ProblemsError(Problem("--bridge-url", f"needs {TOKEN_OPTION}", fix))

    def token() -> str:
        return read_secret(args.bridge_token_file, TOKEN_OPTION)

    token()  # a mistake is reported now
    return BridgeAddress(args.bridge_url, token, str(args.bridge_ca_file or ""))

"""The incidents of a bridge, by the options that name its folder, or its address where it is on another machine."""

from __future__ import annotations

import argparse
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import requests

from triton_alerts.bridge.incidents.database import NewerSchemaError
from triton_alerts.bridge.incidents.history import (
    OlderSchemaError,
    RecordedIncident,
    from_json,
    list_incidents,
)
from triton_alerts.bridge.receiver import INCIDENTS_PATH
from triton_exporter.common.options import is_web_address
from triton_slo.server_access import Access, innermost_reason, session_for
from tritonwatch import access
from tritonwatch.command_error import CommandError, UsageError


def recorded_incidents(data: Path, option: str = "--data") -> list[RecordedIncident]:
    """Return the incidents, the oldest first. Raises CommandError, which names the option that gave the folder."""
    if not data.is_dir():
        raise UsageError(
            f"{option} {data} is not a folder; give the folder that the bridge was given as --data"
        )
    try:
        return list_incidents(data)
    except OlderSchemaError as error:
        raise CommandError(
            f"{option} {data}: {error}; start the bridge of this version once on this folder, which migrates "
            "the file"
        ) from error
    except NewerSchemaError as error:
        raise CommandError(f"{option} {data}: {error}; use the tritonwatch of the bridge") from error
    except sqlite3.Error as error:
        raise CommandError(f"{option} {data}: the database cannot be read: {error}") from error


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


DATA_OPTION = "--bridge-data"
TOKEN_OPTION = "--bridge-token-file"  # noqa: S105 # the name of an option


def bridge_of(args: argparse.Namespace) -> Path | BridgeAddress | None:
    """Return the bridge that the options or the project file name, if they do. Raises UsageError."""
    if args.bridge_data and not is_web_address(args.bridge_data):
        return Path(args.bridge_data)
    if args.bridge_data and args.bridge_token_file:

        def token() -> str:
            return access.read_secret(args.bridge_token_file, TOKEN_OPTION)

        token()  # a mistake is reported now
        return BridgeAddress(args.bridge_data, token, str(args.bridge_ca_file or ""))
    if "bridge_data" in args.flags:
        raise UsageError(f"{DATA_OPTION} URL needs {TOKEN_OPTION}: the bridge's own --token-file")
    # The project file has the URL for Alertmanager, too: what can be read without a token is the folder.
    data = args.project_file.given.get("bridge.data")
    folder = args.project_file.path.parent / str(data.value) if data else None
    return folder if folder and folder.is_dir() else None

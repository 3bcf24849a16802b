"""Options that name a bridge, by its folder or its address, the same in every verb that reads its incidents."""

from __future__ import annotations

import argparse
from pathlib import Path

from triton_exporter.common.options import is_web_address
from tritonwatch import access
from tritonwatch.command_error import UsageError
from tritonwatch.review.bridge_client import BridgeAddress

DATA_OPTION = "--bridge-data"
TOKEN_OPTION = "--bridge-token-file"  # noqa: S105 # the name of an option


def bridge_of(args: argparse.Namespace) -> Path | BridgeAddress | None:
    """Return the bridge that the options name, if they do. Raises UsageError."""
    if not args.bridge_data:
        return None
    if not is_web_address(args.bridge_data):
        return Path(args.bridge_data)
    if not args.bridge_token_file and "bridge_data" not in args.flags:
        return None  # the project file has the address for others, too
    if not args.bridge_token_file:
        raise UsageError(f"{DATA_OPTION} URL needs {TOKEN_OPTION}: the bridge's own --token-file")

    def token() -> str:
        return access.read_secret(args.bridge_token_file, TOKEN_OPTION)

    token()  # a mistake is reported now
    return BridgeAddress(args.bridge_data, token, str(args.bridge_ca_file or ""))

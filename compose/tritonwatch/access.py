"""The arguments that say how to reach a Prometheus, the same for every verb that asks one.

A secret is never an argument, because every user of the machine sees those: it comes from a file or the
environment.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from triton_slo.prometheus import Access
from tritonwatch.arguments import between

TOKEN_VARIABLE = "TRITONWATCH_PROMETHEUS_TOKEN"  # noqa: S105 # the variable's name, not a token
PASSWORD_VARIABLE = "TRITONWATCH_PROMETHEUS_PASSWORD"  # noqa: S105 # the same
_TIMEOUT_SECONDS = 10.0


class AccessError(Exception):
    """The arguments cannot be used; the message is one line that says why and what to do."""


def add_arguments(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """Declare --prometheus and how to log in there."""
    parser.add_argument(
        "--prometheus",
        metavar="URL",
        required=required,
        help="Prometheus' address, with its path if it has one",
    )
    group = parser.add_argument_group("access to Prometheus")
    group.add_argument(
        "--timeout",
        type=between(0.001, 3600, "seconds"),
        default=_TIMEOUT_SECONDS,
        metavar="S",
        help=f"seconds to wait (default {_TIMEOUT_SECONDS:g})",
    )
    group.add_argument(
        "--token-file", metavar="FILE", help=f"bearer token (or the variable {TOKEN_VARIABLE})"
    )
    group.add_argument("--user", default="", help="user name for basic authentication")
    group.add_argument(
        "--password-file", metavar="FILE", help=f"its password (or the variable {PASSWORD_VARIABLE})"
    )
    group.add_argument(
        "--header",
        action="append",
        default=[],
        metavar="'NAME: VALUE'",
        help="a header to send, such as a tenant's; 'NAME: @FILE' reads a secret value from a file",
    )
    group.add_argument("--ca-file", default="", metavar="FILE", help="certificates to trust (PEM)")
    group.add_argument("--cert-file", default="", metavar="FILE", help="our client certificate (PEM)")
    group.add_argument("--key-file", default="", metavar="FILE", help="its key, if not in the same file")
    group.add_argument("--insecure", action="store_true", help="do not verify the server's certificate")


def from_arguments(args: argparse.Namespace, environment: Mapping[str, str]) -> Access:
    """Read files and environment into an Access. Raises AccessError."""
    token = _secret(args.token_file, environment.get(TOKEN_VARIABLE, ""))
    password = _secret(args.password_file, environment.get(PASSWORD_VARIABLE, ""))
    if token and args.user:
        raise AccessError("give a bearer token or --user, not both")
    for path in (args.ca_file, args.cert_file, args.key_file):
        if path and not Path(path).is_file():
            raise AccessError(f"{path}: no such file")
    return Access(
        url=checked_url(args.prometheus, "--prometheus"),
        bearer=token,
        user=args.user,
        password=password,
        headers=tuple(_header(text) for text in args.header),
        ca_file=args.ca_file,
        cert_file=args.cert_file,
        key_file=args.key_file,
        verify=not args.insecure,
        timeout_seconds=args.timeout,
    )


def options(args: argparse.Namespace) -> list[str]:
    """Return the options that reach the same Prometheus, for a command to show; no value of a header."""
    words = ["--prometheus", args.prometheus]
    if args.timeout != _TIMEOUT_SECONDS:
        words += ["--timeout", f"{args.timeout:g}"]
    for name in ("token_file", "user", "password_file", "ca_file", "cert_file", "key_file"):
        if value := getattr(args, name):
            words += [f"--{name.replace('_', '-')}", value]
    for text in args.header:
        name, _, value = text.partition(":")
        words += ["--header", text if value.strip().startswith("@") else f"{name}: ..."]
    return words + (["--insecure"] if args.insecure else [])


def checked_url(text: str, option: str) -> str:
    """An http or https address without credentials, query or fragment. Raises AccessError."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise AccessError(f"{option} {text}: {error}") from error
    if parts.username or parts.password:
        raise AccessError(f"{option}: no credentials in the address")
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise AccessError(f"{option} {text}: not an address such as http://127.0.0.1:9090")
    if parts.query or parts.fragment:
        raise AccessError(f"{option} {text}: give the address without ? and #")
    return text


def _header(text: str) -> tuple[str, str]:
    name, colon, value = (part.strip() for part in text.partition(":"))
    if not colon or not name or not name.isascii() or any(mark.isspace() for mark in name):
        # The text is not repeated: it may be a secret in the wrong place.
        raise AccessError("--header: write 'NAME: VALUE' or 'NAME: @FILE'")
    value = read_secret(value[1:]) if value.startswith("@") else value
    if "\n" in value or "\r" in value:
        raise AccessError(f"--header {name}: a value has one line")
    return name, value


def _secret(path: str | None, fallback: str) -> str:
    return read_secret(path) if path else fallback.strip()


def read_secret(path: str) -> str:
    """What a file holds, without the blanks around it. Raises AccessError."""
    try:
        text = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise AccessError(f"{path}: {getattr(error, 'strerror', None) or 'not a text file'}") from error
    if not text:
        raise AccessError(f"{path}: the file is empty")
    return text

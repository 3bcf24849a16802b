"""The arguments of every verb that queries a Prometheus.

A secret is never an argument, because every user of the machine can read those: it comes from a file or the
environment.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from triton_exporter.catalogue import state, triton
from triton_exporter.common.duration import duration_between
from triton_exporter.common.options import adder, parsed, with_scheme
from triton_slo import server_access
from triton_slo.prometheus import URL_VARIABLE, Prometheus, PrometheusError
from triton_slo.server_access import Access
from tritonwatch.command_error import CommandError, UsageError

TOKEN_VARIABLE = "TRITONWATCH_PROMETHEUS_TOKEN"  # noqa: S105 # the variable's name, not a token
PASSWORD_VARIABLE = "TRITONWATCH_PROMETHEUS_PASSWORD"  # noqa: S105 # the same
_TIMEOUT_SECONDS = 10.0
EVERY_MODEL = f"group by (model) ({state.MODEL_STATE} or {triton.REQUEST_SUCCESS})"
"""Query for all models that Prometheus knows."""


def add_prometheus(parser: argparse.ArgumentParser, *, required: bool = True, purpose: str = "") -> None:
    """Declare --prometheus and how to log in there."""
    add = adder(parser.add_argument)
    default = os.environ.get(URL_VARIABLE)
    add(
        "--prometheus URL",
        f"URL of Prometheus, such as http://127.0.0.1:9090, with its path if it has one{purpose} (or the variable "
        f"{URL_VARIABLE})",
        required=required and not default,
        default=default,
    )
    add = adder(parser.add_argument_group("access to Prometheus").add_argument)
    add(
        "--timeout DURATION",
        f"timeout of a request (default: {_TIMEOUT_SECONDS:g}s)",
        parsed(duration_between(0.001, 3600)),
        default=_TIMEOUT_SECONDS,
    )
    add("--token-file FILE", f"file with a bearer token (or the variable {TOKEN_VARIABLE})")
    add("--user USER", "user name for basic authentication", default="")
    add("--password-file FILE", f"file with the password of --user (or the variable {PASSWORD_VARIABLE})")
    add(
        "--header 'NAME: VALUE'...",
        "HTTP header to add to each request, for example for a tenant; 'NAME: @FILE' reads the value from a file "
        "(repeatable)",
    )
    add("--ca-file FILE", "CA certificates to trust (PEM)", default="")
    add("--cert-file FILE", "client certificate (PEM)", default="")
    add("--key-file FILE", "private key of the client certificate, if not in the same file", default="")
    add("--insecure", "do not verify the server's certificate")


def from_arguments(args: argparse.Namespace, environment: Mapping[str, str]) -> Access:
    """Read files and environment into an Access to Prometheus. Raises UsageError."""
    token = _secret(args.token_file, "--token-file", environment.get(TOKEN_VARIABLE, ""))
    password = _secret(args.password_file, "--password-file", environment.get(PASSWORD_VARIABLE, ""))
    if token and args.user:
        raise UsageError(
            "two kinds of credentials are given; use either a bearer token (--token-file or "
            f"{TOKEN_VARIABLE}) or --user"
        )
    for name in ("ca_file", "cert_file", "key_file"):
        if (path := getattr(args, name)) and not Path(path).is_file():
            raise UsageError(f"--{name.replace('_', '-')} {path}: the file does not exist; name a PEM file")
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


@contextmanager
def connect(args: argparse.Namespace) -> Iterator[Prometheus]:
    """Yield a client of the Prometheus that the arguments name. Raises CommandError for the faults of both."""
    with Prometheus(from_arguments(args, os.environ)) as prometheus:
        try:
            yield prometheus
        except PrometheusError as error:
            raise CommandError(error) from error


def is_given(args: argparse.Namespace) -> bool:
    """Return whether --prometheus is on the command line, or differs from the variable."""
    return args.prometheus is not None and args.prometheus != os.environ.get(URL_VARIABLE)


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
    """Return an http or https address without credentials, query or fragment. Raises UsageError."""
    text = with_scheme(text)
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise UsageError(f"{option} {text}: {error}") from error
    if parts.username or parts.password:
        raise UsageError(
            f"{option}: the URL contains credentials; use --user with --password-file, or --token-file"
        )
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise UsageError(f"{option} {text}: not a URL; use for example http://127.0.0.1:9090")
    if parts.query or parts.fragment:
        raise UsageError(f"{option} {text}: the URL contains ? or #; remove the query and the fragment")
    return text


def _header(text: str) -> tuple[str, str]:
    try:
        return server_access.parse_header(text)
    except ValueError as error:
        raise UsageError(error) from error


def _secret(path: str | None, option: str, fallback: str) -> str:
    return read_secret(path, option) if path else fallback.strip()


def read_secret(path: str, option: str) -> str:
    """Return the content of the file that an option names, without the blanks around it. Raises UsageError."""
    try:
        return server_access.read_secret(path, option)
    except ValueError as error:
        raise UsageError(error) from error


def models(prometheus: Prometheus, query: str = EVERY_MODEL) -> frozenset[str]:
    """Return the models that a query finds."""
    return frozenset(sample.labels.get("model", "") for sample in prometheus.instant(query))

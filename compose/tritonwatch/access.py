"""Access to the Prometheus that the options of a verb name.

A secret is never an argument, because every user of the machine can read those: it comes from a file or the
environment.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from triton_exporter.catalogue import state, triton
from triton_exporter.common.problem import Problem, ProblemsError
from triton_slo.prometheus import Prometheus, PrometheusError
from triton_slo.server_access import Access, parse_header, read_secret
from tritonwatch.project import PrometheusAccess, RequiredPrometheus

TOKEN_VARIABLE = "TRITONWATCH_PROMETHEUS_TOKEN"  # noqa: S105 # the variable's name, not a token
PASSWORD_VARIABLE = "TRITONWATCH_PROMETHEUS_PASSWORD"  # noqa: S105 # the same
EVERY_MODEL = f"group by (model) ({state.MODEL_STATE} or {triton.REQUEST_SUCCESS})"
"""Query for all models that Prometheus knows."""


def from_arguments(args: argparse.Namespace, environment: Mapping[str, str]) -> Access:
    """Read files and environment into an Access to Prometheus. Raises ProblemsError."""
    given = RequiredPrometheus.read(vars(args), environment)
    token = _secret(given.token_file, "--token-file", environment.get(TOKEN_VARIABLE, ""))
    password = _secret(given.password_file, "--password-file", environment.get(PASSWORD_VARIABLE, ""))
    if token and given.user:
        fix = f"give either a bearer token (--token-file or {TOKEN_VARIABLE}) or --user"
        raise ProblemsError(Problem("--user", "two kinds of credentials are given", fix))
    for name in ("ca_file", "cert_file", "key_file"):
        if (path := getattr(given, name)) and not path.is_file():
            place = f"--{name.replace('_', '-')} {path}"
            raise ProblemsError(Problem(place, "the file does not exist", "name a PEM file"))
    return Access(
        url=given.prometheus,
        bearer=token,
        user=given.user,
        password=password,
        headers=tuple(map(parse_header, given.header)),
        ca_file=str(given.ca_file or ""),
        cert_file=str(given.cert_file or ""),
        key_file=str(given.key_file or ""),
        verify=not given.insecure,
        timeout_seconds=given.timeout,
    )


@contextmanager
def connect(args: argparse.Namespace) -> Iterator[Prometheus]:
    """Yield a client of the Prometheus that the arguments name. Raises ProblemsError for the faults of both."""
    with Prometheus(from_arguments(args, os.environ)) as prometheus:
        try:
            yield prometheus
        except PrometheusError as error:
            raise ProblemsError(Problem("", str(error))) from error


def options(args: argparse.Namespace) -> list[str]:
    """Return the options that reach the same Prometheus, for a command to show; no value of a header."""
    words = ["--prometheus", args.prometheus]
    if args.timeout != PrometheusAccess.model_fields["timeout"].default:
        words += ["--timeout", f"{args.timeout:g}"]
    for name in ("token_file", "user", "password_file", "ca_file", "cert_file", "key_file"):
        if value := getattr(args, name):
            words += [f"--{name.replace('_', '-')}", str(value)]
    for text in args.header:
        name, _, value = text.partition(":")
        words += ["--header", text if value.strip().startswith("@") else f"{name}: ..."]
    return words + (["--insecure"] if args.insecure else [])


def _secret(path: Path | None, option: str, fallback: str) -> str:
    return read_secret(path, option) if path else fallback.strip()


def models(prometheus: Prometheus, query: str = EVERY_MODEL) -> frozenset[str]:
    """Return the models that a query finds."""
    return frozenset(sample.labels.get("model", "") for sample in prometheus.instant(query))

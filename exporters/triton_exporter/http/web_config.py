"""TLS, client certificates and passwords of the exporter, in the web config file form of exporter-toolkit.

https://github.com/prometheus/exporter-toolkit/blob/master/docs/web-configuration.md
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import ssl
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from triton_exporter.common.problem import Problem, ProblemsError
from triton_exporter.common.yaml_files import YAML_FAULTS, fault, read_yaml
from triton_exporter.http.certificates import ReloadedTls, ServerCertificates

_VERSIONS = {
    "TLS10": ssl.TLSVersion.TLSv1,
    "TLS11": ssl.TLSVersion.TLSv1_1,
    "TLS12": ssl.TLSVersion.TLSv1_2,
    "TLS13": ssl.TLSVersion.TLSv1_3,
}


MAX_WAITING = 16
"""Passwords that wait for their check at a time; it takes a twentieth of a second and a core, on purpose."""
MAX_WAITING_OF_CLIENT = 4
"""The same of one address, so that one client with wrong passwords leaves room for the others."""


class CrowdedError(Exception):
    """Too many passwords wait for their check."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Tls(_Strict):
    cert_file: str = Field(min_length=1)
    key_file: str = Field(min_length=1)
    client_auth_type: Literal[
        "NoClientCert",
        "RequestClientCert",
        "RequireAnyClientCert",
        "VerifyClientCertIfGiven",
        "RequireAndVerifyClientCert",
    ] = "NoClientCert"
    client_ca_file: str = ""
    min_version: Literal["TLS10", "TLS11", "TLS12", "TLS13"] = "TLS12"
    max_version: Literal["TLS10", "TLS11", "TLS12", "TLS13"] = "TLS13"

    @model_validator(mode="after")
    def _check_client_auth(self) -> _Tls:
        wants = self.client_auth_type
        if wants in ("RequestClientCert", "RequireAnyClientCert"):
            raise ValueError(f"{wants} checks nothing; use RequireAndVerifyClientCert")
        if wants == "NoClientCert" and self.client_ca_file:
            raise ValueError("client_ca_file without client_auth_type admits everybody")
        if wants != "NoClientCert" and not self.client_ca_file:
            raise ValueError(f"{wants} needs client_ca_file")
        return self


class _Http(_Strict):
    http2: bool = True
    headers: dict[str, str] = {}


class _File(_Strict):
    tls_server_config: _Tls | None = None
    http_server_config: _Http = _Http()
    basic_auth_users: dict[str, str] = {}


@dataclass
class WebConfig:
    """TLS, users and headers of a server."""

    tls: ReloadedTls | None = None
    users: Mapping[str, str] = field(default_factory=dict, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)
    _known: set[bytes] = field(default_factory=set, init=False, repr=False)
    _bcrypt: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)
    _counting: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)
    _waiting: Counter[str] = field(default_factory=Counter, init=False, repr=False)

    def admits(self, authorization: str, client: str = "") -> bool:
        """Return whether an Authorization header has a user's name and password; True if there are no users.

        `client` is the address that asks. Raises CrowdedError; a password that was right is never refused so.
        """
        if not self.users:
            return True
        credentials = _basic(authorization)
        if credentials is None:
            return False  # at once: every scanner sends such requests, and bcrypt is slow on purpose
        user, password = credentials
        stored = self.users.get(user)
        # A password that was right is remembered by its digest.
        digest = hashlib.sha256(f"{user}\0{password}\0{stored}".encode()).digest()
        if any(hmac.compare_digest(digest, known) for known in self._known):
            return True
        with self._counting:
            if self._waiting[client] >= MAX_WAITING_OF_CLIENT or self._waiting.total() >= MAX_WAITING:
                raise CrowdedError("too many passwords wait for their check; try again")
            self._waiting[client] += 1
        try:
            # An unknown user costs as much time as a wrong password, so that names cannot be guessed by it.
            anybody = next(iter(self.users.values()))
            # Passwords are checked one at a time, so that wrong ones take one core and not all.
            with self._bcrypt:
                right = _matches(password, stored or anybody) and stored is not None
        finally:
            with self._counting:
                self._waiting[client] -= 1
                self._waiting += Counter()  # drops the clients that wait no more
        if right:
            self._known.add(digest)
        return right


def load_web_config(path: Path) -> WebConfig:
    """Read the file and what it names; paths in it are relative to it. Raises ProblemsError."""
    try:
        content = read_yaml(path) or {}
        config = _File.model_validate(content)
    except ValidationError as error:
        raise ProblemsError(*(_problem(path, detail) for detail in error.errors())) from error
    except (OSError, *YAML_FAULTS) as error:
        raise ProblemsError(Problem(str(path), fault(error))) from error
    problems = [
        Problem(
            f"{path}: basic_auth_users.{user}",
            "is not a bcrypt hash",
            f"make one with htpasswd -nBC 10 {user}",
        )
        for user, stored in config.basic_auth_users.items()
        if not stored.startswith(("$2a$", "$2b$", "$2y$")) or len(stored) != 60
    ]
    if config.basic_auth_users and not _have_bcrypt():
        problems.append(
            Problem(f"{path}: basic_auth_users", "needs bcrypt", "pip install 'tritonwatch[exporter]'")
        )
    tls = None
    if config.tls_server_config is not None:
        tls = ReloadedTls(_files(config.tls_server_config, path.parent))
        try:
            tls()
        except ProblemsError as error:
            problems += [
                Problem(f"{path}: tls_server_config: {each.place}", each.reason, each.fix)
                for each in error.problems
            ]
    if problems:
        raise ProblemsError(*problems)
    return WebConfig(tls, config.basic_auth_users, config.http_server_config.headers)


def _problem(path: Path, detail: ErrorDetails) -> Problem:
    place, text = detail["loc"], detail["msg"]
    if detail["type"] == "model_type":
        text = "is not a mapping of settings"  # Pydantic's own words name a class of this module
    name = ".".join(str(part) for part in place)
    unknown = detail["type"] == "extra_forbidden" and len(place) == 1
    known = "; known here: " + ", ".join(_File.model_fields) if unknown else ""
    return Problem(f"{path}: {name or 'the file'}", f"{text[0].lower()}{text[1:]}{known}")


def _files(tls: _Tls, folder: Path) -> ServerCertificates:
    return ServerCertificates(
        folder / tls.cert_file,
        folder / tls.key_file,
        folder / tls.client_ca_file if tls.client_ca_file else None,
        tls.client_auth_type == "VerifyClientCertIfGiven",
        _VERSIONS[tls.min_version],
        _VERSIONS[tls.max_version],
    )


def _basic(authorization: str) -> tuple[str, str] | None:
    """Return user and password, or None where the header has none."""
    scheme, _, packed = authorization.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(packed, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return (user, password) if colon else None


def _have_bcrypt() -> bool:
    try:
        import bcrypt  # noqa: F401 - an extra: only passwords need it
    except ModuleNotFoundError:
        return False
    return True


def _matches(password: str, stored: str) -> bool:
    import bcrypt

    try:
        # bcrypt reads 72 bytes; Go's refuses longer passwords, and so does this.
        return len(password.encode()) <= 72 and bcrypt.checkpw(password.encode(), stored.encode())
    except ValueError:
        return False

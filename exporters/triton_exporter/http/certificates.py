"""TLS files: what the client side trusts and shows to Triton, and their renewal under a running exporter."""

from __future__ import annotations

import logging
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from triton_exporter.common.problem import Problem, ProblemsError

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Certificates:
    """PEM files: `ca` is trusted instead of the system's roots; `own` and `key` are who we are.

    Without `key` the private key is in the file of the certificate.
    """

    ca: Path | None = None
    own: Path | None = None
    key: Path | None = None

    def __bool__(self) -> bool:
        return bool(self.paths)

    @property
    def paths(self) -> tuple[Path, ...]:
        return tuple(path for path in (self.ca, self.own, self.key) if path is not None)

    @property
    def own_key(self) -> Path | None:
        """Path of the key of our certificate; None without a certificate."""
        return (self.key or self.own) if self.own else None

    def check(self) -> None:
        """Raise ProblemsError over files that cannot be used. Without files the system's roots are not read."""
        if self:
            self.context()

    def context(self) -> ssl.SSLContext:
        """Return a client's TLS with the files as they are now. Raises ProblemsError."""
        problems = [problem for path in self.paths for problem in read_problems(path)]
        if problems:
            raise ProblemsError(*problems)
        for path in (self.ca, self.own):
            if path is not None and not _holds_certificate(path):
                problems.append(Problem(str(path), "contains no certificate", "write it as PEM"))
        if problems:
            raise ProblemsError(*problems)
        context = ssl.create_default_context(cafile=self.ca)
        if self.own is not None:
            load_own(context, self.own, self.key)
        return context


@dataclass(frozen=True, slots=True)
class ServerCertificates:
    """PEM files of a server: its certificate and key; with `client_ca` it checks the certificates of clients.

    Without `key` the private key is in the file of the certificate. Clients without a certificate are admitted
    only where `client_optional`.
    """

    own: Path
    key: Path | None = None
    client_ca: Path | None = None
    client_optional: bool = False
    oldest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2
    newest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3

    @property
    def paths(self) -> tuple[Path, ...]:
        return tuple(path for path in (self.own, self.key, self.client_ca) if path is not None)

    def context(self) -> ssl.SSLContext:
        """Return a server's TLS with the files as they are now. Raises ProblemsError."""
        problems = [problem for path in self.paths for problem in read_problems(path)]
        if problems:
            raise ProblemsError(*problems)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version, context.maximum_version = self.oldest, self.newest
        load_own(context, self.own, self.key)
        if self.client_ca is not None:
            try:
                context.load_verify_locations(self.client_ca)
            except ssl.SSLError as error:
                problem = Problem(str(self.client_ca), "is not a certificate", "write it as PEM")
                raise ProblemsError(problem) from error
            context.verify_mode = ssl.CERT_OPTIONAL if self.client_optional else ssl.CERT_REQUIRED
        return context


class TlsFiles(Protocol):
    """Files that make a TLS context, such as Certificates."""

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files there are."""

    def context(self) -> ssl.SSLContext:
        """Return TLS with the files as they are now. Raises ProblemsError."""


@dataclass
class ReloadedTls:
    """The TLS of each new connection, with the files read again when they change.

    Certificates live for days and are replaced under a running exporter. Files that are broken then (half
    written, or a key that does not fit yet) leave the last good ones in force, are logged, and tried again.
    """

    files: TlsFiles
    _context: ssl.SSLContext | None = field(default=None, init=False, repr=False)
    _seen: tuple[object, ...] = field(default=(), init=False, repr=False)

    def __call__(self) -> ssl.SSLContext:
        """Return the context to connect with. Raises ProblemsError while there never were good files."""
        seen = tuple(_state(path) for path in self.files.paths)
        if self._context is not None and seen == self._seen:
            return self._context
        try:
            self._context = self.files.context()
        except ProblemsError as error:
            if self._context is None:
                raise
            _LOG.error("the previous certificates stay in use: %s", "; ".join(map(str, error.problems)))
        self._seen = seen
        return self._context


def _state(path: Path) -> object:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size


def read_problems(path: Path) -> list[Problem]:
    """Return the problem of a file that cannot be read; none of one that can."""
    try:
        path.read_bytes()
    except OSError as error:
        return [Problem(str(path), str(error.strerror), "name a PEM file that we may read")]
    return []


def _holds_certificate(path: Path) -> bool:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except ssl.SSLError:
        return False
    return True


def load_own(context: ssl.SSLContext, own: Path, key: Path | None) -> None:
    """Load the certificate that this side shows. Raises ProblemsError."""
    place = str(key or own)
    try:
        # Without a callback OpenSSL would ask for the pass phrase on the terminal, and wait.
        context.load_cert_chain(own, key, password=_no_pass_phrase)
    except _EncryptedError as error:
        problem = Problem(place, "is encrypted", "store the key without a pass phrase")
        raise ProblemsError(problem) from error
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            problem = Problem(place, "is the key of another certificate", f"take that of {own}")
        else:
            problem = Problem(place, "contains no private key", "write it as PEM, or name its file")
        raise ProblemsError(problem) from error


class _EncryptedError(Exception):
    """A key that wants a pass phrase."""


def _no_pass_phrase() -> str:
    raise _EncryptedError

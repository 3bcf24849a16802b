"""Access to a server: its address, with the credentials and the TLS of requests to it.

The same for a Prometheus, an Alertmanager and a bridge.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import requests

from triton_exporter.common.problem import Problem, ProblemsError


@dataclass(frozen=True, slots=True)
class Access:
    """Address and credentials of a server, and the limits of requests to it.

    Secrets arrive as values, read from files or the environment by the command line; they are never shown.
    `ca_file` is trusted instead of the system's roots; `cert_file` and `key_file` are ours.
    """

    url: str
    bearer: str = field(default="", repr=False)
    user: str = ""
    password: str = field(default="", repr=False)
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    verify: bool = True
    timeout_seconds: float = 10.0


def parse_header(text: str) -> tuple[str, str]:
    """Return name and value of `NAME: VALUE`, or of `NAME: @FILE` with the value in a file.

    Raises ProblemsError, whose message has no value: it may be a secret.
    """
    name, colon, value = (part.strip() for part in text.partition(":"))
    if not colon or not name or not name.isascii() or any(mark.isspace() for mark in name):
        raise ProblemsError(Problem("--header", "is not a header", "write 'NAME: VALUE' or 'NAME: @FILE'"))
    value = read_secret(Path(value[1:]), f"--header {name}:") if value.startswith("@") else value
    if "\n" in value or "\r" in value:
        raise ProblemsError(Problem(f"--header {name}", "has more than one line"))
    return name, value


def read_secret(path: Path, option: str) -> str:
    """Return the content of the file that an option names, without the blanks around it. Raises ProblemsError."""
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not a text file"
        raise ProblemsError(Problem(f"{option} {path}", reason)) from error
    if not text:
        raise ProblemsError(Problem(f"{option} {path}", "the file is empty"))
    return text


def session_for(access: Access) -> requests.Session:
    """Return a session that authenticates to the peer and checks its certificate; it judges no answer. Close it."""
    session = requests.Session()
    session.headers.update(dict(access.headers))
    if access.bearer:
        session.auth = _Bearer(access.bearer)
    elif access.user:
        # As bytes: requests would encode text as Latin-1, and servers compare UTF-8.
        session.auth = requests.auth.HTTPBasicAuth(access.user.encode(), access.password.encode())
    session.verify = (access.ca_file or True) if access.verify else False
    if access.cert_file:
        session.cert = (access.cert_file, access.key_file) if access.key_file else access.cert_file
    return session


class _Bearer(requests.auth.AuthBase):
    """Set through `auth`, because a netrc file would win over a plain Authorization header."""

    def __init__(self, token: str) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._token}"
        return request


def innermost_reason(error: BaseException) -> str:
    """Return the reason at the bottom of a pile of wrapped exceptions, on one line."""
    while True:
        inner = next((arg for arg in error.args if isinstance(arg, BaseException)), None)
        inner = inner or getattr(error, "reason", None)
        if not isinstance(inner, BaseException):
            break
        error = inner
    text = " ".join(str(error).split())
    # urllib3 ends with "[Errno 111] Connection refused", sometimes in brackets of its own.
    match = re.search(r"\[(?:Errno -?\d+|SSL[^]]*)\] ([^()]+)", text)
    return match[1].strip() if match else text or type(error).__name__

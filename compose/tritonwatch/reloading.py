"""Load generated files into a running Prometheus and Alertmanager; on any error the old files stay."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests
import yaml

from triton_slo.prometheus import Access, innermost, plain_session
from tritonwatch import output
from tritonwatch.command_error import CommandError

CHECKERS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "promtool": (("check", "rules"), "rules/*.yml"),
    "amtool": (("check-config",), "alertmanager/alertmanager.yml"),
}
"""Program -> its arguments and the files it checks."""
_CHECK_SECONDS = 120


class ReloadError(CommandError):
    """The new files are not loaded; the message has the reason, what to do, and the state of the old files."""

    def __init__(
        self, reason: object, after: str = "nothing was written; the old rules are still loaded"
    ) -> None:
        super().__init__(f"{reason}\n{after}")
        self.reason = str(reason)


@dataclass(frozen=True, slots=True)
class Peer:
    """A Prometheus or Alertmanager that can be reloaded over HTTP."""

    name: str
    access: Access

    def check_ready(self) -> None:
        """Raise ReloadError unless it is reachable and accepts the credentials."""
        self._ask("GET", "/-/ready")

    def reload(self) -> None:
        """Reload its files. Raises ReloadError with its own message; it keeps the old configuration then."""
        self._ask("POST", "/-/reload")

    def rules(self) -> dict[str, list[str]]:
        """The rules that Prometheus evaluates: names by group. Raises ReloadError."""
        try:
            groups = self._ask("GET", "/api/v1/rules").json()["data"]["groups"]
            return {group["name"]: [rule["name"] for rule in group["rules"]] for group in groups}
        except (requests.RequestException, KeyError, TypeError) as error:
            raise ReloadError(
                f"{self.name} at {self.access.url} does not answer as Prometheus does"
            ) from error

    def _ask(self, method: str, path: str) -> requests.Response:
        where = f"{self.name} at {self.access.url}"
        try:
            with plain_session(self.access) as session:
                answer = session.request(
                    method,
                    self.access.url.rstrip("/") + path,
                    timeout=self.access.timeout_seconds,
                    allow_redirects=False,
                )
        except requests.exceptions.SSLError as error:
            raise ReloadError(f"{where} fails TLS ({innermost(error)}); see --ca-file") from error
        except requests.RequestException as error:
            raise ReloadError(f"{where} is not reachable: {innermost(error)}") from error
        if answer.status_code == 200:
            return answer
        body = " ".join(answer.text.split())[:500]
        if answer.status_code == 401:
            raise ReloadError(f"{where} refuses our credentials; see --user and --password-file")
        if answer.status_code == 403 and "ifecycle" in body:
            raise ReloadError(f"{where} cannot be reloaded; start it with --web.enable-lifecycle")
        raise ReloadError(
            f"{where} answers HTTP {answer.status_code} to {path}" + (f": {body}" if body else "")
        )


def check(files: Mapping[str, str]) -> list[str]:
    """Check the files with promtool and amtool, where installed, and return which of them ran.

    Raises ReloadError with their output.
    """
    with tempfile.TemporaryDirectory(prefix="tritonwatch-check-") as scratch:
        folder = Path(scratch)
        output.write(folder, files)
        return [name for name in CHECKERS if _judge(name, folder)]


def _judge(name: str, folder: Path) -> bool:
    program = shutil.which(name)
    arguments, pattern = CHECKERS[name]
    paths = sorted(folder.glob(pattern))
    if program is None or not paths:
        return False
    try:
        done = subprocess.run(
            [program, *arguments, *map(str, paths)], capture_output=True, text=True, timeout=_CHECK_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ReloadError(f"{name} could not be run: {error}") from error
    if done.returncode != 0:
        printed = (done.stderr + done.stdout).replace(f"{folder}/", "").strip()
        raise ReloadError(f"{name} refuses the new files:\n{printed}")
    return True


def put(folder: Path, files: Mapping[str, str], prometheus: Peer, alertmanager: Peer | None) -> None:
    """Write the files and reload both peers; on an error restore the old files and raise ReloadError.

    Nothing is written while a peer is unreachable, because the old files could not be loaded again either.
    """
    peers = [prometheus, *([alertmanager] if alertmanager else [])]
    for peer in peers:
        peer.check_ready()
    try:
        before = output.held(folder, files)
        output.write(folder, files)
    except UnicodeDecodeError as error:
        raise ReloadError(
            f"{folder} contains a file that tritonwatch did not write (not UTF-8 text); move it away"
        ) from error
    except CommandError as error:
        raise ReloadError(error) from error
    try:
        for peer in peers:
            peer.reload()
        _check_loaded(prometheus, files)
    except ReloadError as refusal:
        raise ReloadError(refusal.reason, _go_back(folder, before, peers)) from refusal


def _go_back(folder: Path, before: Mapping[str, str], peers: list[Peer]) -> str:
    try:
        output.write(folder, before)
    except CommandError as error:
        return f"the old files could NOT be restored in {folder}: {error}"
    left = []
    for peer in peers:
        try:
            peer.reload()
        except ReloadError as error:
            left.append(error.reason)
    if left:
        return "the old files are restored, but reloading them failed too: " + "; ".join(left)
    return "the old files are restored and loaded"


def _check_loaded(prometheus: Peer, files: Mapping[str, str]) -> None:
    """Compare the loaded rules: a reload can succeed on other files than these."""
    wanted = {
        group["name"]: [rule.get("alert") or rule["record"] for rule in group["rules"]]
        for path, text in files.items()
        if path.startswith("rules/")
        for group in _groups(text)
    }
    loaded = prometheus.rules()
    missing = [name for name, rules in wanted.items() if sorted(loaded.get(name, ())) != sorted(rules)]
    if missing:
        raise ReloadError(
            f"{prometheus.name} at {prometheus.access.url} reloaded other files: its group {missing[0]!r} "
            "is not the new one; add the folder given as --out to its rule_files"
        )


def _groups(text: str) -> list[dict[str, Any]]:
    groups: list[dict[str, Any]] = (yaml.safe_load(text) or {}).get("groups") or []
    return groups

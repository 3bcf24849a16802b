"""The settings of the bridge: the values of its arguments, and what follows from them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from triton_exporter.common.options import host_and_port
from triton_exporter.common.problem import Problem
from triton_exporter.http.certificates import ServerCertificates

STACK_USER = "tritonwatch"
"""The user of basic authentication in the compose stack; --password-file contains its password."""


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret in a file, which is read at each use, so that a rotated secret is used at once."""

    path: Path

    def __call__(self) -> str:
        return self.path.read_text(encoding="utf-8").strip()


@dataclass(frozen=True, slots=True)
class BridgeSettings:
    """Values of the bridge's options: a field for each option, with its name, and as the user wrote it.

    `settings_problems` finds the mistakes that argparse accepts. Paths are those of secrets and certificates; times
    are in seconds.
    """

    listen: str
    token_file: Path | None
    tls_cert: Path | None
    tls_key: Path | None
    tls_client_ca: Path | None
    data: Path | None
    heartbeat_timeout: float
    dry_run: bool
    slack_token_file: Path | None
    slack_app_token_file: Path | None
    slack_webhook_file: Path | None
    slack_url: str
    channel: str
    channel_for: tuple[str, ...]
    escalate_after: float
    button_user: tuple[str, ...]
    escalate_to: str
    mention: str
    exporter: tuple[str, ...]
    prometheus: str
    alertmanager: tuple[str, ...]
    grafana: str
    password_file: Path | None
    header: tuple[str, ...]

    @property
    def address(self) -> tuple[str, int] | Problem:
        """Host and port to listen on."""
        try:
            return host_and_port(self.listen)
        except ValueError:
            return Problem(f"--listen {self.listen}", "not an address", "HOST:PORT, such as 127.0.0.1:9096")

    @property
    def certificates(self) -> ServerCertificates | None:
        """The files to serve HTTPS with; None for plain HTTP."""
        if self.tls_cert is None:
            return None
        return ServerCertificates(self.tls_cert, self.tls_key, self.tls_client_ca)

    def channel_of(self, severity: str) -> str:
        """Return the channel of incidents of a severity."""
        return dict(pair.split("=", 1) for pair in self.channel_for).get(severity, self.channel)

    def channels(self) -> frozenset[str]:
        """Return every channel that is written to."""
        named = {self.channel_of(severity) for severity in ("critical", "warning", "info")}
        return frozenset(named | {self.escalate_to} - {""})

    def button_channels(self) -> frozenset[str]:
        """Return the ids of the channels with buttons; empty (any channel) if a channel is given by name."""
        known = self.channels()
        return known if all(map(is_channel_id, known)) else frozenset()

    def scopes(self) -> dict[str, str]:
        """Return the scopes that the bot token needs, and what fails without each."""
        needed = {
            "chat:write": "no message can be posted",
            "channels:history": "a message whose response is lost may appear twice",
        }
        return needed | ({"files:write": "charts cannot be uploaded"} if self.prometheus else {})

    def mention_markup(self) -> str:
        """Return Slack's markup that mentions the person or group, or nothing if `mention` is not valid."""
        if self.mention in ("here", "channel"):
            return f"<!{self.mention}>"
        if is_user(self.mention):
            return f"<@{self.mention}>"
        return f"<!subteam^{self.mention}>" if re.fullmatch(r"S[A-Z0-9]{5,}", self.mention) else ""


def is_channel_id(text: str) -> bool:
    return re.fullmatch(r"[CGD][A-Z0-9]{5,}", text) is not None


def is_channel(text: str) -> bool:
    """Return whether it may be a channel: an id, or a name with or without #."""
    return re.fullmatch(r"#?[^\s#@]{1,80}", text) is not None


def is_user(text: str) -> bool:
    return re.fullmatch(r"[UW][A-Z0-9]{5,}", text) is not None

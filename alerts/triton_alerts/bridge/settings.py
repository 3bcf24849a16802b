"""The options of the bridge, and what follows from them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import BeforeValidator

from triton_exporter.common.duration import parse_seconds
from triton_exporter.common.options import (
    Address,
    File,
    Folder,
    Form,
    Key,
    OptionsModel,
    Rare,
    Switch,
    Url,
    Variable,
    each,
    is_loopback,
    is_web_address,
    single,
    url,
    with_scheme,
)
from triton_exporter.common.problem import Problem, ProblemsError
from triton_exporter.http.certificates import ServerCertificates
from triton_slo.names import SEVERITIES

STACK_USER = "tritonwatch"
"""The user of basic authentication in the compose stack; --password-file contains its password."""
SLACK_API = "https://slack.com/api/"
_ALONE = "a file that holds the secret alone"


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret in a file, which is read at each use, so that a rotated secret is used at once."""

    path: Path

    def __call__(self) -> str:
        return self.path.read_text(encoding="utf-8").strip()


def _seconds(text: str) -> float:
    if text in ("0", "0s"):
        return 0.0
    try:
        return parse_seconds(f"{text}s" if text[-1:].isdecimal() else text)
    except ValueError:
        raise ValueError(f"{text!r} is not a length of time", "use 90s, 15m or 2h") from None


def _exporter(text: str) -> str:
    # In a project file the Tritons to watch are EXPORTER=TRITON.
    return url(text.partition("=")[0])


def _channel(text: str) -> str:
    if not is_channel(text):
        raise ValueError(
            f"{text!r} is not a channel", "its id, such as C0123456789, or its name, such as #pages"
        )
    return text


def _pairs(raw: object) -> object:
    if not isinstance(raw, dict):
        return raw
    return [channel if channel is None else f"{severity}={channel}" for severity, channel in raw.items()]


def _channel_for(text: str) -> str:
    severity, _, channel = text.partition("=")
    if not is_channel(channel) or severity not in SEVERITIES[:-1]:
        fix = f"SEVERITY=CHANNEL, severity one of {', '.join(SEVERITIES[:-1])}"
        raise ValueError(f"{text!r} is not understood", fix)
    return text


def _user(text: str) -> str:
    if not is_user(text):
        raise ValueError(
            f"{text!r} is not a Slack user's id", "the member id of the profile's menu, such as U0123456789"
        )
    return text


def _mention(text: str) -> str:
    if not _mention_markup(text):
        raise ValueError(f"{text!r} is not understood", "here, channel, U... or S...")
    return text


def _header(text: str) -> str:
    from triton_slo.server_access import parse_header  # requests takes a tenth of a second

    parse_header(text)
    return text


def _slack_url(text: str) -> str:
    if not is_web_address(text):
        raise ValueError(f"{text!r} is not a URL", "http://HOST:PORT or https://HOST")
    return text


Seconds = Annotated[float, single(_seconds), Form("DURATION", default_text=lambda s: f"{s / 60:g}m")]
Channel = Annotated[str, single(_channel), Form("CHANNEL")]


class SlackSettings(OptionsModel):
    """Where messages go."""

    group = "sending to Slack"
    section = "bridge"

    dry_run: Annotated[Switch, Variable("TRITONWATCH_DRY_RUN")] = False
    """print messages to the terminal instead of sending them (or the variable TRITONWATCH_DRY_RUN=1)"""
    slack_token_file: File = None
    """file with the bot token (xoxb-...)"""
    slack_app_token_file: File = None
    """file with the app token (xapp-...), for buttons"""
    slack_webhook_file: Rare[File] = None
    """file with the URL of an incoming webhook: without threads, edits, buttons and charts"""
    slack_url: Annotated[Rare[str], single(_slack_url), Form("URL")] = SLACK_API
    """URL of Slack's API or of a proxy (default: {default})"""
    channel: Channel = "#triton-alerts"
    """Slack channel for incidents, preferably its id (C...) (default: {default})"""
    channel_for: Annotated[
        Rare[tuple[str, ...]],
        each(_channel_for),
        BeforeValidator(_pairs),
        Form("SEVERITY=CHANNEL", repeated=True),
    ] = ()
    """channel for one severity, such as warning=C0TICKETS (repeatable)"""
    escalate_after: Rare[Seconds] = 900.0
    """escalate a page that nobody has acknowledged for this long (default: {default}; 0: never)"""
    button_user: Annotated[Rare[tuple[str, ...]], each(_user), Form("ID", repeated=True)] = ()
    """id (U...) of a Slack user who may use the buttons (repeatable; default: everybody in the channel)"""
    escalate_to: Annotated[Rare[str], single(lambda text: text and _channel(text)), Form("CHANNEL")] = ""
    """channel for escalations (default: the channel of the incident)"""
    mention: Annotated[Rare[str], single(_mention), Form("MENTION")] = "here"
    """whom an escalation mentions: here, channel, a user id (U...) or a user group id (S...) (default: {default})"""

    def channel_of(self, severity: str) -> str:
        return dict(pair.split("=", 1) for pair in self.channel_for).get(severity, self.channel)

    def channels(self) -> frozenset[str]:
        """Return every channel that is written to."""
        named = {self.channel_of(severity) for severity in ("critical", "warning", "info")}
        return frozenset(named | {self.escalate_to} - {""})

    def button_channels(self) -> frozenset[str]:
        """Return the ids of the channels with buttons; empty (any channel) if a channel is given by name."""
        known = self.channels()
        return known if all(map(is_channel_id, known)) else frozenset()

    def mention_markup(self) -> str:
        """Return Slack's markup that mentions the person or group."""
        return _mention_markup(self.mention)

    def problems(self, places: Mapping[str, str]) -> Iterable[Problem]:
        """Return what is wrong with Slack and the files of secrets."""
        if not self.dry_run and self.slack_token_file is None and self.slack_webhook_file is None:
            fix = "give --slack-token-file FILE, or --dry-run to print"
            yield Problem("--slack-token-file", "no credentials for Slack", fix)
        for name, place in places.items():
            unused = self.dry_run and name.startswith("slack_")
            if name.endswith("_file") and not unused and (file := getattr(self, name)) is not None:
                yield from _secret_problems(name, f"{place} {file}", file)
        if not self.dry_run and self.slack_app_token_file is not None and self.slack_token_file is None:
            fix = "give --slack-token-file FILE too, or leave it out"
            yield Problem("--slack-app-token-file", "buttons need a bot token; a webhook has none", fix)
        severities = [pair.partition("=")[0] for pair in self.channel_for]
        for severity in sorted({name for name in severities if severities.count(name) > 1}):
            yield Problem(places["channel_for"], f"{severity} has a channel already", "give one of them")


def _address_of(bridge: str, _: Path) -> str:
    """Return where a bridge with this URL listens: on its port, and on this machine alone where only it is meant.

    A URL without a port is that of a proxy.
    """
    parts = urlsplit(with_scheme(bridge))
    host = "127.0.0.1" if parts.hostname in (None, "localhost") else str(parts.hostname)
    try:
        port = parts.port
    except ValueError:
        return bridge  # which is not an address
    every = "0.0.0.0"  # noqa: S104 # which needs a token
    return f"{host if is_loopback(host) else every}:{port}" if port else "127.0.0.1:9096"


class _Receiving(OptionsModel):
    group = "receiving from Alertmanager"
    section = "bridge"

    listen: Annotated[Address, Key("bridge.listen", other="bridge.url", derive=_address_of)] = (
        "127.0.0.1",
        9096,
    )
    """address to receive notifications on (default: that of bridge.url in the project file, else {default})"""
    token_file: File = None
    """file with the bearer token that Alertmanager must send"""
    tls_cert: Rare[File] = None
    """certificate to serve HTTPS with"""
    tls_key: Rare[File] = None
    """private key of --tls-cert"""
    tls_client_ca: Rare[File] = None
    """accept only clients with a certificate that this CA signed"""
    data: Folder = None
    """folder for the database and the audit log (required; with --dry-run, default: a temporary folder, deleted at
    exit)"""
    heartbeat_timeout: Rare[Seconds] = 600.0
    """send a page if no Watchdog notification has arrived for this long (default: {default})"""


class _Evidence(OptionsModel):
    group = "evidence in messages"
    section = "bridge"

    exporter: Annotated[tuple[str, ...], each(_exporter), Form("URL", repeated=True), Key("tritons")] = ()
    """URL of an exporter, to read the reason of a failure (repeatable)"""
    prometheus: Annotated[Url, Key("prometheus.url")] = ""
    """URL of Prometheus, for burn rates, error budgets, GPU state and charts (or the variable TRITONWATCH_PROMETHEUS)"""
    alertmanager: Annotated[
        tuple[str, ...], each(url), Form("URL", repeated=True), Key("alertmanager.url")
    ] = ()
    """URL of an Alertmanager that sends to this bridge, to create silences and to list firing alerts (repeat for each
    Alertmanager)"""
    grafana: Annotated[Url, Key("grafana.url")] = ""
    """URL of Grafana, to complete dashboard links that are only a path"""
    password_file: Rare[File] = None
    """file with the password of user tritonwatch for the exporter, Prometheus and Alertmanager"""
    header: Annotated[
        Rare[tuple[str, ...]], each(_header), Form("'NAME: VALUE'", repeated=True), Key("prometheus.header")
    ] = ()
    """HTTP header to add to each request to Prometheus and Alertmanager, for example for a tenant; 'NAME: @FILE' reads
    the value from a file (repeatable)"""


class SendingSettings(_Evidence, SlackSettings):
    """Where messages go, and what is in them."""

    def scopes(self) -> dict[str, str]:
        """Return the scopes that the bot token needs, and what fails without each."""
        needed = {
            "chat:write": "no message can be posted",
            "channels:history": "a message whose response is lost may appear twice",
        }
        return needed | ({"files:write": "charts cannot be uploaded"} if self.prometheus else {})


class BridgeSettings(SendingSettings, _Receiving):
    """Every option of the bridge; times are in seconds."""

    @property
    def certificates(self) -> ServerCertificates | None:
        """The files to serve HTTPS with; None for plain HTTP."""
        if self.tls_cert is None:
            return None
        return ServerCertificates(self.tls_cert, self.tls_key, self.tls_client_ca)

    def problems(self, places: Mapping[str, str]) -> Iterable[Problem]:
        """Return also what is wrong with receiving."""
        yield from super().problems(places)
        yield from self._tls_problems(places)
        if not (self.token_file or self.tls_client_ca or is_loopback(self.listen[0])):
            wrong = f"anyone who reaches {self.listen[0]} could send false alerts"
            yield Problem(places["listen"], wrong, "--token-file FILE, --tls-client-ca FILE, or 127.0.0.1")
        if not self.dry_run and self.data is None:
            reason = "required, except with --dry-run: undelivered messages and the audit log must survive a restart"
            yield Problem("--data", reason, "give --data DIR, such as /var/lib/tritonwatch-bridge")

    def _tls_problems(self, places: Mapping[str, str]) -> Iterator[Problem]:
        if self.certificates is None:
            fix = "--tls-cert FILE, or without TLS leave it out"
            reason = "without --tls-cert the bridge would serve plain HTTP and check no client"
            for name in ("tls_key", "tls_client_ca"):
                if name in places:
                    yield Problem(f"{places[name]} {getattr(self, name)}", reason, fix)
            return
        options = {
            str(getattr(self, name)): places[name]
            for name in ("tls_client_ca", "tls_cert", "tls_key")
            if name in places
        }
        try:
            self.certificates.context()
        except ProblemsError as error:
            for problem in error.problems:
                yield Problem(f"{options[problem.place]} {problem.place}", problem.reason, problem.fix)


def _secret_problems(name: str, place: str, path: Path) -> list[Problem]:
    """Check the file of a secret, whose first use may be the first page; its content is never part of the message."""
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        return [Problem(place, f"cannot be read: {reason}", _ALONE)]
    if not text:
        return [Problem(place, "is empty", _ALONE)]
    # A password may have any letter; a token is sent in a header as it is.
    if not ((text.isascii() or name == "password_file") and text.isprintable()):
        return [Problem(place, "contains more than one line of plain text", _ALONE)]
    if name == "slack_webhook_file" and not is_web_address(text):
        fix = "the whole address, https://hooks.slack.com/services/..."
        return [Problem(place, "does not contain an address", fix)]
    if name == "slack_token_file" and text.startswith("xapp-"):
        fix = "the bot token here, the app token in --slack-app-token-file"
        return [Problem(place, "contains an app token (xapp-...)", fix)]
    if name == "slack_app_token_file" and text.startswith("xox"):
        fix = "Basic Information, App-Level Tokens, connections:write"
        return [Problem(place, "does not contain an app token (xapp-...)", fix)]
    return []


def _mention_markup(text: str) -> str:
    if text in ("here", "channel"):
        return f"<!{text}>"
    if is_user(text):
        return f"<@{text}>"
    return f"<!subteam^{text}>" if re.fullmatch(r"S[A-Z0-9]{5,}", text) else ""


def is_channel_id(text: str) -> bool:
    """Return whether it is an id, if a wrong one: no name has capitals."""
    return re.fullmatch(r"[CGD][A-Z0-9]+", text) is not None


def is_channel(text: str) -> bool:
    """Return whether it may be a channel: an id, or a name with or without #."""
    return re.fullmatch(r"#?[^\s#@]{1,80}", text) is not None


def is_user(text: str) -> bool:
    return re.fullmatch(r"[UW][A-Z0-9]{5,}", text) is not None

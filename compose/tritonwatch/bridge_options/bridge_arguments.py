"""The arguments of the bridge: declared for a parser, and read as `BridgeSettings`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

from triton_alerts.bridge.deliver.slack import API_URL
from triton_alerts.bridge.settings import STACK_USER, BridgeSettings
from triton_exporter.common.duration import parse_seconds
from triton_exporter.common.options import adder, with_scheme
from triton_slo.prometheus import URL_VARIABLE

DRY_RUN = "TRITONWATCH_DRY_RUN"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare where messages come from, where they go, and what they are enriched with."""
    _add_receiving(adder(parser.add_argument_group("receiving from Alertmanager").add_argument))
    add_slack_arguments(parser)
    _add_enriching(adder(parser.add_argument_group("evidence in messages").add_argument))


def bridge_settings(args: argparse.Namespace) -> BridgeSettings:
    """Return the values of the arguments that `add_arguments` declares."""
    given: dict[str, Any] = {}
    for field in fields(BridgeSettings):
        value = getattr(args, field.name)
        given[field.name] = tuple(value) if isinstance(value, list) else value
    return BridgeSettings(**given)


def _add_receiving(add: Callable[..., None]) -> None:
    add(
        "--listen HOST:PORT",
        "address to receive notifications on (default: 127.0.0.1:9096)",
        default="127.0.0.1:9096",
    )
    add("--token-file FILE", "file with the bearer token that Alertmanager must send", Path)
    add("--tls-cert FILE", "certificate to serve HTTPS with", Path)
    add("--tls-key FILE", "private key of --tls-cert", Path)
    add("--tls-client-ca FILE", "accept only clients with a certificate that this CA signed", Path)
    add(
        "--data DIR",
        "folder for the database and the audit log (required; with --dry-run, default: a temporary folder, "
        "deleted at exit)",
        Path,
    )
    add(
        "--heartbeat-timeout DURATION",
        "send a page if no Watchdog notification has arrived for this long (default: 10m)",
        _seconds,
        default="10m",
    )


def _add_enriching(add: Callable[..., None]) -> None:
    add("--exporter URL...", "URL of an exporter, to read the reason of a failure (repeatable)", with_scheme)
    add(
        "--prometheus URL",
        "URL of Prometheus, for burn rates, error budgets, GPU state and charts "
        f"(or the variable {URL_VARIABLE})",
        with_scheme,
        default=os.environ.get(URL_VARIABLE, ""),
    )
    add(
        "--alertmanager URL...",
        "URL of an Alertmanager that sends to this bridge, to create silences and to list firing alerts "
        "(repeat for each Alertmanager)",
        with_scheme,
    )
    add(
        "--grafana URL",
        "URL of Grafana, to complete dashboard links that are only a path",
        with_scheme,
        default="",
    )
    add(
        "--password-file FILE",
        f"file with the password of user {STACK_USER} for the exporter, Prometheus and Alertmanager",
        Path,
    )
    add(
        "--header 'NAME: VALUE'...",
        "HTTP header to add to each request to Prometheus and Alertmanager, for example for a tenant; "
        "'NAME: @FILE' reads the value from a file (repeatable)",
    )


def add_slack_arguments(parser: argparse.ArgumentParser, *, again: bool = False) -> None:
    """Declare where messages go.

    With `again`, for a subcommand such as `test`, no default overwrites an option given before the subcommand.
    """
    always = {"default": argparse.SUPPRESS} if again else {}
    add = adder(parser.add_argument_group("sending to Slack").add_argument, **always)
    add(
        "--dry-run",
        f"print messages to the terminal instead of sending them (or the variable {DRY_RUN}=1)",
        **({"default": True} if os.environ.get(DRY_RUN, "") not in ("", "0") and not again else {}),
    )
    _add_slack_access(add)
    _add_channels_and_escalation(add)


def _add_slack_access(add: Callable[..., None]) -> None:
    add("--slack-token-file FILE", "file with the bot token (xoxb-...)", Path)
    add("--slack-app-token-file FILE", "file with the app token (xapp-...), for buttons", Path)
    add(
        "--slack-webhook-file FILE",
        "file with the URL of an incoming webhook: without threads, edits, buttons and charts",
        Path,
    )
    add("--slack-url URL", f"URL of Slack's API or of a proxy (default: {API_URL})", default=API_URL)


def _add_channels_and_escalation(add: Callable[..., None]) -> None:
    add(
        "--channel CHANNEL",
        "Slack channel for incidents, preferably its id (C...) (default: #triton-alerts)",
        default="#triton-alerts",
    )
    add(
        "--channel-for SEVERITY=CHANNEL...",
        "channel for one severity, such as warning=C0TICKETS (repeatable)",
    )
    add(
        "--escalate-after DURATION",
        "escalate a page that nobody has acknowledged for this long (default: 15m; 0: never)",
        _seconds,
        default="15m",
    )
    add(
        "--button-user ID...",
        "id (U...) of a Slack user who may use the buttons (repeatable; default: everybody in the channel)",
    )
    add("--escalate-to CHANNEL", "channel for escalations (default: the channel of the incident)", default="")
    add(
        "--mention MENTION",
        "whom an escalation mentions: here, channel, a user id (U...) or a user group id (S...) "
        "(default: here)",
        default="here",
    )


def _seconds(text: str) -> float:
    """Return a length of time such as 90s, 15m, 2h or 0; raises argparse.ArgumentTypeError."""
    if text in ("0", "0s"):
        return 0.0
    try:
        return parse_seconds(f"{text}s" if text[-1:].isdecimal() else text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a length of time; use 90s, 15m or 2h") from None

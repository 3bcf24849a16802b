"""Check the bridge's arguments before anything is started, and report all mistakes at once."""

from __future__ import annotations

import argparse
from pathlib import Path

from triton_alerts.bridge import settings
from triton_exporter.http.certificates import CertificateError
from triton_exporter.options import is_loopback, is_web_address
from triton_slo.names import SEVERITIES
from triton_slo.problem import Problem
from triton_slo.prometheus import header

_ALONE = "a file that holds the secret alone"
_HEADER = "such as 'X-Scope-OrgID: team-a'"


def of_sending(args: argparse.Namespace) -> list[Problem]:
    """Mistakes about Slack and the files of secrets."""
    problems = []
    others = (getattr(args, name, None) for name in ("pagerduty_key_file", "incident_webhook_file"))
    if not args.dry_run and settings.without_slack(args) and not any(others):
        fix = "give --slack-token-file FILE, or --dry-run to print"
        problems.append(Problem("bridge", "no credentials for Slack", fix))
    for name, value in vars(args).items():
        unused = args.dry_run and name.startswith("slack_")
        if name.endswith("_file") and value is not None and not unused:
            problems += _secret(f"--{name.replace('_', '-')}", value)
    if not args.dry_run and args.slack_app_token_file is not None and args.slack_token_file is None:
        fix = "give --slack-token-file FILE too, or leave it out"
        problems.append(
            Problem("--slack-app-token-file", "buttons need a bot token; a webhook has none", fix)
        )
    for pair in args.channel_for:
        severity, equals, channel = pair.partition("=")
        if not equals or not settings.is_channel(channel) or severity not in SEVERITIES:
            fix = f"SEVERITY=CHANNEL, severity one of {', '.join(SEVERITIES[:-1])}"
            problems.append(Problem(f"--channel-for {pair}", "not understood", fix))
    named = {"--channel": [args.channel]}
    named |= {
        f"--{name.replace('_', '-')}": [value]
        for name in ("escalate_to", "weekly_summary", "report")
        if (value := getattr(args, name))
    }
    for option, channels in named.items():
        for channel in channels:
            if not settings.is_channel(channel):
                fix = "its id, such as C0123456789, or its name, such as #pages"
                problems.append(Problem(f"{option} {channel!r}", "not a channel", fix))
    for user in args.button_user:
        if not settings.is_user(user):
            fix = "the member id of the profile's menu, such as U0123456789"
            problems.append(Problem(f"--button-user {user!r}", "not a Slack user's id", fix))
    if not settings.mention(args.mention):
        problems.append(Problem(f"--mention {args.mention}", "not understood", "here, channel, U... or S..."))
    return problems + _address("--slack-url", args.slack_url)


def of_running(args: argparse.Namespace) -> list[Problem]:
    """Mistakes about receiving, and about where to ask for more."""
    problems = of_sending(args) + _tls(args) + _unauthenticated(args)
    if args.report and not args.prometheus:
        problems.append(Problem("--report", "reports are read from Prometheus", "give --prometheus URL, too"))
    problems += _address("--pagerduty-url", args.pagerduty_url)
    if not args.dry_run and args.data is None:
        problems.append(
            Problem("--data", "missing: the folder for the database and the audit trail", "--data DIR")
        )
    for name in ("prometheus", "grafana"):
        if value := getattr(args, name):
            problems += _address(f"--{name}", value)
    for text in args.header:
        try:
            header(text)
        except ValueError as error:
            problems.append(Problem("--header", str(error).removeprefix("--header").lstrip(": "), _HEADER))
    for name in ("alertmanager", "exporter"):
        problems += [problem for url in getattr(args, name) for problem in _address(f"--{name}", url)]
    return problems


def _unauthenticated(args: argparse.Namespace) -> list[Problem]:
    address = settings.listen_address(args.listen)
    if isinstance(address, Problem) or args.token_file is not None or args.tls_client_ca is not None:
        return []
    fix = "--token-file FILE, --tls-client-ca FILE, or 127.0.0.1"
    wrong = "anyone who reaches this address could send false alerts"
    return [] if is_loopback(address[0]) else [Problem(f"--listen {args.listen}", wrong, fix)]


def _address(option: str, url: str) -> list[Problem]:
    fix = "http://HOST:PORT or https://HOST"
    return [] if is_web_address(url) else [Problem(f"{option} {url}", "not an address", fix)]


def _secret(option: str, path: Path) -> list[Problem]:
    """Check the file of a secret; its content is never part of the message."""
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        return [Problem(f"{option} {path}", f"cannot be read: {reason}", _ALONE)]
    wrong = _unlike(option, text)
    return [Problem(f"{option} {path}", *wrong)] if wrong else []


def _unlike(option: str, text: str) -> tuple[str, str] | None:
    """The reason why the text cannot be this secret, and the fix; else only the first page shows the mistake."""
    if not text:
        return "is empty", _ALONE
    # A password may have any letter; a token is sent in a header as it is.
    if not ((text.isascii() or option == "--password-file") and text.isprintable()):
        return "contains more than one line of plain text", _ALONE
    if option == "--slack-webhook-file" and _address(option, text):
        return "does not contain an address", "the whole address, https://hooks.slack.com/services/..."
    if option == "--incident-webhook-file" and _address(option, text):
        return "does not contain an address", "the whole address, https://HOST/PATH"
    if option == "--slack-token-file" and text.startswith("xapp-"):
        return (
            "contains an app token (xapp-...)",
            "the bot token here, the app token in --slack-app-token-file",
        )
    if option == "--slack-app-token-file" and text.startswith("xox"):
        return (
            "does not contain an app token (xapp-...)",
            "Basic Information, App-Level Tokens, connections:write",
        )
    return None


def _tls(args: argparse.Namespace) -> list[Problem]:
    certificates = settings.server_certificates(args)
    if certificates is None:
        fix = "--tls-cert FILE, or without TLS leave it out"
        reason = "without --tls-cert the bridge would serve plain HTTP and check no client"
        named = {"--tls-key": args.tls_key, "--tls-client-ca": args.tls_client_ca}
        return [
            Problem(f"{option} {path}", reason, fix) for option, path in named.items() if path is not None
        ]
    options = {
        str(path): option
        for option, path in (
            ("--tls-client-ca", args.tls_client_ca),
            ("--tls-cert", args.tls_cert),
            ("--tls-key", args.tls_key),
        )
    }
    try:
        certificates.context()
    except CertificateError as error:
        return [
            Problem(f"{options[problem.place]} {problem.place}", problem.reason, problem.fix)
            for problem in error.problems
        ]
    return []

"""Problems of the bridge's settings, all of them at once, before anything is started."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from triton_alerts.bridge.settings import BridgeSettings, is_channel, is_user
from triton_exporter.common.options import is_loopback, is_web_address
from triton_exporter.common.problem import Problem, ProblemsError
from triton_slo.names import SEVERITIES
from triton_slo.server_access import parse_header

_ALONE = "a file that holds the secret alone"
_HEADER = "such as 'X-Scope-OrgID: team-a'"


def of_sending(given: BridgeSettings) -> list[Problem]:
    """Return the problems with Slack and the files of secrets."""
    problems: list[Problem] = []
    if not given.dry_run and given.slack_token_file is None and given.slack_webhook_file is None:
        fix = "give --slack-token-file FILE, or --dry-run to print"
        problems.append(Problem("--slack-token-file", "no credentials for Slack", fix))
    for name in (field.name for field in fields(given)):
        unused = given.dry_run and name.startswith("slack_")
        if name.endswith("_file") and (file := getattr(given, name)) is not None and not unused:
            problems += _secret_problems(f"--{name.replace('_', '-')}", file)
    if not given.dry_run and given.slack_app_token_file is not None and given.slack_token_file is None:
        fix = "give --slack-token-file FILE too, or leave it out"
        problems.append(
            Problem("--slack-app-token-file", "buttons need a bot token; a webhook has none", fix)
        )
    problems += _channel_problems(given)
    for user in given.button_user:
        if not is_user(user):
            fix = "the member id of the profile's menu, such as U0123456789"
            problems.append(Problem(f"--button-user {user!r}", "not a Slack user's id", fix))
    if not given.mention_markup():
        problems.append(
            Problem(f"--mention {given.mention}", "not understood", "here, channel, U... or S...")
        )
    return problems + _address_problems("--slack-url", given.slack_url)


def _channel_problems(given: BridgeSettings) -> Iterator[Problem]:
    seen: set[str] = set()
    for pair in given.channel_for:
        severity, equals, channel = pair.partition("=")
        if severity in seen:
            yield Problem(f"--channel-for {pair}", f"{severity} has a channel already", "give one of them")
        seen.add(severity)
        if not equals or not is_channel(channel) or severity not in SEVERITIES:
            fix = f"SEVERITY=CHANNEL, severity one of {', '.join(SEVERITIES[:-1])}"
            yield Problem(f"--channel-for {pair}", "not understood", fix)
    named = {"--channel": given.channel}
    if given.escalate_to:
        named["--escalate-to"] = given.escalate_to
    for option, channel in named.items():
        if not is_channel(channel):
            fix = "its id, such as C0123456789, or its name, such as #pages"
            yield Problem(f"{option} {channel!r}", "not a channel", fix)


def of_running(given: BridgeSettings) -> list[Problem]:
    """Return the problems that concern the bridge: also with receiving, and with the servers it asks for facts."""
    problems = of_sending(given) + _tls_problems(given) + _access_problems(given)
    if not given.dry_run and given.data is None:
        reason = (
            "required, except with --dry-run: undelivered messages and the audit log must survive a restart"
        )
        problems.append(Problem("--data", reason, "give --data DIR, such as /var/lib/tritonwatch-bridge"))
    for option, url in (("--prometheus", given.prometheus), ("--grafana", given.grafana)):
        problems += _address_problems(option, url) if url else []
    for text in given.header:
        try:
            parse_header(text)
        except ValueError as error:
            problems.append(Problem("--header", str(error).removeprefix("--header").lstrip(": "), _HEADER))
    for option, urls in (("--alertmanager", given.alertmanager), ("--exporter", given.exporter)):
        problems += [problem for url in urls for problem in _address_problems(option, url)]
    return problems


def _access_problems(given: BridgeSettings) -> list[Problem]:
    address = given.address
    if isinstance(address, Problem) or given.token_file is not None or given.tls_client_ca is not None:
        return []
    fix = "--token-file FILE, --tls-client-ca FILE, or 127.0.0.1"
    wrong = "anyone who reaches this address could send false alerts"
    return [] if is_loopback(address[0]) else [Problem(f"--listen {given.listen}", wrong, fix)]


def _address_problems(option: str, url: str) -> list[Problem]:
    fix = "http://HOST:PORT or https://HOST"
    return [] if is_web_address(url) else [Problem(f"{option} {url}", "not a URL", fix)]


def _secret_problems(option: str, path: Path) -> list[Problem]:
    """Check the file of a secret; its content is never part of the message."""
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        return [Problem(f"{option} {path}", f"cannot be read: {reason}", _ALONE)]
    wrong = _why_not_secret(option, text)
    return [Problem(f"{option} {path}", *wrong)] if wrong else []


def _why_not_secret(option: str, text: str) -> tuple[str, str] | None:
    """Return why the text cannot be this secret, and the fix: without it, only the first page would show it."""
    if not text:
        return "is empty", _ALONE
    # A password may have any letter; a token is sent in a header as it is.
    if not ((text.isascii() or option == "--password-file") and text.isprintable()):
        return "contains more than one line of plain text", _ALONE
    if option == "--slack-webhook-file" and _address_problems(option, text):
        return "does not contain an address", "the whole address, https://hooks.slack.com/services/..."
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


def _tls_problems(given: BridgeSettings) -> list[Problem]:
    certificates = given.certificates
    if certificates is None:
        fix = "--tls-cert FILE, or without TLS leave it out"
        reason = "without --tls-cert the bridge would serve plain HTTP and check no client"
        named = {"--tls-key": given.tls_key, "--tls-client-ca": given.tls_client_ca}
        return [
            Problem(f"{option} {path}", reason, fix) for option, path in named.items() if path is not None
        ]
    options = {
        str(path): option
        for option, path in (
            ("--tls-client-ca", given.tls_client_ca),
            ("--tls-cert", given.tls_cert),
            ("--tls-key", given.tls_key),
        )
    }
    try:
        certificates.context()
    except ProblemsError as error:
        return [
            Problem(f"{options[problem.place]} {problem.place}", problem.reason, problem.fix)
            for problem in error.problems
        ]
    return []

"""Stand in for the services of `--page-to` and `--ticket-to` under their real names, and for a mail server.

`Vendors` is an HTTPS proxy that answers for every host itself: a client that sends through it uses the addresses of
production. What each service takes is from its published reference:

- PagerDuty: https://developer.pagerduty.com/docs/send-alert-event
- Opsgenie: https://docs.opsgenie.com/docs/alert-api, alerts-and-alert-fields
- Jira Service Management: https://developer.atlassian.com/cloud/jira/service-desk-ops/rest/v1/api-group-integration-events;
  its close by alias: https://jira.atlassian.com/browse/JSDCLOUD-14179
- Microsoft Teams: https://learn.microsoft.com/en-us/connectors/teams, add-incoming-webhook (28 KB)
- incident.io: https://docs.incident.io/api-reference/alert-events-v2, and Alertmanager's notifier (512 KB)
- Grafana IRM: https://grafana.com/docs/oncall/latest/configure/integrations/references/alertmanager
"""

from __future__ import annotations

import base64
import email
import email.policy
import json
import re
import socketserver
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from email.message import EmailMessage
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from support.loopback import Handler, HttpServer

KEY = "0123456789abcdef0123456789abcdef"
TOKEN = "webhook-token"
TEAMS = "https://prod-00.westeurope.logic.azure.com/workflows/1f/triggers/manual/paths/invoke?sig=" + KEY
IRM = f"https://oncall-prod.grafana.net/oncall/integrations/v1/alertmanager/{KEY}/"
HOSTS = (
    *("events.pagerduty.com", "api.opsgenie.com", "api.eu.opsgenie.com", "api.atlassian.com"),
    *("api.incident.io", urlsplit(TEAMS).hostname or "", urlsplit(IRM).hostname or ""),
    *("hooks.example.com", "bridge.example.com"),
)


@dataclass(frozen=True)
class Request:
    """A request that a service received: its URL, headers and JSON body."""

    host: str
    path: str
    authorization: str
    body: Any
    size: int


def _pagerduty_mistake(event: dict[str, Any], size: int) -> str:
    """Return why PagerDuty refuses an event; nothing when it takes it."""
    known = {"routing_key", "event_action", "dedup_key", "payload", "images", "links", "client", "client_url"}
    action = event.get("event_action")
    if event.get("routing_key") != KEY:
        return "invalid routing key"
    if set(event) - known or action not in ("trigger", "acknowledge", "resolve") or size > 512 * 1024:
        return "event is invalid"
    if len(event.get("dedup_key") or "") > 255 or (action != "trigger" and not event.get("dedup_key")):
        return "dedup_key"
    if action != "trigger":
        return ""
    payload = event.get("payload") or {}
    fields = {"summary", "source", "severity", "timestamp", "component", "group", "class", "custom_details"}
    if (
        set(payload) - fields
        or not payload.get("source")
        or not 0 < len(payload.get("summary") or "") <= 1024
    ):
        return "payload"
    if payload.get("severity") not in ("critical", "error", "warning", "info"):
        return "severity"
    if any(not link.get("href") or not link.get("text") for link in event.get("links", ())):
        return "links"
    if "timestamp" in payload:
        datetime.fromisoformat(payload["timestamp"])
    return ""


def _opsgenie(base: str) -> Callable[[Request], str]:
    def check(request: Request) -> str:
        closes = re.fullmatch(rf"{base}v2/alerts/([^/]{{1,512}})/close\?identifierType=alias", request.path)
        body = request.body
        if request.authorization != f"GenieKey {KEY}":
            return "the Authorization header"
        if closes is not None:
            return "" if set(body) <= {"user", "source", "note"} else "a field of the close request"
        if request.path != f"{base}v2/alerts":
            return "the path"
        known = {"message", "alias", "description", "responders", "visibleTo", "actions", "tags", "details"}
        details = body.get("details", {})
        wrong = {
            "a field": bool(set(body) - known - {"entity", "source", "priority", "user", "note"}),
            "message": not 0 < len(body.get("message") or "") <= 130,
            "alias": not 0 < len(body.get("alias") or "") <= 512,
            "description": len(body.get("description", "")) > 15_000,
            "source": len(body.get("source", "")) > 100,
            "details": sum(len(name) + len(value) for name, value in details.items()) > 8_000,
            "tags": len(body.get("tags", ())) > 20,
            "priority": body.get("priority", "P3") not in ("P1", "P2", "P3", "P4", "P5"),
        }
        return ", ".join(name for name, bad in wrong.items() if bad)

    return check


def _teams(request: Request) -> str:
    """Check a message of one adaptive card, in whose Markdown a single newline is a space."""
    body = request.body
    (attachment,) = body["attachments"]
    card = attachment["content"]
    wrong = {
        "path": request.path != TEAMS.split(".com", 1)[1],
        "type": body["type"] != "message" or card["type"] != "AdaptiveCard",
        "contentType": attachment["contentType"] != "application/vnd.microsoft.card.adaptive",
        "version": card["version"] not in ("1.0", "1.1", "1.2", "1.3", "1.4", "1.5"),
        "body": not card["body"]
        or any(part["type"] != "TextBlock" or not part["text"] for part in card["body"]),
        "size": request.size > 28 * 1024,
    }
    return ", ".join(name for name, bad in wrong.items() if bad)


def _alertmanager(path: str, authorization: str = "", largest: int = 512 * 1024) -> Callable[[Request], str]:
    """Return the document of Alertmanager's webhook, which these services read themselves."""

    def check(request: Request) -> str:
        body = request.body
        fields = {"version", "groupKey", "status", "receiver", "groupLabels", "commonLabels"}
        wrong = {
            "path": request.path != path,
            "authorization": request.authorization != authorization,
            "size": request.size > largest or len(body.get("alerts", ())) > 100,
            "fields": bool(fields - set(body)) or body.get("status") not in ("firing", "resolved"),
            "alerts": not all(
                {"status", "labels", "annotations", "startsAt", "endsAt", "fingerprint"} <= set(alert)
                for alert in body.get("alerts") or [{}]
            ),
        }
        return ", ".join(name for name, bad in wrong.items() if bad)

    return check


_JSM = "/jsm/ops/integration/"
_SERVICES: dict[str, Callable[[Request], str]] = {
    "events.pagerduty.com": lambda request: _pagerduty_mistake(request.body, request.size),
    "api.opsgenie.com": _opsgenie("/"),
    "api.eu.opsgenie.com": _opsgenie("/"),
    "api.atlassian.com": _opsgenie(_JSM),
    "api.incident.io": _alertmanager("/v2/alert_events/alertmanager/01ABC", f"Bearer {TOKEN}"),
    urlsplit(TEAMS).hostname or "": _teams,
    urlsplit(IRM).hostname or "": _alertmanager(urlsplit(IRM).path),
    "hooks.example.com": _alertmanager("/x?a=b", f"Bearer {TOKEN}"),
    "bridge.example.com": _alertmanager("/alertmanager"),
}


class Vendors(HttpServer):
    """An HTTPS proxy on loopback that is every service; `refused` has a reason for each request not taken."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.load_cert_chain(certificate, key)
        self.taken: list[Request] = []
        self.refused: list[str] = []
        super().__init__(_Handler)

    def of(self, host: str) -> list[Request]:
        """Return the requests that a service accepted, in order."""
        return [request for request in self.taken if request.host == host]


class _TlsUpgrade(socketserver.StreamRequestHandler):
    """A connection that becomes TLS after some lines in the clear."""

    def upgrade(self, tls: ssl.SSLContext) -> None:
        self.connection = tls.wrap_socket(self.connection, server_side=True)
        self.rfile = self.connection.makefile("rb")
        self.wfile = self.connection.makefile("wb", 0)

    def finish(self) -> None:
        super().finish()
        self.connection.close()


class _Handler(_TlsUpgrade, Handler):
    server: Vendors
    protocol_version = "HTTP/1.1"
    host = ""

    def do_CONNECT(self) -> None:
        self.host = self.path.partition(":")[0]
        self.send_response(200)
        self.end_headers()
        self.upgrade(self.server.tls)
        self.close_connection = False

    def do_POST(self) -> None:
        content = self.body()
        request = Request(
            self.host, self.path, self.headers.get("Authorization", ""), json.loads(content), len(content)
        )
        if self.host not in _SERVICES or self.headers["Host"] != self.host:
            reason = "the host"
        elif self.headers.get_content_type() != "application/json":
            reason = "the content type"
        else:
            reason = _SERVICES[self.host](request)
        if reason:
            self.server.refused.append(f"{self.host}{self.path}: {reason}")
        else:
            self.server.taken.append(request)
        self.reply({}, 400 if reason else 202)


class MailServer(socketserver.ThreadingTCPServer):
    """Takes mail: with a login only after STARTTLS and the password, without one in the clear."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, certificate: Path, key: Path, login: tuple[str, str] | None) -> None:
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.load_cert_chain(certificate, key)
        self.login = base64.b64encode("\0{}\0{}".format(*login).encode()).decode() if login else ""
        self.taken: list[EmailMessage] = []
        self.recipients: list[str] = []
        super().__init__(("127.0.0.1", 0), _MailHandler)


class _MailHandler(_TlsUpgrade):
    server: MailServer

    def handle(self) -> None:
        secure = False
        known = not self.server.login
        self._answer("220 mail.example.com ESMTP")
        while line := self.rfile.readline(2000).decode().rstrip("\r\n"):
            verb = line.split(" ")[0].upper()
            if verb == "EHLO":
                offered = "AUTH PLAIN" if secure else "STARTTLS" if self.server.login else "8BITMIME"
                self._answer("250-mail.example.com", f"250 {offered}")
            elif verb == "STARTTLS":
                self._answer("220 go ahead")
                self.upgrade(self.server.tls)
                secure = True
            elif verb == "AUTH":
                known = secure and line.split(" ")[1:] == ["PLAIN", self.server.login]
                self._answer("235 welcome" if known else "535 wrong password")
            elif verb == "QUIT":
                self._answer("221 bye")
                return
            elif not known:
                self._answer("530 authentication required")
            elif verb == "DATA":
                self._answer("354 send it")
                content = b"".join(iter(self.rfile.readline, b".\r\n"))
                message = email.message_from_bytes(content, policy=email.policy.default)
                self.server.taken.append(message)
                self._answer("250 taken")
            else:
                self.server.recipients += [line] if verb == "RCPT" else []
                self._answer("250 ok")

    def _answer(self, *lines: str) -> None:
        self.wfile.write("".join(f"{line}\r\n" for line in lines).encode())

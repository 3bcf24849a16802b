"""Stand in for services that receive incidents: PagerDuty by its published fields, and a webhook.

https://developer.pagerduty.com/docs/send-alert-event
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from support.loopback import Handler, HttpServer

KEY = "0123456789abcdef0123456789abcdef"
TOKEN = "webhook-token"
LATE = -1


class PagerServer(HttpServer):
    """Takes events at /v2/enqueue and JSON at /hook; `status` is the answer to all, unless it is 0.

    With LATE no request is answered, and each is acted on when `act_late` is called.
    """

    def __init__(self) -> None:
        self.status = 0
        self.events: list[dict[str, Any]] = []
        self.documents: list[dict[str, Any]] = []
        self.refused: list[str] = []
        self.late: list[tuple[str, dict[str, Any]]] = []
        super().__init__(_Handler)

    @property
    def pagerduty(self) -> str:
        return f"{self.url}/v2/enqueue"

    @property
    def hook(self) -> str:
        return f"{self.url}/hook"

    @property
    def open(self) -> dict[str, str]:
        """The last action of each alert that is not resolved, by its key."""
        last = {event["dedup_key"]: event["event_action"] for event in self.events}
        return {key: action for key, action in last.items() if action != "resolve"}

    def act_late(self) -> None:
        self.documents += [body for path, body in self.late if path == "/hook"]
        self.events += [body for path, body in self.late if path != "/hook"]
        self.late.clear()


def mistake(event: dict[str, Any], size: int) -> str:
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


class _Handler(Handler):
    server: PagerServer

    def do_POST(self) -> None:
        body = self.body()
        event, status = json.loads(body), self.server.status
        answer: dict[str, Any] = {}
        if status == LATE:
            self.server.late.append((self.path, event))
            return
        if not status and self.path == "/hook":
            status = 200 if self.headers.get("Authorization") == f"Bearer {TOKEN}" else 401
            self.server.documents += [event] if status == 200 else []
        elif not status:
            reason = mistake(event, len(body))
            status, answer = (400, {"errors": [reason]}) if reason else (202, {})
            (self.server.refused.append(reason) if reason else self.server.events.append(event))
        self.reply(answer, status)

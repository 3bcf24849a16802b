"""Stand in for a Slack workspace: its methods, documented limits, rates, errors and thread rules.

`Workspace` takes the time as an argument, so that a test can simulate hours; `server` serves one over HTTP.
Sources: docs.slack.dev, reference/methods/chat.postMessage, chat.update, apis/web-api/rate-limits.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from support.slack.limits import SlackError, check_message

TOKEN = "xoxb-stand-in"
APP_TOKEN = "xapp-stand-in"
ALL_SCOPES = frozenset({"chat:write", "files:write", "channels:history"})


@dataclass
class Posted:
    """One message of the workspace; `history` has its text before each edit."""

    channel: str
    ts: str
    at: float
    text: str
    blocks: list[dict[str, Any]]
    thread_ts: str = ""
    broadcast: bool = False
    name: str = ""
    history: list[tuple[str, list[dict[str, Any]]]] = field(default_factory=list)
    edited_at: list[float] = field(default_factory=list)
    _written: tuple[list[dict[str, Any]], str] = field(
        default=([], ""), init=False, repr=False, compare=False
    )

    @property
    def shown(self) -> str:
        """Everything a reader sees, as one string; written once, as an edit replaces the blocks."""
        if not self.blocks:
            return self.text
        if self._written[0] is not self.blocks:
            self._written = (self.blocks, json.dumps(self.blocks, ensure_ascii=False))
        return self._written[1]

    @property
    def shown_over_time(self) -> list[str]:
        """What it showed at first and after every edit."""
        states = [*self.history, (self.text, self.blocks)]
        return [json.dumps(blocks, ensure_ascii=False) if blocks else text for text, blocks in states]


@dataclass(frozen=True)
class Answer:
    status: int
    body: dict[str, Any]
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Workspace:
    """Channels by id, what was posted, and the rules."""

    channels: dict[str, str] = field(default_factory=lambda: {"C0PAGES": "#pages", "C0TICKETS": "#tickets"})
    tokens: set[str] = field(default_factory=lambda: {TOKEN, APP_TOKEN})
    archived: set[str] = field(default_factory=set)
    """Channels in which nothing can be posted, edited or deleted."""
    scopes: frozenset[str] = ALL_SCOPES
    posts_per_second: float = 1.0
    burst: float = 3.0
    edits_per_minute: float = 50.0
    history_lag: float = 0.0
    """Seconds until history and replies list a message."""
    messages: list[Posted] = field(default_factory=list)
    files: list[dict[str, Any]] = field(default_factory=list)
    calls: list[tuple[float, str, int, str]] = field(default_factory=list)
    _buckets: dict[str, tuple[float, float]] = field(default_factory=dict)
    _uploads: dict[str, dict[str, Any]] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _count: int = 0

    def call(self, method: str, arguments: dict[str, Any], now: float, *, token: str = TOKEN) -> Answer:
        """One request to the Web API."""
        with self._lock:
            answer = self._call(method, arguments, now, token)
            self.calls.append((now, method, answer.status, str(answer.body.get("error", ""))))
            return answer

    def webhook(self, arguments: dict[str, Any], now: float) -> tuple[int, str, dict[str, str]]:
        """One request to an incoming webhook: plain text answers, no ts."""
        with self._lock:
            if (wait := self._take("webhook", self.posts_per_second, self.burst, now)) > 0:
                return 429, "rate_limited", {"Retry-After": str(int(wait) + 1)}
            try:
                check_message(arguments)
            except SlackError as error:
                return 400, str(error), {}
            self._append(
                Posted("webhook", self._ts(now), now, arguments["text"], arguments.get("blocks", []))
            )
            return 200, "ok", {}

    def roots(self, channel: str = "") -> list[Posted]:
        return [m for m in self.messages if not m.thread_ts and (not channel or m.channel == channel)]

    def thread(self, root: Posted) -> list[Posted]:
        return [m for m in self.messages if m.thread_ts == root.ts and m.channel == root.channel]

    def delete(self, message: Posted) -> None:
        """Delete a message, as a person does."""
        with self._lock:
            self.messages.remove(message)

    def _call(self, method: str, arguments: dict[str, Any], now: float, token: str) -> Answer:
        if token not in self.tokens:
            return Answer(200, {"ok": False, "error": "invalid_auth" if token else "not_authed"})
        handler: Callable[[dict[str, Any], float], dict[str, Any]] | None = {
            "chat.postMessage": self._post,
            "chat.update": self._update,
            "chat.delete": self._delete,
            "conversations.history": self._history,
            "conversations.replies": self._replies,
            "chat.getPermalink": self._permalink,
            "apps.connections.open": lambda _a, _n: {"url": "/socket"},
            "auth.test": lambda _a, _n: {"user": "tritonwatch", "team": "Stand-in"},
            "files.getUploadURLExternal": self._upload_url,
            "files.completeUploadExternal": self._complete_upload,
        }.get(method)
        if handler is None:
            return Answer(200, {"ok": False, "error": "unknown_method"})
        if (wait := self._limited(method, arguments, now)) > 0:
            return Answer(429, {"ok": False, "error": "ratelimited"}, {"Retry-After": str(int(wait) + 1)})
        granted = {"X-OAuth-Scopes": ",".join(sorted(self.scopes))}
        try:
            return Answer(200, {"ok": True, **handler(arguments, now)}, granted)
        except SlackError as error:
            return Answer(200, {"ok": False, "error": str(error)})

    def _limited(self, method: str, arguments: dict[str, Any], now: float) -> float:
        if method == "chat.postMessage":
            return self._take(f"post {arguments.get('channel')}", self.posts_per_second, self.burst, now)
        if method == "chat.update":
            return self._take("update", self.edits_per_minute / 60, self.edits_per_minute, now)
        return 0.0

    def _take(self, bucket: str, rate: float, burst: float, now: float) -> float:
        """Seconds to wait before one more is allowed; 0 takes one."""
        tokens, at = self._buckets.get(bucket, (burst, now))
        tokens = min(burst, tokens + max(0.0, now - at) * rate)
        if tokens < 1:
            self._buckets[bucket] = (tokens, now)
            return (1 - tokens) / rate
        self._buckets[bucket] = (tokens - 1, now)
        return 0.0

    def _channel(self, name: str, *, by_name: bool = False) -> str:
        if name in self.channels:
            return name
        for number, known in self.channels.items():
            if by_name and name.lstrip("#") == known.lstrip("#"):
                return number
        raise SlackError("channel_not_found")

    def _writable(self, channel: str) -> None:
        if channel in self.archived:
            raise SlackError("is_archived")

    def _post(self, arguments: dict[str, Any], now: float) -> dict[str, Any]:
        self._need("chat:write")
        channel = self._channel(str(arguments.get("channel", "")), by_name=True)
        self._writable(channel)
        check_message(arguments)
        thread = str(arguments.get("thread_ts") or "")
        parent = next((m for m in self.messages if m.ts == thread and m.channel == channel), None)
        if parent is not None and parent.thread_ts:
            raise SlackError("cannot_reply_to_message")
        # A reply to a message that is gone appears in the channel, without an error.
        message = Posted(
            channel,
            self._ts(now),
            now,
            arguments.get("text", ""),
            arguments.get("blocks", []),
            thread if parent is not None else "",
            bool(arguments.get("reply_broadcast")),
            (arguments.get("metadata") or {}).get("event_payload", {}).get("id", ""),
        )
        self._append(message)
        return {"channel": channel, "ts": message.ts, "message": self._show(message)}

    def _update(self, arguments: dict[str, Any], now: float) -> dict[str, Any]:
        self._need("chat:write")
        channel = self._channel(str(arguments.get("channel", "")))  # by id only
        self._writable(channel)
        check_message(arguments)
        for message in self.messages:
            if message.ts == arguments.get("ts") and message.channel == channel:
                message.history.append((message.text, message.blocks))
                message.edited_at.append(now)
                message.text = arguments.get("text", "")
                message.blocks = arguments.get("blocks", message.blocks)
                return {"channel": channel, "ts": message.ts, "text": message.text}
        raise SlackError("message_not_found")

    def _delete(self, arguments: dict[str, Any], now: float) -> dict[str, Any]:
        self._need("chat:write")
        channel = self._channel(str(arguments.get("channel", "")))  # by id only
        self._writable(channel)
        for message in self.messages:
            if message.ts == arguments.get("ts") and message.channel == channel:
                self.messages.remove(message)
                return {"channel": channel, "ts": message.ts}
        raise SlackError("message_not_found")

    def _history(self, arguments: dict[str, Any], now: float) -> dict[str, Any]:
        self._need("channels:history")
        channel = self._channel(str(arguments.get("channel", "")))
        wanted = [m for m in self.messages if m.channel == channel and not m.thread_ts]
        return self._page(wanted[::-1], arguments, now)

    def _replies(self, arguments: dict[str, Any], now: float) -> dict[str, Any]:
        self._need("channels:history")
        channel = self._channel(str(arguments.get("channel", "")))
        ts = str(arguments.get("ts", ""))
        wanted = [m for m in self.messages if m.channel == channel and ts in (m.ts, m.thread_ts)]
        if not wanted:
            raise SlackError("thread_not_found")
        return self._page(wanted, arguments, now)

    def _page(self, messages: list[Posted], arguments: dict[str, Any], now: float) -> dict[str, Any]:
        oldest = float(arguments.get("oldest", 0))
        start, limit = int(arguments.get("cursor") or 0), int(arguments.get("limit", 100))
        selected = [m for m in messages if float(m.ts) >= oldest and m.at <= now - self.history_lag]
        following = str(start + limit) if len(selected) > start + limit else ""
        shown = [self._show(m) for m in selected[start : start + limit]]
        if arguments.get("include_all_metadata") not in (True, "1", 1, "true"):
            shown = [{k: v for k, v in message.items() if k != "metadata"} for message in shown]
        return {"messages": shown, "response_metadata": {"next_cursor": following}}

    def _permalink(self, arguments: dict[str, Any], now: float) -> dict[str, Any]:
        channel = self._channel(str(arguments.get("channel", "")))
        return {"permalink": f"https://stand-in.slack.com/archives/{channel}/p{arguments['message_ts']}"}

    def _upload_url(self, arguments: dict[str, Any], now: float) -> dict[str, Any]:
        self._need("files:write")
        if not arguments.get("filename") or int(arguments.get("length", 0)) <= 0:
            raise SlackError("invalid_arguments")
        number = f"F{len(self._uploads):06d}"
        self._uploads[number] = {**arguments, "id": number, "length": int(arguments["length"])}
        return {"upload_url": f"/upload/{number}", "file_id": number}

    def _complete_upload(self, arguments: dict[str, Any], now: float) -> dict[str, Any]:
        self._need("files:write")
        files = arguments["files"]
        files = json.loads(files) if isinstance(files, str) else files
        channel = self._channel(str(arguments.get("channel_id", "")))
        for file in files:
            upload = self._uploads.get(file["id"])
            if upload is None or "content" not in upload:
                raise SlackError("file_not_found")
            self.files.append({**upload, **file, "channel": channel, "thread_ts": arguments.get("thread_ts")})
        return {"files": [{"id": file["id"], "permalink": "https://stand-in.slack.com/f"} for file in files]}

    def receive_upload(self, number: str, content: bytes) -> int:
        """Store the bytes of a file, posted to its upload address."""
        with self._lock:
            upload = self._uploads.get(number)
            if upload is None or len(content) < upload["length"]:
                return 400
            upload["content"] = content
            return 200

    def _need(self, scope: str) -> None:
        if scope not in self.scopes:
            raise SlackError("missing_scope")

    def _ts(self, now: float) -> str:
        self._count += 1
        return f"{int(now)}.{self._count:06d}"

    def _append(self, message: Posted) -> None:
        self.messages.append(message)

    def _show(self, message: Posted) -> dict[str, Any]:
        metadata = {"event_type": "x", "event_payload": {"id": message.name}}
        thread = {"thread_ts": message.thread_ts} if message.thread_ts else {}
        return {
            "ts": message.ts,
            "text": message.text,
            "blocks": message.blocks,
            "metadata": metadata,
            **thread,
        }

"""Stand in for Slack: its documented limits, rates, errors and thread rules, and faults on request.

`Workspace` has the rules and takes the time as an argument, so that a test can simulate hours;
`SlackServer` serves one over HTTP. Sources: docs.slack.dev, reference/methods/chat.postMessage, chat.update,
reference/block-kit/blocks, apis/web-api/rate-limits.
"""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from support.loopback import Handler, HttpServer

TOKEN = "xoxb-stand-in"
APP_TOKEN = "xapp-stand-in"
ALL_SCOPES = frozenset({"chat:write", "files:write", "channels:history"})

READS = {"conversations.history", "conversations.replies", "chat.getPermalink"}
"""Methods that take a form or a query, never JSON."""

FAULTS = ("429", "500", "502", "internal_error", "fatal_error", "hang", "hang_done", "reset", "reset_done")
"""`..._done`: the request took effect, its answer was lost; fatal_error may have taken effect too."""


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


class SlackError(Exception):
    """An `ok: false` answer with this code."""


@dataclass
class Workspace:
    """Channels by id, what was posted, and the rules."""

    channels: dict[str, str] = field(default_factory=lambda: {"C0PAGES": "#pages", "C0TICKETS": "#tickets"})
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
        if token not in (TOKEN, APP_TOKEN):
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

    def _post(self, arguments: dict[str, Any], now: float) -> dict[str, Any]:
        self._need("chat:write")
        channel = self._channel(str(arguments.get("channel", "")), by_name=True)
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


def check_message(arguments: dict[str, Any]) -> None:
    """Raise SlackError where Slack would refuse the content."""
    text, blocks = arguments.get("text", ""), arguments.get("blocks") or []
    if not isinstance(text, str) or not isinstance(blocks, list):
        raise SlackError("invalid_arguments")
    if not text.strip() and not blocks:
        raise SlackError("no_text")
    if len(text) > 40_000:
        raise SlackError("msg_too_long")
    if len(blocks) > 50:
        raise SlackError("invalid_blocks")
    for block in blocks:
        _check_block(block)
    if len(json.dumps(blocks, ensure_ascii=False)) > 40_000 or _letters(blocks) > 13_200:
        raise SlackError("msg_blocks_too_long")


def _letters(value: Any) -> int:
    if isinstance(value, dict):
        return sum(
            len(v) if k in ("text", "value", "url") and isinstance(v, str) else _letters(v)
            for k, v in value.items()
        )
    return sum(_letters(part) for part in value) if isinstance(value, list) else 0


def _check_block(block: Any) -> None:
    kind = block.get("type") if isinstance(block, dict) else None
    _need(len(block.get("block_id", "")) <= 255 if kind else False)
    if kind == "header":
        _check_text(block.get("text"), 150, ("plain_text",))
    elif kind == "section":
        _need("text" in block or block.get("fields"))
        if "text" in block:
            _check_text(block["text"], 3000)
        _need(len(block.get("fields", [])) <= 10)
        for cell in block.get("fields", []):
            _check_text(cell, 2000)
    elif kind == "context":
        _need(0 < len(block.get("elements", [])) <= 10)
        for element in block["elements"]:
            _check_text(element, 2000)
    elif kind == "actions":
        _need(0 < len(block.get("elements", [])) <= 25)
        names = [element.get("action_id") for element in block["elements"]]
        _need(len(names) == len(set(names)))
        for element in block["elements"]:
            _check_element(element)
    else:
        _need(kind == "divider")


def _check_element(element: dict[str, Any]) -> None:
    _need(0 < len(element.get("action_id", "x")) <= 255)
    if element.get("type") == "button":
        _check_text(element.get("text"), 75, ("plain_text",))
        url = element.get("url", "")
        _need(len(element.get("value", "")) <= 2000 and len(url) <= 3000)
        _need(not url or url.startswith(("http://", "https://")))
        _need(element.get("style", "primary") in ("primary", "danger"))
    elif element.get("type") == "static_select":
        _check_text(element.get("placeholder"), 150, ("plain_text",))
        _need(0 < len(element.get("options", [])) <= 100)
        for option in element["options"]:
            _check_text(option.get("text"), 75, ("plain_text",))
            _need(0 < len(option.get("value", "")) <= 150)
        if "confirm" in element:
            for part, limit in (("title", 100), ("text", 300), ("confirm", 30), ("deny", 30)):
                _check_text(element["confirm"].get(part), limit, ("plain_text",))
    else:
        raise SlackError("invalid_blocks")


def _check_text(value: Any, limit: int, kinds: tuple[str, ...] = ("plain_text", "mrkdwn")) -> None:
    _need(isinstance(value, dict) and value.get("type") in kinds)
    _need(
        isinstance(value.get("text"), str) and 0 < len(value["text"]) <= limit and value["text"].strip() != ""
    )
    _need(value["type"] == "plain_text" or "emoji" not in value)


def _need(condition: Any) -> None:
    if not condition:
        raise SlackError("invalid_blocks")


class SlackServer(HttpServer):
    """A Workspace over HTTP. `fault(method)` names the fault of the next request, or nothing."""

    request_queue_size = 64

    def __init__(
        self, workspace: Workspace, clock: Callable[[], float] = time.time, host: str = "127.0.0.1"
    ) -> None:
        self.workspace = workspace
        self.clock = clock
        self.fault: Callable[[str], str] = lambda _method: ""
        self.release = threading.Event()
        self.acknowledged: list[str] = []
        self.responses: list[dict[str, Any]] = []
        self._sockets: list[Any] = []
        super().__init__(_Handler, host=host)

    @property
    def api_url(self) -> str:
        return f"{self.url}/api/"

    @property
    def connected(self) -> bool:
        """Whether a Socket Mode connection is open."""
        return bool(self._sockets)

    def press(self, envelope: str, root: Posted, action: str, value: str = "", user: str = "U0ANA") -> None:
        """Press a button of a message; the same envelope twice is Slack's redelivery."""
        block = next(block for block in root.blocks if block["type"] == "actions")
        element = next(element for element in block["elements"] if element["action_id"] == action)
        pressed: dict[str, Any] = {"action_id": action, "block_id": block["block_id"], "action_ts": envelope}
        if element["type"] == "static_select":
            pressed["selected_option"] = next(o for o in element["options"] if o["value"] == value)
        payload = {
            "type": "block_actions",
            "user": {"id": user},
            "channel": {"id": root.channel, "name": "pages"},
            "container": {"type": "message", "channel_id": root.channel, "message_ts": root.ts},
            "actions": [pressed],
            "response_url": f"{self.url}/respond",
        }
        message = {"envelope_id": envelope, "type": "interactive", "payload": payload}
        for connection in self._sockets:
            connection.sendall(_frame(json.dumps(message).encode()))

    def __enter__(self) -> SlackServer:
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.release.set()
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Callers that hang up are part of the game."""


def _frame(data: bytes, opcode: int = 1) -> bytes:
    size = bytes([len(data)]) if len(data) < 126 else bytes([126]) + len(data).to_bytes(2, "big")
    return bytes([128 | opcode]) + size + data


class _Handler(Handler):
    server: SlackServer
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.body()
        path = urlsplit(self.path).path
        if path == "/respond":
            self.server.responses.append(json.loads(body))
            return self.reply("ok")
        if path.startswith("/upload/"):
            return self.reply("OK", self.server.workspace.receive_upload(path.rpartition("/")[2], body))
        method = path.rpartition("/")[2] if path.startswith("/api/") else "webhook"
        return self._serve(method, body)

    def do_GET(self) -> None:
        """Socket Mode: RFC 6455, the part that slack_sdk uses."""
        key = self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        accept = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
        self.send_header("Sec-WebSocket-Accept", accept)
        self.end_headers()
        self.connection.sendall(_frame(b'{"type": "hello"}'))
        self.server._sockets.append(self.connection)
        self.close_connection = True
        try:
            while (frame := self._read_frame()) is not None:
                opcode, data = frame
                if opcode == 1:
                    self.server.acknowledged.append(json.loads(data)["envelope_id"])
                elif opcode == 9:
                    self.connection.sendall(_frame(data, 10))
                elif opcode == 8:
                    break
        except OSError:
            pass
        finally:
            self.server._sockets.remove(self.connection)

    def _read_frame(self) -> tuple[int, bytes] | None:
        head = self.rfile.read(2)
        if len(head) < 2:
            return None
        length = head[1] & 127
        if length == 126:
            length = int.from_bytes(self.rfile.read(2), "big")
        mask = self.rfile.read(4) if head[1] & 128 else bytes(4)
        data = bytes(byte ^ mask[n % 4] for n, byte in enumerate(self.rfile.read(length)))
        return head[0] & 15, data

    def _serve(self, method: str, body: bytes) -> None:
        fault = self.server.fault(method)
        if fault in ("reset", "hang"):
            return self._break(fault)
        if fault == "429":
            return self.reply({"ok": False, "error": "ratelimited"}, 429, {"Retry-After": "1"})
        if fault.isdigit():
            return self.reply(
                "<html>upstream connect error</html>", int(fault), {"Content-Type": "text/html"}
            )
        if fault == "internal_error":
            return self.reply({"ok": False, "error": "internal_error"})
        answer = self._act(method, body)
        if fault in ("reset_done", "hang_done"):
            return self._break(fault)
        if fault == "fatal_error":
            return self.reply({"ok": False, "error": "fatal_error"})
        return self.reply(*answer)

    def _act(self, method: str, body: bytes) -> tuple[object, int, dict[str, str]]:
        arguments = self._arguments(method, body)
        now = self.server.clock()
        if method == "webhook":
            status, text, headers = self.server.workspace.webhook(arguments, now)
            return text, status, headers
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        answer = self.server.workspace.call(method, arguments, now, token=token)
        if answer.body.get("url") == "/socket":
            answer.body["url"] = f"ws://127.0.0.1:{self.server.server_address[1]}/socket"
        if "upload_url" in answer.body:
            answer.body["upload_url"] = self.server.url + answer.body["upload_url"]
        return answer.body, answer.status, answer.headers

    def _arguments(self, method: str, body: bytes) -> dict[str, Any]:
        if "json" in (self.headers.get("Content-Type") or ""):
            return {} if method in READS else json.loads(body or b"{}")
        return {name: values[-1] for name, values in parse_qs(body.decode()).items()}

    def _break(self, fault: str) -> None:
        if fault.startswith("hang"):
            self.server.release.wait(30)
        self.close_connection = True
        self.connection.close()

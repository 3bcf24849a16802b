"""Serve a workspace of the Slack stand-in over HTTP: Web API, webhook, uploads and Socket Mode, with faults."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

from support.loopback import Handler, HttpServer
from support.slack.workspace import Posted, Workspace

READS = {"conversations.history", "conversations.replies", "chat.getPermalink"}
"""Methods that take a form or a query, never JSON."""


class SlackServer(HttpServer):
    """A Workspace over HTTP. `fault(method)` names the fault of the next request, or nothing.

    A fault is an HTTP status, `internal_error`, `fatal_error` (which may have taken effect), `hang` or `reset`;
    with `hang_done` and `reset_done` the request takes effect, and its response is lost.
    """

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

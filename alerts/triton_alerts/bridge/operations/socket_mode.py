"""Slack's Socket Mode: button presses over a connection the bridge opens, so that no port faces the internet."""

from __future__ import annotations

import http.client
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from slack_sdk import WebClient
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.socket_mode import SocketModeClient
from slack_sdk.socket_mode.client import BaseSocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.socket_mode.response import SocketModeResponse

from triton_alerts.bridge.operations.actions import ButtonPress, button_presses

RETRY_SECONDS = 10.0
"""Slack: apps.connections.open is tier 3; some twenty calls a minute are always taken."""

RESPONSE_HOSTS = ("hooks.slack.com", "hooks.slack-gov.com")

log = logging.getLogger(__name__)


@dataclass
class Socket:
    """Chore that keeps a connection open. Each request is acknowledged at once, then performed in order."""

    app_token: Callable[[], str]
    base_url: str
    do: Callable[[ButtonPress], str]
    respond: Callable[[str, str], None]
    _client: SocketModeClient | None = None
    _token: str = ""
    """The token of the connection."""
    _try_at: float = 0.0
    _worker: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "buttons"))

    def connected(self) -> bool:
        return self._client is not None and self._client.is_connected()

    def __call__(self, now: float) -> None:
        try:
            token = self.app_token()
        except (OSError, UnicodeDecodeError) as error:
            if self._client is None and now >= self._try_at:
                self._try_at = now + RETRY_SECONDS
                log.warning("the app token cannot be read, buttons do not work yet: %s", type(error).__name__)
            return
        if self._client is not None and token in ("", self._token):
            return  # slack_sdk reconnects on its own
        if now < self._try_at:
            return
        self._try_at = now + RETRY_SECONDS
        client = SocketModeClient(
            app_token=token,
            web_client=WebClient(base_url=self.base_url, retry_handlers=[]),
            trace_enabled=False,
        )
        client.socket_mode_request_listeners.append(self._on_request)
        try:
            client.connect()
        except (SlackClientError, OSError, ValueError, http.client.HTTPException) as error:
            log.warning("Socket Mode is not connected with this app token: %s", _failure_kind(error))
            client.close()
            return
        if self._client is not None:  # the token was rotated
            self._client.close()
        self._client, self._token = client, token

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
        self._worker.shutdown(wait=True, cancel_futures=True)

    def _on_request(self, client: BaseSocketModeClient, request: SocketModeRequest) -> None:
        # Slack shows the person an error after 3 seconds.
        client.send_socket_mode_response(SocketModeResponse(envelope_id=request.envelope_id))
        if request.type == "interactive":
            for press in button_presses(request.envelope_id, request.payload):
                self._worker.submit(self._perform, press)

    def _perform(self, press: ButtonPress) -> None:
        try:
            line = self.do(press)
        except Exception:
            log.exception("a button could not be carried out")
            line = "Not done: the action failed; the reason is in the bridge's log."
        if line and _is_slack(press.response_url, self.base_url):
            self.respond(press.response_url, line)


def _is_slack(url: str, base_url: str) -> bool:
    """Return whether a URL is Slack's: a forged event must not make the bridge send requests to other servers."""
    try:
        parts, base = urlsplit(url), urlsplit(base_url)
        if parts.username is not None or parts.password is not None:
            return False
        same = (parts.scheme, parts.hostname, parts.port) == (base.scheme, base.hostname, base.port)
        return same or (parts.scheme == "https" and parts.hostname in RESPONSE_HOSTS and parts.port is None)
    except ValueError:
        return False


def _failure_kind(error: Exception) -> str:
    """Return Slack's own word for a failure, such as invalid_auth, else the kind of failure."""
    if isinstance(error, SlackApiError):
        return str(error.response.get("error") or error.response.status_code)
    return type(error).__name__

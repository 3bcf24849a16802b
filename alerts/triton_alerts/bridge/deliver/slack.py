"""Slack's Web API and incoming webhooks as transports: one attempt each, every failure classified.

slack_sdk's own retries are switched off: they retry a broken connection blindly, which can post twice, and
wait without bound for Retry-After. The worker retries instead.
"""

from __future__ import annotations

import http.client
import json
import logging
import urllib.error
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from slack_sdk import WebClient
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.webhook import WebhookClient

from triton_alerts.bridge.deliver.messages import Message
from triton_alerts.bridge.deliver.transport import (
    DeliveryError,
    Sent,
    Transport,
    read_secret,
    retry_after_seconds,
)
from triton_alerts.bridge.settings import SLACK_API

TIMEOUT_SECONDS = 10
EVENT_TYPE = "tritonwatch_alert"
SEARCH_BACK_SECONDS = 300.0
"""Time before an unconfirmed message was sent from which it is searched for: clocks differ."""
SEARCH_PAGES = 5

_RATE = {"ratelimited", "rate_limited"}
_SERVER = {
    *("internal_error", "fatal_error", "service_unavailable", "request_timeout", "team_added_to_org"),
    "unknown_error",
}
_SETUP = {
    # The token or the app.
    *("not_authed", "invalid_auth", "account_inactive", "token_revoked", "token_expired", "missing_scope"),
    *("no_permission", "not_allowed_token_type", "access_denied", "accesslimited", "org_login_required"),
    *(
        "ekm_access_denied",
        "enterprise_is_restricted",
        "team_access_not_granted",
        "two_factor_setup_required",
    ),
    *("team_not_found", "team_disabled", "invalid_token", "no_service", "no_service_id", "no_team"),
    # The channel.
    *("channel_not_found", "not_in_channel", "is_archived", "channel_is_archived", "restricted_action"),
    *("restricted_action_read_only_channel", "restricted_action_thread_only_channel", "action_prohibited"),
    *(
        "restricted_action_non_threadable_channel",
        "posting_to_general_channel_denied",
        "messages_tab_disabled",
    ),
}
"""What a person must fix. Any other code concerns the one message: it must not hold the others."""
_GONE = {
    *("message_not_found", "cant_update_message", "edit_window_closed", "thread_not_found"),
    *("cannot_reply_to_message", "restricted_action_thread_locked"),
}

log = logging.getLogger(__name__)


def refusal(status: int, headers: Mapping[str, str], code: str) -> DeliveryError:
    """Classify an answer by HTTP status and Slack's error code.

    https://docs.slack.dev/reference/methods/chat.postMessage#errors; fatal_error and 5xx may have posted.
    """
    if status == 429 or code in _RATE:
        after = next((value for name, value in headers.items() if name.lower() == "retry-after"), "")
        return DeliveryError("rate_limited", code or "429", retry_after_seconds(after))
    if status >= 500 or code in _SERVER:
        return DeliveryError("server_error", code or str(status), unconfirmed=True)
    if code in _GONE:
        return DeliveryError("gone", code)
    if code in _SETUP or status in (401, 403, 404, 410):
        return DeliveryError("setup", code or str(status))
    return DeliveryError("refused_message", code or str(status))


def broken(error: OSError | http.client.HTTPException) -> DeliveryError:
    """Classify a request without a response; its message is unconfirmed unless there was no connection."""
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(reason, TimeoutError) or "timed out" in str(reason):
        return DeliveryError("timeout", "no answer in time", unconfirmed=True)
    never_made = isinstance(error, urllib.error.URLError) and not isinstance(reason, ConnectionResetError)
    return DeliveryError("connection", type(reason).__name__, unconfirmed=not never_made)


@dataclass(frozen=True, slots=True)
class Granted:
    """A token's bot user, its workspace, and its scopes; none where Slack does not list them."""

    user: str
    team: str
    scopes: frozenset[str]


@dataclass
class SlackApi(Transport):
    """Slack's API by a bot token with chat:write, files:write and, to find unconfirmed messages, channels:history.

    `token` is read before every request, so that a rotated secret is taken up.
    """

    token: Callable[[], str]
    base_url: str = SLACK_API
    timeout_seconds: int = TIMEOUT_SECONDS
    threads: bool = field(default=True, init=False)

    def post(
        self, channel: str, message: Message, name: str, thread: str = "", *, broadcast: bool = False
    ) -> Sent:
        """Post a message with its name as metadata, by which `find` knows it; raises DeliveryError."""
        answer = self._call(
            "chat.postMessage",
            channel=channel,
            metadata={"event_type": EVENT_TYPE, "event_payload": {"id": name}},
            unfurl_links=False,
            unfurl_media=False,
            **_message_arguments(message),
            **({"thread_ts": thread, "reply_broadcast": broadcast} if thread else {}),
        )
        posted = answer.get("message") or {}
        return Sent(
            str(answer["channel"]), str(answer["ts"]), not thread or posted.get("thread_ts") == thread
        )

    def edit(self, channel: str, ts: str, message: Message) -> None:
        """Replace text and blocks of a message; raises DeliveryError."""
        # An update that leaves blocks out keeps the old ones.
        content = _message_arguments(message)
        self._call("chat.update", channel=channel, ts=ts, **{"blocks": [], **content})

    def find(self, channel: str, name: str, since: float, thread: str = "") -> Sent | None:
        """Return the message with this name since a Unix time, in its thread if one is given.

        None where it is not among SEARCH_PAGES pages or the channel cannot be searched; raises DeliveryError.
        """
        named = self._named(channel, since, thread)
        return next((sent for found, sent in named if found == name), None)

    def remove_copies(self, channel: str, names: str, since: float, thread: str, original: str) -> None:
        copies: dict[str, list[str]] = {}
        for name, sent in self._named(channel, since, thread):
            if name.startswith(names):
                copies.setdefault(name, []).append(sent.ts)
        for sent_as in copies.values():
            kept = original if original in sent_as else min(sent_as)
            for ts in sent_as:
                if ts != kept:
                    self._call("chat.delete", channel=channel, ts=ts)

    def permalink(self, channel: str, ts: str) -> str:
        try:
            return str(self._read("chat.getPermalink", channel=channel, message_ts=ts).get("permalink", ""))
        except DeliveryError:
            return ""

    def upload(self, channel: str, thread: str, name: str, png: bytes, alt: str) -> None:
        """Share a picture in a thread (https://docs.slack.dev/messaging/working-with-files#upload)."""
        try:
            self._client().files_upload_v2(
                channel=channel, thread_ts=thread, filename=name, content=png, title=alt, alt_txt=alt
            )
        except (SlackClientError, OSError, ValueError, http.client.HTTPException) as error:
            raise _classified(error) from error

    def respond(self, url: str, body: str) -> None:
        """Answer a button press so that only the one who pressed sees it."""
        client = WebhookClient(url, timeout=self.timeout_seconds, retry_handlers=[])
        try:
            client.send(text=body, response_type="ephemeral", replace_original=False)
        except (OSError, http.client.HTTPException) as error:
            log.info("could not answer the one who pressed: %s", type(error).__name__)

    def granted(self) -> Granted:
        """Return the user, workspace and scopes of the token; raises DeliveryError."""
        try:
            answer = self._client().api_call("auth.test")
        except (SlackClientError, OSError, ValueError, http.client.HTTPException) as error:
            raise _classified(error) from error
        scopes = next((v for name, v in answer.headers.items() if name.lower() == "x-oauth-scopes"), "")
        listed = frozenset(filter(None, (scope.strip() for scope in scopes.split(","))))
        return Granted(str(answer.get("user", "?")), str(answer.get("team", "?")), listed)

    def read(self, channel: str) -> None:
        """Check that the app is in a channel and may read it; raises DeliveryError."""
        self._read("conversations.history", channel=channel, limit=1)

    def _named(self, channel: str, since: float, thread: str) -> Iterator[tuple[str, Sent]]:
        """Yield the messages that have a name, which are the bridge's."""
        cursor = ""
        for _ in range(SEARCH_PAGES):
            page = self._message_page(channel, since, thread, cursor) or {}
            for message in page.get("messages", ()):
                if name := (message.get("metadata") or {}).get("event_payload", {}).get("id"):
                    in_thread = not thread or message.get("thread_ts") == thread
                    yield str(name), Sent(channel, str(message["ts"]), in_thread)
            cursor = (page.get("response_metadata") or {}).get("next_cursor") or ""
            if not cursor:
                return

    def _message_page(self, channel: str, since: float, thread: str, cursor: str) -> dict[str, Any] | None:
        method = "conversations.replies" if thread else "conversations.history"
        more: dict[str, Any] = {"ts": thread} if thread else {}
        if cursor:
            more["cursor"] = cursor
        oldest = f"{max(0.0, since - SEARCH_BACK_SECONDS):.6f}"
        try:
            return self._read(
                method, channel=channel, oldest=oldest, limit=200, include_all_metadata=True, **more
            )
        except DeliveryError as error:
            if error.kind in ("setup", "gone", "refused_message"):  # no scope or no thread: no search
                return None
            raise

    def _call(self, method: str, **arguments: Any) -> dict[str, Any]:
        return self._request(method, json=arguments)

    def _read(self, method: str, **arguments: Any) -> dict[str, Any]:
        # Methods that only read do not take JSON.
        return self._request(method, params=arguments)

    def _request(self, method: str, **arguments: Any) -> dict[str, Any]:
        try:
            answer = self._client().api_call(method, **arguments)
        except (SlackClientError, OSError, ValueError, http.client.HTTPException) as error:
            raise _classified(error) from error
        data = answer.data
        return data if isinstance(data, dict) else {}

    def _client(self) -> WebClient:
        return WebClient(
            token=read_secret(self.token),
            base_url=self.base_url,
            timeout=self.timeout_seconds,
            retry_handlers=[],
        )


@dataclass
class SlackWebhook(Transport):
    """Transport to an incoming webhook, which has no edits, threads, uploads or buttons."""

    url: Callable[[], str]
    timeout_seconds: int = TIMEOUT_SECONDS
    threads: bool = field(default=False, init=False)

    def post(
        self, channel: str, message: Message, name: str, thread: str = "", *, broadcast: bool = False
    ) -> Sent:
        client = WebhookClient(read_secret(self.url), timeout=self.timeout_seconds, retry_handlers=[])
        try:
            answer = client.send(unfurl_links=False, unfurl_media=False, **_message_arguments(message))
        except (OSError, http.client.HTTPException) as error:
            raise broken(error) from error
        except ValueError:  # the message of the error contains the URL, which is a secret
            raise DeliveryError("setup", "the webhook is not a URL") from None
        if answer.status_code != 200 or answer.body.strip() != "ok":
            raise refusal(answer.status_code, answer.headers, _error_code(answer.body))
        return Sent(channel, "")


def _message_arguments(message: Message) -> dict[str, Any]:
    blocks = {"blocks": list(message.blocks)} if message.blocks else {}
    return {"text": message.text, **blocks}


def _classified(error: Exception) -> DeliveryError:
    if isinstance(error, SlackApiError):
        data = error.response.data if isinstance(error.response.data, dict) else {}
        code = str(data.get("error", ""))
        if " " in code:  # slack_sdk's message for a body that is not JSON, such as a proxy's error page
            return refusal(max(error.response.status_code, 500), error.response.headers, "")
        return refusal(error.response.status_code, error.response.headers, code)
    if isinstance(error, OSError | http.client.HTTPException):
        return broken(error)
    if isinstance(error, ValueError):  # bytes that are not text
        return refusal(502, {}, "")
    return DeliveryError("setup", type(error).__name__)


def _error_code(body: str) -> str:
    try:
        data = json.loads(body)
    except ValueError:
        return body.strip()[:80]
    return str(data.get("error", "")) if isinstance(data, dict) else ""

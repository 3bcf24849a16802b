"""Buttons in Slack: Socket Mode, and each press performed once (acknowledge, release, silence, undo, check again).

Socket Mode is a connection that the bridge opens, so that no port faces the internet.
"""

from __future__ import annotations

import http.client
import logging
import sqlite3
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from slack_sdk import WebClient
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.socket_mode import SocketModeClient
from slack_sdk.socket_mode.client import BaseSocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.socket_mode.response import SocketModeResponse

from triton_alerts.alertmanager_client import ServerError
from triton_alerts.bridge.alertmanagers import RENEW_SECONDS, Alertmanagers, listed_starts
from triton_alerts.bridge.deliver.messages import UNTIL_RESOLVED, person
from triton_alerts.bridge.incidents.audit import Audit
from triton_alerts.bridge.incidents.incident import Event, Incident, Mark, Silence, SilencePart, worded
from triton_alerts.bridge.incidents.store import Store
from triton_alerts.bridge.text import code, utc_time

log = logging.getLogger(__name__)

HOURS = {"1h": 1, "4h": 4}
_NOT_ALLOWED = (
    "Not done: you are not allowed to use this button in this channel (--button-user, --channel). "
    "The attempt is in the audit log."
)
_NOT_STORED = "Not done: incident {} is no longer stored; closed incidents are deleted after 30 days."


@dataclass(frozen=True, slots=True)
class ButtonPress:
    """One button pressed by one person; `id` is the same when Slack delivers it again."""

    id: str
    action: str
    value: str
    incident: str
    user: str
    response_url: str = ""
    channel: str = ""


def button_presses(envelope: str, payload: Mapping[str, Any]) -> list[ButtonPress]:
    """Return the presses in an interactive payload, without those of other blocks than the bridge's."""
    presses = []
    user, channel = _id(payload.get("user")), _id(payload.get("channel"))
    listed = payload.get("actions")
    for action in listed if isinstance(listed, list) else ():
        if not isinstance(action, dict):
            continue
        block = str(action.get("block_id", ""))
        name = str(action.get("action_id", ""))
        if not block.startswith("incident:") or name.startswith("open_"):
            continue
        option = action.get("selected_option")
        value = (option.get("value") if isinstance(option, dict) else "") or action.get("value") or ""
        # The time of the press distinguishes two presses of one button from one that is delivered twice.
        press_id = f"{user} {block} {name} {value} {action.get('action_ts') or envelope}"
        answer = str(payload.get("response_url", ""))
        presses.append(ButtonPress(press_id, name, str(value), block[9:], user, answer, channel))
    return presses


def _id(named: object) -> str:
    return str(named.get("id", "")) if isinstance(named, dict) else ""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a press: the line for the person who pressed, and the change and event of the incident."""

    line: str
    event: Event | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Actions:
    """Carries out presses. `count` receives (action, outcome) for the bridge's own metrics.

    `users` and `channels` are the ids of the Slack users and channels whose presses are performed; empty: all.
    """

    store: Store
    audit: Audit
    alertmanagers: Alertmanagers
    clock: Callable[[], float]
    wake: Callable[[], None] = lambda: None
    count: Callable[[str, str], None] = lambda _action, _outcome: None
    users: frozenset[str] = frozenset()
    channels: frozenset[str] = frozenset()

    def do(self, press: ButtonPress) -> str:
        """Perform one press; return a line for the person who pressed."""
        try:
            return self._perform(press)
        except sqlite3.Error as error:
            self.store.database.report(error)
            self.count(press.action if press.action in self._handlers else "other", "failed")
            return (
                "Not done: the bridge cannot write to its disk. Free disk space, then press the button again."
            )

    def _perform(self, press: ButtonPress) -> str:
        now = self.clock()
        if self.store.values.pressed(press.id):
            return ""
        number = self.store.incidents.find(press.incident)
        handler = self._handlers.get(press.action)
        incident = self.store.incidents.get(number) if number is not None else None
        if (self.users and press.user not in self.users) or (
            self.channels and press.channel not in self.channels
        ):
            result, outcome = Result(_NOT_ALLOWED), "refused"
        elif handler is None or incident is None:
            result, outcome = Result(_NOT_STORED.format(press.incident)), "unknown"
        else:
            try:
                result, outcome = handler(incident, press, now), "done"
            except ServerError as error:
                result, outcome = Result(f"Not done: {error}"), "failed"
        line = result.line
        try:
            # Together: after a kill between them, the press would be lost or performed twice.
            with self.store.transaction():
                self.store.values.record_press(press.id, now)
                if number is not None and (event := result.event) is not None:
                    self.store.change(
                        number, lambda before: (before.model_copy(update=result.changes), (event,))
                    )
        except sqlite3.Error:
            # No message shows this silence, so nobody could end it from Slack.
            self._end_silence(result.changes.get("silence"))
            raise
        try:
            self.audit.write(now, press.user, press.action, press.incident, line)
        except OSError as error:  # the action itself was carried out
            log.error("the audit log cannot be written: %s %s: %s", press.action, press.incident, error)
            line += " (The audit log could not be written.)"
        self.count(press.action if handler is not None else "other", outcome)
        self.wake()
        return line

    @property
    def _handlers(self) -> Mapping[str, Callable[[Incident, ButtonPress, float], Result]]:
        return {
            "acknowledge": self._acknowledge,
            "release": self._release,
            "silence": self._silence,
            "unsilence": self._unsilence,
            "recheck": self._recheck,
        }

    def _acknowledge(self, incident: Incident, press: ButtonPress, now: float) -> Result:
        if incident.acknowledged is not None:
            return Result(f"{person(incident.acknowledged.by)} has already acknowledged this incident.")
        event = Event(at=now, kind="acknowledged", by=press.user)
        return Result("Acknowledged.", event, {"acknowledged": Mark(by=press.user, at=now)})

    def _release(self, incident: Incident, press: ButtonPress, now: float) -> Result:
        event = Event(at=now, kind="released", by=press.user)
        changes = {"acknowledged": None, "escalated_at": None, "released_at": now}
        return Result("Acknowledgement removed: the incident is not acknowledged.", event, changes)

    def _silence(self, incident: Incident, press: ButtonPress, now: float) -> Result:
        if not incident.open:
            return Result("Not done: the incident is resolved, so there is nothing to silence.")
        if incident.silence is not None:  # two people may press at once, and undo ends one silence
            return Result(f"{person(incident.silence.by)} has already silenced this incident.")
        until_resolved = press.value == UNTIL_RESOLVED
        if not until_resolved and press.value not in HOURS:
            return Result("Not done: this length of a silence is not supported.")
        until = now + (RENEW_SECONDS if until_resolved else HOURS[press.value] * 3600)
        matchers = incident.matchers
        alertmanager = self.alertmanagers.of(incident)
        comment = incident.silence_comment
        # A silence that a killed bridge made before it could store it is used again.
        known = iter(alertmanager.silences(comment))
        made: list[SilencePart] = []
        try:
            for group in matchers:
                wire = [matcher.wire() for matcher in group]
                silence_id = alertmanager.silence(wire, now, until, press.user, comment, next(known, ""))
                made.append(SilencePart(id=silence_id, matchers=group))
        except ServerError:
            for part in made:
                with suppress(ServerError):
                    alertmanager.unsilence(part.id)
            raise
        silence = Silence(
            id=made[0].id,
            by=press.user,
            until=until,
            until_resolved=until_resolved,
            matchers=made[0].matchers,
            alertmanager=alertmanager.url,
            parts=tuple(made[1:]),
        )
        when = "until resolved" if until_resolved else f"until {utc_time(until)}"
        what, ids = worded(matchers), ", ".join(silence.ids)
        event = Event(at=now, kind="silenced", by=press.user, words=f"{when}: {what} (silence {ids})")
        return Result(f"Silenced {when}: {code(what, 500)}.", event, {"silence": silence})

    def _end_silence(self, silence: Silence | None) -> None:
        if silence is None:
            return
        for silence_id in silence.ids:
            with suppress(ServerError):
                self.alertmanagers.at(silence.alertmanager).unsilence(silence_id)

    def _unsilence(self, incident: Incident, press: ButtonPress, now: float) -> Result:
        if incident.silence is None:
            return Result("Nothing to undo: this incident has no silence.")
        for silence_id in incident.silence.ids:
            self.alertmanagers.at(incident.silence.alertmanager).unsilence(silence_id)
        event = Event(at=now, kind="unsilenced", by=press.user, words="silence ended")
        return Result("Silence ended.", event, {"silence": None})

    def _recheck(self, incident: Incident, press: ButtonPress, now: float) -> Result:
        listed = listed_starts(self.alertmanagers.of(incident))
        still = sum(
            1 for fingerprint, member in incident.members.items() if member.firing and fingerprint in listed
        )
        line = f"{still} of {len(incident.firing)} alerts are still firing in Alertmanager"
        evidence = incident.evidence.model_copy(update={"at": 0.0}) if incident.evidence is not None else None
        event = Event(at=now, kind="note", by=press.user, words=line)
        return Result(f"{line}; the facts in the message are being updated.", event, {"evidence": evidence})


RECONNECT_SECONDS = 10.0
"""Slack: apps.connections.open is tier 3; some twenty calls a minute are always taken."""

RESPONSE_HOSTS = ("hooks.slack.com", "hooks.slack-gov.com")


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
                self._try_at = now + RECONNECT_SECONDS
                log.warning("the app token cannot be read, buttons do not work yet: %s", type(error).__name__)
            return
        if self._client is not None and token in ("", self._token):
            return  # slack_sdk reconnects on its own
        if now < self._try_at:
            return
        self._try_at = now + RECONNECT_SECONDS
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

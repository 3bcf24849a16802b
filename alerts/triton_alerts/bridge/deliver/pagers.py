"""Send incidents to PagerDuty (Events API v2), or to any webhook that takes JSON.

Both replace the earlier state of an incident, by its name, with each request. A request without a response is
repeated, and the newest state is sent again a minute later: the service may act on the first request late.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import requests

from triton_alerts.bridge.deliver.attempts import (
    MAX_WAIT_SECONDS,
    UNCONFIRMED_SECONDS,
    Attempts,
    retry_after_seconds,
)
from triton_alerts.bridge.deliver.incident_json import document
from triton_alerts.bridge.deliver.messages.incident_links import Style
from triton_alerts.bridge.deliver.transport import DeliveryError, read_secret
from triton_alerts.bridge.incidents.incident import Incident
from triton_alerts.bridge.incidents.outbox.deliveries import Delivery
from triton_alerts.bridge.incidents.outbox.unconfirmed import UnconfirmedMessage
from triton_alerts.bridge.incidents.store import Store
from triton_slo.names import SEVERITIES

PAGERDUTY_URL = "https://events.pagerduty.com/v2/enqueue"
TIMEOUT_SECONDS = 10.0
MAX_DETAIL_LENGTH = 4000
"""Characters; PagerDuty takes 512 KB of an event."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PagerDuty:
    """Triggers, acknowledges and resolves pages by the incident's name.

    https://developer.pagerduty.com/docs/events-api-v2
    """

    key: Callable[[], str]
    style: Style
    url: str = PAGERDUTY_URL
    name: str = "pagerduty"
    min_severity: str = "critical"

    def send(self, incident: Incident) -> None:
        # A page that has ended is resolved, even if its incident continues as a ticket.
        is_page = incident.open and SEVERITIES.index(incident.severity) <= SEVERITIES.index(self.min_severity)
        action = "acknowledge" if incident.acknowledged is not None else "trigger"
        event: dict[str, Any] = {
            "routing_key": read_secret(self.key),
            "dedup_key": f"tritonwatch/{incident.name}",
            "event_action": action if is_page else "resolve",
        }
        if event["event_action"] == "trigger":
            event |= self._trigger_fields(incident)
        _post_json(self.url, event, {})

    def _trigger_fields(self, incident: Incident) -> dict[str, Any]:
        shown = document(incident, self.style)
        labels = shown["lead"]["labels"]
        details = {
            "cause": shown["cause"],
            "description": shown["lead"]["description"],
            "first step": shown["first_step"],
            **{f"reason for {name}": reason for name, reason in shown["errors"].items()},
            **shown["evidence"],
            "alerts": str(shown["alerts_total"]),
        }
        return {
            "payload": {
                "summary": shown["title"][:1024],
                "source": labels.get("instance") or labels.get("model") or "tritonwatch",
                "severity": incident.severity if incident.severity in ("critical", "warning") else "info",
                "timestamp": shown["since"],
                "component": labels.get("model") or None,
                "class": labels.get("alertname") or None,
                "custom_details": {name: text[:MAX_DETAIL_LENGTH] for name, text in details.items() if text},
            },
            "links": [{"href": url, "text": label} for label, url in shown["links"].items()],
            "client": "tritonwatch",
        }


@dataclass(frozen=True)
class IncidentWebhook:
    """Sends every page and ticket as the JSON of `document`."""

    url: Callable[[], str]
    style: Style
    token: Callable[[], str] | None = None
    name: str = "webhook"
    min_severity: str = "warning"

    def send(self, incident: Incident) -> None:
        headers = {"Authorization": f"Bearer {read_secret(self.token)}"} if self.token is not None else {}
        _post_json(read_secret(self.url), document(incident, self.style), headers)


@dataclass
class PagerWorker:
    """Sends the newest state of each incident that changed to one pager, pages first."""

    pager: PagerDuty | IncidentWebhook
    store: Store
    attempts: Attempts
    evidence_seconds: float = 0.0
    _wait_until: float = field(default=0.0)
    _unstored: dict[int, UnconfirmedMessage] = field(default_factory=dict)
    """Delivery -> its request without an answer that the disk was too full to record."""

    @property
    def channel(self) -> str:
        return f"pager {self.pager.name}"

    def step(self) -> float:
        """Make at most one request; returns the seconds until there may be more to do."""
        now = self.attempts.clock()
        self.store.outbox.add_for_pager(self.channel, SEVERITIES.index(self.pager.min_severity), now)
        wait = self._wait_until - now
        if 0 < wait <= MAX_WAIT_SECONDS:  # a longer one was set before the clock was set back
            return wait
        waits = [MAX_WAIT_SECONDS]
        self._store_unconfirmed()
        unconfirmed = self.store.unconfirmed.first(self.channel)
        if unconfirmed is not None and 0 < unconfirmed.due - now <= UNCONFIRMED_SECONDS:
            waits.append(unconfirmed.due - now)
        elif unconfirmed is not None:
            self.store.unconfirmed.delete_checked(unconfirmed)
        for delivery in self.store.outbox.pending_for_pager(self.channel):
            incident = self.store.incidents.get(delivery.incident)
            later = delivery.next_try - now
            if incident is None or 0 < later <= MAX_WAIT_SECONDS:
                waits.append(max(later, 0.0))
                continue
            evidence_wait = incident.opened_at + self.evidence_seconds - now
            if (
                not delivery.posted_seq
                and incident.evidence is None
                and 0 < evidence_wait <= self.evidence_seconds
            ):
                waits.append(evidence_wait)
                continue
            self._send(delivery, incident, now)
            return 0.0
        return min(waits)

    def _send(self, delivery: Delivery, incident: Incident, now: float) -> None:
        """Send an incident's newest state, and record what the pager answered."""
        earlier = self._begin(delivery, now)
        try:
            self.pager.send(incident)
        except DeliveryError as refusal:
            if refusal.kind not in ("timeout", "connection"):
                self._forget_request(delivery, earlier)
            self._record_failure(delivery, refusal, now)
        else:
            self.attempts.failures = 0
            self.attempts.count("delivered", "event")
            self._forget_request(delivery, earlier)
            self.store.outbox.finish(delivery, posted_seq=delivery.last_seq)

    def _begin(self, delivery: Delivery, now: float) -> UnconfirmedMessage | None:
        """Record a request before it is sent; return an earlier one about the incident without a response."""
        begun = UnconfirmedMessage(self.channel, "", delivery.id, "", "", "", now, now + UNCONFIRMED_SECONDS)
        earlier = self._unstored.get(delivery.id)
        try:
            earlier = earlier or self.store.unconfirmed.of(self.channel, delivery.id)
            self.store.unconfirmed.add(begun)
        except sqlite3.Error:  # a full disk must not delay a page
            self._unstored[delivery.id] = begun
        return earlier

    def _forget_request(self, delivery: Delivery, earlier: UnconfirmedMessage | None) -> None:
        """Forget a request that was answered; an earlier one without a response is still repeated."""
        if self._unstored.pop(delivery.id, None) is None:
            self.store.unconfirmed.forget(self.channel, "", delivery.id, earlier)
        elif earlier is not None:
            self._unstored[delivery.id] = earlier

    def _store_unconfirmed(self) -> None:
        with suppress(sqlite3.Error):
            for delivery, unconfirmed in tuple(self._unstored.items()):
                self.store.unconfirmed.add(unconfirmed)
                del self._unstored[delivery]

    def _record_failure(self, delivery: Delivery, refusal: DeliveryError, now: float) -> None:
        self.attempts.count("failed", refusal.kind)
        log.warning("%s refused: %s", self.channel, refusal)
        if refusal.kind == "setup":  # a person has to fix it; other incidents may be accepted
            self.store.outbox.update(delivery, next_try=now + MAX_WAIT_SECONDS)
            return
        wait = self.attempts.wait()
        self._wait_until = now + (refusal.retry_after or wait)


def _post_json(url: str, body: dict[str, Any], headers: dict[str, str]) -> None:
    """Raise DeliveryError unless the answer is 2xx; no message names the address, which may be a secret."""
    try:
        answer = requests.post(
            url, json=body, headers=headers, timeout=TIMEOUT_SECONDS, allow_redirects=False
        )
    except requests.Timeout:
        raise DeliveryError("timeout", "no answer in time") from None
    except requests.RequestException as error:
        raise DeliveryError(
            "setup" if isinstance(error, ValueError) else "connection", type(error).__name__
        ) from None
    if answer.status_code == 429:
        raise DeliveryError("rate_limited", "429", retry_after_seconds(answer.headers.get("Retry-After", "")))
    if answer.status_code >= 500:
        raise DeliveryError("server_error", str(answer.status_code))
    if not 200 <= answer.status_code < 300:
        raise DeliveryError("setup", f"{answer.status_code} {' '.join(answer.text.split())[:200]}")

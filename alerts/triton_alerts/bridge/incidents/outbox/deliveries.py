"""Deliveries: the messages that each channel has been sent about each incident, and those still to be sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from triton_alerts.bridge.incidents.database import Database
from triton_alerts.bridge.incidents.incident import Event
from triton_slo.names import SEVERITIES

SendKind = Literal["root", "reply", "digest", "escalation", "edit", "digest_edit"]


@dataclass(frozen=True, slots=True)
class Delivery:
    """State of one incident in one channel: how much of it has been sent there.

    `role` is the most urgent severity that it reported, or escalation. `severity` is an index of SEVERITIES,
    `last_seq` and `version` are those of the incident's newest event and state.
    `posted_seq` counts the events posted in the thread, `shown_version` is the state that the root message shows,
    `digest_seq` counts the events that a digest included, `digest` is that digest's first message. `inflight`
    names a message that may have arrived.
    """

    id: int
    incident: int
    channel: str
    role: str
    severity: int
    opened_at: float
    closed_at: float | None
    last_seq: int
    version: int
    root_channel: str
    root_ts: str
    posted_seq: int
    shown_version: int
    digest_seq: int
    digest: str
    attempts: int
    """Posts in a row that Slack refused."""
    next_try: float
    edited_at: float
    inflight: str
    inflight_kind: SendKind | Literal[""]
    inflight_seq: int
    inflight_at: float
    raised_at: float | None
    """Time at which the incident became more urgent, where this channel was not sent that yet."""

    @property
    def is_escalation(self) -> bool:
        return self.role.startswith("escalation")

    @property
    def is_only_digested(self) -> bool:
        """True if the thread of a digest is all that shows it."""
        return bool(self.digest and self.digest_seq) and not self.root_ts


_MAIN = "role NOT LIKE 'escalation%'"
_SELECT = """
SELECT d.id, d.incident, d.channel, d.role, i.severity, i.opened_at, i.closed_at, i.last_seq, i.version,
       d.root_channel, d.root_ts, d.posted_seq, d.shown_version, d.digest_seq, d.digest, d.attempts,
       d.next_try, d.edited_at, d.inflight, d.inflight_kind, d.inflight_seq, d.inflight_at,
       (SELECT max(e.at) FROM events e WHERE e.incident = d.incident AND e.seq > d.posted_seq
        AND json_extract(e.document, '$.kind') = 'raised')
FROM deliveries d JOIN incidents i ON i.id = d.incident
"""


@dataclass(frozen=True, slots=True)
class Outbox:
    """Deliveries: one for each incident and role (pages, tickets), and one for each escalation.

    Roles with the same channel share a delivery. The channel of a role can change with a restart: see `move`.
    """

    database: Database
    channel_for: Callable[[str], str]

    def add(self, number: int, severity: str) -> None:
        """Add the delivery of an incident to the channel of a severity, unless it is in this channel already."""
        channel = self.channel_for(severity)
        with self.database.transaction():
            row = self.database.row(
                f"SELECT id, role FROM deliveries WHERE incident = ? AND channel = ? AND {_MAIN}",  # noqa: S608
                *(number, channel),
            )
            if row is None:
                self.database.run(
                    "INSERT INTO deliveries (incident, channel, role) VALUES (?, ?, ?)",
                    *(number, channel, severity),
                )
            elif SEVERITIES.index(severity) < SEVERITIES.index(row[1]):
                self.database.run("UPDATE deliveries SET role = ? WHERE id = ?", severity, row[0])

    def add_escalation(self, number: int, channel: str, now: float) -> None:
        """Add the escalation of an incident; a repeated one is a new delivery."""
        with self.database.transaction():
            # The message of an earlier escalation is still edited.
            self.database.run(
                "UPDATE deliveries SET role = 'escalation ' || id "
                "WHERE incident = ? AND channel = ? AND role = 'escalation' AND root_ts != ''",
                *(number, channel),
            )
            self.database.run(
                "INSERT OR IGNORE INTO deliveries (incident, channel, role, pending_since) "
                "VALUES (?, ?, 'escalation', ?)",
                *(number, channel, now),
            )

    def move(self, escalations: str) -> None:
        """Move what other channels were to be sent to the channels of now; `escalations` is that of escalations.

        Messages that were posted stay where they are, and are edited there. A digest is forgotten where it moves.
        """
        channels = {severity: self.channel_for(severity) for severity in SEVERITIES}
        with self.database.transaction():
            for role, channel in {**channels, "escalation": escalations}.items():
                of_role = "role LIKE 'escalation%'" if role == "escalation" else f"role = '{role}'"
                self.database.run(
                    "UPDATE deliveries SET channel = ?1, digest = '', "  # noqa: S608
                    "digest_seq = CASE root_ts WHEN '' THEN 0 ELSE digest_seq END, attempts = 0, next_try = 0 "
                    f"WHERE channel != ?1 AND {of_role}",
                    channel,
                )
            # A ticket that nobody saw, of an incident that has become a page in the same channel.
            self.database.run(
                f"DELETE FROM deliveries WHERE root_ts = '' AND inflight = '' AND {_MAIN} AND EXISTS "  # noqa: S608
                "(SELECT 1 FROM deliveries o WHERE o.incident = deliveries.incident "
                "AND o.channel = deliveries.channel AND o.role NOT LIKE 'escalation%' AND o.id > deliveries.id)"
            )
            now = sorted({*channels.values(), escalations})
            elsewhere = f"channel NOT IN ({', '.join('?' * len(now))})"
            self.database.run(f"DELETE FROM digests WHERE {elsewhere}", *now)  # noqa: S608
            self.database.run(f"DELETE FROM doubts WHERE {elsewhere}", *now)  # noqa: S608

    def queue(self, number: int, events: Sequence[Event]) -> None:
        """Queue what happened to an incident, for a second channel too where it became more urgent."""
        for event in events:
            if event.kind == "raised":
                self.add(number, event.severity)
        if events:
            self.database.run(
                "UPDATE deliveries SET pending_since = ? WHERE incident = ? AND pending_since IS NULL "  # noqa: S608
                f"AND {_MAIN}",
                *(events[0].at, number),
            )

    def pending(self, channel: str) -> list[Delivery]:
        """Return the deliveries of a channel that have something to send, oldest first."""
        rows = self.database.rows(
            f"{_SELECT} WHERE d.channel = ? AND (d.inflight != '' "
            "OR CASE WHEN d.role LIKE 'escalation%' THEN d.root_ts = '' ELSE d.posted_seq < i.last_seq END "
            "OR (d.root_ts != '' AND d.shown_version < i.version)) ORDER BY d.id",
            channel,
        )
        return [Delivery(*row) for row in rows]

    def main(self, number: int) -> Delivery | None:
        """Return the latest main delivery of an incident that has a message: that of its highest severity."""
        row = self.database.row(
            f"{_SELECT} WHERE d.incident = ? AND d.{_MAIN} ORDER BY d.root_ts = '', d.id DESC LIMIT 1",
            number,
        )
        return Delivery(*row) if row else None

    def is_continued(self, delivery: Delivery) -> bool:
        """Return whether the incident got more urgent and has, or will have, a message in another channel."""
        row = self.database.row(
            f"SELECT 1 FROM deliveries WHERE incident = ? AND {_MAIN} AND id > ? LIMIT 1",  # noqa: S608
            *(delivery.incident, delivery.id),
        )
        return row is not None

    def earlier(self, delivery: Delivery) -> Delivery | None:
        """Return the delivery of the less urgent incident that this one continues in another channel."""
        row = self.database.row(
            f"{_SELECT} WHERE d.incident = ? AND d.{_MAIN} AND d.id < ? AND d.root_ts != '' "
            "ORDER BY d.id LIMIT 1",
            *(delivery.incident, delivery.id),
        )
        return Delivery(*row) if row else None

    def begin(
        self,
        deliveries: Sequence[Delivery],
        name: str,
        kind: SendKind,
        now: float,
        **values: str,
    ) -> None:
        """Record, before it is sent, that a message is about to be sent; `values` are other columns to set."""
        with self.database.transaction():
            for delivery in deliveries:
                self.update(
                    delivery,
                    inflight=name,
                    inflight_kind=kind,
                    inflight_seq=delivery.last_seq,
                    inflight_at=now,
                    **values,
                )

    def forget_attempt(self, deliveries: Sequence[Delivery]) -> None:
        """Record that no message to these deliveries is in flight any more: the next attempt is a new message."""
        with self.database.transaction():
            for delivery in deliveries:
                self.update(delivery, inflight="", inflight_kind="", inflight_at=0.0)

    def finish(self, delivery: Delivery, **values: str | int | float) -> None:
        """Record that the message in flight arrived; `values` are the delivery's columns to set."""
        with self.database.transaction():
            self.update(delivery, inflight="", inflight_kind="", attempts=0, next_try=0.0, **values)
            self.database.run(
                f"UPDATE deliveries SET pending_since = CASE WHEN {_MAIN} THEN (SELECT min(e.at) "  # noqa: S608
                "FROM events e WHERE e.incident = deliveries.incident "
                "AND e.seq > max(deliveries.posted_seq, deliveries.digest_seq)) END WHERE id = ?",
                delivery.id,
            )

    def update(self, delivery: Delivery, **values: str | int | float) -> None:
        """Set columns of a delivery."""
        columns = ", ".join(f"{name} = ?" for name in values)
        self.database.run(
            f"UPDATE deliveries SET {columns} WHERE id = ?",  # noqa: S608
            *(*values.values(), delivery.id),
        )

    def edit_soon(self, number: int) -> None:
        """Edit the incident's root message without the usual pause, for the person who pressed a button."""
        self.database.run("UPDATE deliveries SET edited_at = 0 WHERE incident = ?", number)

    def without_chart(self, limit: int) -> list[int]:
        """Return the numbers of at most `limit` open incidents that have a thread without a chart."""
        rows = self.database.rows(
            f"SELECT DISTINCT i.id FROM incidents i JOIN deliveries d ON d.incident = i.id AND d.{_MAIN} "  # noqa: S608
            "WHERE i.closed_at IS NULL AND i.charted = 0 AND d.root_ts != '' ORDER BY i.id LIMIT ?",
            limit,
        )
        return [int(row[0]) for row in rows]

    def set_charted(self, number: int) -> None:
        self.database.run("UPDATE incidents SET charted = 1 WHERE id = ?", number)

    def backlog(self) -> tuple[int, float | None]:
        """Count deliveries with events that no channel was sent; return also when the oldest of these happened."""
        row = self.database.row(
            "SELECT count(*), min(pending_since) FROM deliveries WHERE pending_since IS NOT NULL"
        )
        return row if row else (0, None)

"""Outbox: what each channel shows about each incident, and what is still to be sent.

A delivery is a small state machine. Its state follows from its numbers (see `Delivery`), so nothing else is stored
about a message that is to be sent, or that may have arrived.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from triton_alerts.bridge.incidents.database import Database
from triton_alerts.bridge.incidents.incident import Event
from triton_slo.names import SEVERITIES

CHECK_SECONDS = 60.0
"""Slack has acted up to 40 s after a request that it did not answer in time."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """State of one incident in one channel.

    `role` is the most urgent severity that it reported, escalation, or digest, which is about many incidents. The
    message is `ts` in the Slack channel `posted_in` (empty: none yet). It and its thread report the events up to
    `seq`, and it shows the state `version`. `sending` is the last event of a post that may have arrived (0: none),
    which was sent first at `sent_at`. At `check_at` (0: never) the channel is searched for copies of its posts,
    and the message is edited again: a request was not answered, and Slack may have acted on it later.

    The other fields are those of the incident now. `digest` is the digest that names it: None for no digest, empty
    for one that is not posted yet. `raised_at` is when the incident became more urgent, and `changed_at` when one of its
    alerts began or ended, where the channel does not show that yet.

    | state | condition | next request |
    |---|---|---|
    | waiting | no `ts`, `seq` < `last_seq` | post the message |
    | unsure | `sending` | search for the post; without a result, post it again |
    | behind | `ts`, `seq` < `last_seq` | reply in the thread |
    | stale | `ts`, `version` is not the newest | edit the message |
    | done | none of these | none |

    A digest names the incidents of the deliveries from `seq` to `version`, and is edited while one of them fires.
    """

    id: int
    incident: int
    channel: str
    role: str
    posted_in: str
    ts: str
    seq: int
    version: int
    sending: int
    sent_at: float
    check_at: float
    severity: int
    opened_at: float
    closed_at: float | None
    last_seq: int
    newest: int
    raised_at: float | None
    changed_at: float | None
    digest: str | None

    @property
    def is_escalation(self) -> bool:
        return self.role.startswith("escalation")

    @property
    def wants_post(self) -> bool:
        """Whether it is waiting or behind. An escalation is one message, without a thread."""
        return self.seq == 0 if self.is_escalation else self.seq < self.last_seq

    @property
    def is_new(self) -> bool:
        """Whether the channel shows nothing of the incident, not even a line in a digest."""
        return not (self.is_escalation or self.ts or self.seq or self.sending or self.digest is not None)


@dataclass(frozen=True, slots=True)
class Digest:
    """A digest, how many incidents it counts, how many of them fire, and how many of these have an own message."""

    delivery: Delivery
    total: int
    firing: int
    own: int

    @property
    def counts(self) -> tuple[int, int, int]:
        return self.total, self.firing, self.own


UNDELIVERED = "CASE WHEN d.role LIKE 'escalation%' THEN d.seq = 0 ELSE d.seq < i.last_seq END"
"""SQL for a delivery (d) of an incident (i) that is waiting or behind: see `Delivery.wants_post`."""
_MAIN = f"role IN {SEVERITIES}"
_NAMED_BY = "g.role = 'digest' AND g.channel = d.channel AND d.id BETWEEN g.seq AND g.version"
_LAST = (
    "(SELECT max(e.at) FROM events e WHERE e.incident = d.incident AND e.seq > d.seq "
    "AND json_extract(e.document, '$.kind') IN ({}))"
)
"""Time of the last event of some kinds that the channel does not show."""
_SELECT = f"""
SELECT d.id, d.incident, d.channel, d.role, d.posted_in, d.ts, d.seq, d.version, d.sending, d.sent_at, d.check_at,
       i.severity, i.opened_at, i.closed_at, i.last_seq, i.version,
       {_LAST.format("'raised'")}, {_LAST.format("'resolved', CASE WHEN d.ts != '' THEN 'fired' END")},
       (SELECT max(g.ts) FROM deliveries g WHERE {_NAMED_BY})
FROM deliveries d JOIN incidents i ON i.id = d.incident
"""  # noqa: S608


@dataclass(frozen=True, slots=True)
class Outbox:
    """Deliveries: one for each incident and role (pages, tickets), one for each escalation, and digests.

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
                "WHERE incident = ? AND channel = ? AND role = 'escalation' AND ts != ''",
                *(number, channel),
            )
            self.database.run(
                "INSERT OR IGNORE INTO deliveries (incident, channel, role, sent_at) "
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
                    f"UPDATE deliveries SET channel = ?1 WHERE channel != ?1 AND {of_role}",  # noqa: S608
                    channel,
                )
            # A ticket that nobody saw, of an incident that has become a page in the same channel.
            self.database.run(
                f"DELETE FROM deliveries WHERE ts = '' AND sending = 0 AND {_MAIN} AND EXISTS "  # noqa: S608
                "(SELECT 1 FROM deliveries o WHERE o.incident = deliveries.incident "
                f"AND o.channel = deliveries.channel AND o.{_MAIN} AND o.id > deliveries.id)"
            )
            now = sorted({*channels.values(), escalations})
            self.database.run(
                f"DELETE FROM deliveries WHERE role = 'digest' "  # noqa: S608
                f"AND channel NOT IN ({', '.join('?' * len(now))})",
                *now,
            )

    def queue(self, number: int, events: Sequence[Event]) -> None:
        """Queue what happened to an incident for a second channel too, where it became more urgent."""
        for event in events:
            if event.kind == "raised":
                self.add(number, event.severity)

    def pending(self, channel: str) -> list[Delivery]:
        """Return the deliveries of incidents that are not done, oldest first."""
        rows = self.database.rows(
            f"{_SELECT} WHERE d.channel = ? AND (d.sending != 0 OR d.check_at != 0 OR {UNDELIVERED} "
            "OR (d.ts != '' AND d.version < i.version)) ORDER BY d.id",
            channel,
        )
        return [Delivery(*row) for row in rows]

    def main(self, number: int) -> Delivery | None:
        """Return the latest main delivery of an incident that has a message: that of its highest severity."""
        row = self.database.row(
            f"{_SELECT} WHERE d.incident = ? AND d.{_MAIN} ORDER BY d.ts = '', d.id DESC LIMIT 1",
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
            f"{_SELECT} WHERE d.incident = ? AND d.{_MAIN} AND d.id < ? AND d.ts != '' ORDER BY d.id LIMIT 1",
            *(delivery.incident, delivery.id),
        )
        return Delivery(*row) if row else None

    def name(self, delivery: Delivery, sending: int = 0) -> str:
        """Return the name of the post of an event, else of the last post: the same at each attempt.

        It begins with the name of the database, because several bridges may write to one channel.
        """
        (database,) = self.database.row("SELECT value FROM facts WHERE name = 'database'") or ("",)
        role = delivery.role if delivery.role == "digest" else delivery.role.partition(" ")[0]
        if role in SEVERITIES:  # it can rise meanwhile
            role = "incident"
        number = delivery.seq if role == "digest" else sending or delivery.sending or delivery.seq
        return f"{database}/{delivery.id}/{role}/{number}"

    def update(self, delivery: Delivery, **values: str | int | float) -> None:
        """Set columns of a delivery."""
        columns = ", ".join(f"{name} = ?" for name in values)
        self.database.run(
            f"UPDATE deliveries SET {columns} WHERE id = ?",  # noqa: S608
            *(*values.values(), delivery.id),
        )

    def backlog(self) -> tuple[int, float | None]:
        """Count deliveries with events that no channel shows; return also when the oldest of these happened."""
        row = self.database.row(
            f"SELECT count(*), min(CASE WHEN d.{_MAIN} THEN (SELECT min(e.at) FROM events e "  # noqa: S608
            "WHERE e.incident = d.incident AND e.seq > d.seq) ELSE d.sent_at END) "
            "FROM deliveries d JOIN incidents i ON i.id = d.incident "
            f"WHERE {UNDELIVERED} "
            f"AND NOT (d.ts = '' AND EXISTS (SELECT 1 FROM deliveries g WHERE {_NAMED_BY} AND g.ts != ''))"
        )
        return row if row else (0, None)

    # Charts

    def without_chart(self, limit: int) -> list[int]:
        """Return the numbers of at most `limit` open incidents that have a thread without a chart."""
        rows = self.database.rows(
            f"SELECT DISTINCT i.id FROM incidents i JOIN deliveries d ON d.incident = i.id AND d.{_MAIN} "  # noqa: S608
            "WHERE i.closed_at IS NULL AND i.charted = 0 AND d.ts != '' ORDER BY i.id LIMIT ?",
            limit,
        )
        return [int(row[0]) for row in rows]

    def set_charted(self, number: int) -> None:
        self.database.run("UPDATE incidents SET charted = 1 WHERE id = ?", number)

    # Digests

    def digests(self, channel: str) -> list[Digest]:
        """Return the channel's digests, the oldest first."""
        rows = self.database.rows(
            "SELECT g.id, 0, g.channel, g.role, g.posted_in, g.ts, g.seq, g.version, g.sending, g.sent_at, "  # noqa: S608
            "g.check_at, 0, 0, NULL, 0, 0, NULL, NULL, NULL, count(d.id), coalesce(sum(i.closed_at IS NULL), 0), "
            "coalesce(sum(i.closed_at IS NULL AND d.ts != ''), 0) "
            f"FROM deliveries g LEFT JOIN deliveries d ON {_NAMED_BY} AND d.{_MAIN} "
            "LEFT JOIN incidents i ON i.id = d.incident WHERE g.channel = ? AND g.role = 'digest' "
            "GROUP BY g.id ORDER BY g.id",
            channel,
        )
        return [Digest(Delivery(*row[:19]), *row[19:]) for row in rows]

    def add_digest(self, channel: str, first: int, last: int, now: float) -> None:
        """Add a digest that names the deliveries from `first` to `last`."""
        self.database.run(
            "INSERT INTO deliveries (channel, role, seq, version, sent_at) VALUES (?, 'digest', ?, ?, ?)",
            *(channel, first, last, now),
        )

    def named_by(self, digest: Delivery) -> list[int]:
        """Return the incidents that a digest alone shows: those that fire first, then pages, then the newest."""
        rows = self.database.rows(
            "SELECT i.id FROM deliveries d JOIN incidents i ON i.id = d.incident "  # noqa: S608
            f"WHERE d.channel = ? AND d.id BETWEEN ? AND ? AND d.ts = '' AND d.{_MAIN} "
            "ORDER BY i.closed_at IS NOT NULL, i.severity, i.id DESC",
            *(digest.channel, digest.seq, digest.version),
        )
        return [int(row[0]) for row in rows]

    def finish_ended(self, digest: Delivery) -> None:
        """Record that a digest shows the end of the incidents that only it shows."""
        self.database.run(
            "UPDATE deliveries SET seq = (SELECT last_seq FROM incidents i WHERE i.id = incident) "  # noqa: S608
            f"WHERE channel = ? AND id BETWEEN ? AND ? AND ts = '' AND sending = 0 AND {_MAIN} "
            "AND (SELECT closed_at FROM incidents i WHERE i.id = incident) IS NOT NULL",
            *(digest.channel, digest.seq, digest.version),
        )

    def delete(self, digest: Delivery) -> None:
        """Delete a digest whose incidents have all ended, or whose message was deleted: these are then posted."""
        self.database.run("DELETE FROM deliveries WHERE id = ?", digest.id)

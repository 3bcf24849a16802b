"""Digests: messages that sum up many incidents in a channel at once."""

from __future__ import annotations

from dataclasses import dataclass

from triton_alerts.bridge.incidents.database import Database


@dataclass(frozen=True, slots=True)
class Digest:
    """The first message of a digest: the counts that it shows, and the counts now."""

    channel: str
    ts: str
    at: float
    edited_at: float
    shown: tuple[int, int]
    """Incidents it counted, and how many of them were firing."""
    named: int
    firing: int
    own: int
    """Number of the firing incidents that have a message of their own."""


@dataclass(frozen=True, slots=True)
class Digests:
    """The digests of all channels; `ts` is that of a digest's first message."""

    database: Database

    def of(self, channel: str) -> list[Digest]:
        """Return the channel's latest digest, and the earlier ones that still show firing incidents."""
        rows = self.database.rows(
            "SELECT g.root_channel, g.ts, g.at, g.edited_at, g.total, g.firing, count(d.id), "
            "coalesce(sum(i.closed_at IS NULL), 0), coalesce(sum(i.closed_at IS NULL AND d.root_ts != ''), 0) "
            "FROM digests g LEFT JOIN deliveries d ON d.digest = g.ts AND d.channel = g.channel "
            "LEFT JOIN incidents i ON i.id = d.incident WHERE g.channel = ?1 "
            "AND (g.firing > 0 OR g.total = 0 OR g.at = (SELECT max(at) FROM digests WHERE channel = ?1)) "
            "GROUP BY g.ts ORDER BY g.at DESC, g.ts DESC",
            channel,
        )
        return [
            Digest(root_channel, ts, at, edited_at, (total, firing), named, still, own)
            for root_channel, ts, at, edited_at, total, firing, named, still, own in rows
        ]

    def record(self, channel: str, root_channel: str, ts: str, now: float) -> None:
        """Record the first message of a digest; its counts are recorded with its first edit."""
        self.database.run("DELETE FROM digests WHERE channel = ? AND total > 0 AND firing = 0", channel)
        self.database.run(
            "INSERT OR REPLACE INTO digests VALUES (?, ?, ?, ?, 0, 0, ?)", channel, root_channel, ts, now, now
        )

    def edited(self, channel: str, ts: str, total: int, firing: int, now: float) -> None:
        """Record what the digest shows since its last edit."""
        self.database.run(
            "UPDATE digests SET total = ?, firing = ?, edited_at = ? WHERE channel = ? AND ts = ?",
            *(total, firing, now, channel, ts),
        )

    def forget(self, channel: str, ts: str) -> None:
        """Forget a digest whose message was deleted; later changes of its incidents are posted elsewhere."""
        with self.database.transaction():
            self.database.run("DELETE FROM digests WHERE channel = ? AND ts = ?", channel, ts)
            self.database.run(
                "UPDATE deliveries SET digest = '' WHERE channel = ? AND digest = ?", channel, ts
            )

    def alone_in(self, channel: str, ts: str, limit: int) -> list[int]:
        """Return the firing incidents that a digest alone shows: pages first, then the newest."""
        rows = self.database.rows(
            "SELECT i.id FROM deliveries d JOIN incidents i ON i.id = d.incident WHERE d.channel = ? "
            "AND d.digest = ? AND d.root_ts = '' AND i.closed_at IS NULL ORDER BY i.severity, i.id DESC LIMIT ?",
            *(channel, ts, limit),
        )
        return [int(row[0]) for row in rows]

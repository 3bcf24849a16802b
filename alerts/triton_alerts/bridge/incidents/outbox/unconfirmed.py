"""Messages that were sent without a response, and are checked later."""

from __future__ import annotations

from dataclasses import dataclass

from triton_alerts.bridge.incidents.database import Database


@dataclass(frozen=True, slots=True)
class UnconfirmedMessage:
    """A request without a response, which may still take effect. Without a name: an edit.

    `ts` is the message that stays, `thread` the one that it answers, `since` when it was sent first.
    """

    channel: str
    name: str
    delivery: int
    root_channel: str
    thread: str
    ts: str
    since: float
    due: float


@dataclass(frozen=True, slots=True)
class UnconfirmedMessages:
    """The unconfirmed messages of all channels."""

    database: Database

    def add(self, unconfirmed: UnconfirmedMessage) -> None:
        """Check this message when it is due."""
        self.database.run(
            "INSERT OR REPLACE INTO doubts VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            *(unconfirmed.channel, unconfirmed.name, unconfirmed.delivery, unconfirmed.root_channel),
            *(unconfirmed.thread, unconfirmed.ts, unconfirmed.since, unconfirmed.due),
        )

    def first(self, channel: str) -> UnconfirmedMessage | None:
        """Return the message of a channel that is to be checked next."""
        row = self.database.row("SELECT * FROM doubts WHERE channel = ? ORDER BY due LIMIT 1", channel)
        return UnconfirmedMessage(*row) if row else None

    def delete_checked(self, unconfirmed: UnconfirmedMessage) -> None:
        """Delete a message that was checked; an edit is sent again, as Slack may have applied an older one last."""
        with self.database.transaction():
            self.database.run(
                "DELETE FROM doubts WHERE channel = ? AND name = ? AND delivery = ?",
                *(unconfirmed.channel, unconfirmed.name, unconfirmed.delivery),
            )
            if not unconfirmed.name:
                self.database.run(
                    "UPDATE deliveries SET shown_version = 0 WHERE id = ?", unconfirmed.delivery
                )
            if not unconfirmed.name and not unconfirmed.delivery:
                self.database.run("UPDATE digests SET total = 0 WHERE channel = ?", unconfirmed.channel)

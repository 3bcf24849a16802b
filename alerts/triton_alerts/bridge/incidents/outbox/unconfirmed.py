"""Messages that were sent without a response, and are checked later."""

from __future__ import annotations

from dataclasses import dataclass

from triton_alerts.bridge.incidents.database import Database


@dataclass(frozen=True, slots=True)
class UnconfirmedMessage:
    """A request without a response, which may still take effect. Without a name: an edit, or a pager's event.

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

    def of(self, channel: str, delivery: int) -> UnconfirmedMessage | None:
        """Return the request about a delivery that has no answer yet, other than one with a name."""
        row = self.database.row(
            "SELECT * FROM doubts WHERE channel = ? AND name = '' AND delivery = ?", channel, delivery
        )
        return UnconfirmedMessage(*row) if row else None

    def forget(
        self, channel: str, name: str, delivery: int, earlier: UnconfirmedMessage | None = None
    ) -> None:
        """Forget a request that was answered, and check an earlier one instead."""
        with self.database.transaction():
            self.database.run(
                "DELETE FROM doubts WHERE channel = ? AND name = ? AND delivery = ?", channel, name, delivery
            )
            if earlier is not None:
                self.add(earlier)

    def delete_checked(self, unconfirmed: UnconfirmedMessage) -> None:
        """Delete a message that was checked; an edit, or the event of a pager, is sent again.

        The receiver may have applied an older state after a newer one.
        """
        with self.database.transaction():
            self.forget(unconfirmed.channel, unconfirmed.name, unconfirmed.delivery)
            if not unconfirmed.name:
                self.database.run(
                    "UPDATE deliveries SET shown_version = 0, "
                    "posted_seq = CASE role WHEN 'pager' THEN 0 ELSE posted_seq END WHERE id = ?",
                    unconfirmed.delivery,
                )
            if not unconfirmed.name and not unconfirmed.delivery:
                self.database.run("UPDATE digests SET total = 0 WHERE channel = ?", unconfirmed.channel)

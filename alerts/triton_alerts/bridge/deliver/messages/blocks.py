"""Messages of the bridge, and the parts of Slack's Block Kit that they are made of.

https://docs.slack.dev/reference/block-kit/blocks
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from triton_alerts.bridge import text
from triton_alerts.bridge.text import plain

Block = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Message:
    """`text` is what notifications and screen readers get, `blocks` what the channel shows."""

    text: str
    blocks: tuple[Block, ...] = ()


def bare(message: Message) -> Message:
    """Return the message without blocks, for when Slack refuses them."""
    return Message(message.text)


def header(title: str) -> Block:
    """Return a title block; one that is too long is cut."""
    return {
        "type": "header",
        "text": {"type": "plain_text", "text": plain(title, text.MAX_HEADER_LENGTH), "emoji": False},
    }


def section(body: str) -> Block:
    """Return a block of Slack markup."""
    return {"type": "section", "text": mrkdwn(body)}


def field(name: str, value: str) -> Block:
    """Return a fact of a section: its name and its value."""
    return mrkdwn(f"*{name}*\n{value}")


def mrkdwn(body: str) -> Block:
    """Return text in Slack's markup."""
    # verbatim: Slack makes no mention, channel or link of a name such as @here or model.ai.
    return {"type": "mrkdwn", "text": body, "verbatim": True}


def plain_text(label: str) -> Block:
    """Return the label of a button, cut to what Slack takes."""
    return {"type": "plain_text", "text": plain(label, text.MAX_BUTTON_LENGTH)}


def button(label: str, action: str) -> Block:
    """Return a button that sends an action back to the bridge."""
    return {"type": "button", "text": plain_text(label), "action_id": action, "value": action}

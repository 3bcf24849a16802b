"""Check a message against the limits that Slack documents for messages and Block Kit.

Sources: docs.slack.dev, reference/methods/chat.postMessage and reference/block-kit/blocks.
"""

from __future__ import annotations

import json
from typing import Any


class SlackError(Exception):
    """An `ok: false` answer with this code."""


def check_message(arguments: dict[str, Any]) -> None:
    """Raise SlackError where Slack would refuse the content."""
    text, blocks = arguments.get("text", ""), arguments.get("blocks") or []
    if not isinstance(text, str) or not isinstance(blocks, list):
        raise SlackError("invalid_arguments")
    if not text.strip() and not blocks:
        raise SlackError("no_text")
    if units(text) > 40_000:
        raise SlackError("msg_too_long")
    if len(blocks) > 50:
        raise SlackError("invalid_blocks")
    for block in blocks:
        _check_block(block)
    if len(json.dumps(blocks, ensure_ascii=False)) > 40_000 or _letters(blocks) > 13_200:
        raise SlackError("msg_blocks_too_long")


def units(text: str) -> int:
    """Return the length as Slack counts it, in UTF-16 units: an emoji has two."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _letters(value: Any) -> int:
    if isinstance(value, dict):
        return sum(
            units(v) if k in ("text", "value", "url") and isinstance(v, str) else _letters(v)
            for k, v in value.items()
        )
    return sum(_letters(part) for part in value) if isinstance(value, list) else 0


def _check_block(block: Any) -> None:
    kind = block.get("type") if isinstance(block, dict) else None
    _need(len(block.get("block_id", "")) <= 255 if kind else False)
    if kind == "header":
        _check_text(block.get("text"), 150, ("plain_text",))
    elif kind == "section":
        _need("text" in block or block.get("fields"))
        if "text" in block:
            _check_text(block["text"], 3000)
        _need(len(block.get("fields", [])) <= 10)
        for cell in block.get("fields", []):
            _check_text(cell, 2000)
    elif kind == "context":
        _need(0 < len(block.get("elements", [])) <= 10)
        for element in block["elements"]:
            _check_text(element, 2000)
    elif kind == "actions":
        _need(0 < len(block.get("elements", [])) <= 25)
        names = [element.get("action_id") for element in block["elements"]]
        _need(len(names) == len(set(names)))
        for element in block["elements"]:
            _check_element(element)
    else:
        _need(kind == "divider")


def _check_element(element: dict[str, Any]) -> None:
    _need(0 < len(element.get("action_id", "x")) <= 255)
    if element.get("type") == "button":
        _check_text(element.get("text"), 75, ("plain_text",))
        url = element.get("url", "")
        _need(len(element.get("value", "")) <= 2000 and len(url) <= 3000)
        _need(not url or url.startswith(("http://", "https://")))
        _need(element.get("style", "primary") in ("primary", "danger"))
    elif element.get("type") == "static_select":
        _check_text(element.get("placeholder"), 150, ("plain_text",))
        _need(0 < len(element.get("options", [])) <= 100)
        for option in element["options"]:
            _check_text(option.get("text"), 75, ("plain_text",))
            _need(0 < len(option.get("value", "")) <= 150)
        if "confirm" in element:
            for part, limit in (("title", 100), ("text", 300), ("confirm", 30), ("deny", 30)):
                _check_text(element["confirm"].get(part), limit, ("plain_text",))
    else:
        raise SlackError("invalid_blocks")


def _check_text(value: Any, limit: int, kinds: tuple[str, ...] = ("plain_text", "mrkdwn")) -> None:
    _need(isinstance(value, dict) and value.get("type") in kinds)
    _need(
        isinstance(value.get("text"), str)
        and 0 < units(value["text"]) <= limit
        and value["text"].strip() != ""
    )
    _need(value["type"] == "plain_text" or "emoji" not in value)


def _need(condition: Any) -> None:
    if not condition:
        raise SlackError("invalid_blocks")

"""Text from labels, annotations and Triton's reasons, made safe for Slack.

Text from outside must not mention anyone, create a link or break a block: control and bidirectional
characters are removed, Slack's three entities are escaped, and its markup characters are replaced by similar
characters.
https://docs.slack.dev/messaging/formatting-message-text
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from triton_exporter.common.duration import DAY
from triton_exporter.common.moments import utc_text

MAX_HEADER_LENGTH = 150
MAX_SECTION_LENGTH = 3000
MAX_URL_LENGTH = 3000
MAX_BUTTON_LENGTH = 75
MAX_CONFIRM_LENGTH = 300
"""Limits of Slack, in UTF-16 units as it counts them: an emoji has two."""

_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
_SIMILAR_CHARACTERS = str.maketrans({"*": "∗", "~": "∼", "`": "ˋ"})
_EDGE_UNDERSCORE = re.compile(r"(?<!\w)_|_(?!\w)")
_CUT = " …"


def clean(text: str) -> str:
    """Remove invisible characters: control, zero-width and bidirectional characters, and lone surrogates."""
    return _INVISIBLE.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def plain(text: str, limit: int) -> str:
    """Return one line for a plain_text object, with at most `limit` characters and never empty."""
    line = " ".join(clean(text).split())
    return _cut(line, limit, units) or "-"


def prose(text: str, limit: int) -> str:
    """Return text for mrkdwn without any markup, with at most `limit` characters after escaping."""
    safe = _EDGE_UNDERSCORE.sub("ˍ", clean(text)[: limit + 1].translate(_SIMILAR_CHARACTERS))
    return _escape(safe, limit)


def code(text: str, limit: int = 200) -> str:
    """Return a name in a code span."""
    return f"`{_escape(' '.join(clean(text).replace('`', 'ˋ').split()) or '-', limit - 2)}`"


def code_block(text: str, limit: int) -> str:
    """Return a code block of several lines, such as a stack trace; if it is too long, the middle is cut."""
    safe = clean(text).replace("`", "ˋ").strip("\n") or "-"
    available = limit - 8
    if _length(safe) > available:
        half = available // 2 - 20
        tail = safe[-half:]
        while _length(tail) > half:
            tail = tail[max(1, (_length(tail) - half) // 5) :]
        return f"```\n{_escape(safe, half)}\n[cut]\n{_escape(tail, half + len(_CUT))}\n```"
    return f"```\n{_escape(safe, available)}\n```"


def link(url: str, text: str) -> str:
    """Return a link, or only the text if the address is not safe."""
    safe = safe_url(url)
    if not safe:
        return prose(text, MAX_BUTTON_LENGTH)
    return f"<{_escape(safe, 2 * MAX_URL_LENGTH).replace('|', '%7C')}|{prose(text, MAX_BUTTON_LENGTH)}>"


def safe_url(url: str) -> str:
    """Return the URL if it is http or https and Slack accepts it, otherwise an empty string."""
    url = url.strip()
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    if parts.scheme not in ("http", "https") or not parts.netloc or not 0 < len(url) <= MAX_URL_LENGTH:
        return ""
    return "" if re.search(r"[\s<>\"\\^`{|}\x00-\x1f\x7f]", url) or clean(url) != url else url


def with_query(url: str, **values: str) -> str:
    """Return the address with query parameters it does not have yet (`_` in names stands for `-`)."""
    parts = urlsplit(url)
    present = parse_qsl(parts.query, keep_blank_values=True)
    names = {name for name, _ in present}
    added = [(name.replace("_", "-"), value) for name, value in values.items()]
    query = urlencode([*present, *((n, v) for n, v in added if n not in names)])
    return urlunsplit(parts._replace(query=query))


def utc_time(at: float) -> str:
    """Return a time in UTC, for places where Slack cannot show the reader's own."""
    return utc_text(_drawable(at))


def slack_time(at: float) -> str:
    """Return a time that Slack shows in the reader's zone."""
    return f"<!date^{int(_drawable(at))}^{{date_short_pretty}} {{time}}|{utc_time(at)}>"


def slack_hour(at: float, day: float) -> str:
    """Return a time that Slack shows in the reader's zone, without the day if it is within half a day of `day`."""
    if abs(at - day) >= DAY / 2:
        return slack_time(at)
    return f"<!date^{int(_drawable(at))}^{{time}}|{datetime.fromtimestamp(_drawable(at), UTC):%H:%M UTC}>"


def _drawable(at: float) -> float:
    return min(max(at, 0.0), 253_402_300_799.0)


def units(text: str) -> int:
    """Return the length of a text as Slack counts it."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _length(text: str) -> int:
    """Return the length of a text once it is escaped."""
    return units(text) + 4 * text.count("&") + 3 * (text.count("<") + text.count(">"))


def _cut(text: str, limit: int, length: Callable[[str], int]) -> str:
    if length(text) <= limit:
        return text
    used = 0
    for position, character in enumerate(text):
        used += length(character)
        if used > limit - len(_CUT):
            return text[:position].rstrip() + _CUT
    return text


def _escape(text: str, limit: int) -> str:
    return _cut(text, limit, _length).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")

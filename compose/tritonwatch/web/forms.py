"""Forms that change something: sent by a page of this server, with a token."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from urllib.parse import parse_qsl, urlsplit

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request

TOKEN = "token"  # noqa: S105 # the name of a field
_MAX_BYTES = 16_384
_FORM = "application/x-www-form-urlencoded"


async def posted(request: Request) -> dict[str, str]:
    """Return the fields of a form. Raises HTTPException: 403 for a form of another site, 413 and 415 for others."""
    if not from_this_site(request.headers):
        raise HTTPException(
            403, "the form was not sent by a page of this server; open the page and send it again"
        )
    if request.headers.get("content-type", "").partition(";")[0].strip() != _FORM:
        raise HTTPException(415, f"send the fields as {_FORM}")
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > _MAX_BYTES:
            raise HTTPException(413, f"the form is longer than {_MAX_BYTES} bytes")
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=50))
    except ValueError as error:
        raise HTTPException(400, "the form cannot be read") from error


def from_this_site(headers: Headers) -> bool:
    """Return whether a browser names a page of this server as the sender; False where the sender is not named."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    sender = urlsplit(headers.get("origin", "")).netloc
    return bool(sender) and sender == headers.get("host")


def has_token(fields: Mapping[str, str], token: str) -> bool:
    """Return whether a form has the token; the time it takes does not depend on how much of it is right."""
    return hmac.compare_digest(fields.get(TOKEN, "").strip().encode(), token.encode())

"""Parameters of an address; an invalid one is answered with 400, in the same words on pages and in JSON."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from starlette.exceptions import HTTPException
from starlette.requests import Request

from tritonwatch.arguments import moment
from tritonwatch.web import urls


class ParameterError(HTTPException):
    """A parameter with an invalid value or an unknown name; the reason names the valid ones."""

    def __init__(self, name: str, reason: object) -> None:
        super().__init__(400, f"{name[:40]}: {reason}")
        self.name = name


def asked_time(request: Request) -> float | None:
    """Return the Unix time in the address; None for now. A text that is not a time is answered with 400."""
    text = request.query_params.get(urls.TIME, "").strip()
    if not text:
        return None
    try:
        return moment(text)
    except argparse.ArgumentTypeError as error:
        raise ParameterError(urls.TIME, error) from None


def asked_choice(request: Request, name: str, choices: Sequence[str], usual: str) -> str:
    """Return the choice in the address, else the usual one. Any other text is answered with 400."""
    text = request.query_params.get(name, "").strip() or usual
    if text and text not in choices:
        raise ParameterError(
            name, f"{text[:40]!r} is not one of {', '.join(choices)}; write for example {name}={choices[0]}"
        )
    return text


def refuse_others(request: Request, *names: str) -> None:
    """Answer 400 to a parameter that a script misspelt: without it, the answer would be to a wider question."""
    for name in request.query_params:
        if name not in names:
            path, known = request.url.path, ", ".join(sorted(names))
            raise ParameterError(name, f"{path} has no such parameter; it takes {known}")

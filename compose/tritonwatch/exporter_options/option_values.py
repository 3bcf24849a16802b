"""Values of the exporter's options: their form, and readers that raise ValueError with what is wrong."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from urllib.parse import urlsplit

from pydantic import BeforeValidator

from triton_exporter.common.duration import duration_between, duration_text
from triton_exporter.common.options import host_and_port, is_web_address, with_scheme
from triton_exporter.lifecycle.expectations import parse_expected


class Form(NamedTuple):
    """Form of an option's value; a `repeated` option can be given several times, a `switch` has no value.

    `default_text` writes a default for the `{default}` of the help.
    """

    metavar: str
    repeated: bool = False
    switch: bool = False
    default_text: Callable[[Any], str] = str


def url(text: str) -> str:
    web_url = with_scheme(text)
    if not is_web_address(web_url):
        raise ValueError(f"{text!r} is not a URL such as http://127.0.0.1:8000")
    parts = urlsplit(web_url)
    if "@" in parts.netloc:
        # The message does not repeat the URL, which may contain a password.
        raise ValueError("a URL takes no user and password; give headers by --triton-headers-file")
    if parts.query or parts.fragment:
        raise ValueError(f"{text!r} has a ? or a #; give the URL without it")
    return web_url.rstrip("/")


def number(text: str, minimum: float, maximum: float, wanted: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not minimum <= value <= maximum:
        raise ValueError(f"{text!r} is not {wanted}")
    return value


def percent(text: str) -> float:
    try:
        return number(text.removesuffix("%"), 0.01, 100, "a share") / 100
    except ValueError:
        raise ValueError(f"{text!r} is not a share such as 2%, from 0.01% to 100%") from None


def words(raw: object) -> tuple[str, ...]:
    parts = raw if isinstance(raw, list) else str(raw).split(",")
    return tuple(stripped for part in parts if (stripped := str(part).strip()))


def model_buckets(text: str) -> tuple[str, tuple[float, ...]]:
    model, _, bounds = text.rpartition("=")
    try:
        seconds = tuple(float(bound) for bound in bounds.split(","))
    except ValueError:
        seconds = ()
    if not model or not seconds or not all(0 < bound < float("inf") for bound in seconds):
        raise ValueError(f"{text!r} is not MODEL=SECONDS,..., such as embedder=0.005,0.01,0.05")
    return model, seconds


def expectation(text: str) -> str:
    parse_expected([text])
    return text.strip()


def word(text: str) -> str:
    if not text.strip():
        raise ValueError("is empty")
    return text.strip()


def grpc(text: str) -> str:
    tls = "grpcs://" if text.startswith("grpcs://") else ""
    host, port = host_and_port(text.removeprefix(tls))
    return f"{tls}[{host}]:{port}" if ":" in host else f"{tls}{host}:{port}"


def path(text: str) -> Path:
    if not text:
        raise ValueError("is empty")
    return Path(text)


def single(read: Callable[[str], Any]) -> BeforeValidator:
    def checked(raw: object) -> Any:
        if isinstance(raw, list | dict):
            raise ValueError(f"{raw!r} is not a single value")
        return read(str(raw))

    return BeforeValidator(checked)


def each(read: Callable[[str], Any]) -> BeforeValidator:
    def checked(item: object) -> Any:
        if item is None or isinstance(item, bool | list | dict):
            raise ValueError(f"{item!r} is not text; a name such as null or true needs quotes")
        return read(str(item))

    return BeforeValidator(
        lambda raw: tuple(checked(item) for item in (raw if isinstance(raw, list) else [raw]))
    )


Url = Annotated[str, single(url), Form("URL")]
File = Annotated[Path | None, single(path), Form("FILE")]
Folder = Annotated[Path | None, single(path), Form("DIR")]
Address = Annotated[
    tuple[str, int],
    single(host_and_port),
    Form("HOST:PORT", default_text=lambda address: f"{address[0]}:{address[1]}"),
]
Duration = Annotated[
    float, single(duration_between(0.05, 3600)), Form("DURATION", default_text=duration_text)
]
Percent = Annotated[float, single(percent), Form("PERCENT", default_text=lambda share: f"{100 * share:g}%%")]
Patterns = Annotated[tuple[str, ...], each(word), Form("PATTERN", repeated=True)]

"""Render pages: metrics in two formats, JSON, the landing page."""

from __future__ import annotations

import html
import json
import zlib
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Set
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from triton_exporter.exposition.scrape import Reading, Relay
from triton_exporter.exposition.write import (
    EOF,
    OPENMETRICS,
    TEXT,
    Pieces,
    openmetrics_pieces,
    relayed_openmetrics,
    text_pieces,
)
from triton_exporter.family import Family
from triton_exporter.http.server import Request, Response

SCRAPE_TIMEOUT = "x-prometheus-scrape-timeout-seconds"
_GZIP = 31  # zlib's `wbits` for the gzip format
_SMALL = 1400  # bytes; a smaller answer gains nothing from gzip


def waiting_seconds(headers: Mapping[str, str], default_seconds: float) -> float:
    """Return how long a scrape may wait for Triton, so that its answer still arrives in Prometheus' time."""
    try:
        timeout = float(headers.get(SCRAPE_TIMEOUT, ""))
    except ValueError:
        return default_seconds
    # Half a second to render and send, as blackbox_exporter leaves, or a quarter of a short timeout.
    return min(default_seconds, timeout - min(0.5, timeout / 4)) if 0 < timeout < 3600 else default_seconds


@dataclass(frozen=True, slots=True)
class PageRequest:
    """The parameters of one scrape: the format, and the names that it selects (none: all)."""

    openmetrics: bool
    names: frozenset[str]

    @classmethod
    def of(cls, request: Request) -> PageRequest:
        """Read the format and the names from the headers and the query of a request."""
        names = frozenset(request.query.get("name[]", ()))
        return cls(_prefers_openmetrics(request.headers.get("accept", "")), names)

    def render_own(self, families: Iterable[Family]) -> Pieces:
        """Render those of the exporter's families that the scrape asked for."""
        wanted = [
            family for family in families if not self.names or _is_named(family.metric.name, self.names)
        ]
        return (openmetrics_pieces if self.openmetrics else text_pieces)(wanted)

    def render_relayed(self, relay: Relay, reading: Reading, dropped: Set[str]) -> bytes:
        """Render those of Triton's families that the scrape asked for, without those that are dropped."""
        families = relay.parse(reading).families
        if not self.openmetrics and not self.names and families.keys().isdisjoint(dropped):
            return relay.body(reading)
        wanted = [
            family
            for name, family in families.items()
            if name not in dropped and (not self.names or _is_named(name, self.names))
        ]
        if self.openmetrics:
            return relayed_openmetrics(wanted)
        return "".join([family.text for family in wanted]).encode()

    @property
    def end(self) -> bytes:
        """The last line of a page in this format."""
        return EOF if self.openmetrics else b""

    @property
    def content_type(self) -> str:
        """The value of the header Content-Type."""
        return OPENMETRICS if self.openmetrics else TEXT


def compressed(response: Response, accepted: str) -> Response:
    """Return the response in gzip when the peer accepts it and it is worth the time."""
    body = response.body
    small = isinstance(body, bytes) and len(body) < _SMALL
    if small or not _accepts_gzip(accepted):
        return response
    compressed_body = b"".join(_gzip((body,))) if isinstance(body, bytes) else _gzip_pieces(body)
    return replace(response, body=compressed_body, headers={**response.headers, "Content-Encoding": "gzip"})


def _gzip_pieces(pieces: Generator[bytes]) -> Generator[bytes]:
    with closing(pieces):
        yield from _gzip(pieces)


def _gzip(pieces: Iterable[bytes]) -> Generator[bytes]:
    # Level 1: the page lives for one scrape, and a higher level costs three times the time for a fifth less.
    compressor = zlib.compressobj(level=1, wbits=_GZIP)
    yield from map(compressor.compress, pieces)
    yield compressor.flush()


def json_page(value: Any, status: int = 200) -> Response:
    """Return a page of indented JSON."""
    return Response(json.dumps(value, indent=2).encode() + b"\n", "application/json; charset=utf-8", status)


def landing_page(triton_url: str, paths: Collection[str]) -> Callable[[Request], Response]:
    """Return a page for people: what this is, and where to go."""
    links = "".join(f'<li><a href="{path}">{path}</a></li>' for path in paths)
    text = (
        "<!DOCTYPE html><html lang=en><title>tritonwatch exporter</title>"
        f"<h1>tritonwatch exporter</h1><p>watching {html.escape(triton_url)}</p><ul>{links}</ul></html>\n"
    )
    return lambda _: Response(text.encode(), "text/html; charset=utf-8")


def _is_named(name: str, names: Collection[str]) -> bool:
    return name in names or any(f"{name}{suffix}" in names for suffix in ("_bucket", "_sum", "_count"))


def _prefers_openmetrics(accept: str) -> bool:
    """Return whether OpenMetrics is asked for at least as much as the text format (RFC 9110, section 12.5.1)."""
    weights = {"application/openmetrics-text": 0.0, "text/plain": 0.0}
    for choice in accept.split(","):
        media, *parameters = (part.strip().lower() for part in choice.split(";"))
        if media in weights:
            weights[media] = max(weights[media], _weight(parameters))
    return 0 < weights["application/openmetrics-text"] >= weights["text/plain"]


def _accepts_gzip(accepted: str) -> bool:
    for choice in accepted.split(","):
        coding, *parameters = (part.strip().lower() for part in choice.split(";"))
        if coding == "gzip":
            return _weight(parameters) > 0
    return False


def _weight(parameters: Iterable[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0

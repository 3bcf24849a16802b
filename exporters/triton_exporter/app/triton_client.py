"""Make clients of one Triton as the settings ask: limits, headers and certificates."""

from __future__ import annotations

from typing import TypeVar

from triton_exporter.app.settings import TritonAccess
from triton_exporter.http.certificates import ReloadedTls
from triton_exporter.http.client import Client, Limits

C = TypeVar("C", bound=Client)


def triton_client(settings: TritonAccess, url: str, kind: type[C], max_body_bytes: int | None = None) -> C:
    """Return a client of this class; a body may have `max_body_bytes`, or else as many as the settings allow."""
    limits = Limits(settings.timeout, max_body_bytes or settings.max_body_bytes)
    return kind(url, limits, settings.triton_headers_file, ReloadedTls(settings.certificates))

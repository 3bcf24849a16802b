"""dcgm-exporter over HTTP: one bounded GET per poll, whatever it answers."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit, urlunsplit

from triton_exporter.exposition.parse import Parser
from triton_exporter.gpu.gpu_reading import GpuReading
from triton_exporter.gpu.sources import dcgm_metrics
from triton_exporter.gpu.sources.source import SourceError
from triton_exporter.http.certificates import Certificates, ReloadedTls
from triton_exporter.http.client import Client, FetchError, Limits

DEFAULT_URL = "http://127.0.0.1:9400/metrics"
"""Address at which dcgm-exporter listens by default."""

MAX_BODY_BYTES = 16 * 1024 * 1024
"""A real one sends about 8 kB per GPU."""


class DcgmSource:
    """Reads one dcgm-exporter; a URL without a path means /metrics."""

    name = dcgm_metrics.SOURCE

    def __init__(
        self,
        url: str = DEFAULT_URL,
        timeout_seconds: float = 5.0,
        headers: Mapping[str, str] | None = None,
        certificates: Certificates | None = None,
    ) -> None:
        parts = urlsplit(url)
        self._path = f"{parts.path.rstrip('/') or '/metrics'}{'?' + parts.query if parts.query else ''}"
        base = urlunsplit((parts.scheme, parts.netloc, "", "", ""))
        limits = Limits(timeout_seconds, MAX_BODY_BYTES)
        self._client = Client(base, limits, headers or {}, ReloadedTls(certificates or Certificates()))
        self._parser = Parser()

    def read(self, at: float) -> GpuReading:
        """Fetch and read. Raises SourceError; a body that breaks off is read as far as it came."""
        try:
            answer = self._client.get(self._path)
        except FetchError as error:
            reading = self._parse(error.partial, at)
            if not reading.values:
                raise SourceError(error.reason, str(error)) from error
            return reading
        finally:
            self._client.close()  # polls are seconds apart, and a source is not closed when the process ends
        if answer.status in (401, 403):
            raise SourceError("http_error", f"HTTP {answer.status}: needs a header, see --dcgm-headers-file")
        if answer.status != 200:
            raise SourceError("http_error", f"HTTP {answer.status}")
        reading = self._parse(answer.body, at)
        if not reading.devices:
            raise SourceError("no_gpu", "no GPU rows in the answer")
        return reading

    def _parse(self, body: bytes, at: float) -> GpuReading:
        return dcgm_metrics.read(self._parser.parse(body), at)

"""Run an exporter in this process, and read its page with a reader that shares no code with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

import requests
from prometheus_client.parser import text_string_to_metric_families

from support.loopback import served
from support.waiting import eventually
from triton_exporter.app.exporter import Exporter
from triton_exporter.app.settings import Settings
from triton_exporter.catalogue import Metric
from triton_exporter.http.certificates import Certificates
from triton_exporter.http.server import Server
from triton_exporter.probe.probe_settings import ProbeSettings


@dataclass(frozen=True)
class ScrapedPage:
    """A page of metrics, read by prometheus_client."""

    text: str
    names_read: dict[str, None] = field(default_factory=dict)
    """Names of the series that the test read."""

    def value(self, metric: Metric | str, **labels: str) -> float | None:
        """Return the value of the one series with exactly these labels, or None."""
        return self.series(metric).get(frozenset(labels.items()))

    def series(self, metric: Metric | str) -> Mapping[frozenset[tuple[str, str]], float]:
        """Return the values of all series of one name, by their labels."""
        name = str(metric)
        self.names_read[name] = None
        if name not in self._parsed:
            # Of a page of thousands of lines only these are read: the reader takes a millisecond for a dozen.
            lines = [line for line in self._lines if line.startswith((f"{name}{{", f"{name} "))]
            families = text_string_to_metric_families("".join(f"{line}\n" for line in lines))
            self._parsed[name] = {
                frozenset(sample.labels.items()): sample.value
                for family in families
                for sample in family.samples
            }
        return self._parsed[name]

    @cached_property
    def _lines(self) -> list[str]:
        return self.text.splitlines()

    @cached_property
    def _parsed(self) -> dict[str, Mapping[frozenset[tuple[str, str]], float]]:
        return {}

    def excerpt(self, max_lines: int = 40) -> str:
        """Return a few lines of the series that were read; if none was, those of the models' states."""
        names = tuple(self.names_read) or ("triton_up", "triton_model_state", "triton_model_ready")
        lines = [line for line in self._lines if line.startswith(names)]
        shown = [line for line in lines if not line.endswith(" 0")][:max_lines]
        return f"{len(lines)} series of {', '.join(names)}; of those that are not 0:\n" + "\n".join(shown)

    def labels(self, metric: Metric | str, label: str) -> set[str]:
        """Return all values of one label of one metric."""
        return {dict(labels)[label] for labels in self.series(metric)}


@dataclass(frozen=True)
class RunningExporter:
    """A running exporter."""

    exporter: Exporter
    url: str

    def get(self, path: str = "/metrics", **options: object) -> requests.Response:
        """Send a GET request."""
        return requests.get(self.url + path, timeout=20, **options)  # type: ignore[arg-type]

    def scrape(self, timeout_seconds: float | None = None) -> ScrapedPage:
        """Scrape once; with a timeout, send the header with which Prometheus announces it."""
        headers = {"Accept-Encoding": "identity"}  # this process compresses it, too
        if timeout_seconds is not None:
            headers["X-Prometheus-Scrape-Timeout-Seconds"] = str(timeout_seconds)
        response = self.get(headers=headers)
        assert 200 == response.status_code
        return ScrapedPage(response.content.decode())

    def wait(self, condition: Callable[[ScrapedPage], object]) -> ScrapedPage:
        """Scrape until the page satisfies the condition; fail with an excerpt of the last page."""
        pages: list[ScrapedPage] = []

        def satisfied() -> object:
            pages.append(self.scrape(5))
            return condition(pages[-1])

        eventually(satisfied, lambda: pages[-1].excerpt())
        return pages[-1]


@contextmanager
def exporting(
    triton_url: str,
    metrics_url: str,
    expected: Mapping[str, tuple[str, ...]] | None = None,
    parts: Sequence[object] | None = None,
    probes: ProbeSettings | None = None,
    certificates: Certificates | None = None,
    **settings: object,
) -> Iterator[RunningExporter]:
    """Run an exporter for a server until the block ends; it polls every 0.25 s. Without `triton_url`: metrics only."""
    defaults: dict[str, object] = {
        "gpu": "none",
        "sampling_interval": 0.2,
        "state_interval": 0.25,
        "timeout": 2.0,
        "expect": [
            f"{model}:{version}".removesuffix(":")
            for model, versions in (expected or {}).items()
            for version in versions or ("",)
        ],
    }
    if probes:
        defaults |= {
            "probe": probes.models,
            "probe_exclude": probes.exclude,
            "probe_interval": probes.interval_seconds,
            "probe_timeout": probes.timeout_seconds,
            "probe_payloads": probes.payloads,
        }
        if probes.grpc_address:
            defaults["probe_grpc"] = probes.grpc_address
    if certificates:
        names = ("triton_ca_file", "triton_cert_file", "triton_key_file")
        defaults |= dict(zip(names, (certificates.ca, certificates.own, certificates.key), strict=True))
    if triton_url:
        defaults["triton"] = triton_url
    chosen = Settings(triton_metrics=metrics_url, **(defaults | settings))
    exporter = Exporter(chosen, parts)
    with served(Server("127.0.0.1", 0, exporter.pages(), connections=exporter.connections)) as server:
        exporter.start()
        try:
            yield RunningExporter(exporter, server.url)
        finally:
            exporter.stop(timeout_seconds=5)

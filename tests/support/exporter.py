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
from triton_exporter.http.server import Server


@dataclass(frozen=True)
class Scraped:
    """One page, as prometheus_client reads it."""

    text: str
    asked: dict[str, None] = field(default_factory=dict)
    """Names of the series that were asked for."""

    def value(self, metric: Metric | str, **labels: str) -> float | None:
        """Return the value of the one series with exactly these labels, or None."""
        return self.series(metric).get(frozenset(labels.items()))

    def series(self, metric: Metric | str) -> Mapping[frozenset[tuple[str, str]], float]:
        """All series of one name."""
        name = str(metric)
        self.asked[name] = None
        if name not in self._read:
            # Of a page of thousands of lines only these are read: the reader takes a millisecond for a dozen.
            lines = [line for line in self._lines if line.startswith((f"{name}{{", f"{name} "))]
            families = text_string_to_metric_families("".join(f"{line}\n" for line in lines))
            self._read[name] = {
                frozenset(sample.labels.items()): sample.value
                for family in families
                for sample in family.samples
            }
        return self._read[name]

    @cached_property
    def _lines(self) -> list[str]:
        return self.text.splitlines()

    @cached_property
    def _read(self) -> dict[str, Mapping[frozenset[tuple[str, str]], float]]:
        return {}

    def what_was_asked(self, most: int = 40) -> str:
        """Return a few lines of the series that were read; if none was, those of the models' states."""
        names = tuple(self.asked) or ("triton_up", "triton_model_state", "triton_model_ready")
        lines = [line for line in self.text.splitlines() if line.startswith(names)]
        shown = [line for line in lines if not line.endswith(" 0")][:most]
        return f"{len(lines)} series of {', '.join(names)}; of those that are not 0:\n" + "\n".join(shown)

    def labels(self, metric: Metric | str, label: str) -> set[str]:
        """All values one label takes in one metric."""
        return {dict(labels)[label] for labels in self.series(metric)}


@dataclass(frozen=True)
class Running:
    """A running exporter."""

    exporter: Exporter
    url: str

    def get(self, path: str = "/metrics", **options: object) -> requests.Response:
        """Ask it anything."""
        return requests.get(self.url + path, timeout=20, **options)  # type: ignore[arg-type]

    def scrape(self, timeout_seconds: float | None = None) -> Scraped:
        """Scrape, as Prometheus does when a timeout is given."""
        headers = (
            {} if timeout_seconds is None else {"X-Prometheus-Scrape-Timeout-Seconds": str(timeout_seconds)}
        )
        response = self.get(headers=headers)
        assert 200 == response.status_code
        return Scraped(response.content.decode())

    def wait(self, promise: Callable[[Scraped], object], timeout_seconds: float = 30.0) -> Scraped:
        """Scrape until the page keeps the promise; fails with the last page's series that it was asked for."""
        pages: list[Scraped] = []

        def satisfied() -> object:
            pages.append(self.scrape(5))
            return promise(pages[-1])

        eventually(satisfied, lambda: pages[-1].what_was_asked(), timeout_seconds)
        return pages[-1]


@contextmanager
def exporting(
    triton_url: str,
    metrics_url: str,
    expected: Mapping[str, tuple[str, ...]] | None = None,
    parts: Sequence[object] | None = None,
    **settings: object,
) -> Iterator[Running]:
    """Run an exporter for a server until the block ends; it polls every 0.1 s."""
    defaults: dict[str, object] = {
        "gpu": "none",
        "sampling_interval_seconds": 0.2,
        "state_interval_seconds": 0.1,
        "timeout_seconds": 2.0,
    }
    chosen = Settings(triton_url, metrics_url, expected=expected or {}, **(defaults | settings))  # type: ignore[arg-type]
    exporter = Exporter(chosen, parts)
    with served(Server("127.0.0.1", 0, exporter.pages(), connections=exporter.connections)) as server:
        exporter.start()
        try:
            yield Running(exporter, server.url)
        finally:
            exporter.stop(timeout_seconds=5)

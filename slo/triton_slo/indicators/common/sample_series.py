"""Sample series of an incident in promtool's notation: what Triton and the exporter would expose."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from triton_exporter.catalogue import Metric
from triton_slo.promql import number, quote


def gauge(phases: Sequence[tuple[float, int]]) -> str:
    """Return a gauge from phases of (value, scrapes)."""
    return " ".join(f"{number(round(value, 9))}+0x{n - 1}" for value, n in phases if n)


@dataclass(frozen=True, slots=True)
class SampleSeries:
    """Phases of (failed events, good events, scrapes) of one model version; `end` follows all values."""

    labels: Mapping[str, str]
    phases: Sequence[tuple[float, float, int]]
    end: str = ""

    def series(self, metric: object, values: str, suffix: str = "", **labels: str) -> tuple[str, str]:
        """Return a series of the model version and its values."""
        every = {**self.labels, **labels}
        inside = ", ".join(f"{label}={quote(value)}" for label, value in every.items() if value)
        return f"{metric}{suffix}{{{inside}}}", values

    def counter(self, increase: Callable[[float, float], float]) -> str:
        """Return a counter that grows at each scrape by a function of failed and good events."""
        parts, value = [], 0.0
        for failed, good, scrapes in self.phases:
            if scrapes:
                step = increase(failed, good)
                parts.append(f"{number(round(value, 6))}+{number(round(step, 6))}x{scrapes - 1}")
                value += step * scrapes
        return " ".join(parts) + self.end

    @property
    def failed(self) -> str:
        """A counter of failed events."""
        return self.counter(lambda failed, good: failed)

    @property
    def good(self) -> str:
        """A counter of good events."""
        return self.counter(lambda failed, good: good)

    @property
    def every(self) -> str:
        """A counter of all events."""
        return self.counter(lambda failed, good: failed + good)

    def histogram(self, metric: Metric, le: str) -> tuple[tuple[str, str], ...]:
        """Return a histogram with one bucket, which contains the good events."""
        return (
            self.series(metric, self.good, "_bucket", le=le),
            self.series(metric, self.every, "_bucket", le="+Inf"),
            self.series(metric, self.every, "_count"),
        )

"""The interface between the parts of the exporter and the page that shows their series.

A collector yields families; the exposition module writes them. A series is rendered to text once, when its
labels are first known, and cached by its collector: at 1,000 models that is most of the cost of a scrape.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from triton_exporter.catalogue import Metric


class Exemplar(NamedTuple):
    """One request behind a bucket (OpenMetrics only): trace id, value and Unix time in seconds."""

    trace_id: str
    value: float
    at: float


class Sample(NamedTuple):
    """One series with its value; `series` comes from `series()`, so it is escaped already."""

    series: str
    value: float
    exemplar: Exemplar | None = None


@dataclass(frozen=True, slots=True)
class Family:
    """All series of one metric. A counter's series end in `_total`, a histogram's in its three suffixes."""

    metric: Metric
    samples: Iterable[Sample]  # as often as wanted

    @classmethod
    def of(cls, metric: Metric, rows: Iterable[tuple[Iterable[str], float]]) -> Family:
        """Return the family whose series have these label values, each with its value."""
        return cls(metric, [Sample(series(metric, *labels), value) for labels, value in rows])

    @classmethod
    def single(cls, metric: Metric, value: float) -> Family:
        """Return the family of one series without labels."""
        return cls(metric, [Sample(metric.name, value)])


class TextSamples(ABC):
    """Samples that can write themselves faster than one by one, in the text format.

    Without exemplars that is what OpenMetrics wants too.
    """

    @property
    @abstractmethod
    def has_exemplars(self) -> bool:
        """True if any sample has an exemplar."""

    @abstractmethod
    def pieces(self) -> Iterable[bytes]:
        """Write `series value` for each; a piece is some whole lines."""


def series(metric: Metric, *values: str, suffix: str = "", le: str = "") -> str:
    """Render `name{label="value",...}` with values in the order of the catalogue's labels.

    `suffix` is `_bucket`, `_sum` or `_count`; `le` the upper bound of a bucket, written as a float ("0.5").
    """
    if suffix:
        # A histogram keeps its many series itself.
        return _series_text(metric.name, metric.labels, values, suffix, le)
    return _kept_text(metric.name, metric.labels, values)


def series_once(metric: Metric, *values: str) -> str:
    """Render `series` for a caller that keeps the text: kept here, too, a thousand models would take 5 MiB."""
    return _series_text(metric.name, metric.labels, values)


def _series_text(
    name: str, labels: tuple[str, ...], values: tuple[str, ...], suffix: str = "", le: str = ""
) -> str:
    if len(values) != len(labels):
        raise ValueError(f"{name} has labels {labels}, not {values}")
    pairs = [f'{label}="{escape(value)}"' for label, value in zip(labels, values, strict=True)]
    if le:
        pairs.append(f'le="{le}"')
    return f"{name}{suffix}{{{','.join(pairs)}}}" if pairs else f"{name}{suffix}"


# At 1,000 models a page has some 20,000 series that are the same as on the page before.
_kept_text = lru_cache(maxsize=1 << 16)(_series_text)


def escape(value: str) -> str:
    """Escape a label value as the text format asks: backslash, quote and newline."""
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return value

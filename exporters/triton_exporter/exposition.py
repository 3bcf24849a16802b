"""Write the page: Triton's own text byte for byte, then the exporter's families."""

from __future__ import annotations

import math
from collections.abc import Iterable

from triton_exporter.catalogue import METRICS, Metric
from triton_exporter.family import Family, Sample

TEXT = "text/plain; version=0.0.4; charset=utf-8"


def render_text(relayed: bytes, families: Iterable[Family]) -> bytes:
    """Prometheus text format 0.0.4: what Triton said, unchanged, and then the families."""
    if relayed and not relayed.endswith(b"\n"):
        relayed += b"\n"
    own = "".join(_family(family) for family in families)
    return relayed + own.encode("utf-8", "replace")


def _family(family: Family) -> str:
    metric = family.metric
    head = f"# HELP {metric} {_help(metric)}\n# TYPE {metric} {_type(metric)}\n"
    return head + "".join([f"{sample.series} {number(sample.value)}\n" for sample in family.samples])


def _help(metric: Metric) -> str:
    return metric.help.replace("\\", r"\\").replace("\n", r"\n")


def _type(metric: Metric) -> str:
    return "gauge" if metric.kind == "info" else metric.kind


def number(value: float) -> str:
    """A sample value as Prometheus writes it; whole numbers without a fraction."""
    if math.isfinite(value):
        whole = int(value)
        return str(whole) if whole == value and abs(whole) < 1 << 53 else repr(value)
    if math.isnan(value):
        return "NaN"
    return "+Inf" if value > 0 else "-Inf"


def without_own_names(body: bytes) -> bytes:
    """Drop lines of Triton's text that would collide with the exporter's own families.

    A Python model can expose any name; ours must mean what the catalogue says.
    """
    if not any(name in body for name in _OWN_NAMES):
        return body
    return b"".join(line for line in body.splitlines(keepends=True) if not _is_own(line))


def _is_own(line: bytes) -> bool:
    words = line.split(None, 3)
    if not words:
        return False
    name = words[2] if words[0] == b"#" and len(words) > 2 else words[0].partition(b"{")[0]
    return name in _OWN_SERIES


_OWN_METRICS = tuple(metric for metric in METRICS if metric.name.startswith("triton_"))
_OWN_NAMES = tuple({metric.name.encode() for metric in _OWN_METRICS})
_OWN_SERIES = frozenset(
    name.encode()
    for metric in _OWN_METRICS
    for name in (metric.name, metric.bucket, metric.sum, metric.count)
)

__all__ = ["TEXT", "Family", "Sample", "number", "render_text", "without_own_names"]

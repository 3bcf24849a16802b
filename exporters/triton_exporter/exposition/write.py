"""Write the exporter's families, and Triton's where they must be converted to OpenMetrics.

Formats: https://prometheus.io/docs/instrumenting/exposition_formats/ and
https://prometheus.io/docs/specs/om/open_metrics_spec/
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator

from triton_exporter.catalogue import Metric
from triton_exporter.exposition.parse import ParsedFamily, Series
from triton_exporter.family import Family, Sample, TextSamples, escape

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
EOF = b"# EOF\n"

Pieces = tuple[bytes, ...]
"""A page in pieces: to put 10 MB together once more costs as much time as to send them."""

_PIECE = 256 * 1024

# Sample lines as Triton writes them, and what lines with as many blanks can have that is written otherwise.
_PAIR = r'[a-zA-Z_]\w*="(?:[^"\\\n]|\\[\\n"])*"'
_STRICT = re.compile(rf"(?:[a-zA-Z_:][\w:]*(?:\{{{_PAIR}(?:,{_PAIR})*\}})? \S+\n)*", re.ASCII)
_ODD = ("\t", ",}", "{}", "\n#", "\n\n")


def text_pieces(families: Iterable[Family]) -> Pieces:
    """Return the exporter's families in the text format 0.0.4, in pieces that are worth sending one by one."""
    return tuple(_gathered(piece for family in families for piece in _family_text(family)))


def openmetrics_pieces(families: Iterable[Family]) -> Pieces:
    """Return the exporter's families in OpenMetrics, with exemplars and without the closing EOF."""
    return tuple(_gathered(piece for family in families for piece in _openmetrics(family)))


def relayed_text(families: Iterable[ParsedFamily]) -> Pieces:
    """Return Triton's families in the text format, in pieces."""
    return tuple(_gathered(piece for family in families for piece in (family.head.encode(), family.lines)))


def relayed_openmetrics(families: Iterable[ParsedFamily]) -> bytes:
    """Return Triton's families in OpenMetrics: no sample changes its name or value.

    A counter must end in `_total` there, and its family is named without it. Triton's counters do not, and another
    family may have that name: such counters are of unknown type instead.
    """
    relayed = list(families)
    names = {family.name for family in relayed}
    return "".join([_relayed(family, names) for family in relayed]).encode("utf-8", "replace")


def _gathered(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Put small pieces together; large ones are left as they are."""
    waiting: list[bytes] = []
    size = 0
    for piece in pieces:
        if len(piece) < _PIECE:
            waiting.append(piece)
            size += len(piece)
            if size < _PIECE:
                continue
            piece = b""
        yield b"".join(waiting)
        if piece:
            yield piece
        waiting, size = [], 0
    yield b"".join(waiting)


def _family_text(family: Family) -> Iterable[bytes]:
    metric = family.metric
    yield f"# HELP {metric} {_help(metric)}\n# TYPE {metric} {_type(metric)}\n".encode()
    if isinstance(family.samples, TextSamples):
        yield from family.samples.pieces()
    else:
        yield written(family.samples)


def written(samples: Iterable[Sample]) -> bytes:
    """Return samples in the text format, line by line."""
    lines = [f"{sample.series} {number(sample.value)}\n" for sample in samples]
    return "".join(lines).encode("utf-8", "replace")


class CachedSamples(TextSamples):
    """Samples without exemplars of which only the text is kept."""

    has_exemplars = False

    def __init__(self, samples: Iterable[Sample]) -> None:
        self._text = written(samples)

    def __iter__(self) -> Iterator[Sample]:
        for line in self._text.decode().split("\n")[:-1]:
            series, _, value = line.rpartition(" ")
            yield Sample(series, float(value))

    def pieces(self) -> Iterable[bytes]:
        """Return all of them in the text format."""
        return (self._text,)


def _openmetrics(family: Family) -> Iterable[bytes]:
    metric = family.metric
    name = metric.name.removesuffix("_total") if metric.kind == "counter" else metric.name
    text = _help(metric).replace('"', r"\"")
    yield f"# TYPE {name} {_type(metric)}\n# HELP {name} {text}\n".encode()
    if isinstance(family.samples, TextSamples) and not family.samples.has_exemplars:
        yield from family.samples.pieces()
    else:
        yield "".join([_sample(sample) for sample in family.samples]).encode("utf-8", "replace")


def _sample(sample: Sample) -> str:
    line = f"{sample.series} {number(sample.value)}"
    if sample.exemplar is not None:
        trace, value, at = sample.exemplar
        line += f' # {{trace_id="{trace}"}} {number(value)} {at:.3f}'
    return line + "\n"


def _relayed(family: ParsedFamily, names: Collection[str]) -> str:
    name, kind = family.name, family.kind
    if kind == "counter" and name.endswith("_total") and name.removesuffix("_total") not in names:
        name = name.removesuffix("_total")
    elif kind in ("counter", "untyped"):
        kind = "unknown"
    samples = family.lines.decode()
    # OpenMetrics allows no stray white space; a body that Prometheus refuses would cost it every series.
    if not _is_strict(samples, len(family.series)):
        samples = "".join([_rewritten(*sample) for sample in family.samples()])
    text = family.help.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return f"# TYPE {name} {kind}\n# HELP {name} {text}\n" + samples


def _is_strict(samples: str, count: int) -> bool:
    """Return whether every line is `series value`, as Triton writes them."""
    one_each = samples.count(" ") == samples.count("\n") == count
    after_labels = samples.count("} ") == samples.count("}")  # not `x{a="b"}2 6`, value and time
    # Then the one blank of a line can only be that before the value; counting is faster than the pattern.
    is_plain = one_each and after_labels and not any(odd in samples for odd in _ODD)
    return is_plain or _STRICT.fullmatch(samples) is not None


def _rewritten(series: Series, value: float) -> str:
    labels = ",".join([f'{name}="{escape(text)}"' for name, text in series.labels.items()])
    return f"{series.name}{{{labels}}} {number(value)}\n" if labels else f"{series.name} {number(value)}\n"


def _help(metric: Metric) -> str:
    return metric.help.replace("\\", r"\\").replace("\n", r"\n")


def _type(metric: Metric) -> str:
    return "gauge" if metric.kind == "info" else metric.kind


def number(value: float) -> str:
    """Return a sample value as Prometheus writes it; whole numbers without a fraction."""
    if math.isfinite(value):
        whole = int(value)
        return str(whole) if whole == value and abs(whole) < 1 << 53 else repr(value)
    if math.isnan(value):
        return "NaN"
    return "+Inf" if value > 0 else "-Inf"

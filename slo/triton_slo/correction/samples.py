"""Corrections as the samples that are written: OpenMetrics text, which promtool makes blocks of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from triton_exporter.family import escape
from triton_slo import names
from triton_slo.correction.group_correction import GroupCorrection, SumLabels

_END = "# EOF\n"


def openmetrics(corrections: Iterable[GroupCorrection], identity: str) -> str:
    """Write the samples of a correction with this name."""
    return "".join(f"{line}\n" for correction in corrections for line in _lines(correction, identity)) + _END


def reversed_text(text: str, identity: str, undo: str) -> str:
    """Write the samples that undo those of a text: the same events with the opposite sign, at the same times."""
    return "".join(f"{line}\n" for line in _reversed(text, identity, undo)) + _END


def samples_of(text: str) -> Iterator[tuple[str, float, float]]:
    """Yield series, value and Unix time of each sample that this module wrote."""
    for line in text.splitlines():
        if not line.startswith("#"):
            series, value, at = line.rsplit(" ", 2)
            yield series, float(value), float(at)


def _lines(correction: GroupCorrection, identity: str) -> Iterator[str]:
    for event in (names.ERROR, names.TOTAL):
        series = _series(names.SLI_EVENTS_CORRECTION, correction.labels, identity, ((names.EVENT, event),))
        for tile in correction.tiles:
            yield f"{series} {float(tile.error if event == names.ERROR else tile.total)!r} {tile.end:.3f}"
    # The last tile is the last that leaves the period: nothing asks for the start after that.
    series = _series(names.CORRECTION_FROM, correction.labels, identity)
    yield f"{series} {float(correction.counted_from)!r} {correction.tiles[-1].end:.3f}"


def _reversed(text: str, identity: str, undo: str) -> Iterator[str]:
    for series, value, at in samples_of(text):
        sign = -1 if series.startswith(names.SLI_EVENTS_CORRECTION) else 1
        renamed = series.replace(f'{names.CORRECTION}="{identity}"', f'{names.CORRECTION}="{undo}"', 1)
        yield f"{renamed} {sign * value!r} {at:.3f}"


def _series(name: str, labels: SumLabels, identity: str, more: SumLabels = ()) -> str:
    # The name of the correction comes first: no label's value can be mistaken for it there.
    inside = ((names.CORRECTION, identity), *labels, *more)
    pairs = ",".join(f'{label}="{escape(value)}"' for label, value in inside)
    return f"{name}{{{pairs}}}"

"""A parsed body of Prometheus text: its families, and its bad lines by kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from triton_exporter.exposition.series_text import Series

FAULTS = ("encoding", "truncated", "syntax", "value", "duplicate", "type", "corrected")
"""Closed set of kinds of bad input, each counted in lines.

`encoding`: not UTF-8; `truncated`: a last line without an end, whose number may be cut short; `syntax`: no
sample at all; `value`: no number, or no number for a bound; `duplicate`: a series seen before in this body;
`type`: an unknown or second TYPE, or a second HELP; `corrected`: a backslash that begins no escape, or a blank in
the wrong place, for which some readers refuse the whole body: it is corrected, and the line is relayed.
"""

KINDS = frozenset({"counter", "gauge", "histogram", "summary", "untyped"})


@dataclass(frozen=True)
class ParsedFamily:
    """The good lines of one family.

    `kind` is one of KINDS; `numbers` and `lines` are as they were written, `head` is HELP and TYPE. `series`
    is the same object as in the last body while its lines are the same, so whatever was computed from it
    stays valid.
    """

    name: str
    kind: str
    help: str
    series: Sequence[Series]
    numbers: Sequence[str | bytes]
    head: str
    lines: bytes

    @property
    def text(self) -> str:
        """Its HELP, TYPE and sample lines."""
        return self.head + self.lines.decode()

    @cached_property
    def values(self) -> Sequence[float]:
        """The value of each series."""
        return list(map(float, self.numbers))

    def samples(self) -> Iterator[tuple[Series, float]]:
        """Pair each series with its value."""
        return zip(self.series, self.values, strict=True)


BadLines = Mapping[tuple[str | None, str], int]
"""Bad lines by family and kind of FAULTS. The family is "" where a line could belong to any of them, and None
where a reader of single families does not read the line."""


@dataclass(frozen=True, slots=True)
class Exposition:
    """One body: its families by name, in its order.

    `declared` has the names of all families of the body, also of those that were not read. With `scattered` a
    sample is among those of another family.
    """

    families: Mapping[str, ParsedFamily]
    declared: Collection[str] = ()
    scattered: bool = False
    bad: BadLines = field(default_factory=dict)

    @property
    def faults(self) -> Mapping[str, int]:
        """Bad lines by kind of FAULTS."""
        counts: Counter[str] = Counter()
        for (_, kind), count in self.bad.items():
            counts[kind] += count
        return counts

    def only(self, names: Collection[str]) -> Exposition:
        """Leave out the other families, and the bad lines that are certainly theirs."""
        bad = {key: count for key, count in self.bad.items() if key[0] == "" or key[0] in names}
        families = {name: family for name, family in self.families.items() if name in names}
        return Exposition(families, self.declared, self.scattered, bad)

    @property
    def text(self) -> str:
        """Everything good, as a body that Prometheus accepts."""
        return "".join([family.text for family in self.families.values()])

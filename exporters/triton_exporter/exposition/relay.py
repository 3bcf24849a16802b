"""Parse each body of Triton once, and relay it: unchanged when it is valid, else without its bad lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from weakref import ref

from triton_exporter.catalogue import own
from triton_exporter.exposition.exposition_values import FAULTS, Exposition
from triton_exporter.exposition.parse import Parser
from triton_exporter.exposition.reserved import is_reserved
from triton_exporter.exposition.scrape import Reading
from triton_exporter.family import Family

COLLISION = "collision"
"""Kind of a bad line that bears a name of the exporter, of Prometheus or of the rules."""


class Relay:
    """Parses each reading once, for scrapes and observers. Used under the lock of the exporter."""

    def __init__(self) -> None:
        self._parser = Parser()
        # A weak reference: the megabytes of this reading are not needed until the next scrape.
        self._reading: Callable[[], Reading | None] = lambda: None
        self._exposition = Exposition({})
        self._corrected: bytes | None = None
        self._bad: Counter[str] = Counter()

    def parse(self, reading: Reading) -> Exposition:
        """Parse a reading, and count its bad lines the first time it is shown."""
        if reading is not self._reading():
            self._reading = ref(reading)
            self._exposition = self._without_bad_lines(reading.body)
        return self._exposition

    def select(self, reading: Reading, names: Collection[str]) -> Exposition:
        """Return the families with these names: of the whole body if a scrape had it parsed, else parsed alone."""
        if reading is self._reading() and not self._exposition.scattered:
            return self._exposition.only(names)
        return self._parser.parse(reading.body, names)

    def body(self, reading: Reading) -> bytes:
        """Return the body to pass on: Triton's very bytes when nothing is wrong with them."""
        self.parse(reading)
        return reading.body if self._corrected is None else self._corrected

    def families(self) -> Iterable[Family]:
        """Yield the bad lines by kind."""
        yield Family.of(own.BAD_LINES, (((kind,), self._bad[kind]) for kind in (*FAULTS, COLLISION)))

    def _without_bad_lines(self, body: bytes) -> Exposition:
        exposition = self._parser.parse(body)
        # A Python model can expose any name.
        forged = set(filter(is_reserved, exposition.families))
        if not forged and not exposition.bad:
            self._corrected = None
            return exposition
        self._bad.update(exposition.faults)
        self._bad[COLLISION] += sum(len(exposition.families[name].values) for name in forged)
        good = {name: family for name, family in exposition.families.items() if name not in forged}
        corrected = replace(exposition, families=good)
        self._corrected = corrected.text.encode()
        return corrected

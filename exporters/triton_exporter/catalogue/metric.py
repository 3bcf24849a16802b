"""Description of a family of series."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["counter", "gauge", "histogram", "summary", "info"]


@dataclass(frozen=True, slots=True)
class Metric:
    """A family of series: how it is named, what it means, where it comes from.

    Formatting one (`f"{metric}"`) gives its name, so expressions read like PromQL.
    `unit` is the unit on the wire (Triton mixes us, ms and s); `since` the first Triton release that
    has it, `flag` what switches it on, `caveat` what a reader must know before trusting it.
    """

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    unit: str = ""
    source: str = ""
    since: str = ""
    flag: str = ""
    caveat: str = ""

    def __str__(self) -> str:
        return self.name

    @property
    def bucket(self) -> str:
        """Name of a histogram's bucket series."""
        return f"{self.name}_bucket"

    @property
    def sum(self) -> str:
        """Name of a histogram's or summary's sum series."""
        return f"{self.name}_sum"

    @property
    def count(self) -> str:
        """Name of a histogram's or summary's count series."""
        return f"{self.name}_count"

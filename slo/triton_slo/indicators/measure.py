"""What an indicator gives the rules: PromQL for errors and totals, and for the existence of its groups."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from triton_exporter.catalogue import state
from triton_slo.promql import Matchers, by, on


@dataclass(frozen=True, slots=True)
class Events:
    """Expressions for errors and for all events, per second and per group; both exist or neither does."""

    error: str
    total: str


@dataclass(frozen=True, slots=True)
class Scope:
    """Which source series a measure reads, how it groups them, and how long a time slice is (PromQL)."""

    matchers: Matchers
    group_by: tuple[str, ...]
    slice_window: str

    @property
    def by(self) -> str:
        """`by (model, version)`."""
        return by(self.group_by)

    @property
    def on(self) -> str:
        """`on (model, version)`."""
        return on(self.group_by)

    @property
    def models(self) -> Matchers:
        """The matchers without those on the version, for series that have none or another one."""
        return Matchers(tuple(part for part in self.matchers.parts if not part.startswith("version")))

    def rate(self, metric: object, window: str, *extra: str) -> str:
        """Events per second and group of a counter over a window."""
        return f"sum {self.by} (rate({metric}{self.matchers.also(*extra)}[{window}]))"

    def present(self, metric: object, *extra: str) -> str:
        """Groups for which a series exists now, each with the value 1."""
        return f"group {self.by} ({metric}{self.matchers.also(*extra)})"


@dataclass(frozen=True, slots=True)
class Measure:
    """How an indicator is measured.

    `counted` reads counters over any window; `sampled` gives events per second at this moment, which the rules
    record and average. Where both exist, `sampled` serves groups that have no counters. `exact` says that one
    event is one event: only then do minimum failures and statistical bounds mean anything.
    """

    presence: str
    counted: Callable[[str], Events] | None = None
    sampled: Events | None = None
    adds: bool = False
    """Whether `sampled` comes on top of what is counted."""
    exact: bool = True
    no_bucket: str = ""
    stuck: bool = False
    unseen: float | None = None
    """Events a second that unknown time stands for where a group's own pace is not known; None: nobody knows."""
    silent: Callable[[str], str] | None = None
    """Groups that show a series and had no event over a window (`[10m]`), where no event means not knowing."""
    sources: tuple[tuple[str, str], ...] = ()
    """(expression with the label `source`, or expression, fixed source): which source serves which group."""

    @property
    def possible_sources(self) -> frozenset[str]:
        """Every source that may serve a group; those of a distribution are known to the exporter only."""
        named = {source for _, source in self.sources if source}
        exported = any(not source for _, source in self.sources)
        return frozenset(named | (set(state.DISTRIBUTION_SOURCES) if exported else set()))

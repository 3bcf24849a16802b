"""Measures: PromQL for an indicator's events and groups, and the reasons for unknown values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import ClassVar

from triton_exporter.catalogue import Metric, state, triton
from triton_exporter.common.duration import duration_text
from triton_slo import names
from triton_slo.promql import Matchers, by, indent, number, on, paren

Change = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Events:
    """Expressions for errors and for all events, per second and per group; both exist or neither does."""

    error: str
    total: str

    def map(self, change: Change) -> Events:
        """Return the failed and all events with the same change made to both."""
        return Events(change(self.error), change(self.total))

    def ratio(self) -> str:
        """Return the error ratio of recorded events, which differ in the label `event`; absent without events."""
        return f"{self.error}\n/ ignoring ({names.EVENT})\n({self.total} > 0)"

    def labelled(self) -> str:
        """Return errors and totals in one series name, with the label `event`."""
        error, total = (
            f'label_replace(\n{indent(expr)},\n  "{names.EVENT}", "{event}", "", ""\n)'
            for expr, event in ((self.error, names.ERROR), (self.total, names.TOTAL))
        )
        return f"{error}\nor\n{total}"


class EventQuery(ABC):
    """PromQL of the events of one source."""

    has_past: ClassVar[bool] = True
    """True if the first evaluation of the rules sees what happened before it, as counters show it."""
    may_begin_late: bool = False
    """True if a window can lack events that a shorter one has, because the series began within the window."""

    @property
    def states(self) -> tuple[Events, ...]:
        """Events per second at this moment, which rules record at each evaluation; none for counters alone."""
        return ()

    @abstractmethod
    def over(self, window: str, mean: str, masked: Change) -> tuple[str, ...]:
        """Return labelled events per second over a window, the best first.

        `mean` averages what was recorded of the states; `masked` leaves out excluded time.
        """

    @abstractmethod
    def at_once(self, window: str, mean: Change) -> Events:
        """Return events per second over a window from source series alone; `mean` averages over it."""

    def preferred(self, window: str) -> Events:
        """Return the best source alone: what a format without fallbacks can express."""
        return self.at_once(window, lambda expr: expr)

    @abstractmethod
    def map_states(self, change: Change) -> EventQuery:
        """Return the query with a change made to its states."""

    @abstractmethod
    def with_lost(self, lost: Callable[..., str]) -> EventQuery:
        """Return the query with unknown time as failed events: `lost` returns these, or its arguments."""

    def reach_seconds(self, longest_window: float, slice_seconds: float) -> float:
        """Return how far back a window reads: as far as the longest that is read from counters."""
        return longest_window


@dataclass(frozen=True, slots=True)
class StateQuery(EventQuery):
    """Events per second at this moment, as gauges or the means of short time slices show them."""

    has_past: ClassVar = False
    events: Events

    @property
    def states(self) -> tuple[Events, ...]:
        return (self.events,)

    def over(self, window: str, mean: str, masked: Change) -> tuple[str, ...]:
        return (mean,)

    def at_once(self, window: str, mean: Change) -> Events:
        return self.events.map(mean)

    def map_states(self, change: Change) -> EventQuery:
        return StateQuery(self.events.map(change))

    def with_lost(self, lost: Callable[..., str]) -> EventQuery:
        # Failed and all events are replaced together: a stuck group still has events, as it calls itself ready.
        return self.map_states(lost)

    def reach_seconds(self, longest_window: float, slice_seconds: float) -> float:
        return slice_seconds


@dataclass(frozen=True, slots=True)
class CounterQuery(EventQuery):
    """Events that counters show over any window."""

    events: Callable[[str], Events]
    group_by: tuple[str, ...]
    may_begin_late: bool = field(default=False, kw_only=True)

    def over(self, window: str, mean: str, masked: Change) -> tuple[str, ...]:
        return (masked(self.events(window).labelled()),)

    def at_once(self, window: str, mean: Change) -> Events:
        return self.events(window)

    def map_states(self, change: Change) -> EventQuery:
        return self

    def with_lost(self, lost: Callable[..., str]) -> EventQuery:
        lost_events = Events(lost(), lost())
        return SumQuery(self.events, self.group_by, lost_events, may_begin_late=self.may_begin_late)


@dataclass(frozen=True, slots=True)
class FallbackQuery(CounterQuery):
    """Counters, and states for the groups that have none."""

    fallback: Events

    @property
    def states(self) -> tuple[Events, ...]:
        return (self.fallback,)

    def over(self, window: str, mean: str, masked: Change) -> tuple[str, ...]:
        return masked(self.events(window).labelled()), mean

    def at_once(self, window: str, mean: Change) -> Events:
        first, second, matching = self.events(window), self.fallback.map(mean), on(self.group_by)
        return Events(
            f"({first.error})\nor {matching}\n({second.error})",
            f"({first.total})\nor {matching}\n({second.total})",
        )

    def preferred(self, window: str) -> Events:
        return self.events(window)

    def map_states(self, change: Change) -> EventQuery:
        return replace(self, fallback=self.fallback.map(change))


@dataclass(frozen=True, slots=True)
class SumQuery(CounterQuery):
    """Counters, and on top of them the events that are lost while nothing is known."""

    lost: Events

    @property
    def states(self) -> tuple[Events, ...]:
        return (self.lost,)

    def over(self, window: str, mean: str, masked: Change) -> tuple[str, ...]:
        matching = on((*self.group_by, names.EVENT))
        return masked(f"{paren(self.events(window).labelled())}\n+ {matching}\n{mean}"), mean

    def map_states(self, change: Change) -> EventQuery:
        return replace(self, lost=self.lost.map(change))


@dataclass(frozen=True, slots=True)
class Scope:
    """The source series of a measure, the labels of its groups, and the length of a time slice (PromQL)."""

    matchers: Matchers
    group_by: tuple[str, ...]
    slice_window: str
    scrape_seconds: float = 15.0

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
        return self.matchers.without(("version",))

    def restricted(self, query: str) -> str:
        """Return the part of a query's result that has the models and versions, where the group has them."""
        matchers = self.matchers.within(set(self.group_by) & set(names.GROUPING))
        for index, (label, operator, value) in enumerate(matchers.split):
            mark, marked, word = label, value.replace("$", "$$"), "unless" if operator[0] == "!" else "and"
            if "~" in operator:
                # Only a selector takes a pattern; in a result, label_replace marks the series that match.
                mark, marked = f"chosen_{index}", '"yes"'
                query = f'label_replace(\n{query},\n"{mark}", "yes", "{label}", {value}\n)'
            query = f'(\n{query}\n)\n{word} on ({mark}) label_replace(vector(1), "{mark}", {marked}, "", "")'
        return query

    def rate(self, metric: object, window: str, *extra: str) -> str:
        """Return events per second and group of a counter over a window."""
        return f"sum {self.by} (rate({metric}{self.matchers.also(*extra)}[{window}]))"

    def present(self, metric: object, *extra: str) -> str:
        """Return the groups for which a series exists now, each with the value 1."""
        return f"group {self.by} ({metric}{self.matchers.also(*extra)})"

    def series(self, metric: object, *extra: str) -> str:
        """Return the selector of the series themselves."""
        return f"{metric}{self.matchers.also(*extra)}"

    def summed(self, expr: str) -> str:
        """Return the sum of an expression by group."""
        return f"sum {self.by} ({expr})"


@dataclass(frozen=True, slots=True)
class UnknownReason:
    """A reason for knowing nothing about a group: its expression has the value 1 for such groups.

    `words` explain it to a person; `{after}` stands for the time that must pass. `fix` is what to change, where a
    setting is wrong.
    """

    name: str
    expr: str
    words: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Measure:
    """Expressions that measure an indicator for one part of the models; `wrong_settings` can prevent it."""

    presence: str
    events: EventQuery
    sources: tuple[tuple[str, str], ...] = ()
    """(expression with the label `source`, or expression, fixed source): which source serves which group."""
    wrong_settings: tuple[UnknownReason, ...] = ()
    estimate_error: Callable[[str], str] | None = None
    """PromQL for how far the share of a window may be off, of groups whose source estimates it."""
    stated_error: Callable[[str], str] | None = None
    """PromQL for the error of a window's share as the exporter states it, of groups for which it stated one."""

    @property
    def possible_sources(self) -> frozenset[str]:
        """Every source that may serve a group; those of a distribution are known to the exporter only."""
        named = {source for _, source in self.sources if source}
        exported = any(not source for _, source in self.sources)
        return frozenset(named | (set(state.DISTRIBUTION_SOURCES) if exported else set()))


def stuck(scope: Scope, after_seconds: float) -> UnknownReason:
    """Return the reason for groups whose requests wait while none completes."""
    window, matchers = duration_text(after_seconds), scope.models
    waiting = f"sum {scope.by} (min_over_time({triton.PENDING_REQUESTS}{matchers}[{window}])) > 0"
    done = " or ".join(
        f"(sum {scope.by} (increase({metric}{matchers}[{window}])) > 0)"
        for metric in (triton.REQUEST_SUCCESS, triton.REQUEST_FAILURE)
    )
    # Half of the window must have been seen: a model that has just appeared has had no time to answer.
    known = f"count_over_time({triton.PENDING_REQUESTS}{matchers}[{window}])"
    age = f"max {scope.by} ({known}) >= {number(after_seconds * 0.8 / scope.scrape_seconds)}"
    return UnknownReason(
        "stuck",
        f"0 * (\n  ({waiting})\n  and {scope.on} ({age})\n  unless {scope.on} ({done})\n) + 1",
        "Requests have waited for {after} and no request has completed: the model seems to be stuck.",
    )


def failures(metric: Metric, failed: Matchers, label: str, window: str) -> str:
    """Return failures per second with their cause, which a label of the metric names."""
    return (
        f'label_replace(rate({metric}{failed}[{window}]), "{names.CAUSE}", "failure:$1", "{label}", "(.*)")'
    )


def shares(failed: str) -> str:
    """Return the share of the failures that each cause has."""
    each = f"sum {by((*names.GROUPING, names.CAUSE))} ({failed})"
    return f"{each}\n/ {on(names.GROUPING)} group_left ()\n(sum {by(names.GROUPING)} ({failed}) > 0)"

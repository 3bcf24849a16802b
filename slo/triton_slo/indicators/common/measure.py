"""Measures: PromQL for what each server has counted, where the numbers come from, and what prevents measuring."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from triton_exporter.catalogue import Metric, state
from triton_slo import names
from triton_slo.promql import Matchers, by, on


@dataclass(frozen=True, slots=True)
class Scope:
    """The source series of an objective's models, and the labels of its groups."""

    matchers: Matchers
    group_by: tuple[str, ...]

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

    @property
    def server_labels(self) -> tuple[str, ...]:
        """Labels that tell the servers of a group apart."""
        return (*(label for label in ("job", "instance") if label not in self.group_by), *self.group_by)

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


@dataclass(frozen=True, slots=True)
class WrongSetting:
    """A setting because of which groups cannot be measured: its expression has the value 1 for each of them."""

    name: str
    expr: str
    words: str
    fix: str


@dataclass(frozen=True, slots=True)
class Measure:
    """What each server has counted so far, failed and all events: counters with all labels of the server's series.

    For an indicator that counts time (`counts_time`), `error` and `total` are instead the servers of each group
    that
    fail now, and all of them.
    """

    error: str
    total: str
    sources: tuple[tuple[str, str], ...] = ()
    """(expression with the label `source`, or expression, fixed source): which source serves which group."""
    wrong_settings: tuple[WrongSetting, ...] = ()
    estimate_error: Callable[[str], str] | None = None
    """PromQL for how far the share of a window may be off, of groups whose source estimates it."""
    stated_error: Callable[[str], str] | None = None
    """PromQL for the error of a window's share as the exporter states it, of groups for which it stated one."""
    comment: str = ""
    """What a reader of the counters' PromQL has to know."""

    @property
    def possible_sources(self) -> frozenset[str]:
        """Every source that may serve a group; those of a distribution are known to the exporter only."""
        named = {source for _, source in self.sources if source}
        exported = any(not source for _, source in self.sources)
        return frozenset(named | (set(state.DISTRIBUTION_SOURCES) if exported else set()))


def either(parts: Sequence[Measure], on_group: str) -> Measure:
    """Return the measure of models that have different thresholds; of two for a group, the first."""
    if len(parts) == 1:
        return parts[0]

    def first(errors: Sequence[Callable[[str], str] | None]) -> Callable[[str], str] | None:
        known = [error for error in errors if error is not None]
        return (lambda window: f"\nor {on_group} ".join(error(window) for error in known)) if known else None

    return Measure(
        "\nor ".join(part.error for part in parts),
        "\nor ".join(part.total for part in parts),
        tuple(dict.fromkeys(source for part in parts for source in part.sources)),
        tuple(setting for part in parts for setting in part.wrong_settings),
        first([part.estimate_error for part in parts]),
        first([part.stated_error for part in parts]),
        parts[0].comment,
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

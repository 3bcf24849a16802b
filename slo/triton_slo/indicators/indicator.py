"""Interface of every kind of indicator, with the answers that most kinds share, and what it returns: a measure.

A measure is PromQL for what each server has counted, where the numbers come from, and what prevents measuring.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from triton_exporter.catalogue import Metric, state
from triton_slo import names
from triton_slo.amounts import cause_words
from triton_slo.fields import Value, error_budget
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


FieldFinding = tuple[str, str, str]
"""Field, mistake, fix."""
_OVERLAPS = "gpu_throttled"
"""A cause beside the others: a GPU is throttled while it computes."""


class Indicator(Value):
    """A kind of indicator: its events, causes, words and limits, as methods that every kind has.

    A new kind defines `kind`, `burn_alert`, `share_words`, `failing_words` and `measure`; the other methods have an
    answer that fits most kinds.
    """

    kind: str = ""
    burn_alert: ClassVar[str] = ""
    share_words: ClassVar[str] = "of events good"
    """Words between share and threshold: `of requests within` in `99 % of requests within 500 ms`."""
    failed_words: ClassVar[str] = "requests failed"
    """What failed events are, after their share, with `{}` for a threshold: `4.1% of requests took over 1s`."""
    failing_words: ClassVar[str] = "events of {} fail"
    """What happens to events that fail, with `{}` for a threshold, or without one for the objective's name."""
    names_alerts: ClassVar[bool] = False
    """True if an objective may name its burn alert: no runbook or inhibition names it."""
    counts_time: ClassVar[bool] = False
    """True if each second of a server is an event: the budget is a length of time, and events are not
    independent."""
    cause_split: ClassVar[str] = ""
    """Kind of the indicator whose recorded cause split explains this one; empty: none does."""
    first_step: ClassVar[str] = "Check which events fail, and what changed last."
    """First step to take when no cause is known."""
    steps_by_cause: ClassVar[Mapping[str, str]] = {}
    """What to do first by the largest cause, or by what such causes begin with (`compute`); the first
    that fits."""
    default_target: ClassVar[str] = "99.9%"
    """Target that is proposed where nobody has asked for another."""
    limit_series: ClassVar[str] = names.ERROR_BUDGET_RATIO
    """Recorded series of the limit in the unit of the indicator's graphs."""

    @classmethod
    def name(cls) -> str:
        """Return the kind, as objectives and recorded series name it."""
        return str(cls.model_fields["kind"].default)

    @classmethod
    def step_for(cls, *causes: str) -> str:
        """Return the first step for the first of the causes, without that which overlaps with the others."""
        largest = next((cause for cause in causes if cause != _OVERLAPS), "")
        steps = (step for cause, step in cls.steps_by_cause.items() if largest.startswith(cause))
        return next(steps, cls.first_step)

    @classmethod
    def all_steps(cls) -> str:
        """Return the first step while no cause is known, with the steps for each cause."""
        cases = (f"If {cause_words(cause)}: {step}" for cause, step in cls.steps_by_cause.items())
        return " ".join((cls.first_step, *cases))

    @property
    def threshold_text(self) -> str:
        """The threshold as the user wrote it; empty where there is none."""
        return ""

    @property
    def threshold_seconds(self) -> float | None:
        """The threshold in seconds; None where there is none."""
        return None

    @property
    def grouping(self) -> tuple[str, ...]:
        """Labels of a group, where the objective names none."""
        return names.GROUPING

    @property
    def seen_by(self) -> str:
        """Who else than Triton measures it, `gateway` or `probe`: they see requests to a model that is not ready fail."""
        return ""

    def limit(self, target: float, threshold: float | None) -> float | None:
        """Return what a graph of the indicator compares with: the share of events that may fail."""
        return error_budget(target)

    def measure(self, threshold: float | None, scope: Scope) -> Measure:
        """Return how to measure it, with the threshold in seconds where there is one."""
        raise NotImplementedError

    def buckets(self, scope: Scope) -> tuple[str, float]:
        """Return PromQL for the buckets of each group (label `le`), and the unit of `le` in seconds.

        Empty where no histogram is read: then any threshold will do, or there is none.
        """
        return "", 1.0

    def needs(self, scope: Scope) -> Iterator[tuple[str, str, str]]:
        """Yield what must exist, in order: a query with a result where it does, its name, what makes it appear."""
        return iter(())

    @classmethod
    def exact_with(cls, bucket: str) -> str | None:
        """Return what makes a recent Triton export the exact distribution, with a bucket at the threshold."""
        return None

    @classmethod
    def causes(cls, selector: Matchers, window: str, used: Sequence[Indicator]) -> Iterator[tuple[str, str]]:
        """Yield the cause split: pairs of a cause (empty where the series have the label) and PromQL of its share.

        `used` are the objectives' indicators of this kind.
        """
        return iter(())

    def findings(self, group_by: Sequence[str], chosen: Sequence[str]) -> Iterator[FieldFinding]:
        """Yield mistakes that Prometheus would accept; `chosen` are the labels by which the objective chooses."""
        return iter(())

    def notes(self, thresholds: Sequence[float]) -> Iterator[FieldFinding]:
        """Yield conditions under which a valid objective works, such as a setting of the exporter."""
        return iter(())

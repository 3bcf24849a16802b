"""Interface of every kind of indicator, with the answers that most kinds share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from triton_slo import names
from triton_slo.fields import Value, error_budget
from triton_slo.indicators.common.measure import Measure, Scope
from triton_slo.promql import Matchers

FieldFinding = tuple[str, str, str]
"""Field, mistake, fix."""
_OVERLAPS = "gpu_throttled"
"""A cause beside the others: a GPU is throttled while it computes."""


class Indicator(Value):
    """A kind of indicator: its events, causes, words and limits, as methods that every kind has.

    A new kind defines `kind`, `burn_alert`, `share_words`, `measure` and `incident`; the other methods have
    an answer that fits most kinds.
    """

    kind: str = ""
    burn_alert: ClassVar[str] = ""
    share_words: ClassVar[str] = "good"
    """Words between share and threshold: `of requests within` in `99 % of requests within 500 ms`."""
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
    caused_by: ClassVar[str] = "readiness"
    """Kind of the indicator whose page explains this one's alerts, and inhibits them; empty: none does."""

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
        cases = (f"If {cause.rpartition(':')[2]}: {step}" for cause, step in cls.steps_by_cause.items())
        return " ".join((cls.first_step, *cases))

    @property
    def failed_words(self) -> str:
        """What failed events are, after their number: `49 of 1190 requests failed`."""
        return "requests failed"

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

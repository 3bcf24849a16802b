"""Alerts as frozen values, written for real time in plain PromQL."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from triton_exporter.family import escape
from triton_slo import links
from triton_slo.alert_settings import Tunable
from triton_slo.promql import regex_of

Component = Literal["lifecycle", "traffic", "llm", "gpu", "meta", "slo"]
"""The family of the alert; burn alerts add `slo`."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """A query for the cause of an alert, which the bridge asks: the values of `label` in its answer, after `prefix`.

    `%q` in `expr` are the matchers of the labels in `given`, which are the alert's own, and of its cluster. Texts have no
    such queries: Prometheus would run them for each alert at each evaluation, most of all in a storm.
    """

    expr: str
    given: tuple[str, ...]
    label: str
    prefix: str = ""

    def about(self, labels: Mapping[str, str]) -> str:
        """Return the query for an alert with these labels."""
        own = (f'{name}="{escape(labels.get(name, ""))}"' for name in self.given)
        return self.expr.replace("%q", ", ".join((*of_cluster(labels), *own)))

    def cause(self, found: Iterable[Mapping[str, str]]) -> str:
        """Return the cause in the answer, from the labels of its series; empty if there is none."""
        values = ", ".join(sorted({labels.get(self.label, "") for labels in found} - {""}))
        return f"{self.prefix}{values}" if values else ""


def of_cluster(labels: Mapping[str, str]) -> tuple[str, ...]:
    """Return the matcher of the cluster that an alert names, if it does.

    Series without that label are its own: an external label of Prometheus is in none of them.
    """
    cluster = labels.get("cluster")
    return (f'cluster=~"{escape(regex_of([cluster, ""]))}"',) if cluster else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert(Tunable):
    """One condition that a person should know.

    `expr` is PromQL at real time; `rules.fit_to_options` fits it to the options, and there a bare duration
    (`> 10m`) is a number of seconds. `labels` are the labels that identify an alert of this name:
    the expression yields each of them, and grouping and inhibition rely on it. A `summary` of what the expression
    looks back at is in the past tense: the alert fires on after the end, and a message keeps its number. In `summary` and
    `description`, `[15m]` is a window and everything else is Prometheus' template language.
    There, in `expr` and in `until`, `$threshold` is the threshold and `$for` is how long the condition must last.
    """

    expr: str
    component: Component
    summary: str
    description: str
    action: str
    """The first thing to do, in one sentence: the runbook's first step."""
    cause_from: Lookup | None = None
    steps: tuple[tuple[str, str], ...] = ()
    """Cause, as `cause_from` finds it -> what the bridge says to do first, where `action` would be too general."""
    until: str = ""
    """An easier condition with the same labels: a firing alert continues while it is true, so that a value that
    varies around the threshold is one alert."""
    lately: str = ""
    """How much of it there was in the last two minutes, with the same labels: 0 is that it is over, although the alert,
    which looks back, fires. The bridge asks it, with the `$threshold` that an annotation of the alert has."""
    dashboard: str = links.MODEL
    """Uid of the dashboard to open first."""
    owner: str = "ml-platform"
    silence: str = ""
    """The labels to silence by during planned work, in words."""

    def with_threshold(self, expr: str) -> str:
        """Return the expression with the threshold as a number."""
        return expr.replace("$threshold", self.threshold.promql if self.threshold else "$threshold")

    def with_numbers(self, text: str) -> str:
        """Return a text for people with its threshold and its `for`."""
        # Two digits of a share: Prometheus would write 94.53%.
        text = text.replace("$value | humanizePercentage", '$value | printf "%.2g" | humanizePercentage')
        return text.replace("$threshold", self.threshold.words if self.threshold else "").replace(
            "$for", self.for_ or "0s"
        )

"""What an alert is: one frozen value, written at real time in plain PromQL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["critical", "warning", "info", "none"]
"""critical pages a person, warning opens a ticket, info is only shown, none is the dead man's switch."""

Component = Literal["lifecycle", "traffic", "llm", "gpu", "meta"]
"""The family of the alert; burn alerts add `slo`."""

Dashboard = Literal["server", "model", "gpu", "on_call"]
"""The page to open first."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """A query that Prometheus runs while it writes the annotation: the values of `label` in its answer.

    `expr` holds one `%q` for each label in `given`, filled from the alert's own labels.
    """

    expr: str
    given: tuple[str, ...]
    label: str


@dataclass(frozen=True, slots=True)
class Alert:
    """One condition a person should know about.

    `expr` is PromQL at real time; `promql.lower` fits it to the options, and there a bare duration
    (`> 10m`) is a number of seconds. `labels` are the labels that identify an alert of this name:
    the expression yields each of them, and grouping and inhibition rely on it. In `summary`,
    `description` and `cause`, `[15m]` is a window and everything else is Prometheus' template language.
    """

    name: str
    expr: str
    severity: Severity
    component: Component
    labels: tuple[str, ...]
    summary: str
    description: str
    action: str
    """The first thing to do, in one sentence: the runbook's first step."""
    cause: str = ""
    cause_from: Lookup | None = None
    steps: tuple[tuple[str, str], ...] = ()
    """Cause, as `cause_from` finds it -> what to do first about it, where `action` would be too general."""
    hold: str = ""
    """Nominal `for`: how long the condition must last."""
    keep: str = ""
    """Nominal `keep_firing_for`: how long the alert outlives the condition, against flaps and scrape gaps."""
    dashboard: Dashboard = "model"
    owner: str = "ml-platform"
    silence: str = ""
    """The labels to silence by during planned work, in words."""

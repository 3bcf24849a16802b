"""What an alert is: one frozen value, written at real time in plain PromQL."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from triton_slo.alerting.signals import AlertThreshold
from triton_slo.alerting.tuning import Setting, Tuning
from triton_slo.promql import Matchers

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
    There, in `expr` and in `until`, `$threshold` is the threshold and `$for` is how long the condition must last.
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
    until: str = ""
    """An easier condition, with the same labels: an alert that fires goes on while this one is true, so that a
    value that wavers about the threshold is one alert."""
    keep: str = ""
    """Nominal `keep_firing_for`: how long the alert outlives the condition, against flaps and scrape gaps."""
    dashboard: Dashboard = "model"
    owner: str = "ml-platform"
    silence: str = ""
    """The labels to silence by during planned work, in words."""
    threshold: AlertThreshold | None = None
    models: Matchers = Matchers()  # noqa: RUF009 # frozen
    """Of which models only; none: of all."""

    def with_threshold(self, expr: str) -> str:
        """An expression with the threshold as a number."""
        return expr.replace("$threshold", self.threshold.promql if self.threshold else "$threshold")

    def with_numbers(self, text: str) -> str:
        """Return a text for people with its threshold and its `for`."""
        return text.replace("$threshold", self.threshold.words if self.threshold else "").replace(
            "$for", self.hold or "0s"
        )

    def tuned(self, tuning: Tuning) -> Iterator[Alert]:
        """Yield the alert as it is in force: once for each group of models with settings of their own."""
        for part in tuning.parts(self.name):
            if part.setting.enabled is False:
                continue
            models = Matchers()
            if part.models is not None:
                models = models.choosing("model", part.models)
            for earlier in part.not_models:
                models = models.outside("model", earlier)
            yield replace(self._with(part.setting), models=models)

    def _with(self, setting: Setting) -> Alert:
        return replace(
            self,
            threshold=self.threshold and self.threshold.tuned(setting),
            hold=self.hold if setting.hold is None else setting.hold,
            severity=setting.severity or self.severity,
        )

"""An alert as far as an installation can tune it, and those of them that every objective has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

from triton_exporter.common.duration import DAY
from triton_slo import names
from triton_slo.alert_settings.alert_threshold import AlertThreshold
from triton_slo.alert_settings.tuning import Setting, Tuning
from triton_slo.promql import Matchers


@dataclass(frozen=True, slots=True, kw_only=True)
class Tunable:
    """The properties of an alert that alerts.yaml can change."""

    name: str
    severity: names.Severity
    labels: tuple[str, ...]
    """The labels that identify an alert of this name."""
    for_: str = ""
    """Nominal `for`: how long the condition must last."""
    keep_firing_for: str = ""
    """Nominal `keep_firing_for`: how long the alert outlives the condition, against flaps and scrape gaps."""
    threshold: AlertThreshold | None = None
    models: Matchers = Matchers()  # noqa: RUF009 # frozen
    """Matchers of the models that the alert is for; none: all models."""

    def tuned(self, tuning: Tuning) -> Iterator[Self]:
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

    def _with(self, setting: Setting) -> Self:
        return replace(
            self,
            threshold=self.threshold and self.threshold.tuned(setting),
            **setting.model_dump(
                include=set(Setting.model_fields) - {"enabled", "threshold"}, exclude_none=True
            ),
        )


UNMEASURED = Tunable(
    name=names.UNMEASURED_ALERT,
    severity="warning",
    labels=names.GROUPING,
    # A restart of the exporter ends a wrong setting within a minute.
    for_="10m",
)
NEARLY_SPENT = Tunable(
    name=names.NEARLY_SPENT_ALERT,
    severity="warning",
    labels=names.GROUPING,
    for_="1h",
    keep_firing_for="6h",
    threshold=AlertThreshold(
        3.0 * DAY,
        "age",
        "how long the rest of an error budget lasts at its recent pace",
        "Three days are a weekend and a working day on which somebody can still stop what spends the budget.",
        below=True,
    ),
)
SPENT = Tunable(
    name=names.SPENT_ALERT,
    severity="warning",
    labels=names.GROUPING,
    # A burn alert that needs hours of evidence comes before a ticket about a spent budget.
    for_="6h",
    keep_firing_for="6h",
)
OF_OBJECTIVES = (UNMEASURED, NEARLY_SPENT, SPENT)

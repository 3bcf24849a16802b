"""Plan: an objective with the generation options, and the names, labels and lengths that its rules share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from triton_exporter.common.duration import duration_text, parse_seconds
from triton_slo import names
from triton_slo.artifact import Options
from triton_slo.indicators.indicator import Measure, Scope, either
from triton_slo.objective.model import Objective, Tier
from triton_slo.promql import Matchers, parse_selector

_ALL = Matchers()
MIN_SCRAPES = 4
"""Where a time scale shortens windows (the demo), none becomes shorter than so many scrapes."""


@dataclass(frozen=True, slots=True)
class Clock:
    """Conversion of nominal to real time, for a demo or a test in which an hour is a minute."""

    scale: float = 1.0
    scrape_seconds: float = 15.0

    def real(self, nominal: str, min_scrapes: int = MIN_SCRAPES) -> float:
        """Return the real seconds of a nominal duration."""
        if self.scale == 1:
            return parse_seconds(nominal)
        return max(parse_seconds(nominal) * self.scale, min_scrapes * self.scrape_seconds)

    def text(self, nominal: str, min_scrapes: int = MIN_SCRAPES) -> str:
        """Return the real duration in PromQL."""
        return duration_text(self.real(nominal, min_scrapes))


def canonical(duration: str) -> str:
    """Return one spelling for each length: `60m` is `1h`."""
    return duration_text(parse_seconds(duration))


@dataclass(frozen=True)
class Plan:
    """An objective under given options."""

    objective: Objective
    options: Options

    @cached_property
    def clock(self) -> Clock:
        """The clock that converts nominal windows to real ones."""
        return Clock(self.options.time_scale, self.options.scrape_interval_seconds)

    @cached_property
    def fixed_labels(self) -> dict[str, str]:
        """Labels that `--selector` fixes (`cluster="eu1"`); results carry them, so that tenants stay apart."""
        return parse_selector(self.options.selector)[1]

    @cached_property
    def identity(self) -> dict[str, str]:
        """Labels by which an objective's own series are found.

        A changed threshold begins new series: events that were counted by another one are other events.
        """
        threshold = {names.THRESHOLD: text} if (text := self.objective.threshold_text) else {}
        return {names.SLO: self.objective.name, **threshold, **self.fixed_labels}

    @cached_property
    def labels(self) -> dict[str, str]:
        """Labels of every recorded series of a group."""
        return {**self.identity, names.INDICATOR: self.objective.indicator.kind}

    @cached_property
    def own(self) -> Matchers:
        """Matchers of this objective's recorded series."""
        matchers = Matchers()
        for label, value in self.identity.items():
            matchers = matchers.equal(label, value)
        return matchers

    @cached_property
    def windows(self) -> tuple[str, ...]:
        """Nominal windows of which a share is recorded, shortest first: those of the tiers, and those that
        people read."""
        tiers = self.objective.alerting.tiers
        wanted = {
            "5m",
            "1h",
            "6h",
            "1d",
            "3d",
            *(canonical(w) for tier in tiers for w in (tier.long, tier.short)),
        }
        if self.objective.calendar is None:
            wanted.add(self.objective.window.nominal)
        return tuple(sorted(wanted, key=parse_seconds))

    @cached_property
    def period_seconds(self) -> float:
        """The real length of the period, of a calendar's longest; calendars are not scaled."""
        return self.objective.window.real_seconds(self.options.time_scale)

    def factor(self, tier: Tier) -> float:
        """Return the burn rate at which a tier fires."""
        return tier.factor(self.objective.window.seconds)

    def severity(self, tier: Tier) -> names.Severity:
        """Return the tier's severity, or the objective's own."""
        return self.objective.alerting.severities.get(tier.name, tier.severity)

    def pages(self, tier: Tier) -> bool:
        """Return whether a tier's alert calls a person at once."""
        return self.severity(tier) == "critical"

    @cached_property
    def measure(self) -> Measure:
        """How the indicator is measured, with the thresholds of overrides for their models."""
        return self.measured(self.objective.threshold_seconds)

    def measured(self, threshold: float | None, models: Matchers = _ALL) -> Measure:
        """Return how the indicator would be measured with this threshold, of these models alone."""
        indicator, left, parts = self.objective.indicator, self.scope.matchers.also(*models.parts), []
        for override in self.objective.overrides:
            if override.threshold_seconds is not None:
                own = left.choosing("model", override.models).choosing("version", override.versions)
                parts.append(indicator.measure(override.threshold_seconds, replace(self.scope, matchers=own)))
                if override.versions.everything:
                    left = left.outside("model", override.models)
        parts.append(indicator.measure(threshold, replace(self.scope, matchers=left)))
        return either(parts, self.scope.on)

    @cached_property
    def scope(self) -> Scope:
        """The source series of the objective's models."""
        chosen = chosen_matchers(self.objective)
        return Scope(
            Matchers(parse_selector(self.options.selector)[0]).also(*chosen.parts), self.objective.group_by
        )


def chosen_matchers(objective: Objective) -> Matchers:
    """Return the matchers of all models and versions of an objective."""
    return Matchers().choosing("model", objective.models).choosing("version", objective.versions)

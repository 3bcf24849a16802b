"""Plan: an objective with the generation options, and the windows, variants and matchers its rules share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

from triton_slo import names
from triton_slo.artifact import Options
from triton_slo.fields import Choice, error_budget
from triton_slo.indicators.common.measure import Measure, Scope, UnknownReason
from triton_slo.objective.model import Objective, Override, Tier
from triton_slo.promql import Matchers, on, parse_selector
from triton_slo.rules.rulefile import Rule
from triton_slo.rules.windows import MEAN_SLICE, RESTART, Clock, RecordedWindow, canonical, recorded_windows


@dataclass(frozen=True, slots=True)
class Variant:
    """A part of the models that shares a target and a threshold; matchers are on `model` and `version`."""

    matchers: Matchers
    target: float
    threshold: float | None

    @property
    def budget(self) -> float:
        """Share of events that may fail."""
        return error_budget(self.target)


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
    def windows(self) -> dict[str, RecordedWindow]:
        """Recorded windows by nominal name."""
        return recorded_windows(self.objective, self.clock)

    @cached_property
    def source_matchers(self) -> Matchers:
        """Matchers of `--selector`, which every selector on source series carries."""
        return Matchers(parse_selector(self.options.selector)[0])

    @cached_property
    def fixed_labels(self) -> dict[str, str]:
        """Labels that `--selector` fixes (`cluster="eu1"`); results carry them, so that tenants stay apart."""
        return parse_selector(self.options.selector)[1]

    @cached_property
    def labels(self) -> dict[str, str]:
        """Labels of every recorded series."""
        objective = self.objective
        return {
            names.SLO: objective.name,
            names.INDICATOR: objective.indicator.kind,
            **self.fixed_labels,
        }

    @cached_property
    def own(self) -> Matchers:
        """Matchers of this objective's recorded series."""
        matchers = Matchers().equal(names.SLO, self.objective.name)
        for label, value in self.fixed_labels.items():
            matchers = matchers.equal(label, value)
        return matchers

    @cached_property
    def windows_with_events(self) -> frozenset[str]:
        """Windows over an hour of which events are recorded, and not only their ratio."""
        if self.objective.calendar:
            return frozenset(self.windows)
        longs = {canonical(tier.long) for tier in self.objective.alerting.tiers}
        return frozenset({*longs, "6h", "1d", "3d", self.objective.window.nominal})

    @cached_property
    def period(self) -> RecordedWindow | None:
        """The window of a rolling objective; None where a calendar sets it."""
        return self.windows.get(self.objective.window.nominal)

    @cached_property
    def variants(self) -> tuple[Variant, ...]:
        """The objective split by its overrides; every selected model falls into exactly one."""
        return _variants(self.objective)

    @cached_property
    def period_seconds(self) -> float:
        """The real length of the period, of a calendar's longest; calendars are not scaled."""
        return self.objective.window.real_seconds(self.options.time_scale)

    def factor(self, tier: Tier) -> float:
        """Return the burn rate at which a tier fires."""
        return tier.factor(self.objective.window.seconds)

    def pages(self, tier: Tier) -> bool:
        """Return whether a tier's alert calls a person at once."""
        return self.severity(tier) == "critical"

    def severity(self, tier: Tier) -> names.Severity:
        """Return the tier's severity, or the objective's own."""
        return self.objective.alerting.severities.get(tier.name, tier.severity)

    def reachable(self, tier: Tier, budget: float) -> bool:
        """Return whether any error ratio can burn a budget so fast."""
        return self.factor(tier) * budget < 1

    def measure(self, variant: Variant) -> Measure:
        """Return how the indicator is measured for a variant's models."""
        return self.objective.indicator.measure(variant.threshold, self.scope(variant.matchers))

    @cached_property
    def redundancy_gone(self) -> str:
        """PromQL for groups without redundancy; empty where the indicator knows none."""
        scope = self.scope(chosen_matchers(self.objective))
        gone = self.objective.indicator.redundancy_gone(scope, self.clock.real(RESTART))
        if gone and self.objective.unknown.policy == "bad":
            gone += f"\nor {scope.on} group {scope.by} ({names.UNKNOWN}{self.own} == 1)"
        return gone

    @property
    def wrong_settings(self) -> tuple[UnknownReason, ...]:
        """Settings that can prevent the measuring if they are wrong, each once."""
        settings = (setting for variant in self.variants for setting in self.measure(variant).wrong_settings)
        return tuple({setting.name: setting for setting in settings}.values())

    def scope(self, matchers: Matchers) -> Scope:
        """Return the source series of some models."""
        return Scope(
            self.source_matchers.also(*matchers.parts),
            self.objective.group_by,
            self.clock.text(MEAN_SLICE),
            self.clock.scrape_seconds,
        )


def recording_rule(
    plan: Plan, record: str, expr: str, extra: Mapping[str, str] = MappingProxyType({})
) -> Rule:
    """Return a rule that records a series with the labels of the objective, and `extra` ones."""
    return Rule(expr=expr, record=record, labels={**plan.labels, **extra})


def on_group(plan: Plan, *extra: str) -> str:
    """Return `on (...)` with the labels of a group, and `extra` ones."""
    return on((*plan.objective.group_by, *extra))


def group_matchers(plan: Plan, matchers: Matchers) -> Matchers:
    """Return the matchers of the recorded series of some models: a group has only the labels of `group_by`."""
    return plan.own.also(*matchers.within(plan.objective.group_by).parts)


def source_model_matchers(plan: Plan) -> Matchers:
    """Return the matchers of source series of the objective's models, whatever their version."""
    return plan.source_matchers.choosing("model", plan.objective.models)


def chosen_matchers(objective: Objective) -> Matchers:
    """Return the matchers of all models and versions of an objective."""
    return Matchers().choosing("model", objective.models).choosing("version", objective.versions)


def _variants(objective: Objective) -> tuple[Variant, ...]:
    # Overrides that list whole models are many (one a model) and cannot overlap once a name is taken: they
    # cost a set lookup. The others are few, and narrow what is left for those after them, listed models too.
    taken: dict[str, None] = {}
    left = [chosen_matchers(objective)]
    listed: dict[tuple[Matchers, tuple[float, float | None]], list[str]] = {}
    variants: list[Variant] = []
    for override in objective.overrides:
        limits = objective.limits(override)
        if override.models.names is not None and override.versions.everything and len(left) == 1:
            fresh = [model for model in override.models.names if model not in taken]
            listed.setdefault((left[0], limits), []).extend(fresh)
            taken.update(dict.fromkeys(fresh))
            continue
        free = [matchers.outside("model", _choice_of(taken)) for matchers in left]
        variants += [Variant(_inside_override(matchers, override), *limits) for matchers in free]
        left = [rest for matchers in left for rest in _outside_override(matchers, override)]
    by_name = [
        Variant(matchers.choosing("model", _choice_of(models)), *limits)
        for (matchers, limits), models in listed.items()
        if models
    ]
    rest = [Variant(matchers.outside("model", _choice_of(taken)), *objective.limits()) for matchers in left]
    return (*by_name, *variants, *rest)


def _choice_of(models: Iterable[str]) -> Choice:
    given = tuple(models)
    return Choice(names=given) if given else Choice()


def _inside_override(matchers: Matchers, override: Override) -> Matchers:
    return matchers.choosing("model", override.models).choosing("version", override.versions)


def _outside_override(matchers: Matchers, override: Override) -> list[Matchers]:
    """Return what an override leaves: other models, and other versions of its models."""
    others = [] if override.models.everything else [matchers.outside("model", override.models)]
    if override.versions.everything:
        return others
    return [*others, matchers.choosing("model", override.models).outside("version", override.versions)]

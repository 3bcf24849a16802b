"""The form of the What if page: what it shows, and the objective that its fields ask for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from triton_exporter.common.duration import time_text
from triton_exporter.common.problem import Problem
from triton_slo.fields import Choice
from triton_slo.indicators import KINDS, Indicator
from triton_slo.indicators.histograms import TimedIndicator
from triton_slo.lint import Surroundings, findings
from triton_slo.objective import writing
from triton_slo.objective.model import Objective, Tier
from triton_slo.objective.reading import read

WINDOWS = ("7d", "14d", "28d", "30d", "90d", "week", "month", "quarter")
TARGETS = ("90", "95", "98", "99", "99.5", "99.8", "99.9", "99.95", "99.98", "99.99", "99.995", "99.999")
"""Stops of the slider, in percent; any other number can be typed."""
HISTORIES = {"1d": 1, "7d": 7, "30d": 30, "90d": 90}
"""Lengths of the history in days."""
HISTORY = "30d"
_MAX_FIELD_CHARACTERS = 4000
_FIELDS = ("name", "models", "target", "threshold", "window", "min_failures", "confidence")
_TIER_FIELDS = ("severity", "long", "short", "spent")


@dataclass(frozen=True, slots=True)
class TierFields:
    """One tier as texts: `spent` is a share of the budget in the long window (2%), or a burn rate (14.4x)."""

    name: str
    severity: str
    long: str
    short: str
    spent: str


@dataclass(frozen=True, slots=True)
class WhatIfForm:
    """All fields as texts, as they were sent or as the base has them."""

    base: str
    name: str
    models: str
    target: str
    threshold: str
    window: str
    history: str
    min_failures: str
    confidence: str
    tiers: tuple[TierFields, ...]

    @property
    def timed(self) -> bool:
        """True if the indicator has a threshold."""
        return bool(self.threshold)


def bases(objectives: Sequence[Objective]) -> dict[str, Objective]:
    """Return the objectives to begin with: the given ones, then a plain one of each other kind of indicator."""
    by_name = {own.name: own for own in objectives}
    used = {own.indicator.kind for own in objectives}
    for name, indicator in KINDS.items():
        if name not in used and (plain := _default_objective(indicator)) is not None:
            by_name.setdefault(name, plain)
    return by_name


def _default_objective(indicator: type[Indicator]) -> Objective | None:
    """Return an objective of a kind with its default target; None for a kind that needs queries of the user."""
    measured = {"kind": indicator.name()}
    if issubclass(indicator, TimedIndicator):
        measured["threshold"] = time_text(indicator.default_seconds)
    name = indicator.name().replace("_", "-")
    try:
        return Objective.model_validate(
            {"name": name, "target": indicator.default_target, "indicator": measured}
        )
    except ValidationError:
        return None


def filled(parameters: Mapping[str, str], objectives: Mapping[str, Objective]) -> WhatIfForm:
    """Return the form for the parameters of an address; a field that is not there is as the base has it."""
    chosen = parameters.get("base", "")
    base = objectives.get(chosen) or next(iter(objectives.values()))
    name = chosen if chosen in objectives else next(iter(objectives))
    form = of_objective(base, name)
    # Fields of another base do not concern this one.
    if parameters.get("of", name) != name:
        return replace(form, **_given(parameters, ("models",)))
    fields = tuple(field for field in _FIELDS if form.timed or field != "threshold")
    tiers = [replace(tier, **_given(parameters, _TIER_FIELDS, f"{tier.name}.")) for tier in form.tiers]
    return replace(form, **_given(parameters, fields), tiers=tuple(tiers))


def _given(parameters: Mapping[str, str], fields: Sequence[str], prefix: str = "") -> dict[str, Any]:
    """Return the texts of those fields that the address has, without blanks around them."""
    texts = {field: parameters[prefix + field] for field in fields if prefix + field in parameters}
    # A pattern of a name may end in a blank.
    return {
        field: (text.lstrip() if text.startswith("~") else text.strip())[:_MAX_FIELD_CHARACTERS]
        for field, text in texts.items()
    }


def of_objective(original: Objective, base: str) -> WhatIfForm:
    """Return the form as an objective fills it."""
    alerting = original.alerting
    calendar = original.calendar
    return WhatIfForm(
        base=base,
        name=original.name,
        models=_models_text(original.models),
        target=_percent(original.target),
        threshold=original.indicator.threshold_text,
        window=calendar.calendar if calendar else original.window.nominal,
        history=HISTORY,
        min_failures=str(alerting.min_failures),
        confidence=f"{100 * alerting.confidence:g}",
        tiers=tuple(
            TierFields(
                tier.name,
                alerting.severities.get(tier.name, tier.severity),
                tier.long,
                tier.short,
                _spent(tier),
            )
            for tier in alerting.tiers
        ),
    )


def _models_text(models: Choice) -> str:
    if models.everything:
        return "all"
    return f"~{models.regex}" if models.regex else ", ".join(models.names or ())


def _percent(share: float) -> str:
    return (
        f"{round(100 * share, 10):g}"
        if round(100 * share, 4) == 100 * share
        else repr(round(100 * share, 10))
    )


def _spent(tier: Tier) -> str:
    return f"{tier.burn:g}x" if tier.burn is not None else f"{_percent(tier.budget or 0.0)}%"


def objective(form: WhatIfForm, base: Objective) -> Objective | tuple[Problem, ...]:
    """Return the objective that a form asks for, or what is wrong with it in the words of `tritonwatch check`."""
    text = writing.write([base]) if form == of_objective(base, form.base) else _objective_yaml(form, base)
    reading = read([("objective", text)])
    return reading.problems if reading.problems else reading.objectives[0]


def mistakes(text: str, around: Surroundings) -> list[Problem]:
    """Return the mistakes that `tritonwatch check` reports for an objective in YAML."""
    return findings(read([("objective", text)]), around)


def _objective_yaml(form: WhatIfForm, base: Objective) -> str:
    data = writing.plain(base)
    unchanged = of_objective(base, form.base)
    data["name"] = form.name
    data["target"] = _percent_text(form.target)
    if form.window != unchanged.window:
        zone = {"timezone": base.calendar.timezone} if base.calendar else {}
        data["window"] = {"calendar": form.window, **zone} if form.window in WINDOWS[-3:] else form.window
    if form.models != unchanged.models:
        data["models"] = _selection(form.models)
    if form.threshold != unchanged.threshold:
        indicator = data["indicator"]
        data["indicator"] = {
            **(indicator if isinstance(indicator, dict) else {"kind": indicator}),
            "threshold": form.threshold,
        }
    alerting = dict(data.get("alerting", {}))
    if form.tiers != unchanged.tiers:
        alerting["tiers"] = [_tier(tier) for tier in form.tiers]
        # The severity is in the tiers now.
        alerting.pop("severities", None)
    if form.min_failures != unchanged.min_failures:
        alerting["min_failures"] = (
            int(form.min_failures) if form.min_failures.isdecimal() else form.min_failures
        )
    if form.confidence != unchanged.confidence:
        alerting["confidence"] = _percent_text(form.confidence)
    if alerting:
        data["alerting"] = alerting
    return writing.dump({"objectives": [data]})


def _percent_text(text: str) -> str:
    """Return a percentage with its sign, which may be left out in the form."""
    return f"{text}%" if re.fullmatch(r"[0-9]*\.?[0-9]+", text) else text


def _selection(text: str) -> Any:
    if text in ("", "all"):
        return "all"
    if text.startswith("~"):
        return {"regex": text[1:]}
    return [name.strip() for name in text.split(",") if name.strip()]


def _tier(fields: TierFields) -> dict[str, Any]:
    parts: dict[str, Any] = {
        "name": fields.name,
        "severity": fields.severity,
        "long": fields.long,
        "short": fields.short,
    }
    if burn := re.fullmatch(r"([0-9]*\.?[0-9]+)\s*x", fields.spent):
        parts["burn"] = float(burn[1])
    else:
        parts["budget"] = _percent_text(fields.spent)
    return parts

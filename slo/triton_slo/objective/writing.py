"""Objectives as a person would write them: YAML without defaults, that reads back as the same values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import yaml

from triton_slo.objective.model import Objective
from triton_slo.yaml_text import ReadableDumper


def write(objectives: Iterable[Objective]) -> str:
    return dump({"objectives": [plain(objective) for objective in objectives]})


def dump(document: object) -> str:
    return str(yaml.dump(document, Dumper=ReadableDumper, sort_keys=False, allow_unicode=True, width=100))


def plain(objective: Objective) -> dict[str, Any]:
    """Return an objective in the short form, without what is the default anyway."""
    data: dict[str, Any] = objective.model_dump(mode="json", exclude_defaults=True)
    data["target"] = _percent(objective.target)
    data["indicator"] = {"kind": objective.indicator.kind, **data.get("indicator", {})}
    if len(data["indicator"]) == 1:
        data["indicator"] = objective.indicator.kind
    for holder in (data, *data.get("overrides", ())):
        for field in ("models", "versions"):
            if field in holder:
                holder[field] = holder[field].get("names", holder[field])
    for override, chosen in zip(data.get("overrides", ()), objective.overrides, strict=False):
        if chosen.target is not None:
            override["target"] = _percent(chosen.target)
    if list(data.get("window", {})) in (["rolling"], ["calendar"]):
        (data["window"],) = data["window"].values()
    return data


def _percent(ratio: float) -> str | float:
    """Return the ratio as `99.9%` where that reads back as the same number, else as a number."""
    text = f"{ratio * 100:.10f}".rstrip("0").rstrip(".")
    return f"{text}%" if round(float(text) / 100, 12) == ratio else ratio

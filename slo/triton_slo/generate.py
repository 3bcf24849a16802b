"""Objectives in, rule files out. No IO."""

from __future__ import annotations

from collections.abc import Sequence

from triton_slo.artifact import Artifact, Options
from triton_slo.burn.causes import cause_rules
from triton_slo.burn.rule_groups import groups
from triton_slo.objective.model import Objective
from triton_slo.rules.plan import Plan
from triton_slo.rules.rulefile import Group, render

CAUSES = "slo-causes"


def artifacts(objectives: Sequence[Objective], options: Options) -> tuple[Artifact, ...]:
    """Return one rule file for each objective, and one of causes for all."""
    files: list[Artifact] = []
    if objectives:
        causes = (Group(CAUSES, tuple(cause_rules(objectives, options))),)
        files.append(Artifact("rules", f"{CAUSES}.yml", render(causes, CAUSES, options.format)))
    for objective in objectives:
        name = f"slo-{objective.name}"
        text = render(groups(Plan(objective, options)), name, options.format)
        files.append(Artifact("rules", f"{name}.yml", text))
    return tuple(files)

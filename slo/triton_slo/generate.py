"""Objectives in, rule files and their proofs out. No IO."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from triton_slo.artifact import Artifact, Options
from triton_slo.causes import cause_rules
from triton_slo.objective.model import Objective
from triton_slo.plan import Plan
from triton_slo.rulefile import Group, render
from triton_slo.rules import groups

CAUSES = "slo-causes"


def artifacts(objectives: Sequence[Objective], options: Options) -> tuple[Artifact, ...]:
    """Return one rule file and one file of proofs for each objective, and one of causes for all.

    Raises LookupError if an alert came without a proof that it fires and one that it stays quiet.
    """
    files: list[Artifact] = []
    if objectives:
        causes = (Group(CAUSES, tuple(cause_rules(objectives, options))),)
        files.append(Artifact("rules", f"{CAUSES}.yml", render(causes, CAUSES, options.format)))
    for objective in objectives:
        files += _artifacts(Plan(objective, options))
    return tuple(files)


def _artifacts(plan: Plan) -> Iterator[Artifact]:
    name = f"slo-{plan.objective.name}"
    yield Artifact("rules", f"{name}.yml", render(groups(plan), name, plan.options.format))

"""Objectives in, rule files and their proofs out. No IO."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from triton_slo.artifact import Artifact, Options
from triton_slo.burn.budget_alerts import budget_alerts
from triton_slo.burn.burn_alerts import objective_rules
from triton_slo.burn.causes import cause_rules
from triton_slo.objective.model import Objective
from triton_slo.proofs.proof import proof_artifacts
from triton_slo.rules.plan import Plan
from triton_slo.rules.recording import slow_rules
from triton_slo.rules.rulefile import Group, render
from triton_slo.rules.running_sum import CHECKPOINT

CAUSES = "slo-causes"


def artifacts(objectives: Sequence[Objective], options: Options) -> tuple[Artifact, ...]:
    """One rule file and one file of proofs for each objective, and one of causes for all.

    Raises LookupError if an alert came without a proof that it fires and one that it stays quiet.
    """
    found: list[Artifact] = []
    if objectives:
        causes = (Group(CAUSES, tuple(cause_rules(options))),)
        found.append(Artifact("rules", f"{CAUSES}.yml", render(causes, CAUSES, options.format)))
    for objective in objectives:
        found += _artifacts(Plan(objective, options))
    return tuple(found)


def groups(plan: Plan) -> Iterator[Group]:
    """An objective's groups: alerts read what was recorded just before; what may be slow is evaluated seldom."""
    name = f"slo-{plan.objective.name}"
    yield Group(name, objective_rules(plan))
    slow = (*slow_rules(plan), *budget_alerts(plan))
    yield Group(f"{name}-checkpoint", slow, plan.clock.text(CHECKPOINT))


def _artifacts(plan: Plan) -> Iterator[Artifact]:
    name = f"slo-{plan.objective.name}"
    yield Artifact("rules", f"{name}.yml", render(groups(plan), name, plan.options.format))
    if plan.options.format == "prometheus":
        yield from proof_artifacts(plan)

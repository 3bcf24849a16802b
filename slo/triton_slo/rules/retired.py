"""Groups that nobody has to serve any more: unloaded on purpose, or replaced by others of their model.

A group is retired from the moment at which no server should serve it and either it was unloaded on purpose or its
model is ready elsewhere (another version, or another server where groups are of servers). The time is recorded,
because the server that shows the reason may be gone soon after.
"""

from __future__ import annotations

from collections.abc import Iterator

from triton_exporter.catalogue import state, triton
from triton_slo import names
from triton_slo.promql import Matchers, by, indent, on
from triton_slo.rules.pauses import remembered
from triton_slo.rules.plan import Plan, on_group, recording_rule, source_model_matchers
from triton_slo.rules.rulefile import Rule

_SERVER_LABELS = ("instance", "pod")
"""Labels that name a server: where groups have one, a group may move to another server."""
_IDENTITY = ("model", "version", *_SERVER_LABELS)
"""Labels by which a group is found in Triton's and the exporter's own series."""


def retired_rules(plan: Plan) -> Iterator[Rule]:
    """Yield the rule that records when each group was last known to be retired."""
    if "model" not in plan.objective.group_by:
        return
    labels = plan.objective.group_by
    seen = f"{names.LAST_SEEN}{with_version(plan)}"
    now = (
        f"(\n  {seen}\n  and {on(_identity(plan))} ({unloaded(plan)})\n"
        f"  or\n  {seen}\n  and on (model) ({_ready(plan)})\n)\n"
        f"unless {on(_identity(plan))} (\n{indent(_serving(plan))}\n)"
    )
    before = remembered(plan, names.RETIRED, plan.own)
    before = f"(\n{indent(before)}\n)\nand {on(labels)} {seen}"
    expr = f"0 * (\n{indent(now)}\n) + time()\nor {on(labels)}\n(\n{indent(before)}\n)"
    yield recording_rule(plan, names.RETIRED, expr)


def unless_retired(plan: Plan) -> str:
    """Return PromQL that removes retired groups from the expression before; empty if groups are not of models."""
    if "model" not in plan.objective.group_by:
        return ""
    return f"unless {on_group(plan)} ({retired(plan)})"


def retired(plan: Plan) -> str:
    """Return PromQL for groups that are retired now: one that serves again is seen later than it was retired."""
    return f"{names.RETIRED}{plan.own} >= {names.LAST_SEEN}{plan.own}"


def unloaded(plan: Plan) -> str:
    """Return PromQL for groups that some server unloaded on purpose."""
    return f"max {by(_identity(plan))} ({state.MODEL_STATE}{_unloaded_states(plan)}) == 1"


def _ready(plan: Plan) -> str:
    """Return PromQL for models that a live server serves; Triton's counters show it where there is no exporter."""
    return (
        f"max by (model) ({state.MODEL_READY}{source_model_matchers(plan)}) == 1\n"
        f"    or on (model) group by (model) ({triton.REQUEST_SUCCESS}{source_model_matchers(plan)})"
    )


def _serving(plan: Plan) -> str:
    """Return PromQL for groups that some server serves or should serve."""
    listed = source_model_matchers(plan).also('version!=""')
    rests = f"({state.MODEL_STATE}{_unloaded_states(plan)} == 1)"
    meant = f"{state.MODEL_READY}{listed} unless on (instance, model, version) {rests}"
    labels = by(_identity(plan))
    return (
        f"group {labels} ({meant})\n"
        f"or {on(_identity(plan))}\ngroup {labels} ({triton.REQUEST_SUCCESS}{source_model_matchers(plan)})"
    )


def with_version(plan: Plan) -> Matchers:
    """Return matchers of the recorded groups; an entry without a version becomes its versions once they load."""
    return plan.own.also('version!=""') if "version" in plan.objective.group_by else plan.own


def _identity(plan: Plan) -> tuple[str, ...]:
    return tuple(label for label in plan.objective.group_by if label in _IDENTITY)


def _unloaded_states(plan: Plan) -> Matchers:
    return source_model_matchers(plan).also('state=~"unloaded|unloading"')

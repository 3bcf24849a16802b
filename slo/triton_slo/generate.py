"""Objectives in, rule files out: one of each objective, and one of the causes of all. No IO.

The cause split says where time went, why requests failed, in which state a model was. It is recorded once for all
objectives, by indicator, model and version.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from triton_slo import names
from triton_slo.artifact import Artifact, Group, Options, Rule, render
from triton_slo.indicators import KINDS
from triton_slo.objective.model import Objective
from triton_slo.plan import Clock, Plan
from triton_slo.promql import Matchers, parse_selector
from triton_slo.rules import groups

_WINDOW = "1h"


def cause_rules(objectives: Sequence[Objective], options: Options) -> Iterator[Rule]:
    """Yield rules for shares over the last hour; of failures, those that some objective counts."""
    matchers, fixed = parse_selector(options.selector)
    window = Clock(options.time_scale, options.scrape_interval_seconds).text(_WINDOW)
    for kind, indicator in KINDS.items():
        used = [objective.indicator for objective in objectives if isinstance(objective.indicator, indicator)]
        for cause, expr in indicator.causes(Matchers(matchers), window, used):
            labels = {names.INDICATOR: kind, **({names.CAUSE: cause} if cause else {}), **fixed}
            yield Rule(expr=expr, record=names.CAUSE_SHARE, labels=labels)


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

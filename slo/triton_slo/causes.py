"""The cause split: where time went, why requests failed, in which state a model was.

Recorded once for all objectives, by indicator, model and version.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from triton_slo import names
from triton_slo.artifact import Options
from triton_slo.indicators import KINDS
from triton_slo.objective.model import Objective
from triton_slo.plan import Clock
from triton_slo.promql import Matchers, parse_selector
from triton_slo.rulefile import Rule

_WINDOW = "1h"
_KIND = r"\b(?:state|failure):"
_NO_ANSWER = ("state:unknown", "Triton does not answer")
"""A cause whose name does not explain itself, and its words."""
WORDS = f'reReplaceAll "{_NO_ANSWER[0]}" "{_NO_ANSWER[1]}" | reReplaceAll `{_KIND}` "" | reReplaceAll "_" " "'
"""The end of a pipeline in a template of Alertmanager that writes causes as `cause_words` does."""


def cause_words(cause: str) -> str:
    """Return a cause's name for people: `state:unavailable` is unavailable, `compute_infer` compute infer."""
    return re.sub(_KIND, "", cause.replace(*_NO_ANSWER)).replace("_", " ")


def cause_rules(objectives: Sequence[Objective], options: Options) -> Iterator[Rule]:
    """Yield rules for shares over the last hour; of failures, those that some objective counts."""
    matchers, fixed = parse_selector(options.selector)
    window = Clock(options.time_scale, options.scrape_interval_seconds).text(_WINDOW)
    for kind, indicator in KINDS.items():
        used = [objective.indicator for objective in objectives if isinstance(objective.indicator, indicator)]
        for cause, expr in indicator.causes(Matchers(matchers), window, used):
            labels = {names.INDICATOR: kind, **({names.CAUSE: cause} if cause else {}), **fixed}
            yield Rule(expr=expr, record=names.CAUSE_SHARE, labels=labels)

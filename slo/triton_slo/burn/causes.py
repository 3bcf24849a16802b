"""The cause split: where time went, why requests failed, in which state a model was.

Recorded once for all objectives, by indicator, model and version.
"""

from __future__ import annotations

from collections.abc import Iterator

from triton_slo import names
from triton_slo.artifact import Options
from triton_slo.indicators import KINDS
from triton_slo.promql import Matchers, parse_selector
from triton_slo.rules.rulefile import Rule
from triton_slo.rules.windows import Clock

_WINDOW = "1h"


def cause_rules(options: Options) -> Iterator[Rule]:
    """Shares over the last hour."""
    matchers, fixed = parse_selector(options.selector)
    window = Clock(options.time_scale, options.scrape_interval_seconds).text(_WINDOW)
    for kind, indicator in KINDS.items():
        for cause, expr in indicator.causes(Matchers(matchers), window):
            labels = {names.INDICATOR: kind, **({names.CAUSE: cause} if cause else {}), **fixed}
            yield Rule(expr=expr, record=names.CAUSE_SHARE, labels=labels)

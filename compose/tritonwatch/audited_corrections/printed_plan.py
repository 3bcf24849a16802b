"""Corrections before they are written, printed as a table or as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from rich.console import Console

from triton_exporter.common.moments import utc_text
from triton_slo.correction.group_correction import GroupCorrection
from triton_slo.objective.exclusion import Span
from tritonwatch.audited_corrections.stored_groups import group_values
from tritonwatch.tables.correction_table import table

_PIPE_WIDTH = 160


def print_plan(corrections: Sequence[GroupCorrection], span: Span, as_json: bool) -> None:
    """Print the budgets before and after."""
    if as_json:
        rows = list(map(group_values, corrections))
        print(json.dumps({"from": span[0], "to": span[1], "groups": rows}, indent=2))
        return
    if not corrections:
        print("there were no events in this time range, so no error budget changes")
        return
    title = f"Budgets before and after, of {utc_text(span[0])} to {utc_text(span[1])}"
    Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH).print(table(corrections, title))

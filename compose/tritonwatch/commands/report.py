"""`tritonwatch report`: which objectives were met in a month or quarter, and how sure that is."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from triton_exporter.common.problem import Problem, ProblemsError
from triton_slo.report import documents
from triton_slo.report.outcome import PeriodReport, recorded_report
from tritonwatch import access, objective_files, output
from tritonwatch.bridge_incidents import DATA_OPTION, bridge_of, incidents_of
from tritonwatch.period_reports import (
    begun_period,
    formatted_report,
    of_owners,
    period_instead,
    with_incidents,
)


def run(args: argparse.Namespace) -> int:
    text = formatted_report(_period_report(args), args.format)
    if args.out is None:
        sys.stdout.write(text)
        return 0
    try:
        output.write_file(args.out, text, replace=True)
    except OSError as error:
        raise ProblemsError(output.fault(args.out, error)) from error
    return 0


def answer(args: argparse.Namespace) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return what `--format json` writes, and messages beside it. Raises ProblemsError."""
    report = _period_report(args)
    return documents.document(report), report.warnings


def _period_report(args: argparse.Namespace) -> PeriodReport:
    now = time.time()
    try:
        reported = begun_period("last-month" if args.period is None else args.period, now, args.timezone)
    except ValueError as error:
        raise ProblemsError(Problem("--period", str(error))) from error
    objectives = objective_files.load(args.objectives)
    bridge = bridge_of(args)
    with access.connect(args) as prometheus:
        recorded = recorded_report(prometheus, reported, now, args.timezone, objectives)
        if instead := period_instead(recorded, args.period, now, args.timezone):
            recorded = recorded_report(prometheus, instead, now, args.timezone, objectives)
    report = of_owners(recorded, args.owner)
    return report if bridge is None else with_incidents(report, incidents_of(bridge, DATA_OPTION), args.owner)

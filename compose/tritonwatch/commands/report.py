"""`tritonwatch report`: which objectives were met in a month or quarter, and how sure that is."""

from __future__ import annotations

import argparse
import sys
import time

from triton_exporter.common.options import adder, parsed
from triton_exporter.common.problem import Problem, ProblemsError
from triton_slo.objective.exclusion import time_zone
from triton_slo.report import documents
from triton_slo.report.events import FORMS
from triton_slo.report.outcome import PeriodReport, recorded_report
from tritonwatch import access, objective_files, output
from tritonwatch.arguments import path
from tritonwatch.assistant_tool import JsonAnswer
from tritonwatch.bridge_incidents import DATA_OPTION, bridge_of, incidents_of
from tritonwatch.parser import declare
from tritonwatch.period_reports import (
    begun_period,
    formatted_report,
    of_owners,
    period_instead,
    with_incidents,
)
from tritonwatch.project import Reported

EXAMPLE = "tritonwatch report --prometheus http://127.0.0.1:9090 --period 2026-10 --out report.md"
OPTIONS = Reported
EXIT_CODES = {0: "written", 1: "nothing is recorded, or Prometheus did not respond"}

FORMATS = ("markdown", "json")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    declare(parser, OPTIONS)
    add = adder(parser.add_argument)
    add(
        "--period PERIOD",
        f"month or quarter: {FORMS} (default: last-month, and this-month while nothing is recorded of the last)",
    )
    add(
        "--timezone ZONE",
        "time zone of the period; objectives with a calendar window use their own time zone (default: UTC)",
        parsed(lambda zone: str(time_zone(zone))),
        default="UTC",
    )
    add("--owner NAME...", "report only the objectives and incidents of this owner (repeatable)")
    add("--format", "format of the report (default: markdown)", choices=FORMATS, default=FORMATS[0])
    add("--out FILE", "file to write instead of standard output; an existing file is overwritten", path)


def run(args: argparse.Namespace) -> int:
    """Write the report."""
    text = formatted_report(_period_report(args), args.format)
    if args.out is None:
        sys.stdout.write(text)
        return 0
    try:
        output.write_file(args.out, text, replace=True)
    except OSError as error:
        raise ProblemsError(output.fault(args.out, error)) from error
    return 0


def answer(args: argparse.Namespace) -> JsonAnswer:
    """Return what `--format json` writes. Raises ProblemsError."""
    report = _period_report(args)
    return JsonAnswer(documents.document(report), report.warnings)


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

"""`tritonwatch replay`: give new objectives the history of before their rules were loaded."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from triton_exporter.options import adder
from triton_slo.artifact import Options
from triton_slo.correction.group_correction import GroupCorrection
from triton_slo.rules.plan import Plan
from tritonwatch import access, files
from tritonwatch.arguments import add_objective_filter, add_scrape_interval, scale, selector
from tritonwatch.command_error import CommandError, UsageError
from tritonwatch.commands.correct import print_plan
from tritonwatch.correcting import making, planning
from tritonwatch.objective_files import load
from tritonwatch.parser import did_you_mean

EXAMPLE = "tritonwatch replay plan --prometheus http://127.0.0.1:9090 --objectives slo/objectives"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the parts of the verb and their arguments."""
    parts = parser.add_subparsers(dest="part", metavar="plan | apply", required=True)
    plan = parts.add_parser("plan", help="show the budgets before and after; writes nothing")
    _add_shared(plan)
    apply = parts.add_parser("apply", help="show the budgets before and after, and write the history")
    _add_shared(apply)
    making.add_signature(apply)
    making.add_trail(apply)
    making.add_place(apply, required=True)


def _add_shared(parser: argparse.ArgumentParser) -> None:
    add = adder(parser.add_argument)
    add(
        "--objectives DIR",
        "folder of objectives (default: those that come with tritonwatch)",
        Path,
        default=files.objectives(),
    )
    add_objective_filter(parser)
    add("--selector MATCHERS", "the PromQL matchers that the rules were generated with", selector, default="")
    add_scrape_interval(add)
    add("--time-scale F", "the factor that the rules were generated with (default: 1)", scale, default=1.0)
    add("--json", "write JSON instead of a table")
    access.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Do it: 0 done, 1 not possible or not complete, 2 wrong usage."""
    now = time.time()
    if args.part == "plan":
        corrections = _worked_out(args, now, now)
        print_plan(corrections, planning.history_span(corrections, now), args.json)
        return 0
    signed = making.signature(args)
    into = making.writer(args, access.to_import(args))
    corrections = _worked_out(args, now, into.newest(now))
    if not corrections:
        raise CommandError(planning.NO_HISTORY)
    span = planning.history_span(corrections, now)
    print_plan(corrections, span, args.json)
    made = making.make("history", corrections, span, signed, args.trail, into)
    words = f"history {made.id}: {made.samples} samples written; {into.next_step()}"
    print(words, file=sys.stderr if args.json else sys.stdout)
    return 0


def _worked_out(args: argparse.Namespace, now: float, writable_to: float) -> tuple[GroupCorrection, ...]:
    objectives = {objective.name: objective for objective in load(args.objectives)}
    chosen = args.objective or list(objectives)
    if unknown := [name for name in chosen if name not in objectives]:
        raise UsageError(
            f"no objective {unknown[0]} in {args.objectives}{did_you_mean(unknown[0], objectives)}"
        )
    options = Options(
        time_scale=args.time_scale, scrape_interval_seconds=args.scrape_interval, selector=args.selector
    )
    plans = [Plan(objectives[name], options) for name in dict.fromkeys(chosen)]
    with access.connect(args) as prometheus:
        return planning.history(prometheus, plans, now, writable_to)

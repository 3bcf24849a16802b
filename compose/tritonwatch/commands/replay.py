"""`tritonwatch replay`: give new objectives the history of before their rules were loaded."""

from __future__ import annotations

import argparse
import sys
import time

from triton_exporter.common.options import adder
from triton_slo.correction.group_correction import GroupCorrection
from triton_slo.rules.plan import Plan
from tritonwatch import access
from tritonwatch.arguments import AS_GENERATED, add_objective_filter, add_rule_options, rule_options
from tritonwatch.audited_corrections import planning, protocol
from tritonwatch.audited_corrections.correction_arguments import add_written
from tritonwatch.audited_corrections.printed_plan import print_plan
from tritonwatch.audited_corrections.writers import chosen_writer
from tritonwatch.command_error import CommandError, UsageError
from tritonwatch.objective_files import add_objectives_to_replay, load
from tritonwatch.parser import did_you_mean

EXAMPLE = "tritonwatch replay plan --prometheus http://127.0.0.1:9090 --objectives slo/objectives"
EXIT_CODES = {0: "done", 1: "not possible or not complete"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the subcommands of the verb and their arguments."""
    subcommands = parser.add_subparsers(dest="subcommand", metavar="plan | apply", required=True)
    plan = subcommands.add_parser(
        "plan",
        help="show the error budgets before and after the backfill; writes nothing",
        epilog=f"example: {EXAMPLE}",
    )
    _add_shared(plan)
    apply = subcommands.add_parser(
        "apply",
        help="show the error budgets before and after the backfill, and write the history",
        epilog=f"example: {EXAMPLE.replace('plan', 'apply')} --reason 'new objectives' --author anna "
        "--blocks /var/lib/prometheus",
    )
    _add_shared(apply)
    add_written(apply)


def _add_shared(parser: argparse.ArgumentParser) -> None:
    add = adder(parser.add_argument)
    add_objectives_to_replay(add)
    add_objective_filter(parser)
    add("--json", "write JSON instead of a table")
    add_rule_options(adder(parser.add_argument_group(AS_GENERATED).add_argument))
    access.add_prometheus(parser)


def run(args: argparse.Namespace) -> int:
    """Run the subcommand."""
    now = time.time()
    if args.subcommand == "plan":
        corrections = _corrections(args, now, now)
        print_plan(corrections, planning.history_span(corrections, now), args.json)
        return 0
    signed = protocol.signature(args.reason, args.author)
    writer = chosen_writer(args.blocks, args.import_url, access.access_for_import(args))
    corrections = _corrections(args, now, writer.writable_until(now))
    if not corrections:
        raise CommandError(planning.NO_HISTORY)
    span = planning.history_span(corrections, now)
    print_plan(corrections, span, args.json)
    made = protocol.apply_correction("history", corrections, span, signed, args.trail, writer)
    words = f"history {made.id}: {made.samples} samples written; {writer.next_step()}"
    print(words, file=sys.stderr if args.json else sys.stdout)
    return 0


def _corrections(args: argparse.Namespace, now: float, writable_to: float) -> tuple[GroupCorrection, ...]:
    objectives = {objective.name: objective for objective in load(args.objectives)}
    chosen = args.objective or list(objectives)
    if unknown := [name for name in chosen if name not in objectives]:
        raise UsageError(
            f"no objective {unknown[0]} in {args.objectives}{did_you_mean(unknown[0], objectives)}"
        )
    plans = [Plan(objectives[name], rule_options(args)) for name in dict.fromkeys(chosen)]
    with access.connect(args) as prometheus:
        return planning.history(prometheus, plans, now, writable_to)

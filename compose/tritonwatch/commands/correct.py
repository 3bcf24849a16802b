"""`tritonwatch correct`: take past time out of the error budgets, with a trail of who did it and why, and undo."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from typing import TextIO

from rich.console import Console

from triton_exporter.options import adder
from triton_exporter.printable import printable
from triton_slo import names
from triton_slo.burn.amounts import budget_left
from triton_slo.correction.excluding_time import excluding
from triton_slo.correction.group_correction import CorrectionError, GroupCorrection
from triton_slo.correction.recorded_growth import Ruler
from triton_slo.fields import Choice
from triton_slo.objective.exclusion import Span
from triton_slo.promql import Matchers
from tritonwatch import access
from tritonwatch.arguments import add_objective_filter, moment, scale
from tritonwatch.command_error import CommandError, UsageError
from tritonwatch.correcting import making
from tritonwatch.correcting.trail import Entry, Trail, locked
from tritonwatch.tables.correction_table import moment_text, table

EXAMPLE = (
    "tritonwatch correct plan --prometheus http://127.0.0.1:9090 --from 2026-05-01T09:30Z "
    "--to 2026-05-01T10:15Z"
)
_PIPE_WIDTH = 160


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the parts of the verb and their arguments."""
    parts = parser.add_subparsers(
        dest="part", metavar="plan | apply | list | undo NAME | resume NAME", required=True
    )
    plan = parts.add_parser("plan", help="show the budgets before and after a correction; writes nothing")
    _add_stretch(plan)
    apply = parts.add_parser("apply", help="show the budgets before and after, and write the correction")
    _add_stretch(apply)
    making.add_signature(apply)
    making.add_trail(apply)
    making.add_place(apply, required=True)
    listed = parts.add_parser("list", help="list the corrections of a trail and what has become of them")
    making.add_trail(listed)
    adder(listed.add_argument)("--json", "write JSON: an object for each correction")
    undo = parts.add_parser("undo", help="undo a correction, or the history that replay has added")
    resume = parts.add_parser("resume", help="write the rest of a correction or undo that was interrupted")
    for verb in (undo, resume):
        adder(verb.add_argument)("id", "name of the correction in the list, or its first characters")
        making.add_trail(verb)
        making.add_place(verb, required=False)
        access.add_login(verb, "access to the address of --import")
    making.add_signature(undo)


def run(args: argparse.Namespace) -> int:
    """Do it: 0 done, 1 not possible or not complete, 2 wrong usage."""
    parts = {"plan": _plan, "apply": _apply, "list": _list, "undo": _undo, "resume": _resume}
    return parts[args.part](args)


def _add_stretch(parser: argparse.ArgumentParser) -> None:
    add = adder(parser.add_argument)
    add(
        "--from TIME",
        "start of the time that does not count: 2026-05-01T09:30Z",
        moment,
        dest="start",
        required=True,
    )
    add("--to TIME", "its end", moment, dest="end", required=True)
    add_objective_filter(parser)
    add("--model NAME", "only the groups of this model", default="")
    add("--version VERSION", "only the groups of this version", default="")
    add("--time-scale F", "the factor that the rules were generated with (default: 1)", scale, default=1.0)
    add("--json", "write JSON instead of a table")
    access.add_arguments(parser)


def _plan(args: argparse.Namespace) -> int:
    _show(_worked_out(args, time.time()), args)
    return 0


def _apply(args: argparse.Namespace) -> int:
    signed, now = making.signature(args), time.time()
    into = making.writer(args, access.to_import(args))
    if args.end > into.newest(now):
        wait = args.end - into.newest(now)
        raise UsageError(
            f"--to {moment_text(args.end)}: Prometheus still has this time in memory, where no block may be added; "
            f"try again in {wait / 60:.0f} minutes"
        )
    corrections = _worked_out(args, now)
    if not corrections:
        raise CommandError("there were no events in that time: no budget changes, nothing was written")
    _show(corrections, args)
    made = making.make("exclude", corrections, (args.start, args.end), signed, args.trail, into)
    print(f"correction {made.id}: {made.samples} samples written; {into.next_step()}", file=_beside(args))
    return 0


def _worked_out(args: argparse.Namespace, now: float) -> tuple[GroupCorrection, ...]:
    if not args.start < args.end <= now:
        raise UsageError("--from must be before --to, and --to not after now")
    chosen = Matchers()
    if args.objective:
        chosen = chosen.choosing(names.SLO, Choice(names=tuple(args.objective)))
    for label in names.GROUPING:
        if value := getattr(args, label):
            chosen = chosen.equal(label, value)
    with access.connect(args) as prometheus:
        try:
            return excluding(prometheus, chosen, (args.start, args.end), now, Ruler(args.time_scale))
        except CorrectionError as error:
            raise CommandError(error) from error


def _show(corrections: Sequence[GroupCorrection], args: argparse.Namespace) -> None:
    print_plan(corrections, (args.start, args.end), args.json)


def print_plan(corrections: Sequence[GroupCorrection], span: Span, as_json: bool) -> None:
    """Print the budgets before and after."""
    if as_json:
        rows = [
            {
                "labels": dict(correction.labels),
                "error": correction.error,
                "total": correction.total,
                "before": making.budget(correction.before),
                "after": making.budget(correction.after),
            }
            for correction in corrections
        ]
        print(json.dumps({"from": span[0], "to": span[1], "groups": rows}, indent=2))
        return
    if not corrections:
        print("there were no events in that time: no budget changes")
        return
    title = f"Budgets before and after, of {moment_text(span[0])} to {moment_text(span[1])}"
    Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH).print(table(corrections, title))


def _list(args: argparse.Namespace) -> int:
    trail = Trail(args.trail)
    for entry in trail.entries:
        print(_as_json(trail, entry) if args.json else _line(trail, entry))
    if not trail.entries:
        print(f"no correction in {args.trail}", file=sys.stderr)
    return 0


def _line(trail: Trail, entry: Entry) -> str:
    state = trail.state(entry)
    span = f"{moment_text(entry.start)} to {moment_text(entry.end)}"
    changed = [_change(group) for group in entry.groups]
    worst = changed[0] if len(changed) == 1 else f"{len(changed)} groups"
    return printable(
        f"{entry.id}  {state}  {span}  {', '.join(entry.objectives)}: {worst}  by {entry.author} at {entry.at}: "
        f"{entry.reason}"
    )


def _change(group: object) -> str:
    assert isinstance(group, dict)
    before, after = (group[side]["left"] for side in ("before", "after"))
    words = ["no events" if left is None else budget_left(left) for left in (before, after)]
    labels = group["labels"]
    return f"{labels.get('model', '')} {labels.get('version', '')} {words[0]} to {words[1]}".strip()


def _as_json(trail: Trail, entry: Entry) -> str:
    fields = {field: getattr(entry, field) for field in Entry.__slots__}
    return json.dumps({**fields, "state": trail.state(entry)}, ensure_ascii=False)


def _undo(args: argparse.Namespace) -> int:
    signed = making.signature(args)
    with locked(args.trail) as trail:
        entry = trail.find(args.id)
        into = making.writer_of(entry, args, access.to_import(args))
        made = making.undo(trail, entry, signed, into)
    print(f"{made.id}: {made.samples} samples written; {into.next_step()}")
    return 0


def _resume(args: argparse.Namespace) -> int:
    with locked(args.trail) as trail:
        entry = trail.find(args.id)
        undoing = next((later for later in trail.entries if later.undoes == entry.id), None)
        if trail.is_done(entry) and undoing is not None:
            entry = undoing
        if trail.is_done(entry):
            raise CommandError(f"{entry.id} is complete; nothing was written")
        into = making.writer_of(entry, args, access.to_import(args))
        making.resume(trail, entry, into)
    print(f"{entry.id}: {entry.samples} samples written; {into.next_step()}")
    return 0


def _beside(args: argparse.Namespace) -> TextIO:
    return sys.stderr if args.json else sys.stdout

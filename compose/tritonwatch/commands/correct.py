"""`tritonwatch correct`: remove a past time from the error budgets, with an audit trail, or undo a correction."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from typing import TextIO

from triton_exporter.common.moments import utc_text
from triton_exporter.common.options import adder
from triton_exporter.common.printable import printable
from triton_slo.correction.group_correction import GroupCorrection
from tritonwatch import access
from tritonwatch.arguments import AS_GENERATED, add_group_filter, add_time_scale, moment
from tritonwatch.audited_corrections import planning, protocol
from tritonwatch.audited_corrections.correction_arguments import (
    TRAIL,
    add_place,
    add_signature,
    add_trail,
    add_written,
)
from tritonwatch.audited_corrections.planning import CorrectedTime
from tritonwatch.audited_corrections.printed_plan import print_plan
from tritonwatch.audited_corrections.stored_groups import change
from tritonwatch.audited_corrections.trail import Entry, Trail, locked
from tritonwatch.audited_corrections.writers import Writer, chosen_writer, original_writer
from tritonwatch.command_error import CommandError

EXAMPLE = (
    "tritonwatch correct plan --prometheus http://127.0.0.1:9090 --from 2026-05-01T09:30Z "
    "--to 2026-05-01T10:15Z"
)
EXIT_CODES = {0: "done", 1: "not possible or not complete"}
_WRITTEN = "--reason 'load test' --author anna --blocks /var/lib/prometheus"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the subcommands of the verb and their arguments."""
    subcommands = parser.add_subparsers(
        dest="subcommand", metavar="plan | apply | list | undo ID | resume ID", required=True
    )
    plan = subcommands.add_parser(
        "plan",
        help="show the error budgets before and after a correction; writes nothing",
        epilog=f"example: {EXAMPLE}",
    )
    _add_corrected_time(plan)
    apply = subcommands.add_parser(
        "apply",
        help="show the error budgets before and after a correction, and write the correction",
        epilog=f"example: {EXAMPLE.replace('plan', 'apply')} {_WRITTEN}",
    )
    _add_corrected_time(apply)
    add_written(apply)
    listed = subcommands.add_parser(
        "list",
        help="list the corrections in an audit trail, with their state",
        epilog=f"example: tritonwatch correct list --trail {TRAIL}",
    )
    add_trail(listed)
    adder(listed.add_argument)("--json", "write JSON: an object for each correction")
    access.add_prometheus(listed, required=False)
    _add_undo_and_resume(subcommands)


def _add_undo_and_resume(subcommands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    undo = subcommands.add_parser(
        "undo",
        help="undo a correction, or a backfill by `tritonwatch replay`",
        epilog="example: tritonwatch correct undo exclude-20260501-101500-1f9c3a --reason mistake --author anna",
    )
    resume = subcommands.add_parser(
        "resume",
        help="complete a correction or an undo that was interrupted",
        epilog="example: tritonwatch correct resume exclude-20260501-101500-1f9c3a",
    )
    for verb in (undo, resume):
        adder(verb.add_argument)("id", "id of the correction, as in `correct list`, or its first characters")
        add_trail(verb)
        add_place(verb, required=False)
        access.add_login(verb, "access to the address of --import")
    add_signature(undo)


def run(args: argparse.Namespace) -> int:
    """Run the subcommand."""
    functions = {
        "plan": _plan,
        "apply": _apply_correction,
        "list": _list_corrections,
        "undo": _undo,
        "resume": _resume,
    }
    return functions[args.subcommand](args)


def _add_corrected_time(parser: argparse.ArgumentParser) -> None:
    add = adder(parser.add_argument)
    add(
        "--from TIME",
        "start of the time range to remove from the error budgets: 2026-05-01T09:30Z or Unix seconds",
        moment,
        dest="start",
        required=True,
    )
    add("--to TIME", "end of this time range, in the same form", moment, dest="end", required=True)
    add_group_filter(parser, "correct only the groups of this model", default="")
    add("--version VERSION", "correct only the groups of this version", default="")
    add("--json", "write JSON instead of a table")
    add_time_scale(adder(parser.add_argument_group(AS_GENERATED).add_argument))
    access.add_prometheus(parser)


def _plan(args: argparse.Namespace) -> int:
    _print_corrections(_corrections(args, time.time()), args)
    return 0


def _apply_correction(args: argparse.Namespace) -> int:
    signed, now = protocol.signature(args.reason, args.author), time.time()
    writer = chosen_writer(args.blocks, args.import_url, access.access_for_import(args))
    planning.refuse_recent(_corrected_time(args), writer, now)
    corrections = _corrections(args, now)
    if not corrections:
        raise CommandError(planning.NO_EVENTS)
    _print_corrections(corrections, args)
    made = protocol.apply_correction(
        "exclude", corrections, (args.start, args.end), signed, args.trail, writer
    )
    print(
        f"correction {made.id}: {made.samples} samples written; {writer.next_step()}",
        file=_message_stream(args),
    )
    return 0


def _corrections(args: argparse.Namespace, now: float) -> tuple[GroupCorrection, ...]:
    with access.connect(args) as prometheus:
        return planning.planned(prometheus, _corrected_time(args), now, args.time_scale)


def _corrected_time(args: argparse.Namespace) -> CorrectedTime:
    return CorrectedTime(args.start, args.end, tuple(args.objective), args.model, args.version)


def _print_corrections(corrections: Sequence[GroupCorrection], args: argparse.Namespace) -> None:
    print_plan(corrections, (args.start, args.end), args.json)


def _list_corrections(args: argparse.Namespace) -> int:
    trail, loaded = Trail(args.trail), None
    if args.prometheus is not None:
        with access.connect(args) as prometheus:
            loaded = planning.loaded_samples(prometheus, trail.entries, time.time())
    for entry in trail.entries:
        samples = None if loaded is None else loaded.get(entry.id, 0)
        print(_as_json(trail, entry, samples) if args.json else _entry_line(trail, entry, samples))
    if not trail.entries:
        print(f"--trail {args.trail} contains no correction", file=sys.stderr)
    return 0


def _entry_line(trail: Trail, entry: Entry, loaded: int | None) -> str:
    state: str = trail.state(entry)
    if loaded is not None:
        state += ", loaded" if loaded >= entry.samples else f", {loaded} of {entry.samples} samples loaded"
    span = f"{utc_text(entry.start)} to {utc_text(entry.end)}"
    changed = f"{', '.join(entry.objectives)}: {change(entry)}"
    return printable(
        f"{entry.id}  {state}  {span}  {changed}  by {entry.author} at {entry.at}: {entry.reason}"
    )


def _as_json(trail: Trail, entry: Entry, loaded: int | None) -> str:
    fields = {field: getattr(entry, field) for field in Entry.__slots__}
    more = {} if loaded is None else {"loaded_samples": loaded}
    return json.dumps({**fields, "state": trail.state(entry), **more}, ensure_ascii=False)


def _undo(args: argparse.Namespace) -> int:
    signed = protocol.signature(args.reason, args.author)
    with locked(args.trail) as trail:
        entry = trail.find(args.id)
        writer = _writer_of(entry, args)
        made = protocol.undo(trail, entry, signed, writer)
    print(f"{made.id}: {made.samples} samples written; {writer.next_step()}")
    return 0


def _resume(args: argparse.Namespace) -> int:
    with locked(args.trail) as trail:
        entry = trail.interrupted(args.id)
        writer = _writer_of(entry, args)
        protocol.resume(trail, entry, writer)
    print(f"{entry.id}: {entry.samples} samples written; {writer.next_step()}")
    return 0


def _writer_of(entry: Entry, args: argparse.Namespace) -> Writer:
    """Return the writer to where an entry was written, or to where the arguments name instead."""
    access_to = access.access_for_import(args)
    if args.blocks is None and args.import_url is None:
        return original_writer(entry, access_to)
    return chosen_writer(args.blocks, args.import_url, access_to)


def _message_stream(args: argparse.Namespace) -> TextIO:
    return sys.stderr if args.json else sys.stdout

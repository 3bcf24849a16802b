"""Make corrections from the command line: the arguments that say where to, and the order of what is written."""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from triton_exporter.options import adder
from triton_slo.correction.group_correction import GroupCorrection, PeriodBudget
from triton_slo.correction.samples import openmetrics, reversed_text, samples_of
from triton_slo.objective.exclusion import Span
from triton_slo.prometheus import Access
from tritonwatch.command_error import CommandError, UsageError
from tritonwatch.correcting.trail import Entry, Kind, Trail, locked, new_id, now_text
from tritonwatch.correcting.writers import Blocks, VictoriaMetrics, Writer

TRAIL = "corrections"
Reach = Callable[[str], Access]
"""Returns how to reach the address of --import."""


def add_trail(parser: argparse.ArgumentParser) -> None:
    """Declare the folder of the trail."""
    adder(parser.add_argument)(
        "--trail DIR", f"folder of the audit trail (default: {TRAIL})", Path, default=Path(TRAIL)
    )


def add_signature(parser: argparse.ArgumentParser) -> None:
    """Declare who corrects, and why."""
    add = adder(parser.add_argument)
    add("--reason TEXT", "why, for the audit trail", required=True)
    add("--author NAME", "who, for the audit trail", required=True)


def add_place(parser: argparse.ArgumentParser, *, required: bool) -> None:
    """Declare where samples are written."""
    add = adder(parser.add_mutually_exclusive_group(required=required).add_argument)
    add("--blocks DIR", "write blocks into this folder: the data directory of Prometheus", Path)
    add("--import URL", "import into this VictoriaMetrics", dest="import_url")


def signature(args: argparse.Namespace) -> tuple[str, str]:
    """Return reason and author. Raises UsageError where one is blank."""
    for option in ("reason", "author"):
        text = getattr(args, option).strip()
        if not text or len(text) > 500 or not text.isprintable():
            raise UsageError(f"--{option}: give a line of 1 to 500 characters")
    return args.reason.strip(), args.author.strip()


def writer(args: argparse.Namespace, reach: Reach) -> Writer:
    """Return where the arguments name to write; checked. Raises CommandError."""
    found: Writer = (
        Blocks(args.blocks) if args.blocks is not None else VictoriaMetrics(reach(args.import_url))
    )
    found.check()
    return found


def writer_of(entry: Entry, args: argparse.Namespace, reach: Reach) -> Writer:
    """Return where an entry was written, or where the arguments name instead."""
    if args.blocks is None and args.import_url is None:
        args.blocks = Path(entry.place["blocks"]) if "blocks" in entry.place else None
        args.import_url = entry.place.get("import")
    return writer(args, reach)


def make(
    kind: Kind,
    corrections: Sequence[GroupCorrection],
    span: Span,
    signed: tuple[str, str],
    folder: Path,
    into: Writer,
) -> Entry:
    """Store a correction in the trail, write it, and store that it is written. Raises CommandError."""
    # The name contains a part of the samples, which contain the name.
    identity = new_id(kind, openmetrics(corrections, ""))
    text = openmetrics(corrections, identity)
    groups = [
        {
            "labels": dict(one.labels),
            "error": one.error,
            "total": one.total,
            "before": budget(one.before),
            "after": budget(one.after),
        }
        for one in corrections
    ]
    with locked(folder) as trail:
        _refuse_overlap(trail, kind, span, groups)
        return _store_and_write(trail, _entry(identity, kind, span, signed, into, text, groups), text, into)


def undo(trail: Trail, entry: Entry, signed: tuple[str, str], into: Writer) -> Entry:
    """Write the opposite of a correction. Raises CommandError."""
    if entry.kind == "undo":
        raise CommandError(f"{entry.id} is an undo; make the correction again instead")
    if trail.state(entry) in ("undone", "undo incomplete"):
        hint = "" if trail.state(entry) == "undone" else f"; finish it: tritonwatch correct resume {entry.id}"
        raise CommandError(f"{entry.id} has an undo already{hint}")
    if not trail.is_done(entry):
        # The opposite of what was never written whole would change the budget.
        resume(trail, entry, into)
    identity = f"undo-{entry.id}"
    text = reversed_text(trail.text(entry), entry.id, identity)
    swapped = [{**group, "before": group["after"], "after": group["before"]} for group in entry.groups]
    made = _entry(identity, "undo", (entry.start, entry.end), signed, into, text, swapped, entry.id)
    return _store_and_write(trail, made, text, into)


def resume(trail: Trail, entry: Entry, into: Writer) -> None:
    """Write what an interrupted correction or undo has not written. Raises CommandError."""
    into.write(trail.path(entry), trail.text(entry), entry.id)
    trail.finish(entry)


def budget(one: PeriodBudget) -> dict[str, float | None]:
    """Return a budget as JSON has it; null is unknown."""
    return {**asdict(one), "sli": one.sli, "left": one.left}


def _entry(
    identity: str,
    kind: Kind,
    span: Span,
    signed: tuple[str, str],
    into: Writer,
    text: str,
    groups: Sequence[dict[str, object]],
    undoes: str = "",
) -> Entry:
    reason, author = signed
    return Entry(
        id=identity,
        kind=kind,
        at=now_text(),
        author=author,
        reason=reason,
        start=span[0],
        end=span[1],
        place=into.place,
        sha256=hashlib.sha256(text.encode()).hexdigest(),
        samples=sum(1 for _ in samples_of(text)),
        groups=groups,
        undoes=undoes,
    )


def _store_and_write(trail: Trail, entry: Entry, text: str, into: Writer) -> Entry:
    trail.begin(entry, text)
    try:
        into.write(trail.path(entry), text, entry.id)
    except CommandError as error:
        advice = f"run tritonwatch correct resume {entry.id}, or undo it, with --trail {trail.folder}"
        raise CommandError(f"correction {entry.id} is not complete: {error}\n{advice}") from error
    trail.finish(entry)
    return entry


def _refuse_overlap(trail: Trail, kind: Kind, span: Span, groups: Sequence[dict[str, object]]) -> None:
    """Raise CommandError where the trail has a correction of the same time that Prometheus may not show yet."""
    ours = {_identity(group) for group in groups}
    for entry in trail.entries:
        if (
            entry.kind == kind
            and trail.state(entry) != "undone"
            and entry.start < span[1]
            and span[0] < entry.end
            and ours & {_identity(dict(group)) for group in entry.groups}
        ):
            raise CommandError(
                f"a part of this time is corrected already, by {entry.id}; undo that correction first"
            )


def _identity(group: dict[str, object]) -> frozenset[tuple[str, str]]:
    labels = group["labels"]
    assert isinstance(labels, dict)
    return frozenset(labels.items())

"""Make corrections from the command line: the arguments that say where to, and the order of what is written."""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from triton_exporter.common.options import adder
from triton_slo.burn.amounts import budget_left
from triton_slo.correction.group_correction import GroupCorrection, PeriodBudget, Tile
from triton_slo.correction.samples import openmetrics, reversed_text, samples_of
from triton_slo.objective.exclusion import Span
from triton_slo.prometheus.server_access import Access
from tritonwatch.arguments import path, path_or_none
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
    blocks = path if required else path_or_none
    add("--blocks DIR", "write blocks into this folder: the data directory of Prometheus", blocks)
    add("--import URL", "import into this VictoriaMetrics", dest="import_url")


def signature(args: argparse.Namespace) -> tuple[str, str]:
    """Return reason and author. Raises UsageError where one is blank."""
    return checked_signature(args.reason, args.author)


def checked_signature(reason: str, author: str) -> tuple[str, str]:
    """Return reason and author without the blanks around them. Raises UsageError where one is blank."""
    for option, text in (("reason", reason), ("author", author)):
        if not text.strip() or len(text) > 500 or not text.strip().isprintable():
            raise UsageError(f"--{option}: give a line of 1 to 500 characters")
    return reason.strip(), author.strip()


def writer(args: argparse.Namespace, reach: Reach) -> Writer:
    """Return where the arguments name to write; checked. Raises CommandError."""
    return _checked(args.blocks, args.import_url, reach)


def writer_of(entry: Entry, args: argparse.Namespace, reach: Reach) -> Writer:
    """Return where an entry was written, or where the arguments name instead; checked. Raises CommandError."""
    if args.blocks is not None or args.import_url is not None:
        return writer(args, reach)
    return original_writer(entry, reach)


def original_writer(entry: Entry, reach: Reach) -> Writer:
    """Return where an entry was written; checked. Raises CommandError."""
    return _checked(entry.place.get("blocks"), entry.place.get("import", ""), reach)


def _checked(blocks: Path | str | None, import_url: str, reach: Reach) -> Writer:
    into: Writer = VictoriaMetrics(reach(import_url)) if blocks is None else Blocks(Path(blocks))
    into.check()
    return into


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
    groups = list(map(group_values, corrections))
    with locked(folder) as trail:
        entry = _entry(identity, kind, span, signed, into, text, groups)
        with _beside(trail, into) as trails:
            for known in (trail, *trails):
                _refuse_overlap(known, kind, span, groups)
            for known in (trail, *trails):
                known.begin(entry, text)
        return _write_samples(trail, entry, text, into)


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
    groups = list(map(_reversed, entry.groups))
    made = _entry(identity, "undo", (entry.start, entry.end), signed, into, text, groups, entry.id)
    trail.begin(made, text)
    return _write_samples(trail, made, text, into)


def resume(trail: Trail, entry: Entry, into: Writer) -> None:
    """Write what an interrupted correction or undo has not written. Raises CommandError."""
    into.write(trail.path(entry), trail.text(entry), entry.id)
    _finish(trail, entry, into)


def group_values(correction: GroupCorrection) -> dict[str, object]:
    """Return what changes of a group, as JSON and the trail have it."""
    return {
        "labels": dict(correction.labels),
        "error": correction.error,
        "total": correction.total,
        "before": _budget_json(correction.before),
        "after": _budget_json(correction.after),
    }


def stored_groups(entry: Entry) -> list[GroupCorrection]:
    """Return the groups of an entry, each with its events as one tile."""
    return [
        GroupCorrection(
            tuple(sorted(group["labels"].items())),
            entry.start,
            (Tile(entry.end, group["error"], group["total"]),),
            *(
                PeriodBudget(**{field.name: group[side][field.name] for field in fields(PeriodBudget)})
                for side in ("before", "after")
            ),
        )
        for group in entry.groups
    ]


def change(entry: Entry) -> str:
    """Return what an entry changes, in words: the budget of its group, or the number of its groups."""
    if len(entry.groups) != 1:
        return f"{len(entry.groups)} groups"
    [group] = entry.groups
    left = [group[side]["left"] for side in ("before", "after")]
    before, after = ("no events" if share is None else budget_left(share) for share in left)
    of = " ".join(group["labels"][name] for name in ("model", "version") if name in group["labels"])
    return f"{of + ': ' if of else ''}{before} to {after}"


def _reversed(group: Mapping[str, Any]) -> dict[str, object]:
    return {
        "labels": group["labels"],
        "error": -group["error"],
        "total": -group["total"],
        "before": group["after"],
        "after": group["before"],
    }


def _budget_json(budget: PeriodBudget) -> dict[str, float | None]:
    """Return a budget as JSON has it; null is unknown."""
    return {**asdict(budget), "sli": budget.sli, "left": budget.left}


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


@contextmanager
def _beside(trail: Trail, into: Writer) -> Iterator[list[Trail]]:
    """Lock the trail beside the samples: none where there is none, or where it is the trail itself."""
    if into.beside is None or into.beside.resolve() == trail.folder.resolve():
        yield []
        return
    with locked(into.beside, wait=True) as known:
        yield [known]


def _finish(trail: Trail, entry: Entry, into: Writer) -> None:
    trail.finish(entry)
    with _beside(trail, into) as trails:
        for known in trails:
            if entry.id not in (each.id for each in known.entries):
                known.begin(entry, trail.text(entry))
            known.finish(entry)


def _write_samples(trail: Trail, entry: Entry, text: str, into: Writer) -> Entry:
    try:
        into.write(trail.path(entry), text, entry.id)
    except CommandError as error:
        advice = f"run tritonwatch correct resume {entry.id}, or undo it, with --trail {trail.folder}"
        raise CommandError(f"correction {entry.id} is not complete: {error}\n{advice}") from error
    _finish(trail, entry, into)
    return entry


def _refuse_overlap(trail: Trail, kind: Kind, span: Span, groups: Sequence[dict[str, object]]) -> None:
    """Raise CommandError where the trail has a correction of the same time that Prometheus may not show yet."""
    ours = {_group_labels(group) for group in groups}
    for entry in trail.entries:
        if (
            entry.kind == kind
            and trail.state(entry) != "undone"
            and entry.start < span[1]
            and span[0] < entry.end
            and ours & {_group_labels(dict(group)) for group in entry.groups}
        ):
            raise CommandError(
                f"a part of this time is corrected already, by {entry.id}; undo that correction first"
            )


def _group_labels(group: dict[str, object]) -> frozenset[tuple[str, str]]:
    labels = group["labels"]
    assert isinstance(labels, dict)
    return frozenset(labels.items())

"""Make, undo and resume corrections: the order in which the trail and the samples are written."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from triton_slo.correction.group_correction import GroupCorrection
from triton_slo.correction.samples import openmetrics, reversed_text, samples_of
from triton_slo.objective.exclusion import Span
from tritonwatch.audited_corrections.stored_groups import group_values, reversed_group
from tritonwatch.audited_corrections.trail import Entry, Kind, Trail, locked, new_id, now_text
from tritonwatch.audited_corrections.writers import Writer
from tritonwatch.command_error import CommandError, UsageError


def signature(reason: str, author: str) -> tuple[str, str]:
    """Return reason and author without the blanks around them. Raises UsageError where one is blank."""
    for option, text in (("reason", reason), ("author", author)):
        if not text.strip() or len(text) > 500 or not text.strip().isprintable():
            raise UsageError(f"--{option}: give one line of 1 to 500 characters")
    return reason.strip(), author.strip()


def apply_correction(
    kind: Kind,
    corrections: Sequence[GroupCorrection],
    span: Span,
    signed: tuple[str, str],
    folder: Path,
    writer: Writer,
) -> Entry:
    """Store a correction in the trail, write it, and store that it is written. Raises CommandError."""
    # The id contains a hash of the samples, which contain the id.
    entry_id = new_id(kind, openmetrics(corrections, ""))
    text = openmetrics(corrections, entry_id)
    groups = list(map(group_values, corrections))
    with locked(folder) as trail:
        entry = _entry(entry_id, kind, span, signed, writer, text, groups)
        with _locked_writer_trail(trail, writer) as trails:
            for known in (trail, *trails):
                _refuse_overlap(known, kind, span, groups)
            for known in (trail, *trails):
                known.begin(entry, text)
        return _write_samples(trail, entry, text, writer)


def undo(trail: Trail, entry: Entry, signed: tuple[str, str], writer: Writer) -> Entry:
    """Write the opposite of a correction. Raises CommandError."""
    if entry.kind == "undo":
        raise CommandError(
            f"{entry.id} is itself an undo and cannot be undone; apply the correction again instead"
        )
    state = trail.state(entry)
    if state == "undone":
        raise CommandError(f"{entry.id} is already undone")
    if state == "undo incomplete":
        raise CommandError(
            f"the undo of {entry.id} is incomplete; finish it: tritonwatch correct resume {entry.id}"
        )
    if not trail.is_done(entry):
        # The opposite of what was never written whole would change the budget.
        resume(trail, entry, writer)
    entry_id = f"undo-{entry.id}"
    text = reversed_text(trail.text(entry), entry.id, entry_id)
    groups = list(map(reversed_group, entry.groups))
    made = _entry(entry_id, "undo", (entry.start, entry.end), signed, writer, text, groups, entry.id)
    trail.begin(made, text)
    return _write_samples(trail, made, text, writer)


def resume(trail: Trail, entry: Entry, writer: Writer) -> None:
    """Write what an interrupted correction or undo has not written. Raises CommandError."""
    writer.write(trail.path(entry), trail.text(entry), entry.id)
    _finish(trail, entry, writer)


def _entry(
    entry_id: str,
    kind: Kind,
    span: Span,
    signed: tuple[str, str],
    writer: Writer,
    text: str,
    groups: Sequence[dict[str, object]],
    undoes: str = "",
) -> Entry:
    reason, author = signed
    return Entry(
        id=entry_id,
        kind=kind,
        at=now_text(),
        author=author,
        reason=reason,
        start=span[0],
        end=span[1],
        place=writer.place,
        sha256=hashlib.sha256(text.encode()).hexdigest(),
        samples=sum(1 for _ in samples_of(text)),
        groups=groups,
        undoes=undoes,
    )


@contextmanager
def _locked_writer_trail(trail: Trail, writer: Writer) -> Iterator[list[Trail]]:
    """Lock the trail at the destination, if it has one that is not `trail` itself."""
    if writer.trail_folder is None or writer.trail_folder.resolve() == trail.folder.resolve():
        yield []
        return
    with locked(writer.trail_folder, wait=True) as known:
        yield [known]


def _finish(trail: Trail, entry: Entry, writer: Writer) -> None:
    trail.finish(entry)
    with _locked_writer_trail(trail, writer) as trails:
        for known in trails:
            if entry.id not in (each.id for each in known.entries):
                known.begin(entry, trail.text(entry))
            known.finish(entry)


def _write_samples(trail: Trail, entry: Entry, text: str, writer: Writer) -> Entry:
    try:
        writer.write(trail.path(entry), text, entry.id)
    except CommandError as error:
        advice = f"run tritonwatch correct resume {entry.id}, or undo it, with --trail {trail.folder}"
        raise CommandError(f"correction {entry.id} is not complete: {error}\n{advice}") from error
    _finish(trail, entry, writer)
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

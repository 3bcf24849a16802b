"""Write generated files, all or none, and delete those of an earlier run that are no longer generated."""

from __future__ import annotations

import fcntl
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from triton_exporter.common.problem import Problem, ProblemsError

MANIFEST = ".tritonwatch-generated"
"""Names what the last run wrote into a folder, so that the next run deletes only files of its own."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Wait until no other process holds the lock of a folder, which is created if needed, and hold it.

    The kernel gives the lock back when its holder ends, however it ends.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise ProblemsError(fault(folder / MANIFEST, error)) from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for another tritonwatch that loads {folder}", file=sys.stderr)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def drift(folder: Path, wanted: Mapping[str, str]) -> list[str]:
    """Return a line for each file of a folder that differs from the wanted files; empty when none does."""
    lines = []
    for name, text in sorted(_with_manifest(wanted).items()):
        path = folder / name
        if not path.exists():
            lines.append(f"{path}: missing")
        elif path.read_bytes() != text.encode():
            lines.append(f"{path}: differs")
    return lines + [f"{folder / name}: no longer generated" for name in sorted(_stale_files(folder, wanted))]


def fault(path: Path, error: OSError) -> Problem:
    """Return why something cannot be written to a path."""
    # The nearest existing parent decides; the text of the error (`File exists`, `Not a directory`) misleads.
    for parent in path.parents:
        if os.path.isfile(parent):
            return Problem(str(path), f"cannot be written: {parent} is a file, not a folder")
    if os.path.isfile(path) and isinstance(error, FileExistsError):
        return Problem(str(path), "cannot be written into: it is a file, not a folder")
    if isinstance(error, FileNotFoundError):
        return Problem(str(path), "cannot be written: its folder cannot be created")
    return Problem(str(path), f"cannot be written: {error.strerror}")


def write_file(path: Path, content: str | bytes, replace: bool = False) -> None:
    """Write a file whole or not at all. Raises OSError; FileExistsError rather than replace one unasked."""
    draft = _written_draft(path, content.encode() if isinstance(content, str) else content)
    try:
        if replace:
            os.replace(draft, path)
        else:
            os.link(draft, path)  # fails if the file was created meanwhile; a rename would replace it
    finally:
        draft.unlink(missing_ok=True)


def _written_draft(path: Path, content: bytes) -> Path:
    """Write a file beside its place, under a name that nobody can have taken before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    draft = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.chmod(0o644)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    return draft


def write(folder: Path, wanted: Mapping[str, str]) -> None:
    """Write exactly these files to a folder, and delete others that this module ever wrote there.

    Everything is written beside its place first and moved when all of it is on disk, so a full disk or a
    missing permission (ProblemsError) leaves the old files as they were.
    """
    drafts: list[tuple[Path, Path]] = []
    try:
        stale = _stale_files(folder, wanted)
        for name, text in _with_manifest(wanted).items():
            drafts.append((_written_draft(folder / name, text.encode()), folder / name))
        for draft, target in drafts:
            draft.replace(target)
        for name in stale:
            (folder / name).unlink(missing_ok=True)
    except OSError as error:
        for draft, _ in drafts:
            draft.unlink(missing_ok=True)
        raise ProblemsError(fault(Path(error.filename or folder), error)) from error


def existing(folder: Path, wanted: Mapping[str, str]) -> dict[str, str]:
    """Return the files that a `write` of these would replace or delete, as they are now; `write` restores them."""
    names = set(wanted) | _stale_files(folder, wanted)
    # read_text would change line ends, and the files must be restored as they were.
    return {name: (folder / name).read_bytes().decode() for name in names if (folder / name).is_file()}


def _with_manifest(wanted: Mapping[str, str]) -> dict[str, str]:
    return {**wanted, MANIFEST: "".join(f"{name}\n" for name in sorted(wanted))}


def _stale_files(folder: Path, wanted: Mapping[str, str]) -> set[str]:
    manifest = folder / MANIFEST
    before = manifest.read_text(encoding="utf-8").splitlines() if manifest.exists() else []
    # A manifest is a file that anybody may edit: names that lead out of the folder are not ours to delete.
    inside = {name for name in before if name and folder.resolve() in (folder / name).resolve().parents}
    return {name for name in inside - set(wanted) if (folder / name).exists()}

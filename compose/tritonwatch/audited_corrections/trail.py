"""The audit trail of corrections: a folder with a file of JSON lines that only grows, and each entry's samples.

An entry is on disk before its first sample is written anywhere; a second line follows when all are written. So
whatever was interrupted is known, and its samples are at hand to go on with or to undo.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from triton_exporter.common.moments import rfc3339
from tritonwatch.command_error import CommandError

Kind = Literal["exclude", "history", "undo"]
State = Literal["incomplete", "written", "undo incomplete", "undone"]
LINES = "trail.jsonl"
_SUFFIX = ".om"


@dataclass(frozen=True, slots=True)
class Entry:
    """One correction or undo. `start` and `end` (Unix times) are the time range, `place` is the destination.

    `groups` are the changed groups with their budgets before and after, as the trail has them.
    """

    id: str
    kind: Kind
    at: str
    author: str
    reason: str
    start: float
    end: float
    place: Mapping[str, str]
    sha256: str
    samples: int
    groups: Sequence[Mapping[str, Any]]
    undoes: str = ""

    @property
    def objectives(self) -> list[str]:
        """Names of the objectives that it changes."""
        return sorted({str(group["labels"]["slo"]) for group in self.groups})


class Trail:
    """The entries of a folder, in order, and what has become of them."""

    def __init__(self, folder: Path) -> None:
        """Read the folder; one that does not exist has no entries. Raises CommandError on what is not a trail."""
        self.folder = folder
        self.entries: list[Entry] = []
        self._done: set[str] = set()
        for number, line in enumerate(_whole_lines(folder / LINES), start=1):
            self._add_event(number, line)

    def _add_event(self, number: int, line: bytes) -> None:
        try:
            fields = json.loads(line)
            event = fields.pop("event")
            if event == "done":
                self._done.add(fields["id"])
            else:
                self.entries.append(Entry(**fields))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CommandError(
                f"{self.folder / LINES}:{number}: is not an entry of a trail of corrections; restore the file"
            ) from error

    def state(self, entry: Entry) -> State:
        """Return what has become of a correction."""
        undo = next((later for later in self.entries if later.undoes == entry.id), None)
        if undo is not None:
            return "undone" if undo.id in self._done else "undo incomplete"
        return "written" if entry.id in self._done else "incomplete"

    def is_done(self, entry: Entry) -> bool:
        """Return whether all samples of an entry are written."""
        return entry.id in self._done

    def find(self, entry_id: str) -> Entry:
        """Return the entry with this id, or the only one whose id begins so. Raises CommandError."""
        matching = [entry for entry in self.entries if entry.id == entry_id] or [
            entry for entry in self.entries if entry.id.startswith(entry_id)
        ]
        if len(matching) != 1:
            known = f"{len(matching)} begin with it" if matching else "the trail has no such correction"
            raise CommandError(
                f"correction {entry_id}: {known}; see tritonwatch correct list --trail {self.folder}"
            )
        return matching[0]

    @property
    def signatures(self) -> dict[str, tuple[str, str]]:
        """Reason and author of each entry by its id."""
        return {entry.id: (entry.reason, entry.author) for entry in self.entries}

    def interrupted(self, entry_id: str) -> Entry:
        """Return the entry with this id, or its undo, whose samples are not all written. Raises CommandError."""
        entry = self.find(entry_id)
        if self.is_done(entry):
            entry = next((later for later in self.entries if later.undoes == entry.id), entry)
        if self.is_done(entry):
            raise CommandError(f"{entry.id} is complete; nothing was written")
        return entry

    def text(self, entry: Entry) -> str:
        """Return the samples of an entry. Raises CommandError where the file is not what was stored."""
        path = self.path(entry)
        try:
            text = path.read_bytes()
        except OSError as error:
            raise CommandError(f"cannot read {path}: {error.strerror}; restore the file") from error
        if hashlib.sha256(text).hexdigest() != entry.sha256:
            raise CommandError(f"{path}: is not what the trail stored (SHA-256 differs); restore the file")
        return text.decode()

    def path(self, entry: Entry) -> Path:
        """Return the file with the samples of an entry."""
        return self.folder / f"{entry.id}{_SUFFIX}"

    def begin(self, entry: Entry, text: str) -> None:
        """Store an entry and its samples, before any of them is written elsewhere. Raises CommandError."""
        try:
            draft = self.path(entry).with_suffix(".draft")
            with draft.open("wb") as file:
                file.write(text.encode())
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self.path(entry))
            _sync(self.folder)
            fields = {field: getattr(entry, field) for field in Entry.__slots__}
            self._append({"event": "begin", **fields})
        except OSError as error:
            raise CommandError(
                f"cannot write the trail in {self.folder}: {error.strerror}; nothing was corrected"
            ) from error
        self.entries.append(entry)

    def finish(self, entry: Entry) -> None:
        """Store that all samples of an entry are written. Raises CommandError."""
        try:
            self._append({"event": "done", "id": entry.id, "at": now_text()})
        except OSError as error:
            raise CommandError(
                f"correction {entry.id} is written, but not the trail in {self.folder}: {error.strerror}; "
                f"make room, then run tritonwatch correct resume {entry.id}"
            ) from error
        self._done.add(entry.id)

    def _append(self, fields: Mapping[str, Any]) -> None:
        path = self.folder / LINES
        line = (json.dumps(fields, ensure_ascii=False) + "\n").encode()
        size = sum(map(len, _whole_lines(path, keep_ends=True)))
        with path.open("r+b" if path.exists() else "xb") as file:
            # A line that a crash cut off was never acknowledged: nothing was written elsewhere because of it.
            file.truncate(size)
            file.seek(size)
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        _sync(self.folder)


@contextmanager
def locked(folder: Path, *, wait: bool = False) -> Iterator[Trail]:
    """Read a trail and keep others from writing to it meanwhile. Raises CommandError.

    With `wait`, wait for another that writes; without it, that is an error.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise CommandError(f"--trail {folder}: {error.strerror}") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError as error:
        raise CommandError(f"--trail {folder}: another tritonwatch is writing a correction") from error
    else:
        yield Trail(folder)
    finally:
        os.close(handle)


def new_id(kind: Kind, text: str) -> str:
    """Return the id of a new correction: its kind, the time, and a hash of what it writes."""
    return f"{kind}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{hashlib.sha256(text.encode()).hexdigest()[:6]}"


def now_text() -> str:
    """Return the current time, as the trail writes it."""
    return rfc3339(time.time())


def _whole_lines(path: Path, keep_ends: bool = False) -> list[bytes]:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}") from error
    whole = data[: data.rfind(b"\n") + 1]
    return whole.splitlines(keepends=keep_ends) if whole else []


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

"""The operator's list of models that should serve: given at once, or in a file that is read again."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from triton_exporter.catalogue import own
from triton_exporter.family import Family

if TYPE_CHECKING:  # the options of the exporter need the parsers alone
    from triton_exporter.lifecycle.tracker import Lifecycle
    from triton_exporter.snapshot import Snapshot

_LOG = logging.getLogger(__name__)

Expected = Mapping[str, tuple[str, ...]]


def parse_expected(words: Iterable[str]) -> Expected:
    """Read `model` and `model:version`; a model without versions may serve any. Raises ValueError."""
    expected: dict[str, tuple[str, ...]] = {}
    for word in words:
        _add_word(expected, word.strip())
    return expected


def _add_word(expected: dict[str, tuple[str, ...]], word: str) -> None:
    model, colon, version = word.partition(":")
    if not model or (colon and not version.isdecimal()):
        raise ValueError(f"{word!r} is not a model or model:version, such as embedder or embedder:2")
    expected[model] = (*expected.get(model, ()), *([version] if version else []))


def parse_expected_file(text: str) -> Expected:
    """Read one model a line, without empty lines and what follows a #. Raises ValueError with the line."""
    expected: dict[str, tuple[str, ...]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        word = line.partition("#")[0].strip()
        try:
            if word:
                _add_word(expected, word)
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from error
    return expected


class ExpectedFile:
    """Poller that reads the file again, and SnapshotObserver that hands the list over under the exporter's lock.

    A file that cannot be read, or contains a mistake, leaves the last good list in force.
    """

    interval_seconds = 5.0

    def __init__(self, path: Path, always: Expected, lifecycle: Lifecycle) -> None:
        self._path = path
        self._always = always
        self._lifecycle = lifecycle
        self._lock = threading.Lock()
        self._expected = always
        self.problem = "not read yet"  # the reason why the file is not in force, or empty
        self.poll(0.0)

    def poll(self, now: float) -> None:
        try:
            expected = parse_expected_file(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            problem = str(error) if isinstance(error, ValueError) else f"{error.strerror}"
            if problem != self.problem:
                _LOG.warning("%s: %s; the last good list stays in force", self._path, problem)
            self.problem = problem
            return
        with self._lock:
            self.problem = ""
            self._expected = {**self._always, **expected}

    def observe_snapshot(self, snapshot: Snapshot) -> None:
        """Put the list in force."""
        with self._lock:
            self._lifecycle.expected = self._expected

    def families(self, now: float) -> Iterable[Family]:
        """Yield whether the file is in force."""
        yield Family.single(own.EXPECTED_FILE_VALID, not self.problem)

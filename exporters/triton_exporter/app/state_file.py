"""The state file: how the histograms go on where they were when the exporter is started again."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import stat
from collections.abc import Sequence
from pathlib import Path

from triton_exporter.distribution.stored import (
    StoredModel,
    StoredState,
    UnusableStateError,
    decode_state,
    encode_state,
)

_LOG = logging.getLogger(__name__)

MAX_BYTES = 64 * 1024 * 1024
"""A larger file is not one of ours: a thousand models take less than one MiB."""

_BOOT = Path("/proc/sys/kernel/random/boot_id")


class StateFileInUseError(Exception):
    """Another exporter writes this file."""


class StateFile:
    """The counters of the last page, or higher: one that goes back is counted whole once more by Prometheus.

    A write replaces the file as a whole, and the page follows it. That survives every end of the process; to
    survive that of the machine it would have to wait for the disk at every scrape, so a file that was written
    before the machine started is used only if the exporter was stopped cleanly. A file that cannot be updated
    is removed: to start from zero loses a few requests, to go on from old values invents many.
    """

    def __init__(self, path: Path, triton: str) -> None:
        self._path = path
        self._triton = triton
        self._written = b""
        self._failing = False
        self._lock: int | None = None
        try:
            self._boot = _BOOT.read_text().strip()
        except OSError:
            self._boot = ""  # not Linux
        self._take_lock()

    @property
    def is_usable(self) -> bool:
        """True if the state written now can be read at the next start."""
        return self._lock is not None and not self._failing

    def load(self) -> Sequence[StoredModel] | None:
        """Return the stored models, or None if there are none that can be used: the file is then deleted."""
        if self._lock is None:
            return None
        try:
            state = decode_state(self._body())
            self._check(state)
        except FileNotFoundError:
            _LOG.info("%s does not exist yet: the histograms start at zero", self._path)
            return None
        except (OSError, UnusableStateError) as error:
            _LOG.warning("%s cannot be used: %s; the histograms start at zero", self._path, _reason(error))
            self._remove()
            return None
        # A file that cannot be written would be out of date at the next start.
        if not self.write(state.models, to_disk=True):
            return None
        _LOG.info("the histograms of %d model versions go on from %s", len(state.models), self._path)
        return state.models

    def write(self, models: Sequence[StoredModel], *, ended: bool = False, to_disk: bool = False) -> bool:
        """Replace the file, unless it would stay the same; return whether it has `models` now."""
        if self._lock is None:
            return False
        body = encode_state(StoredState(self._triton, self._boot, ended, list(models)))
        if body == self._written:
            return True
        try:
            self._replace(body, to_disk)
        except OSError as error:
            if not self._failing:
                _LOG.error(
                    "cannot write %s: %s; a restart of the exporter will lose requests",
                    self._path,
                    _reason(error),
                )
            self._failing = True
            self._remove()
            return False
        if self._failing:
            _LOG.info("%s is written again", self._path)
        self._failing = False
        self._written = body
        return True

    def close(self) -> None:
        """Let another exporter have the file."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _take_lock(self) -> None:
        """Lock a second file, because the file itself is replaced at each write. Raises StateFileInUseError."""
        try:
            if self._path.exists() and not self._path.is_file():
                raise OSError("is not a file")
            lock = os.open(f"{self._path}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            self._give_up(error)
            return
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock)
            if isinstance(error, BlockingIOError):
                raise StateFileInUseError(
                    f"{self._path} is in use by another exporter; give each its own --state-file"
                ) from error
            self._give_up(error)
            return
        self._lock = lock

    def _give_up(self, error: OSError) -> None:
        _LOG.error(
            "%s cannot be used: %s; a restart of the exporter will lose requests; "
            "name a file in a folder that this user can write to",
            self._path,
            _reason(error),
        )

    def _body(self) -> bytes:
        file = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK)
        with open(file, "rb") as opened:
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_BYTES:
                raise UnusableStateError("it is not a state file")
            return opened.read()

    def _check(self, state: StoredState) -> None:
        if state.triton != self._triton:
            raise UnusableStateError(f"it is of {state.triton}")
        if state.boot != self._boot and not state.ended:
            raise UnusableStateError("the machine was restarted before the exporter had ended")

    def _replace(self, body: bytes, to_disk: bool) -> None:
        new = f"{self._path}.new"
        file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with open(file, "wb", buffering=0) as opened:
            if opened.write(body) != len(body):
                raise OSError("the disk is full")
            if to_disk:
                os.fsync(file)
        os.replace(new, self._path)
        if to_disk:
            folder = os.open(self._path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def _remove(self) -> None:
        self._written = b""
        for path in (f"{self._path}.new", self._path):
            with contextlib.suppress(OSError):
                os.unlink(path)


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)

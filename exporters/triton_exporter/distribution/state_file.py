"""The state file: how the histograms go on where they were when the exporter is started again.

First its format, values and Triton's counters; then how it is written.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from triton_exporter.distribution.buckets import Signal
from triton_exporter.distribution.histogram import Estimated, within

_Count = Annotated[int, Field(ge=0, lt=2**53)]
_Amount = Annotated[float, Field(ge=0, lt=2**53)]
_STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)

ALIKE = 1.5
"""Requests whose mean is further than this factor from that of the last minutes are not like them."""


@dataclass(frozen=True, slots=True)
class StoredHistogram:
    """One histogram, with the requests that still waited for a shape entered at their mean.

    `recent` is what its counts, and `recent_sum` what its sum, gained in the last minutes. `within` contains each
    threshold with the fewest and the most requests within it; `held` requests, seconds and independent units
    that were not in the histogram.
    """

    __pydantic_config__ = _STRICT

    bounds: tuple[_Amount, ...]
    counts: tuple[_Count, ...]
    sum: _Amount
    recent: tuple[_Count, ...]
    recent_sum: _Amount
    within: tuple[tuple[_Amount, _Amount, _Amount], ...]
    held: tuple[_Amount, _Amount, _Amount]

    def recent_shape(self, requests: float, seconds: float) -> Estimated | None:
        """Return the shape of `requests` that took `seconds` if they are like the recent ones, or else None.

        It stays within what the sum guarantees.
        """
        total = sum(self.recent)
        if not total:
            return None
        usual, mean = self.recent_sum / total, seconds / requests
        if not usual / ALIKE <= mean <= usual * ALIKE:
            return None
        shares = []
        for bound, below in zip(self.bounds, accumulate(self.recent), strict=False):
            least, most = within(bound, requests, seconds)
            shares.append(min(max(below / total, least / requests), most / requests))
        return Estimated(shares)


@dataclass(frozen=True, slots=True)
class StoredModel:
    """One model version, and what Triton's counters (requests, executions, microseconds by signal) were."""

    __pydantic_config__ = _STRICT

    model: str
    version: str
    requests: _Amount
    executions: _Amount
    micros: dict[Signal, _Amount]
    histograms: dict[Signal, StoredHistogram]


@dataclass(frozen=True, slots=True)
class StoredState:
    """All model versions of the Triton with the metrics URL `triton`.

    `boot` identifies the start of the machine on which it was written; `ended` is true if the exporter wrote it
    as its last act, and then to the disk itself.
    """

    __pydantic_config__ = _STRICT

    triton: str
    boot: str
    ended: bool
    models: list[StoredModel]
    format: Literal[1] = field(default=1, kw_only=True)


class UnusableStateError(Exception):
    """A stored state that this version cannot continue from; the message has the reason."""


_JSON = TypeAdapter(StoredState)


def encode_state(state: StoredState) -> bytes:
    return _JSON.dump_json(state)


def decode_state(body: bytes) -> StoredState:
    """Read what `encode_state` wrote. Raises UnusableStateError."""
    try:
        state = _JSON.validate_json(body)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise UnusableStateError(f"{place}: {first['msg']}" if place else first["msg"]) from error
    for stored in (histogram for model in state.models for histogram in model.histograms.values()):
        if not len(stored.recent) == len(stored.counts) == len(stored.bounds) + 1:
            raise UnusableStateError(f"{len(stored.counts)} counts for {len(stored.bounds)} bounds")
    return state


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

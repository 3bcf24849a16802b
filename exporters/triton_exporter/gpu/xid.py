"""XID errors: which class a code is in, and a counter made of the reports of the sources."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from triton_exporter.gpu.gpu_reading import XidKind, XidReport

Class = Literal["hardware", "contained", "informational", "application", "unknown"]
"""`hardware` needs a reset, a reboot or a new card; `contained` a restart of the application now and a reset later;
`application` is the owner's bug; `informational` needs nothing; `unknown` is not in the table."""


class Xid(NamedTuple):
    """One code of the table: `name` is what it means in a few words."""

    code: int
    cls: Class
    name: str


# Classes follow what DCGM's health check fails or warns on (DcgmHealthWatch, v4.6) and NVIDIA's catalogue:
# https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html
# Where the two differ, the class shows who should act: `hardware` is for the team that runs the GPUs,
# `application` for the owner of the model.
XIDS: tuple[Xid, ...] = (
    Xid(8, "application", "GPU stopped processing"),
    Xid(11, "application", "invalid or corrupted push buffer"),
    Xid(13, "application", "graphics engine exception"),
    Xid(31, "application", "GPU memory page fault"),
    Xid(32, "application", "invalid or corrupted push buffer stream"),
    Xid(38, "hardware", "driver firmware error"),
    Xid(39, "hardware", "copy engine exception on PCIe"),
    Xid(42, "hardware", "video processor exception on PCIe"),
    Xid(43, "application", "GPU stopped processing for one application"),
    Xid(44, "application", "graphics engine fault during context switch"),
    Xid(45, "application", "work cut short after another error or an exit"),
    Xid(46, "hardware", "GPU stopped processing, timeout"),
    Xid(48, "hardware", "double-bit ECC error"),
    Xid(54, "hardware", "auxiliary power not connected"),
    Xid(56, "hardware", "display engine error"),
    Xid(57, "hardware", "video memory interface error"),
    Xid(58, "hardware", "unstable video memory interface"),
    Xid(60, "hardware", "video processor thermal fault"),
    Xid(61, "hardware", "microcontroller breakpoint or warning"),
    Xid(62, "hardware", "microcontroller halt"),
    Xid(63, "informational", "memory row remapped or page retired"),
    Xid(64, "hardware", "remapping a row or retiring a page failed"),
    Xid(67, "hardware", "NVLink or video engine fault"),
    Xid(68, "application", "video decoder exception"),
    Xid(69, "application", "graphics engine class error"),
    Xid(73, "hardware", "NVLink flow control or encoder fault"),
    Xid(74, "hardware", "NVLink error"),
    Xid(78, "hardware", "power state fault"),
    Xid(79, "hardware", "GPU has fallen off the bus"),
    Xid(92, "informational", "many corrected single-bit ECC errors"),
    Xid(93, "informational", "non-fatal InfoROM violation"),
    Xid(94, "contained", "contained memory error"),
    Xid(95, "hardware", "uncontained memory error"),
    Xid(119, "hardware", "GPU system processor did not answer"),
    Xid(120, "hardware", "GPU system processor error"),
    Xid(121, "hardware", "chip-to-chip link error"),
    Xid(137, "hardware", "NVLink fault of a memory access"),
    Xid(140, "hardware", "unrecovered ECC error"),
)

_CLASSES: Mapping[int, Class] = {xid.code: xid.cls for xid in XIDS}

MAX_UNLISTED = 256
"""Codes that are in no table, counted over all GPUs; a source that invents more cannot fill the memory."""

AT_ZERO_SECONDS = 60.0
"""Time for which a code that was not shown before is at 0 when it first comes, so that Prometheus sees it rise."""


def classify(code: int) -> Class:
    """Return the class of a code."""
    return _CLASSES.get(code, "unknown")


class _Key(NamedTuple):
    uuid: str
    code: int
    kind: XidKind


@dataclass
class XidCounter:
    """Counts events per GPU and code since it was made.

    Each kind of report is counted for itself and the highest count is shown, so that a source that reports the
    same event in two ways, perhaps one scrape apart, counts it once. What a GPU reports when it is first polled
    happened before and counts nothing. Nothing is shown before a reading proves that XIDs are watched.
    """

    _counts: dict[_Key, float] = field(default_factory=lambda: defaultdict(float))
    _before: dict[_Key, float] = field(default_factory=dict)
    _last: dict[str, int] = field(default_factory=dict)
    _watched: set[str] = field(default_factory=set)
    _shown_since: float = math.inf
    _first: dict[tuple[str, int], float] = field(default_factory=dict)
    _unlisted: set[tuple[str, int]] = field(default_factory=set)

    def update(
        self, uuids: Iterable[str], reports: Iterable[XidReport], now: float, *, is_watched: bool = True
    ) -> None:
        """Take in all reports of one reading about the GPUs `uuids`, made at Unix time `now`."""
        if is_watched:
            self._shown_since = min(now, self._shown_since)
        by_gpu: dict[str, list[XidReport]] = {uuid: [] for uuid in uuids}
        for report in filter(self._is_believable, reports):
            by_gpu.setdefault(report.uuid, []).append(report)
        for uuid, mine in by_gpu.items():
            self._update_gpu(uuid, mine, is_new=uuid not in self._watched)
            self._watched.add(uuid)
        for key, count in self._counts.items():
            if count:
                self._first.setdefault((key.uuid, key.code), now)

    def counts(self, now: float) -> dict[tuple[str, int], float]:
        """Return events by GPU and code; codes of the table are there at 0 for every GPU that is watched."""
        if now < self._shown_since:
            return {}
        shown = {(uuid, xid.code): 0.0 for uuid in sorted(self._watched) for xid in XIDS}
        for key, count in self._counts.items():
            series = (key.uuid, key.code)
            first = self._first.get(series, now)
            was_at_zero = key.code in _CLASSES and first > self._shown_since
            if was_at_zero or now - first >= AT_ZERO_SECONDS:
                shown[series] = max(count, shown.get(series, 0.0))
            elif count:
                shown.setdefault(series, 0.0)
        return shown

    def _is_believable(self, report: XidReport) -> bool:
        if report.code in _CLASSES or report.code == 0:
            return report.code != 0 or report.kind == "last"  # 0 is the word for none
        unlisted = (report.uuid, report.code)
        if len(self._unlisted) < MAX_UNLISTED:
            self._unlisted.add(unlisted)
        return unlisted in self._unlisted

    def _update_gpu(self, uuid: str, reports: list[XidReport], *, is_new: bool) -> None:
        levels: dict[_Key, float] = {}
        # Instances of one GPU repeat its codes, so the highest of a reading is taken, never the sum.
        for code, events, kind in ((report.code, report.events, report.kind) for report in reports):
            key = _Key(uuid, code, kind)
            levels[key] = (
                max(events, levels.get(key, 0.0)) if kind != "event" else levels.get(key, 0.0) + events
            )
        codes = [report.code for report in reports if report.kind == "last"]
        code = max(codes, default=0)
        if not is_new and code and code != self._last.get(uuid, 0):
            self._counts[_Key(uuid, code, "last")] += 1
        # A missing row means that there is no last code any more: the next code is new.
        self._last[uuid] = code
        windows = {key for key in self._before if key.uuid == uuid and key.kind == "window"}
        for key in levels.keys() | windows:
            self._count_level(key, levels.get(key, 0.0), is_new=is_new)

    def _count_level(self, key: _Key, level: float, *, is_new: bool) -> None:
        if key.kind == "last":
            return
        if key.kind == "event":
            self._counts[key] += level
            return
        before = self._before.get(key, 0.0)
        self._before[key] = level
        if is_new:
            return
        if level > before:
            self._counts[key] += level - before
        elif level < before and key.kind == "total":  # its source started again
            self._counts[key] += level

"""Objectives from a folder, for the verbs that need them."""

from __future__ import annotations

import argparse
import math
import shlex
import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from triton_exporter.common.duration import time_text
from triton_exporter.common.printable import listed, printable
from triton_exporter.common.problem import ProblemsError
from triton_slo.amounts import ratio
from triton_slo.group_status import GroupStatus, group_name
from triton_slo.objective.model import Objective
from triton_slo.objective.reading import read
from tritonwatch import access
from tritonwatch.arguments import at_words, objective_texts

_MAX_NAMED = 5
"""Groups that a line names at most."""


def load(folder: Path | None) -> tuple[Objective, ...]:
    """Read all objectives of a folder. Raises ProblemsError with all mistakes; without a folder there are none."""
    return _parsed(objective_texts(folder)) if folder else ()


def _parsed(texts: Sequence[tuple[str, str]]) -> tuple[Objective, ...]:
    reading = read(texts)
    if reading.problems:
        raise ProblemsError(*reading.problems)
    return reading.objectives


class ObjectiveFiles:
    """The objectives of a folder for a server, which reads them again when a file has changed; safe for threads.

    Raises ProblemsError at first; later, a mistake in a file is a problem, and the last valid objectives stay.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._texts = objective_texts(folder) if folder else []
        self._objectives = _parsed(self._texts)

    def latest(self) -> tuple[tuple[Objective, ...], str]:
        """Return the objectives, and why they are older than the files; empty where they are not."""
        if self._folder is None:
            return (), ""
        with self._lock:
            try:
                texts = objective_texts(self._folder)
                if texts != self._texts:
                    self._objectives, self._texts = _parsed(texts), texts
            except ProblemsError as error:
                return (
                    self._objectives,
                    f"These pages use the objectives as they were before this mistake: {error}",
                )
            return self._objectives, ""


def not_loaded_message(
    objectives: Iterable[Objective],
    rows: Sequence[GroupStatus],
    args: argparse.Namespace,
    *,
    chosen: Sequence[str] = (),
    model: str | None = None,
    at: float | None = None,
) -> str:
    """Return what Prometheus has not loaded of the files and the commands that load it; empty when all is loaded.

    `rows` are the status of everything that Prometheus records. Only the `chosen` objectives (empty: all) and
    groups of the model are compared; `at` is as for `status`.
    """
    wanted = {objective.name: objective for objective in objectives if not chosen or objective.name in chosen}
    recorded = {row.slo for row in rows}
    missing = [name for name in wanted if name not in recorded]
    edited = _edited(
        wanted, [row for row in rows if model in (None, row.model)], "is" if at is None else "was"
    )
    if recorded and not missing and not edited:
        return ""
    place = f"Prometheus at {args.prometheus}"
    lines = []
    if missing or not recorded:
        lines.append(_missing_line(missing, place, at))
    if edited:
        uses = "still uses" if at is None else "used"
        lines += [f"{place} {uses} other values{at_words(at)} than the files in {args.objectives}:", *edited]
    if at is None:
        lines += _loading_commands(args)
    elif missing or not recorded:
        lines.append("  rules record from the time at which they are loaded: choose a later time with --at")
    return "\n".join(map(printable, lines))


def _missing_line(missing: Sequence[str], place: str, at: float | None) -> str:
    noun = "objective" if len(missing) == 1 else "objectives"
    which = f"{noun} {', '.join(missing)}" if missing else "any objective"
    if at is not None:
        return f"{place} has no record of {which}{at_words(at)}"
    return (
        f"the rules of {which} are not loaded in {place}"
        if missing
        else f"no objective's rules are loaded in {place}"
    )


def _loading_commands(args: argparse.Namespace) -> list[str]:
    if args.project_file.given:
        named = ["--project", args.project] if "project" in args else []
        return [f"  to write, check and load them: {shlex.join(['tritonwatch', 'reload', *named])}"]
    flags = ["--objectives", str(args.objectives or "DIR"), "--out", "generated"]
    return [
        f"  to write, check and load them: {shlex.join(['tritonwatch', 'reload', *flags, *access.options(args)])}",
        f"  only to write them: {shlex.join(['tritonwatch', 'generate', *flags])}",
        "  `generated` is an example: reload needs the folder that rule_files of Prometheus names",
    ]


def _edited(wanted: Mapping[str, Objective], rows: Iterable[GroupStatus], verb: str) -> list[str]:
    """Return a line for each target or threshold that Prometheus records otherwise than the files have it."""
    groups_by_change: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in rows:
        objective = wanted.get(row.slo)
        if objective is None or row.target is None:
            continue
        whole = objective.target, objective.threshold_seconds
        # A group of all models has no model to choose an override by.
        target, threshold = (objective.resolve(row.model, row.version) if row.model else whole) or whole
        values = []
        if not math.isclose(row.target, target):
            values.append(("target", ratio(row.target), ratio(target)))
        if not math.isclose(row.threshold_seconds or 0.0, threshold or 0.0):
            values.append(("threshold", _threshold_text(row.threshold_seconds), _threshold_text(threshold)))
        for what, loaded, filed in values:
            change = f"{what} {loaded} {verb} loaded, {filed} is in the files"
            groups_by_change[row.slo, change].append(group_name(row.group))
    return [
        f"  {slo} {listed(groups, _MAX_NAMED)}: {change}"
        for (slo, change), groups in groups_by_change.items()
    ]


def _threshold_text(seconds: float | None) -> str:
    return "none" if seconds is None else time_text(seconds)

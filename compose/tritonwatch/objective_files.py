"""Objectives from a folder, for the verbs that need them."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from triton_exporter.printable import printable
from triton_slo.objective.model import Objective
from triton_slo.objective.reading import read
from tritonwatch.arguments import objective_texts


def load(folder: Path, verb: str) -> tuple[Objective, ...] | int:
    """Read all objectives of a folder; with mistakes, print them all and give an exit code instead."""
    texts = objective_texts(folder, verb)
    if texts is None:
        return 2
    reading = read(texts)
    for problem in reading.problems:
        print(f"tritonwatch {verb}: {problem}", file=sys.stderr)
    return 1 if reading.problems else reading.objectives


def add_argument(parser: argparse.ArgumentParser) -> None:
    """Declare --objectives of the verbs that read what the rules of objectives record."""
    parser.add_argument(
        "--objectives",
        type=Path,
        metavar="DIR",
        help="report which of these objectives' rules Prometheus has not loaded, and how to load them",
    )


def not_loaded(
    wanted: Iterable[str], recorded: Collection[str], args: argparse.Namespace, access: Sequence[str]
) -> str:
    """Return which rules are not loaded and the commands that load them; empty when none are missing.

    `recorded` are the objectives of which Prometheus records something, `access` the options that reach it.
    """
    missing = [name for name in wanted if name not in recorded]
    if recorded and not missing:
        return ""
    objectives = "objective" if len(missing) == 1 else "objectives"
    which = f"the rules of {objectives} {', '.join(missing)}" if missing else "no objective's rules"
    when = "" if args.at is None else " (nothing was recorded at the time of --at)"
    files = ["--objectives", str(args.objectives or "DIR"), "--out", "generated"]
    lines = (
        f"{which} are {'not ' if missing else ''}loaded in Prometheus at {args.prometheus}{when}",
        f"  to write, check and load them: {shlex.join(['tritonwatch', 'reload', *files, *access])}",
        f"  only to write them: {shlex.join(['tritonwatch', 'generate', *files])}",
    )
    return "\n".join(map(printable, lines))

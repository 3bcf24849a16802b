"""Objectives from a folder, for the verbs that need them."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from triton_exporter.options import adder
from triton_exporter.printable import printable
from triton_slo.objective.model import Objective
from triton_slo.objective.reading import read
from tritonwatch.arguments import objective_texts
from tritonwatch.command_error import CommandError


def load(folder: Path | None) -> tuple[Objective, ...]:
    """Read all objectives of a folder. Raises CommandError with all mistakes; without a folder there are none."""
    if folder is None:
        return ()
    reading = read(objective_texts(folder))
    if reading.problems:
        raise CommandError(*reading.problems)
    return reading.objectives


def add_argument(parser: argparse.ArgumentParser) -> None:
    """Declare --objectives of the verbs that read what the rules of objectives record."""
    add = adder(parser.add_argument)
    add(
        "--objectives DIR",
        "report which of these objectives' rules Prometheus has not loaded, and how to load them",
        Path,
    )


def not_loaded(
    objectives: Iterable[Objective],
    recorded: Collection[str],
    args: argparse.Namespace,
    access: Sequence[str],
) -> str:
    """Return which rules are not loaded and the commands that load them; empty when none are missing.

    `recorded` are the objectives of which Prometheus records something, `access` the options that reach it.
    """
    wanted = [one.name for one in objectives if not args.objective or one.name in args.objective]
    missing = [name for name in wanted if name not in recorded]
    if recorded and not missing:
        return ""
    noun = "objective" if len(missing) == 1 else "objectives"
    which = f"the rules of {noun} {', '.join(missing)}" if missing else "no objective's rules"
    when = "" if args.at is None else " (nothing was recorded at the time of --at)"
    files = ["--objectives", str(args.objectives or "DIR"), "--out", "generated"]
    lines = (
        f"{which} are {'not ' if missing else ''}loaded in Prometheus at {args.prometheus}{when}",
        f"  to write, check and load them: {shlex.join(['tritonwatch', 'reload', *files, *access])}",
        f"  only to write them: {shlex.join(['tritonwatch', 'generate', *files])}",
    )
    return "\n".join(map(printable, lines))

"""What several verbs make of their arguments: the files that these name, and messages."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from triton_alerts import alerts_file
from triton_alerts.alerts_file import AlertsFile
from triton_exporter.common.moments import utc_text
from triton_exporter.common.problem import Problem, ProblemsError
from triton_slo.alert_settings import Tuning
from triton_slo.artifact import Options
from triton_slo.group_status import GroupStatus
from tritonwatch.parser import did_you_mean


def rule_options(args: argparse.Namespace) -> Options:
    """Return the options of rules; all others have their defaults."""
    return Options(
        time_scale=args.time_scale, scrape_interval_seconds=args.scrape_interval, selector=args.selector
    )


def check_out(out: Path, parts: Sequence[str], objectives: Path) -> None:
    """Raise ProblemsError unless files can be written to a folder and its parts beside these objectives."""
    if os.path.isfile(out):
        raise ProblemsError(Problem(f"--out {out}", "is a file, nothing was written", "name a folder"))
    written = [folder.resolve() for folder in (out, *(out / part for part in parts))]
    if any(objectives.resolve() in (folder, *folder.parents) for folder in written):
        reason = f"would write into the folder of the objectives, {objectives}"
        raise ProblemsError(Problem(f"--out {out}", reason, "choose another folder"))


def text_of(file: Path, encoding: str = "utf-8") -> str:
    """Return a file's text. Raises ProblemsError, which names the file and the reason."""
    text = text_or_problem(file, encoding)
    if isinstance(text, Problem):
        raise ProblemsError(text, code=2)
    return text


def text_or_problem(file: Path, encoding: str = "utf-8") -> str | Problem:
    """Return a file's text, or where it is not UTF-8. Raises ProblemsError if it cannot be read."""
    try:
        return file.read_text(encoding=encoding)
    except OSError as error:
        raise ProblemsError(Problem(str(file), str(error.strerror)), code=2) from error
    except UnicodeDecodeError as error:
        line = file.read_bytes()[: error.start].count(b"\n") + 1
        reason = f"not UTF-8 text (byte {error.start})"
        return Problem(f"{file}:{line}", reason, "save the file as UTF-8")


def yaml_files(given: Sequence[Path]) -> list[Path]:
    """Return each file once: as given, and *.yaml and *.yml of folders. Raises ProblemsError for one without any."""
    files = [file for place in given for file in (_yaml_files_in(place) if os.path.isdir(place) else [place])]
    first: dict[str, Path] = {}
    for file in files:
        first.setdefault(os.path.realpath(file), file)
    return list(first.values())


def _yaml_files_in(folder: Path) -> list[Path]:
    try:
        files = sorted(file for file in folder.iterdir() if file.suffix in (".yaml", ".yml"))
    except OSError as error:
        raise ProblemsError(Problem(str(folder), str(error.strerror)), code=2) from error
    if not files:
        problem = Problem(f"folder {folder}", "contains no *.yaml or *.yml file", "name another folder")
        raise ProblemsError(problem, code=2)
    return files


def objective_texts(folder: Path) -> list[tuple[str, str]]:
    """Return every *.yaml and *.yml of a folder as (name, text). Raises ProblemsError."""
    if not os.path.isdir(folder):
        raise ProblemsError(Problem(f"--objectives {folder}", "is not a folder"))
    return [(str(file), text_of(file)) for file in yaml_files([folder])]


def alert_settings(file: Path | None) -> AlertsFile:
    """Read the file of alert settings; without one, nothing is changed. Raises ProblemsError."""
    return alerts_file.read(str(file), text_of(file)) if file else AlertsFile()


def tuned(file: Path | None) -> Tuning:
    """Return the alert settings of a file without mistakes. Raises ProblemsError with all mistakes."""
    settings = alert_settings(file)
    if settings.problems:
        raise ProblemsError(*settings.problems)
    return settings.tuning


def at_words(at: float | None) -> str:
    """Return the time of --at for the end of a phrase: ` at 2026-05-01 09:30:00 UTC`; empty for now."""
    return "" if at is None else f" at {utc_text(at)}"


def misspelt(args: argparse.Namespace, rows: Sequence[GroupStatus]) -> list[str]:
    """Return a message for each name of --objective and --model that no row has, with the nearest known name."""
    known = {"objective": {row.slo for row in rows}, "model": {row.model for row in rows}}
    asked = {"objective": args.objective, "model": [args.model] if args.model else []}
    return [
        f"Prometheus has no data of {kind} {name}{at_words(args.at)}{did_you_mean(name, known[kind])}"
        for kind, names in asked.items()
        for name in names
        if name not in known[kind]
    ]

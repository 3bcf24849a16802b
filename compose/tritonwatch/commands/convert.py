"""`tritonwatch convert`: objectives from Sloth and OpenSLO."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from triton_exporter.common.problem import Problem, ProblemsError
from triton_slo.convert import openslo, sloth
from triton_slo.convert.parts import Entry, Ledger, documents
from triton_slo.objective import writing
from triton_slo.objective.model import Objective
from triton_slo.objective.reading import read
from triton_slo.problem_words import count
from tritonwatch import output
from tritonwatch.arguments import text_of, yaml_files

INCOMPLETE = 3
"""Exit code: converted, but something could not be expressed."""


def run(args: argparse.Namespace) -> int:
    if args.out is not None and args.out.is_dir():
        raise ProblemsError(Problem(f"--out {args.out}", "is a folder", "name a file in this folder"))
    if args.out is not None and args.out.exists() and not args.force:
        fix = "choose another file, or overwrite it with --force"
        raise ProblemsError(Problem(f"--out {args.out}", "already exists", fix))
    texts = [(str(file), text_of(file, "utf-8-sig")) for file in yaml_files(args.files)]
    ledger = Ledger()
    text = _converted(args, texts, ledger)
    for note, findings in (("", ledger.mistakes), ("", ledger.losses), ("note: ", ledger.notes)):
        for finding in dict.fromkeys(findings):
            print(f"{note}{finding}", file=sys.stderr)
    if ledger.mistakes:
        raise ProblemsError(Problem("", f"{count(len(ledger.mistakes), 'mistake')}, nothing written"))
    if not text:
        raise ProblemsError(
            Problem("", "the files contain nothing that can be converted; nothing was written")
        )
    lost = count(len(set(ledger.losses)), "field")
    if args.out is None:
        print(text, end="")
    else:
        try:
            output.write_file(args.out, text, args.force)
        except OSError as error:
            raise ProblemsError(output.fault(args.out, error)) from error
    if ledger.losses:
        reason = f"converted, but {lost} could not be converted; see the messages above"
        raise ProblemsError(Problem("", reason), code=INCOMPLETE)
    return 0


def _converted(args: argparse.Namespace, texts: Sequence[tuple[str, str]], ledger: Ledger) -> str:
    entries: list[Entry] = []
    for file, text in texts:
        for document in documents(file, text):
            if isinstance(document, Problem):
                ledger.mistakes.append(document)
            else:
                entries.append(document)
    reader = sloth.convert if args.source == "sloth" else openslo.convert
    return _objectives_text(reader(entries, args.window, ledger), ledger)


def _objectives_text(objectives: Sequence[Objective], ledger: Ledger) -> str:
    """Return the text of an objectives file; a mistake in it, which would be ours, is added to the ledger."""
    if not objectives:
        return ""
    text = writing.write(objectives)
    reading = read([("the converted file", text)])
    ledger.mistakes.extend(reading.problems)
    return text

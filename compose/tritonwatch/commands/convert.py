"""`tritonwatch convert`: objectives from Sloth and OpenSLO."""

from __future__ import annotations

import argparse
import sys

from triton_exporter.common.problem import Problem, ProblemsError
from triton_slo.convert import openslo, sloth
from triton_slo.convert.parts import Entry, Ledger, documents
from triton_slo.objective import writing
from triton_slo.objective.reading import read
from triton_slo.problem_words import count
from tritonwatch import output
from tritonwatch.arguments import text_of, yaml_files


def run(args: argparse.Namespace) -> int:
    if args.out is not None and args.out.is_dir():
        raise ProblemsError(Problem(f"--out {args.out}", "is a folder", "name a file in this folder"))
    if args.out is not None and args.out.exists() and not args.force:
        fix = "choose another file, or overwrite it with --force"
        raise ProblemsError(Problem(f"--out {args.out}", "already exists", fix))
    ledger = Ledger()
    entries: list[Entry] = []
    for file in yaml_files(args.files):
        for document in documents(str(file), text_of(file, "utf-8-sig")):
            if isinstance(document, Problem):
                ledger.mistakes.append(document)
            else:
                entries.append(document)
    convert = sloth.convert if args.source == "sloth" else openslo.convert
    objectives = convert(entries, args.window, ledger)
    text = writing.write(objectives) if objectives else ""
    # A mistake in it would be ours.
    ledger.mistakes.extend(read([("the converted file", text)]).problems if text else ())
    for note, findings in (("", ledger.mistakes), ("", ledger.losses), ("note: ", ledger.notes)):
        for finding in dict.fromkeys(findings):
            print(f"{note}{finding}", file=sys.stderr)
    if ledger.mistakes:
        raise ProblemsError(Problem("", f"{count(len(ledger.mistakes), 'mistake')}, nothing written"))
    if not text:
        raise ProblemsError(
            Problem("", "the files contain nothing that can be converted; nothing was written")
        )
    if args.out is None:
        print(text, end="")
    else:
        try:
            output.write_file(args.out, text, args.force)
        except OSError as error:
            raise ProblemsError(output.fault(args.out, error)) from error
    if ledger.losses:
        lost = count(len(set(ledger.losses)), "field")
        reason = f"converted, but {lost} could not be converted; see the messages above"
        raise ProblemsError(Problem("", reason), code=3)
    return 0

"""`tritonwatch doctor`: recommend Triton settings that expose more metrics."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import textwrap

from triton_exporter.app.doctor_facts import gather
from triton_exporter.app.settings import DoctorSettings
from triton_exporter.catalogue.state import NOT_TRITON
from triton_exporter.common.printable import printable
from triton_exporter.doctor.checks import examine, requests_by_model
from triton_exporter.doctor.finding import Finding, TritonFacts
from triton_exporter.snapshot import NO_API
from triton_slo.problem_words import count
from tritonwatch.project import load
from tritonwatch.usage import Tritons


def run(args: argparse.Namespace) -> int:
    args.project_file = load(args, os.environ)
    found: list[dict[str, str]] = []
    for number, settings in enumerate(Tritons.read_each(args, DoctorSettings)):
        facts = gather(settings, args.watch)
        findings = examine(facts)
        if facts.is_other_server:
            (finding,) = findings
            print(
                f"tritonwatch doctor: the server at {facts.url} is not a Triton: {finding.seen}; {finding.do}",
                file=sys.stderr,
            )
        elif not args.json:
            print("\n" * bool(number) + _findings_text(facts, findings))
        found += [{"triton": facts.url, **dataclasses.asdict(finding)} for finding in findings]
    if args.json:
        print(json.dumps(found, indent=2))
    return int(any(finding["grade"] == "problem" for finding in found))


def _findings_text(facts: TritonFacts, findings: list[Finding]) -> str:
    version = facts.snapshot.triton_version or "of unknown version"
    models = len({entry.model for entry in facts.snapshot.index or ()})
    head = f"Triton {version} at {facts.url}, {count(models, 'model')}"
    if facts.first is not None and facts.snapshot.api_failure in (NO_API, NOT_TRITON):
        head = (
            f"Triton's metrics at {facts.metrics_url}, {count(len(requests_by_model(facts.first)), 'model')}"
        )
    elif facts.snapshot.api_failure:
        head = f"No Triton answers at {facts.url}"
    lines = [head]
    for finding in findings:
        lines += ["", f"[{finding.grade}] {finding.title}", *_wrapped("", finding.seen)]
        for word, text in (("do:   ", finding.do), ("cost: ", finding.cost)):
            if text:
                lines += _wrapped(word, text)
    return "\n".join(map(printable, "\n".join(lines).split("\n")))


def _wrapped(word: str, text: str) -> list[str]:
    lines: list[str] = []
    indent, hanging = f"  {word}", " " * (2 + len(word))
    for line in text.split("\n"):
        if not lines or line.startswith("- "):
            item = "  " if line.startswith("- ") else ""
            lines += textwrap.wrap(
                line,
                79,
                initial_indent=indent,
                subsequent_indent=hanging + item,
                break_long_words=False,
                break_on_hyphens=False,
            )
        else:  # of a snippet, which is copied as it is
            lines.append(hanging + line)
        indent = hanging
    return lines

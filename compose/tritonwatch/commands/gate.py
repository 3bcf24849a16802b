"""`tritonwatch gate`: promote, hold or roll back a release, by exit code."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Literal

from triton_exporter.common.printable import printable
from triton_exporter.common.problem import Problem, ProblemsError
from triton_slo import gate
from triton_slo.canary import Verdict
from triton_slo.gate import GateLimits, Judgement, ReleaseQuestion, VersionComparison, judge_release
from triton_slo.group_status import GroupStatus, group_name
from triton_slo.prometheus import WARNS
from triton_slo.status import read_status
from tritonwatch import access, objective_files
from tritonwatch.arguments import at_words, misspelt

Outcome = Verdict | Literal["cannot tell"]
EXIT: dict[Outcome, int] = {"promote": 0, "hold": 3, "rollback": 4, "cannot tell": 1}
"""Exit codes; a pipeline must not promote on any but 0."""


def run(args: argparse.Namespace) -> int:
    """Print the verdict and its reasons, and return its exit code."""
    outcome, judgements, messages = _judge(args)
    for message in messages:
        print(f"tritonwatch gate: {message}", file=sys.stderr)
    if args.json:
        print(json.dumps(_verdict_json(outcome, judgements), indent=2))
    else:
        _print_judgements(outcome, judgements)
    return EXIT[outcome]


def answer(args: argparse.Namespace) -> tuple[dict[str, object], list[str]]:
    """Return what `--json` writes, and messages beside it. Raises ProblemsError."""
    outcome, judgements, messages = _judge(args)
    return _verdict_json(outcome, judgements), messages


def _judge(args: argparse.Namespace) -> tuple[Outcome, tuple[Judgement, ...], list[str]]:
    """Return the verdict, the judgements that it follows from, and messages for people."""
    question = _question(args)
    with access.connect(args) as prometheus:
        objectives = objective_files.load(args.objectives)
        rows = read_status(prometheus, question.at, args.time_scale)
        judgements = judge_release(prometheus, question, rows, time.time())
    not_loaded = objective_files.not_loaded_message(
        objectives, rows, args, chosen=args.objective, model=args.model, at=args.at
    )
    mistakes = (*misspelt(args, rows), *_no_version(args, rows)) if rows else ()
    warnings = (f"{WARNS}{warning}" for warning in prometheus.warnings)
    messages = list(map(printable, (*warnings, *mistakes)))
    if not_loaded:
        messages.append(not_loaded)
    elif not judgements:
        messages.append(
            "verdict hold: no recorded objective matches --objective, --model and --version; "
            "run tritonwatch status to list them"
        )
    outcome: Outcome = gate.worst(judgements)
    if not_loaded and outcome != "rollback":
        outcome = "cannot tell"
    return outcome, judgements, messages


def _question(args: argparse.Namespace) -> ReleaseQuestion:
    if mistake := _mistake(args):
        raise ProblemsError(Problem("", mistake), code=2)
    versions = None
    if args.canary is not None:
        versions = VersionComparison(
            args.canary, args.baseline, args.window, args.confidence, args.margin, args.min_events
        )
    limits = GateLimits(args.max_age, args.min_budget, frozenset(args.trust))
    return ReleaseQuestion(tuple(args.objective), args.model, args.version, args.at, limits, versions)


def _mistake(args: argparse.Namespace) -> str:
    if (args.canary is None) != (args.baseline is None):
        return "--canary and --baseline must be given together"
    if args.canary is not None and args.model is None:
        return "--canary needs --model"
    if args.canary is not None and args.canary == args.baseline:
        return "--canary and --baseline name the same version; name two versions"
    if not 0.5 < args.confidence < 1:
        return "--confidence must be between 50% and 100%"
    return ""


def _no_version(args: argparse.Namespace, rows: Sequence[GroupStatus]) -> Iterator[str]:
    """Yield a message for each asked version without data, with the versions that have data."""
    versions = sorted({row.version for row in rows if args.model in (None, row.model) and row.version})
    for option in ("version", "canary", "baseline"):
        asked = getattr(args, option)
        if asked is not None and versions and asked not in versions:
            known = ", ".join(versions)
            yield (
                f"--{option} {asked}: no objective has data of this version{at_words(args.at)}; "
                f"versions with data: {known}"
            )


def _verdict_json(verdict: Outcome, judgements: Sequence[Judgement]) -> dict[str, object]:
    return {"verdict": verdict, "judgements": [asdict(judgement) for judgement in judgements]}


def _print_judgements(verdict: Outcome, judgements: Sequence[Judgement]) -> None:
    explained: set[str] = set()
    for judgement in judgements:
        group = {"model": judgement.model, "version": judgement.version, **judgement.group}
        where = f"{judgement.slo} {group_name(group)}".strip()
        age = "" if judgement.data_age_seconds is None else f" (data {judgement.data_age_seconds:.0f} s old)"
        print(
            printable(f"{judgement.verdict:8} {where}: {_explained_once(judgement.reason, explained)}{age}")
        )
    print(f"verdict: {verdict}")


def _explained_once(reason: str, explained: set[str]) -> str:
    """Return a reason whose caveat, a paragraph that is the same for many groups, is explained only once."""
    short, but, caveat = reason.partition(gate.BUT)
    if caveat not in explained:
        explained.add(caveat)
        return reason
    return f"{short}{but}{caveat.partition(': ')[0]}, as above" if caveat else reason

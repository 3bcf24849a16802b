"""`tritonwatch gate`: promote, hold or roll back a release, by exit code."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from triton_exporter.options import adder
from triton_exporter.printable import printable
from triton_slo.indicators import kind
from triton_slo.indicators.sources import CAVEATS, HIDING
from triton_slo.prometheus import WARNS, Prometheus
from triton_slo.verdict import gate, gate_queries
from triton_slo.verdict.canary import Verdict, compare
from triton_slo.verdict.estimate import group_name
from triton_slo.verdict.gate import Firing, Judgement
from triton_slo.verdict.group_status import GroupStatus
from triton_slo.verdict.status import read_status
from tritonwatch import access, objective_files
from tritonwatch.arguments import add_objective_filter, misspelt, moment, seconds
from tritonwatch.command_error import UsageError
from tritonwatch.tables.answer import JsonAnswer

EXAMPLE = "tritonwatch gate --prometheus http://127.0.0.1:9090 --model classifier --canary 2 --baseline 1"

Outcome = Verdict | Literal["cannot tell"]
EXIT: dict[Outcome, int] = {"promote": 0, "hold": 3, "rollback": 4, "cannot tell": 1}
"""Exit codes; a pipeline must not promote on any but 0."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    add = adder(parser.add_argument)
    parser.description = (
        f"Decide whether to promote, hold or roll back a release. Exit code {EXIT['promote']}: promote, "
        f"{EXIT['hold']}: hold, {EXIT['rollback']}: roll back, {EXIT['cannot tell']}: cannot tell, 2: wrong usage. "
        "Unknown or old data never promotes."
    )
    add_objective_filter(parser)
    add("--model NAME", "consider only this model (needed with --canary)")
    add("--version V", "consider only this version")
    objective_files.add_argument(parser)
    add("--max-age DURATION", "hold when the data is older (default: 5m)", seconds, default=300.0)
    add(
        "--min-budget PERCENT",
        "hold if the error budget left is at or below this share (default: 0%%)",
        _ratio,
        default=0.0,
    )
    add(
        "--trust SOURCE...",
        "promote on this source although it estimates or misses events, see docs/slo-live.md (repeatable): "
        + ", ".join(CAVEATS),
        choices=sorted(CAVEATS),
    )
    add("--json", "write JSON instead of text")
    add("--at TIME", "time to evaluate at instead of now: 2026-05-01T09:30Z or Unix seconds", moment)
    add = adder(parser.add_argument_group("comparing two versions over the same time").add_argument)
    add("--canary V", "the new version")
    add("--baseline V", "the version it is compared with")
    add("--window 1h", "time to compare (default: 1h)", seconds, default=3600.0)
    add("--confidence 95%", "confidence of the comparison (default: 95%%)", _ratio, default=0.95)
    add("--margin 0.1%", "allowed increase of the error ratio (default: the error budget)", _ratio)
    add("--min-events N", "fewest events that each version needs (default: 50)", float, default=50)
    access.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Print the verdict and its reasons, and return its exit code."""
    outcome, judgements, messages = _judged(args)
    for message in messages:
        print(f"tritonwatch gate: {message}", file=sys.stderr)
    if args.json:
        print(json.dumps(_document(outcome, judgements), indent=2))
    else:
        _show(outcome, judgements)
    return EXIT[outcome]


def answer(args: argparse.Namespace) -> JsonAnswer:
    """Return what `--json` writes. Raises CommandError."""
    outcome, judgements, messages = _judged(args)
    return JsonAnswer(_document(outcome, judgements), tuple(messages), EXIT[outcome])


def _judged(args: argparse.Namespace) -> tuple[Outcome, tuple[Judgement, ...], list[str]]:
    """Return the verdict, what it rests on, and messages for people."""
    if mistake := _mistake(args):
        raise UsageError(mistake)
    with access.connect(args) as prometheus:
        objectives = objective_files.load(args.objectives)
        rows = read_status(prometheus, args.at)
        judgements = gate.in_part(_judge(prometheus, args, rows), prometheus.warnings)
    not_loaded = objective_files.not_loaded(
        objectives, rows, args, chosen=args.objective, model=args.model, at=args.at
    )
    mistakes = (*misspelt(args, rows), *_no_version(args, rows)) if rows else ()
    warnings = (f"{WARNS}{warning}" for warning in prometheus.warnings)
    messages = list(map(printable, (*warnings, *mistakes)))
    if not_loaded:
        messages.append(not_loaded)
    elif not judgements:
        messages.append("no recorded objective matches --objective, --model and --version; not promoted")
    outcome: Outcome = gate.worst(judgements)
    if not_loaded and outcome != "rollback":
        outcome = "cannot tell"
    return outcome, judgements, messages


def _mistake(args: argparse.Namespace) -> str:
    if (args.canary is None) != (args.baseline is None):
        return "--canary and --baseline belong together"
    if args.canary is not None and args.model is None:
        return "--canary needs --model"
    if args.canary is not None and args.canary == args.baseline:
        return "--canary and --baseline are the same version"
    if not 0.5 < args.confidence < 1:
        return "--confidence must be between 50% and 100%"
    return ""


def _no_version(args: argparse.Namespace, rows: Sequence[GroupStatus]) -> Iterator[str]:
    """Yield a message for each version that the model does not have, with those that it has."""
    versions = sorted({row.version for row in rows if args.model in (None, row.model) and row.version})
    for option in ("version", "canary", "baseline"):
        asked = getattr(args, option)
        if asked is not None and versions and asked not in versions:
            known = f"model {args.model} has" if args.model else "there are"
            yield f"--{option} {asked}: no objective has data of this version; {known} {', '.join(versions)}"


@dataclass(frozen=True)
class _Evidence:
    """Results of the queries that are sent once for all judgements."""

    rows: list[GroupStatus]
    ages: gate_queries.Ages
    firing: tuple[Firing, ...]
    limits: gate.GateLimits
    failures: gate.FailureEvidence


def _judge(
    prometheus: Prometheus, args: argparse.Namespace, everything: Sequence[GroupStatus]
) -> tuple[Judgement, ...]:
    rows = [row for row in everything if _asked(row, args)]
    firing = gate_queries.firing(prometheus, args.at)
    limits = gate.GateLimits(args.max_age, args.min_budget, frozenset(args.trust))
    ages = gate_queries.ages(prometheus, args.at)
    doubted = {row.model for row in rows if HIDING.intersection(row.caveats)}
    failures = gate.failure_evidence(
        [row for row in everything if row.model in doubted],
        ages.of,
        firing,
        limits,
        lambda row: _events(prometheus, row, args),
    )
    known = _Evidence(rows, ages, firing, limits, failures)
    stopped = _stopped(prometheus, everything, args)
    if args.canary is None:
        judgements = gate.judge(rows, ages.of, firing, limits, failures)
        return judgements + stopped + _never_seen(args.objective, rows, args)
    canaries = [row for row in rows if row.version == args.canary]
    compared = tuple(_compare(prometheus, row, args, known) for row in canaries)
    # Objectives that the baseline has must also be known for the canary.
    wanted = args.objective or sorted({row.slo for row in rows if row.version == args.baseline})
    return compared + stopped + _never_seen(wanted, canaries, args)


def _events(prometheus: Prometheus, row: GroupStatus, args: argparse.Namespace) -> float:
    end = time.time() if args.at is None else args.at
    seen = gate_queries.slices(prometheus, row.slo, row.group, end - gate.EVIDENCE_SECONDS, end)
    return sum(group.total for group in seen)


def _asked(row: GroupStatus, args: argparse.Namespace) -> bool:
    return (
        (not args.objective or row.slo in args.objective)
        and args.model in (None, row.model)
        and args.version in (None, row.version)
    )


def _stopped(
    prometheus: Prometheus, rows: Sequence[GroupStatus], args: argparse.Namespace
) -> tuple[Judgement, ...]:
    """Hold for objectives whose rules have stopped, which have no row; `_never_seen` covers --objective."""
    if args.objective:
        return ()
    missed = set(gate_queries.stopped(prometheus, args.at)) - {row.slo for row in rows}
    return tuple(
        Judgement("hold", "unknown: not recorded any more", name, unknown=True) for name in sorted(missed)
    )


def _never_seen(
    wanted: Sequence[str], rows: Sequence[GroupStatus], args: argparse.Namespace
) -> tuple[Judgement, ...]:
    """Hold for each wanted objective that has no data."""
    seen = {row.slo for row in rows}
    return tuple(
        Judgement(
            "hold",
            "unknown: no data",
            name,
            args.model or "",
            args.canary or args.version or "",
            unknown=True,
        )
        for name in wanted
        if name not in seen
    )


def _compare(
    prometheus: Prometheus, canary: GroupStatus, args: argparse.Namespace, known: _Evidence
) -> Judgement:
    both = [known.ages.of(canary.model, version) for version in (args.canary, args.baseline)]

    def compared() -> Judgement:
        end = time.time() if args.at is None else args.at
        groups = ({**canary.group, "version": version} for version in (args.canary, args.baseline))
        ours, theirs = (
            gate_queries.slices(prometheus, canary.slo, group, end - args.window, end) for group in groups
        )
        budget = 1 - canary.target if canary.target is not None else 0.0
        comparison = compare(
            ours,
            theirs,
            margin=args.margin if args.margin is not None else budget,
            confidence=args.confidence,
            minimum_events=args.min_events,
        )
        baseline = {**canary.group, "version": args.baseline}
        theirs_now = next((row for row in known.rows if (row.slo, row.group) == (canary.slo, baseline)), None)
        return gate.judge_canary(
            canary, comparison, both, known.firing, known.limits, known.failures, theirs_now
        )

    def current() -> Judgement:
        return gate.judge_current_state(canary, both, known.firing, known.limits)

    return kind(canary.indicator).judge_canary(compared, current)


def _document(verdict: Outcome, judgements: Sequence[Judgement]) -> dict[str, object]:
    return {"verdict": verdict, "judgements": [asdict(judgement) for judgement in judgements]}


def _show(verdict: Outcome, judgements: Sequence[Judgement]) -> None:
    explained: set[str] = set()
    for judgement in judgements:
        where = f"{judgement.slo} {group_name(judgement)}".strip()
        age = "" if judgement.data_age_seconds is None else f" (data {judgement.data_age_seconds:.0f} s old)"
        print(printable(f"{judgement.verdict:8} {where}: {_once(judgement.reason, explained)}{age}"))
    print(f"verdict: {verdict}")


def _once(reason: str, explained: set[str]) -> str:
    """Return a reason whose caveat, a paragraph that is the same for many groups, is explained only once."""
    short, but, caveat = reason.partition(gate.BUT)
    if caveat not in explained:
        explained.add(caveat)
        return reason
    return f"{short}{but}{caveat.partition(': ')[0]}, as above" if caveat else reason


def _ratio(text: str) -> float:
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not from 0% to 100%")
    return value

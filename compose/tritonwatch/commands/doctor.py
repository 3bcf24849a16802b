"""`tritonwatch doctor`: recommend settings of a Triton that make it more observable."""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import sys
import textwrap
import time
from contextlib import closing, suppress
from typing import Any

from triton_exporter.app.features import gpu_parts
from triton_exporter.app.settings import Settings
from triton_exporter.catalogue.state import NOT_TRITON
from triton_exporter.doctor import Finding, TritonFacts, examine
from triton_exporter.duration import duration_between
from triton_exporter.exposition.parse import Exposition, parse
from triton_exporter.exposition.scrape import read
from triton_exporter.http.certificates import Renewed
from triton_exporter.http.client import Client, FetchError, Limits
from triton_exporter.options import adder
from triton_exporter.printable import printable
from triton_exporter.snapshot import Snapshot
from triton_exporter.triton.poll import ApiPoller
from tritonwatch.arguments import parsed
from tritonwatch.command_error import UsageError
from tritonwatch.exporter_options import TRITON_OPTIONS, OptionsError, chosen_some, declare_some

EXAMPLE = "tritonwatch doctor --triton http://127.0.0.1:8000"

_OPTIONS = (*TRITON_OPTIONS, "gpu", "dcgm_url", "gpu_devices", "gpu_models")

_ENDPOINTS = {
    "ready": "/v2/health/ready",
    "metadata": "/v2",
    "statistics": "/v2/models/stats",
    "logging": "/v2/logging",
    "tracing": "/v2/trace/setting",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add = adder(parser.add_argument)
    declare_some(parser, _OPTIONS)
    add(
        "--watch DURATION",
        "time to observe the traffic (default: 2s)",
        parsed(duration_between(0, 60)),
        default=2.0,
    )
    add("--json", "write the findings as JSON")


def run(args: argparse.Namespace) -> int:
    """Print the findings: 0 nothing is wrong (there may be advice), 1 problems, 2 wrong usage."""
    try:
        settings = chosen_some(args, _OPTIONS)
    except OptionsError as error:
        raise UsageError(*error.problems) from error
    facts = gather(settings, args.watch)
    findings = examine(facts)
    if facts.is_other_server:
        (finding,) = findings
        print(f"tritonwatch doctor: this is not a Triton: {finding.seen}; {finding.do}", file=sys.stderr)
    if args.json:
        print(json.dumps([dataclasses.asdict(finding) for finding in findings], indent=2))
    elif not facts.is_other_server:
        print(_text(facts, findings))
    return int(any(finding.grade == "problem" for finding in findings))


def gather(settings: Settings, watch_seconds: float) -> TritonFacts:
    """Observe one Triton for a while, with requests that only read."""
    limits = Limits(settings.timeout_seconds, settings.max_body_bytes)
    tls = Renewed(settings.certificates)
    api = Client(settings.triton_url, limits, settings.triton_headers, tls)
    metrics = Client(settings.metrics_url, limits, settings.triton_headers, tls)
    with closing(api), closing(metrics):
        snapshot = ApiPoller(api, time.time, lambda _endpoint, _reason: None).poll()
        if snapshot.api_failure == NOT_TRITON:
            return TritonFacts(settings.triton_url, settings.metrics_url, snapshot)
        first, failure = _exposition(metrics)
        started = time.monotonic()
        statuses: dict[str, int] = {}
        answers: dict[str, dict[str, Any]] = {}
        if not snapshot.api_failure:
            statuses, answers = _ask(api)
        if first is not None:
            time.sleep(max(0.0, watch_seconds - (time.monotonic() - started)))
        second = _exposition(metrics)[0] if first is not None else None
        return TritonFacts(
            url=settings.triton_url,
            metrics_url=settings.metrics_url,
            snapshot=snapshot,
            statuses=statuses,
            first=first,
            second=second,
            seconds=time.monotonic() - started,
            metrics_failure=failure,
            logging=answers.get("logging", {}),
            tracing=answers.get("tracing", {}),
            gpu=_gpu_findings(settings, snapshot, first),
            can_estimate=importlib.util.find_spec("numpy") is not None,
        )


def _gpu_findings(settings: Settings, snapshot: Snapshot, page: Exposition | None) -> tuple[Finding, ...]:
    now = time.time()
    findings: list[Finding] = []
    for part in gpu_parts(settings):
        # Triton's own series first, because they can be the source; models last, because they need the GPUs.
        if page is not None:
            part.observe(page, now)
        part.poll(now)
        part.observe_snapshot(snapshot)
        findings.extend(part.examine(now))
    return tuple(findings)


def _ask(api: Client) -> tuple[dict[str, int], dict[str, dict[str, Any]]]:
    statuses, answers = {}, {}
    for name, path in _ENDPOINTS.items():
        try:
            answer = api.get(path)
            statuses[name] = answer.status
            content = json.loads(answer.body) if answer.status == 200 and answer.body else None
        except (FetchError, ValueError):
            continue
        if isinstance(content, dict):
            answers[name] = content
    with suppress(FetchError):  # the poll has reported it
        statuses["index"] = api.index().status
    return statuses, answers


def _exposition(metrics: Client) -> tuple[Exposition | None, str]:
    reading = read(metrics, "", time.time)
    return (parse(reading.body), "") if reading.up else (None, reading.detail)


def _text(facts: TritonFacts, findings: list[Finding]) -> str:
    version = facts.snapshot.triton_version or "of unknown version"
    models = len({entry.model for entry in facts.snapshot.index or ()})
    answers = not facts.snapshot.api_failure
    head = (
        f"Triton {version} at {facts.url}, {models} models"
        if answers
        else f"No Triton answers at {facts.url}"
    )
    text = "\n".join([head, *(_paragraph(finding) for finding in findings)])
    return "\n".join(map(printable, text.split("\n")))


def _paragraph(finding: Finding) -> str:
    lines = [f"\n[{finding.grade}] {finding.title}", *_wrapped("", finding.seen)]
    for word, text in (("do:   ", finding.do), ("cost: ", finding.cost)):
        if text:
            lines += _wrapped(word, text)
    return "\n".join(lines)


def _wrapped(word: str, text: str) -> list[str]:
    first, *rest = text.split("\n")
    lines = textwrap.wrap(
        first,
        100,
        initial_indent=f"  {word}",
        subsequent_indent="  " + " " * len(word),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [*lines, *(f"  {' ' * len(word)}{line}" for line in rest)]

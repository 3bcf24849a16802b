"""Write the section of docs/measurements.md about a soak from its record."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

from support.stack.soak import Soak
from support.stack.soak_record import Record


def report(soak: Soak, seed: int, minutes: float, versions: Mapping[str, str]) -> str:
    """Return the section: what was done to the stack and what became of it."""
    record = soak.record
    kinds: dict[str, list[float]] = {}
    for fault in record.faults:
        kinds.setdefault(fault.name, []).append(fault.seconds)
    lines = [
        f"`make soak` ran the stack of docker-compose.yml as plain processes for {minutes:g} minutes",
        f"(seed {seed}), at about {record.answers / (60 * minutes):.0f} requests a second, and caused the faults",
        "in the first table. It fails if a part does not return, an alert in Alertmanager is in no message, an",
        "incident or its end is not delivered, one of our programs logs a traceback, or memory grows. CI runs one",
        "minute of the same test.",
        "",
        "Versions: " + ", ".join(f"{name} {version}" for name, version in versions.items()) + ".",
        "",
        "| fault | times | back after, median | at most |",
        "|---|---|---|---|",
        *(
            f"| {name} | {len(seconds)} | {statistics.median(seconds):.1f} s | {max(seconds):.1f} s |"
            for name, seconds in sorted(kinds.items())
        ),
        "",
        f"Requests answered: {record.answers:,}; failed while Triton was killed: {record.failures:,}.",
        "",
        "| incidents | delivered | end delivered | median delay | at most | median delay of the end | at most |",
        "|---|---|---|---|---|---|---|",
        _incidents(record),
        "",
        f"Alerts with a model in Alertmanager: {len(record.seen)}; in no message: {len(soak.undelivered())}.",
        "",
        "| part | memory, median of the second third | of the last third | at most |",
        "|---|---|---|---|",
        *(_memory(name, record) for name in sorted(record.memory)),
        "",
        *(() if soak.faked else ("The clock was not changed, because libfaketime was not available.", "")),
        *(() if soak.mounted else ("No disk was filled, because no file system could be mounted.", "")),
    ]
    return "\n".join(lines)


def _incidents(record: Record) -> str:
    opened = [incident.opened_seconds for incident in record.incidents]
    ended = [incident.resolved_seconds for incident in record.incidents]
    many = len(record.incidents)
    return (
        f"| {many} | {many} | {many} | {statistics.median(opened):.1f} s | {max(opened):.1f} s "
        f"| {statistics.median(ended):.1f} s | {max(ended):.1f} s |"
    )


def _memory(name: str, record: Record) -> str:
    second, last = record.thirds(name)
    most = max(size for _, size in record.memory[name])
    return f"| {name} | {second:.0f} MiB | {last:.0f} MiB | {most:.0f} MiB |"

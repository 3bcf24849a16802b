"""`tritonwatch incidents`: what a bridge has recorded, the morning after."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

from triton_alerts.bridge import summaries
from triton_alerts.bridge.incidents.history import RecordedIncident
from triton_exporter.common.duration import in_words
from triton_exporter.common.problem import Problem, ProblemsError
from tritonwatch.bridge_incidents import recorded_incidents


def run(args: argparse.Namespace) -> int:
    if args.data is None:
        fix = "give --data DIR, the same folder as --data of the bridge"
        raise ProblemsError(Problem("--data", "is missing", fix))
    function = _show_incident if args.subcommand == "show" else _list_incidents
    return function(args, recorded_incidents(args.data))


def answer(args: argparse.Namespace) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """Return what `--json` writes, as a list, and no messages. Raises ProblemsError."""
    chosen = _recent(args, recorded_incidents(args.data), time.time())
    return [summaries.as_json(record) for record in chosen], ()


def _recent(args: argparse.Namespace, recorded: list[RecordedIncident], now: float) -> list[RecordedIncident]:
    return [
        record for record in recorded if record.incident.open or record.incident.opened_at >= now - args.last
    ]


def _list_incidents(args: argparse.Namespace, recorded: list[RecordedIncident]) -> int:
    now = time.time()
    chosen = _recent(args, recorded, now)
    for record in chosen:
        print(
            json.dumps(summaries.as_json(record), ensure_ascii=False)
            if args.json
            else summaries.listed(record, now)
        )
    if not chosen:
        print(f"no incident in the last {in_words(args.last)}", file=sys.stderr)
    return 0


def _show_incident(args: argparse.Namespace, recorded: list[RecordedIncident]) -> int:
    matching = [record for record in recorded if record.incident.name.startswith(args.id)]
    if len(matching) != 1:
        known = (
            f"{len(matching)} incidents begin with this name"
            if matching
            else "not found; closed incidents are deleted after 30 days"
        )
        fix = f"see tritonwatch incidents --data {args.data} --last 30d"
        raise ProblemsError(Problem(f"incident {args.id}", known, fix))
    if args.json:
        print(json.dumps(summaries.as_json(matching[0]), ensure_ascii=False, indent=2))
    else:
        print(summaries.incident_text(matching[0], time.time()), end="")
    return 0

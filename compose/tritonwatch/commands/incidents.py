"""`tritonwatch incidents`: what a bridge has recorded, the morning after and for the week."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from datetime import datetime

from triton_alerts import hours
from triton_alerts.bridge import summaries
from triton_alerts.bridge.incidents.history import RecordedIncident
from triton_exporter.common.duration import in_words, parse_seconds
from triton_exporter.common.options import adder, parsed
from triton_exporter.common.problem import Problem, ProblemsError
from triton_slo.prometheus import Prometheus, PrometheusError
from tritonwatch import access
from tritonwatch.arguments import moment
from tritonwatch.assistant_tool import JsonAnswer
from tritonwatch.bridge_incidents import recorded_incidents
from tritonwatch.parser import declare
from tritonwatch.project import Incidents, PrometheusAccess

EXAMPLE = "tritonwatch incidents --data /var/lib/tritonwatch-bridge --last 1d"
OPTIONS = Incidents
EXIT_CODES = {0: "printed", 1: "not found or not readable"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb; without a subcommand it lists incidents."""
    _add_list(parser, default=None, last="7d")
    subcommands = parser.add_subparsers(dest="subcommand", metavar="list | show ID | summary")
    every = subcommands.add_parser(
        "list",
        help="list incidents (the default)",
        epilog="example: tritonwatch incidents list --data /var/lib/tritonwatch-bridge",
    )
    _add_list(every, default=argparse.SUPPRESS, last=argparse.SUPPRESS)
    show = subcommands.add_parser(
        "show",
        help="show one incident: cause, acknowledgement, timeline",
        epilog="example: tritonwatch incidents show 1f9c3a --data /var/lib/tritonwatch-bridge",
    )
    adder(show.add_argument)("id", "id of the incident, as in the list and in Slack, or its first characters")
    _add_shared(show)
    week = subcommands.add_parser(
        "summary",
        help="print a summary of a week as Markdown",
        epilog="example: tritonwatch incidents summary --data /var/lib/tritonwatch-bridge",
    )
    _add_data(week)
    add = adder(week.add_argument)
    add("--until TIME", "end of the week: 2026-05-01T09:30Z or Unix seconds (default: now)", moment)
    add(
        "--hours WHEN",
        f"working hours; pages outside them are counted (default: {hours.WORKING})",
        parsed(hours.parse),
        default=hours.WORKING,
    )
    declare(week, PrometheusAccess)


def run(args: argparse.Namespace) -> int:
    """Run the subcommand."""
    if args.data is None:
        fix = "give --data DIR, the same folder as --data of the bridge"
        raise ProblemsError(Problem("--data", "is missing", fix))
    function = {"show": _show_incident, "summary": _summarize}.get(args.subcommand or "", _list_incidents)
    return function(args, recorded_incidents(args.data))


def _add_list(parser: argparse.ArgumentParser, default: str | None, last: str) -> None:
    _add_shared(parser, default=default)
    adder(parser.add_argument)(
        "--last DURATION",
        "list the incidents of the last DURATION, and all open incidents (default: 7d)",
        parsed(parse_seconds),
        default=last,
    )


def _add_shared(parser: argparse.ArgumentParser, **how: object) -> None:
    _add_data(parser)
    # argparse.SUPPRESS: the default of a subcommand would undo an option given before it.
    adder(parser.add_argument)(
        "--json", "write JSON: an object for each incident", default=how.get("default", argparse.SUPPRESS)
    )


def _add_data(parser: argparse.ArgumentParser) -> None:
    declare(parser, OPTIONS, ("data",))


def answer(args: argparse.Namespace) -> JsonAnswer:
    """Return the list as `--json` writes it, an object for each incident. Raises ProblemsError."""
    chosen = _recent(args, recorded_incidents(args.data), time.time())
    return JsonAnswer([summaries.as_json(record) for record in chosen])


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


def _summarize(args: argparse.Namespace, recorded: list[RecordedIncident]) -> int:
    until = time.time() if args.until is None else args.until
    code, budgets = 0, [summaries.NO_PROMETHEUS]
    if args.prometheus:
        with Prometheus(access.from_arguments(args, os.environ)) as prometheus:
            try:
                budgets = summaries.budgets(prometheus, until)
            except PrometheusError as error:  # the rest is worth reading all the same
                code, budgets = 1, [f"Unknown: {error}"]
    end = datetime.fromtimestamp(until, args.hours.zone)
    print(summaries.summarize(recorded, end, args.hours, budgets).markdown(), end="")
    return code

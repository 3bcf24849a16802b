"""The options of `tritonwatch incidents`."""

from __future__ import annotations

import argparse

from triton_exporter.common.duration import parse_seconds
from triton_exporter.common.options import adder, parsed
from tritonwatch.parser import declare
from tritonwatch.project import Incidents

EXAMPLE = "tritonwatch incidents --data /var/lib/tritonwatch-bridge --last 1d"
OPTIONS = Incidents
EXIT_CODES = {0: "printed", 1: "not found or not readable"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb; without a subcommand it lists incidents."""
    _add_list(parser, default=None, last="7d")
    subcommands = parser.add_subparsers(dest="subcommand", metavar="list | show ID")
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


def _add_list(parser: argparse.ArgumentParser, default: str | None, last: str) -> None:
    _add_shared(parser, default=default)
    adder(parser.add_argument)(
        "--last DURATION",
        "list the incidents of the last DURATION, and all open incidents (default: 7d)",
        parsed(parse_seconds),
        default=last,
    )


def _add_shared(parser: argparse.ArgumentParser, **how: object) -> None:
    declare(parser, OPTIONS)
    # argparse.SUPPRESS: the default of a subcommand would undo an option given before it.
    adder(parser.add_argument)(
        "--json", "write JSON: an object for each incident", default=how.get("default", argparse.SUPPRESS)
    )

"""The options of `tritonwatch bridge`."""

from __future__ import annotations

import argparse
from pathlib import Path

from triton_alerts.bridge.settings import BridgeSettings, SlackSettings
from triton_exporter.common.options import adder
from tritonwatch.parser import declare
from tritonwatch.project import declare_project

EXAMPLE = "tritonwatch bridge --dry-run --listen 127.0.0.1:9096"
EXIT_CODES = {
    0: "stopped by SIGTERM or Ctrl-C, or the subcommand succeeded",
    1: "the bridge or the subcommand failed, or Slack rejected the request",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb; without a word after it, it runs the bridge."""
    declare(parser, BridgeSettings)
    declare_project(parser)
    subcommands = parser.add_subparsers(dest="subcommand", metavar="test | log")
    test = subcommands.add_parser(
        "test",
        help="send a sample incident to Slack, firing and resolved",
        epilog="example: tritonwatch bridge test --dry-run",
    )
    declare(test, SlackSettings)
    trail = subcommands.add_parser(
        "log",
        help="print the audit log: who acknowledged or silenced which incident, and escalations",
        epilog="example: tritonwatch bridge log --data /var/lib/tritonwatch-bridge",
    )
    add_trail = adder(trail.add_argument)
    add_trail("--data DIR", "data folder of the bridge (its --data)", Path, required=True)
    add_trail("--json", "print one JSON object per line")

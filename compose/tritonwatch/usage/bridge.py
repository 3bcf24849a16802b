"""The options of `tritonwatch bridge`."""

from __future__ import annotations

import argparse

from triton_alerts.bridge.settings import BridgeSettings, SlackSettings
from tritonwatch.parser import declare
from tritonwatch.project import declare_project

EXAMPLE = "tritonwatch bridge --dry-run --listen 127.0.0.1:9096"
EXIT_CODES = {
    0: "stopped by SIGTERM or Ctrl-C, or the test succeeded",
    1: "the bridge or the test failed, or Slack rejected the request",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the verb; without a word after it, it runs the bridge."""
    declare(parser, BridgeSettings)
    declare_project(parser)
    subcommands = parser.add_subparsers(dest="subcommand", metavar="test")
    test = subcommands.add_parser(
        "test",
        help="send a sample incident to Slack, firing and resolved",
        epilog="example: tritonwatch bridge test --dry-run",
    )
    declare(test, SlackSettings)

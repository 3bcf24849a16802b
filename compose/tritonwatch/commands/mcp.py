"""`tritonwatch mcp`: answer the questions of an assistant about status, gate, backtest, incidents and reports."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from triton_exporter.options import adder
from tritonwatch import access, objective_files
from tritonwatch.arguments import add_scrape_interval, path
from tritonwatch.cli import installed_version
from tritonwatch.command_error import UsageError
from tritonwatch.commands import backtest, gate, incidents, report, status

EXAMPLE = "tritonwatch mcp --prometheus http://127.0.0.1:9090 --bridge-data /var/lib/tritonwatch-bridge"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = (
        "Answer the questions of an assistant through the Model Context Protocol, on standard input and output. "
        "The assistant starts this command itself (docs/assistants.md). It only reads."
    )
    add = adder(parser.add_argument)
    add("--objectives DIR", "objectives to compare with what Prometheus records, and to replay", Path)
    add("--bridge-data DIR", "folder of a bridge, for its incidents", path)
    add_scrape_interval(add)
    access.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Answer until standard input ends: 0."""
    try:
        from tritonwatch.assistants.mcp_server import serve
    except ModuleNotFoundError as error:
        raise UsageError(
            f"the package {error.name!r} is not installed; try: pip install 'tritonwatch[mcp,slo,alerts]'"
        ) from error
    # A mistake in an option ends the command at once, not the first question.
    access.from_arguments(args, os.environ)
    objective_files.load(args.objectives)
    verbs = {"status": status, "gate": gate, "backtest": backtest, "incidents": incidents, "report": report}
    serve(verbs, args, installed_version())
    return 0

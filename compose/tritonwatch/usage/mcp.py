"""The options of `tritonwatch mcp`."""

from __future__ import annotations

import argparse

from tritonwatch.parser import declare
from tritonwatch.project import Asked

EXAMPLE = "tritonwatch mcp --prometheus http://127.0.0.1:9090 --bridge-data /var/lib/tritonwatch-bridge"
OPTIONS = Asked
EXIT_CODES = {0: "standard input ended"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.description = (
        "Serve the Model Context Protocol to an AI assistant, on standard input and output. The "
        "assistant starts this command itself (docs/web.md). The command changes nothing: it only "
        "queries Prometheus and reads incidents."
    )
    declare(parser, OPTIONS)

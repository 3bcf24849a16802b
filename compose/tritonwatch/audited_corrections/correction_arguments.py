"""Arguments of the verbs that write corrections: author, reason, trail and destination."""

from __future__ import annotations

import argparse
from pathlib import Path

from triton_exporter.common.options import adder
from tritonwatch.arguments import path, path_or_none

TRAIL = "corrections"
"""Default folder of the audit trail."""


def add_written(parser: argparse.ArgumentParser) -> None:
    """Declare the author of a correction, its reason, its trail and its destination."""
    add_signature(parser)
    add_trail(parser)
    add_place(parser, required=True)


def add_trail(parser: argparse.ArgumentParser) -> None:
    """Declare the folder of the trail."""
    adder(parser.add_argument)(
        "--trail DIR", f"folder of the audit trail (default: {TRAIL})", Path, default=Path(TRAIL)
    )


def add_signature(parser: argparse.ArgumentParser) -> None:
    """Declare who corrects, and why."""
    add = adder(parser.add_argument)
    add("--reason TEXT", "reason for the change, for the audit trail", required=True)
    add("--author NAME", "name of the person who makes the change, for the audit trail", required=True)


def add_place(parser: argparse.ArgumentParser, *, required: bool) -> None:
    """Declare where samples are written."""
    add = adder(parser.add_mutually_exclusive_group(required=required).add_argument)
    blocks = path if required else path_or_none
    add("--blocks DIR", "write TSDB blocks into this folder, the data directory of Prometheus", blocks)
    add("--import URL", "import the samples into VictoriaMetrics at this URL", dest="import_url")

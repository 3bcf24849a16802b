"""The options of `tritonwatch demo`."""

from __future__ import annotations

import argparse
from pathlib import Path

from triton_exporter.common.options import adder, parsed
from tritonwatch.project import scale

EXAMPLE = "tritonwatch demo --once --port-base 21000"
EXIT_CODES = {
    0: "every step succeeded, or Ctrl-C",
    1: "a step failed, a program is missing or a port is in use",
    130: "Ctrl-C with --once",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add = adder(parser.add_argument)
    add("--once", "stop after the last step (default: run until Ctrl-C)")
    add("--dir DIR", "empty folder for all files of the demo (default: a new one in /tmp)", Path)
    add(
        "--port-base PORT", "first of 8 consecutive ports on 127.0.0.1 (default: 19400)", _port, default=19400
    )
    add(
        "--time-scale F",
        "factor by which every window of the rules is multiplied (default: 1/60, which makes an hour a minute)",
        parsed(scale),
        default=1 / 60,
    )


def _port(text: str) -> int:
    if not text.isdecimal() or not 1024 <= int(text) <= 65535 - 7:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 1024 to {65535 - 7}")
    return int(text)

"""`tritonwatch demo`: run a real Triton with a broken and an overloaded model, and show their alerts."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from triton_exporter.common.options import adder, parsed
from triton_exporter.common.problem import Problem, ProblemsError
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
        "--port-base PORT", "first of 9 consecutive ports on 127.0.0.1 (default: 19400)", _port, default=19400
    )
    add(
        "--time-scale F",
        "factor by which every window of the rules is multiplied (default: 1/60, which makes an hour a minute)",
        parsed(scale),
        default=1 / 60,
    )


def run(args: argparse.Namespace) -> int:
    """Run the demo until the last step or Ctrl-C."""
    from rich.console import Console  # not at import: --help must not need it

    from tritonwatch.demo.run import DemoSettings, run_demo
    from tritonwatch.demo.stack import Ports, check_machine
    from tritonwatch.local import CannotStartError

    if args.dir and args.dir.exists() and (not args.dir.is_dir() or any(args.dir.iterdir())):
        raise ProblemsError(Problem(f"--dir {args.dir}", "is not an empty folder", "name a new one"))
    try:
        check_machine(Ports(args.port_base), args.dir or Path(tempfile.gettempdir()))
    except CannotStartError as problem:
        raise ProblemsError(Problem("", f"nothing was started: {problem}")) from problem
    settings = DemoSettings(_new_folder(args.dir), args.port_base, args.time_scale, args.once)
    # A pipe has no width: the table should not be squeezed into 80 columns there.
    console = Console(highlight=False) if sys.stdout.isatty() else Console(highlight=False, width=120)
    return run_demo(settings, console)


def _new_folder(chosen: Path | None) -> Path:
    if chosen is None:
        return Path(tempfile.mkdtemp(prefix="tritonwatch-demo-"))
    try:
        chosen.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = f"cannot be created: {error.strerror}"
        raise ProblemsError(Problem(f"--dir {chosen}", reason, "name another folder")) from error
    return chosen.resolve()


def _port(text: str) -> int:
    if not text.isdecimal() or not 1024 <= int(text) <= 65535 - 8:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 1024 to {65535 - 8}")
    return int(text)

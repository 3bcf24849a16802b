"""`tritonwatch demo`: run a real Triton with a broken and an overloaded model, and show their alerts."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from triton_exporter.common.problem import Problem, ProblemsError
from tritonwatch.demo.run import DemoSettings, run_demo
from tritonwatch.demo.stack import Ports, check_machine
from tritonwatch.local import CannotStartError


def run(args: argparse.Namespace) -> int:
    """Run the demo until the last step or Ctrl-C."""
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

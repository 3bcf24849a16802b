"""`tritonwatch demo`: run a real Triton with a broken and an overloaded model, and show their alerts."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

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
    return run_demo(DemoSettings(_new_folder(args.dir), args.port_base, args.time_scale, args.once))


def _new_folder(chosen: Path | None) -> Path:
    if chosen is None:
        return Path(tempfile.mkdtemp(prefix="tritonwatch-demo-"))
    try:
        chosen.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = f"cannot be created: {error.strerror}"
        raise ProblemsError(Problem(f"--dir {chosen}", reason, "name another folder")) from error
    return chosen.resolve()

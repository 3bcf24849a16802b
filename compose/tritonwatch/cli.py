"""The command line: run one verb, importing what it does only then, because its help needs no more than options."""

from __future__ import annotations

import argparse
import errno
import importlib
import os
import re
import sys
from collections.abc import Mapping, Sequence

from triton_exporter.common.installed_version import installed_version
from triton_exporter.common.printable import printable
from triton_exporter.common.problem import ProblemsError
from tritonwatch import project
from tritonwatch.parser import Parser, did_you_mean
from tritonwatch.usage import VERBS


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit code."""
    # `--flag=` is a flag whose variable is not set (docker compose cannot leave an argument out): not given.
    argv = [word for word in (sys.argv[1:] if argv is None else argv) if not re.fullmatch("--[^=]*=", word)]
    if len(argv) > 1 and argv[0] == "incidents" and re.fullmatch("[0-9a-f]{4,}", argv[1]):
        argv.insert(1, "show")  # `incidents 1f9c3a` is short for it
    chosen = next((word for word in argv if not word.startswith("-")), "")
    if chosen and chosen not in VERBS:
        message = f"unknown command {printable(chosen)}{did_you_mean(chosen, VERBS)}"
        print(f"tritonwatch: {message} (see tritonwatch --help)", file=sys.stderr)
        return 2
    try:
        args = _parsed(argv, chosen)
        return _run(chosen, args) if chosen else 2
    except ModuleNotFoundError as error:  # the sidecar image has only what `exporter` needs
        missing = f"the package {error.name!r} is not installed; try: pip install 'tritonwatch[all]'"
        print(f"tritonwatch {chosen}: {missing}", file=sys.stderr)
        return 2
    except SystemExit as stop:  # argparse exits: 0 after --help, 2 on wrong usage
        return stop.code if isinstance(stop.code, int) else 2


def _parsed(argv: Sequence[str], chosen: str) -> argparse.Namespace:
    """Return the arguments of the chosen verb; without one, print the help. Raises SystemExit."""
    parser = Parser(
        prog="tritonwatch",
        description="Observability and SLOs for NVIDIA Triton Inference Server. "
        "`tritonwatch VERB --help` shows the options of a verb.",
        epilog="example: tritonwatch demo --once",
    )
    # The metadata of packages take long to load, and only this needs them.
    version = f"tritonwatch {installed_version()}" if "--version" in argv else ""
    parser.add_argument("--version", action="version", version=version)
    subparsers = parser.add_subparsers(dest="verb", metavar="VERB")
    chosen_parser = parser
    exit_codes: Mapping[int, str] = {0: "success", 1: "failed, or a problem was found"}
    for name, usage in VERBS.items():
        # Of the other verbs, the help shows the names alone.
        verb_parser = subparsers.add_parser(name, help=usage.summary, epilog=f"example: {usage.example}")
        if name == chosen:
            chosen_parser, exit_codes = verb_parser, usage.exit_codes
            usage.configure(verb_parser)
            if usage.options:
                project.declare_project(verb_parser)
    chosen_parser.end_help(exit_codes)
    chosen_parser.refuse_unknown(argv)
    args, unknown = parser.parse_known_args(argv)
    # argparse would name `tritonwatch --help`, which does not show what this verb takes.
    if unknown:
        chosen_parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    if not chosen:
        parser.print_help()
    return args


def _run(name: str, args: argparse.Namespace) -> int:
    """Run a verb and return its exit code; the messages of an error go to standard error."""
    verb = importlib.import_module(f"tritonwatch.commands.{name}")
    try:
        if options := VERBS[name].options:
            project.fill(args, options)
        return int(verb.run(args))
    except ProblemsError as error:
        for problem in error.problems:
            lines = f"tritonwatch {name}: {problem}".split("\n")
            print("\n".join(map(printable, lines)), file=sys.stderr)
        return error.code


def entry_point() -> None:
    """Run the console script and exit: 130 after Ctrl-C, 1 where the output could not be written."""
    _open_standard_streams()
    try:
        code = main()
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = 130
    except OSError as error:
        if not isinstance(error, BrokenPipeError) and error.errno != errno.ENOSPC:
            raise
        code = 1  # 0 would mean success
        # Python flushes stdout again at exit, which would fail the same way.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if error.errno == errno.ENOSPC:  # a closed pipe (`| head`) is not an error
            print(f"tritonwatch: cannot write the output: {error.strerror}", file=sys.stderr)
    sys.exit(code)


def _open_standard_streams() -> None:
    """Open /dev/null for each standard stream that is closed (`>&-`), so that no file gets its number."""
    for stream in ("stdin", "stdout", "stderr"):
        if getattr(sys, stream) is None:
            # The lowest free number, which is the missing one, as long as they are taken in order.
            descriptor = os.open(os.devnull, os.O_RDWR)
            setattr(sys, stream, os.fdopen(descriptor, "r" if stream == "stdin" else "w", encoding="utf-8"))

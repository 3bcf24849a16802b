"""The command line: picks a verb, imports only what that verb needs, gives back its exit code."""

from __future__ import annotations

import argparse
import errno
import importlib
import os
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Protocol

from triton_exporter.printable import printable
from tritonwatch.command_error import CommandError

VERBS: dict[str, str] = {
    "demo": "watch a real Triton fail, burn and recover",
    "exporter": "serve the enriched series of one Triton",
    "doctor": "say what to change on a Triton to see more",
    "init": "propose objectives for a live Triton",
    "convert": "take objectives from Sloth and OpenSLO, or give them as OpenSLO",
    "check": "list all mistakes of objectives files",
    "generate": "write rules, alerts and dashboards from objectives",
    "reload": "generate, check, and put into a running stack; or keep the old rules",
    "dashboards": "list, convert or push the Grafana dashboards",
    "status": "say where every objective stands",
    "gate": "promote, hold or roll back, by exit code",
    "backtest": "replay history: which pages would have fired",
    "bridge": "Alertmanager to Slack, losing nothing",
}
"""Verb -> what it does. Only verbs that work are listed; each is a module of `tritonwatch.commands`."""


class Verb(Protocol):
    """A module of `tritonwatch.commands`."""

    EXAMPLE: str

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the verb's arguments."""

    def run(self, args: argparse.Namespace) -> int:
        """Do it and return the exit code: 0 done, 1 mistakes or drift found. Raises CommandError."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit code."""
    argv = list(sys.argv[1:] if argv is None else argv)
    # `--flag=` is a flag whose variable is not set (docker compose cannot leave an argument out): not given.
    argv = [
        word for word in argv if not (word.startswith("--") and word.endswith("=") and word.count("=") == 1)
    ]
    # The verb's module is imported before its arguments are known, and no other verb's is: the sidecar
    # image holds only what `exporter` needs.
    chosen = next((word for word in argv if not word.startswith("-")), "")
    parser = argparse.ArgumentParser(
        prog="tritonwatch",
        description="Observability and SLOs for NVIDIA Triton Inference Server.",
        epilog="example: tritonwatch demo --once",
    )
    parser.add_argument("--version", action="version", version=f"tritonwatch {_version()}")
    subparsers = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    verb: Verb | None = None
    chosen_parser = parser
    for name, summary in VERBS.items():
        if name == chosen:
            try:
                verb = _load(name)
            except ModuleNotFoundError as error:
                print(
                    f"tritonwatch {name}: the package {error.name!r} is not installed; "
                    "try: pip install 'tritonwatch[all]'",
                    file=sys.stderr,
                )
                return 2
            chosen_parser = subparsers.add_parser(
                name,
                help=summary,
                description=f"{summary[0].upper()}{summary[1:]}.",
                epilog=f"example: {verb.EXAMPLE}",
                formatter_class=argparse.RawDescriptionHelpFormatter,
            )
            verb.configure(chosen_parser)
        else:
            subparsers.add_parser(name, help=summary)
    try:
        args, unknown = parser.parse_known_args(argv)
        if unknown:  # argparse would show the usage of the whole, which names no flag of the verb
            chosen_parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    except SystemExit as stop:  # argparse leaves by itself: 0 after --help, 2 on wrong usage
        return stop.code if isinstance(stop.code, int) else 2
    assert verb is not None
    try:
        return verb.run(args)
    except CommandError as error:
        for message in error.messages:
            lines = f"tritonwatch {chosen}: {message}".split("\n")
            print("\n".join(map(printable, lines)), file=sys.stderr)
        return error.code


def _version() -> str:
    try:
        return version("tritonwatch")
    except PackageNotFoundError:
        return "(run from its source folder)"


def _load(name: str) -> Verb:
    module: Verb = importlib.import_module(f"tritonwatch.commands.{name}")
    return module


def entry_point() -> None:
    """Console script: 130 after Ctrl-C, 1 where the output could not be written."""
    _open_standard_streams()
    try:
        code = main()
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = 130
    except OSError as error:
        if not isinstance(error, BrokenPipeError) and error.errno != errno.ENOSPC:
            raise
        code = 1  # not 0, which would be a verdict
        # Nothing can be said there any more, nor at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if (
            error.errno == errno.ENOSPC
        ):  # whoever read us (`| head`) has had enough; of a full disk nobody knows
            print(f"tritonwatch: cannot write the output: {error.strerror}", file=sys.stderr)
    sys.exit(code)


def _open_standard_streams() -> None:
    """Give what was started without them (`>&-`) streams to nowhere: no file may get their numbers."""
    for stream in ("stdin", "stdout", "stderr"):
        if getattr(sys, stream) is None:
            # The lowest free number, which is the missing one, as long as they are taken in order.
            descriptor = os.open(os.devnull, os.O_RDWR)
            setattr(sys, stream, os.fdopen(descriptor, "r" if stream == "stdin" else "w", encoding="utf-8"))

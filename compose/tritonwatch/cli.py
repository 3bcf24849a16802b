"""The command line: run one verb, importing only what this verb needs, and for its help only its options."""

from __future__ import annotations

import argparse
import errno
import importlib
import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Protocol

from triton_exporter.common.installed_version import installed_version
from triton_exporter.common.printable import printable
from triton_exporter.common.problem import ProblemsError
from tritonwatch.parser import Parser, did_you_mean

VERBS: dict[str, str] = {
    "demo": "run a real Triton on this machine, with a model that fails and recovers, and the alerts about it",
    "exporter": "export metrics of one Triton for Prometheus",
    "doctor": "recommend Triton settings that expose more metrics",
    "init": "propose objectives for the models of a running Triton",
    "convert": "convert SLOs of Sloth or OpenSLO to objectives",
    "check": "validate objectives and alert settings, and the path of a page to the bridge",
    "generate": "write rules, Alertmanager configuration and dashboards from objectives",
    "reload": "generate rules and load them into a running Prometheus and Alertmanager; on any error, "
    "keep the old files",
    "dashboards": "list, write or push the Grafana dashboards",
    "status": "show the status and the error budget of every objective",
    "web": "serve web pages: status, error budgets, causes of failures, alert conditions and incidents",
    "gate": "decide whether to promote, hold or roll back a release",
    "advise": "say at what traffic each objective breaks, and which change of a configuration helps",
    "backtest": "replay past data and list the alerts that would have fired",
    "bridge": "store Alertmanager notifications and deliver them to Slack, one message per incident",
    "mcp": "serve the Model Context Protocol to AI assistants (read-only)",
    "incidents": "list the incidents of a bridge, or show one incident",
    "report": "report which objectives were met or missed in a month or quarter",
    "completion": "print the shell completion script for bash or zsh",
}
"""Verb -> what it does. Each has its options in a module of `tritonwatch.usage`, and its work in one of `tritonwatch.commands`."""


class Usage(Protocol):
    """A module of `tritonwatch.usage`."""

    EXAMPLE: str
    EXIT_CODES: Mapping[int, str]
    """Meaning of each exit code but 2, which is wrong usage in every verb."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the verb's arguments."""


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
        usage: Usage | None = importlib.import_module(f"tritonwatch.usage.{chosen}") if chosen else None
        args = _parsed(argv, chosen, usage)
        return 2 if usage is None else _run(usage, chosen, args)
    except ModuleNotFoundError as error:  # the sidecar image has only what `exporter` needs
        missing = f"the package {error.name!r} is not installed; try: pip install 'tritonwatch[all]'"
        print(f"tritonwatch {chosen}: {missing}", file=sys.stderr)
        return 2
    except SystemExit as stop:  # argparse exits: 0 after --help, 2 on wrong usage
        return stop.code if isinstance(stop.code, int) else 2


def _parsed(argv: Sequence[str], chosen: str, usage: Usage | None) -> argparse.Namespace:
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
    chosen_parser = _add_verbs(parser, chosen, usage)
    chosen_parser.end_help(usage.EXIT_CODES if usage else {0: "success", 1: "failed, or a problem was found"})
    chosen_parser.refuse_unknown(argv)
    args, unknown = parser.parse_known_args(argv)
    # argparse would name `tritonwatch --help`, which does not show what this verb takes.
    if unknown:
        chosen_parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    if usage is None:
        parser.print_help()
    return args


def _run(usage: Usage, name: str, args: argparse.Namespace) -> int:
    """Run a verb and return its exit code; the messages of an error go to standard error."""
    verb = importlib.import_module(f"tritonwatch.commands.{name}")
    try:
        if hasattr(usage, "OPTIONS"):
            from tritonwatch import project  # the exporter does without it

            project.fill(args, usage.OPTIONS)
        return int(verb.run(args))
    except ProblemsError as error:
        for problem in error.problems:
            lines = f"tritonwatch {name}: {problem}".split("\n")
            print("\n".join(map(printable, lines)), file=sys.stderr)
        return error.code


def _add_verbs(parser: Parser, chosen: str, usage: Usage | None) -> Parser:
    """Return the parser of the chosen verb, or `parser` itself without one; of the others, it lists the names."""
    subparsers = parser.add_subparsers(dest="verb", metavar="VERB")
    for name, summary in VERBS.items():
        if name != chosen or usage is None:
            subparsers.add_parser(name, help=summary)
            continue
        parser = subparsers.add_parser(
            name,
            help=summary,
            epilog=f"example: {usage.EXAMPLE}",
        )
        usage.configure(parser)
        if hasattr(usage, "OPTIONS"):
            from tritonwatch import project

            project.declare_project(parser)
    return parser


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

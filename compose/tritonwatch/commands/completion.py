"""`tritonwatch completion`: print what makes a shell complete verbs, options and file names."""

from __future__ import annotations

import argparse
import importlib
from contextlib import suppress

import shtab

from triton_exporter.common.options import adder
from tritonwatch.cli import VERBS
from tritonwatch.parser import Parser

EXAMPLE = "tritonwatch completion bash > ~/.local/share/bash-completion/completions/tritonwatch"
EXIT_CODES = {0: "printed"}

_COMPLETED = {"FILE": shtab.FILE, "DIR": shtab.DIRECTORY}
"""Name of a value in the help -> how a shell completes it."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the argument."""
    parser.description = "Print the shell completion script for commands, options and file names."
    adder(parser.add_argument)("shell", "the shell", choices=("bash", "zsh"))


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    whole = Parser(prog="tritonwatch")
    verbs = whole.add_subparsers(dest="verb", metavar="VERB")
    for name, summary in VERBS.items():
        parser = verbs.add_parser(name, help=summary)
        with suppress(ModuleNotFoundError):  # of an extra that is not installed: without its options
            importlib.import_module(f"tritonwatch.commands.{name}").configure(parser)
        for action in parser._actions:
            if action.metavar in _COMPLETED:
                action.complete = _COMPLETED[str(action.metavar)]  # type: ignore[attr-defined]  # shtab's own
    print(shtab.complete(whole, args.shell))
    return 0

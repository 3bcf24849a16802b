"""`tritonwatch completion`: print what makes a shell complete verbs, options and file names."""

from __future__ import annotations

import argparse

import shtab

from tritonwatch.parser import Parser
from tritonwatch.usage import VERBS

_COMPLETED = {"FILE": shtab.FILE, "DIR": shtab.DIRECTORY}
"""Name of a value in the help -> how a shell completes it."""


def run(args: argparse.Namespace) -> int:
    whole = Parser(prog="tritonwatch")
    verbs = whole.add_subparsers(dest="verb", metavar="VERB")
    for name, usage in VERBS.items():
        parser = verbs.add_parser(name, help=usage.summary)
        usage.configure(parser)
        for action in parser._actions:
            if action.metavar in _COMPLETED:
                action.complete = _COMPLETED[str(action.metavar)]  # type: ignore[attr-defined]  # shtab's own
    print(shtab.complete(whole, args.shell))
    return 0

"""Test the options in docs/slo-live.md against the code."""

from __future__ import annotations

import argparse
import importlib
import re

import pytest

from support.tools import ROOT

PAGE = (ROOT / "docs" / "slo-live.md").read_text(encoding="utf-8")
VERBS = ("status", "gate", "backtest", "init")


def options(verb: str) -> set[str]:
    """Options that a verb declares."""
    parser = argparse.ArgumentParser(add_help=False)
    importlib.import_module(f"tritonwatch.commands.{verb}").configure(parser)
    return {word for action in parser._actions for word in action.option_strings}


@pytest.mark.parametrize("verb", VERBS)
def test_every_option_is_explained(verb: str) -> None:
    """Every option is on the page."""
    assert [] == sorted(option for option in options(verb) if f"{option}" not in PAGE)


def test_no_option_is_made_up() -> None:
    """What the page names exists in one of the verbs, or is the exporter's, whose sources it explains."""
    known = set().union(*(options(verb) for verb in (*VERBS, "exporter")))

    assert [] == sorted(set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", PAGE)) - known)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_an_example_that_parses(verb: str) -> None:
    """The example of --help is a command that the verb takes."""
    module = importlib.import_module(f"tritonwatch.commands.{verb}")
    parser = argparse.ArgumentParser()
    module.configure(parser)

    tool, name, *words = module.EXAMPLE.split()
    assert ("tritonwatch", verb) == (tool, name)
    parser.parse_args(words)

"""The options of `tritonwatch completion`."""

from __future__ import annotations

import argparse

from triton_exporter.common.options import adder

EXAMPLE = "tritonwatch completion bash > ~/.local/share/bash-completion/completions/tritonwatch"
EXIT_CODES = {0: "printed"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the argument."""
    parser.description = "Print the shell completion script for commands, options and file names."
    adder(parser.add_argument)("shell", "the shell", choices=("bash", "zsh"))

"""The parser of every verb: no abbreviated options, mistakes in one line with what may have been meant."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from triton_exporter.common.nearest import nearest
from triton_exporter.common.printable import printable, without_secrets


class _Subcommands(argparse._SubParsersAction):  # type: ignore[type-arg]
    """Subcommands whose own help begins with the summary that the list of subcommands shows."""

    def add_parser(self, name: str, **kwargs: Any) -> Any:
        summary = kwargs.get("help", "")
        return super().add_parser(name, **{"description": f"{summary[:1].upper()}{summary[1:]}."} | kwargs)


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose mistakes take one line; `add_subparsers` makes more of its kind."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # An abbreviation would make a wrong `--slack-token xoxb-...` a secret on the command line.
        super().__init__(*args, **{"allow_abbrev": False} | kwargs)
        self.register("action", "parsers", _Subcommands)

    def error(self, message: str) -> NoReturn:
        """Exit with 2, after the mistake and where help is found; what is missing is shown in the example."""
        if message.startswith("the following arguments are required") and self.epilog:
            message += f", such as{self.epilog.removeprefix('example')}"
        self.exit(2, printable(without_secrets(f"{self.prog}: {message} (see {self.prog} --help)")) + "\n")

    def refuse_unknown(self, argv: Sequence[str]) -> None:
        """Exit with 2 if a word is not an option of this parser or of those below it; name the nearest one."""
        options = [word.partition("=")[0] for word in _before_the_end_of_options(argv)]
        if {"-h", "--help"} & set(options):
            return
        known = set(self._options())
        for option in options:
            if option.startswith("--") and option not in known:
                self.error(f"unknown option {option}{did_you_mean(option, known)}")
            # What follows the letter may be a secret, and argparse would print it with the next word.
            if re.match("-[a-zA-Z]", option) and option[:2] not in known:
                self.error(f"unknown option {option[:2]}")

    def _options(self) -> Iterable[str]:
        for action in self._actions:
            yield from action.option_strings
            if isinstance(action, argparse._SubParsersAction):
                for parser in action.choices.values():
                    yield from parser._options()


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a question with the nearest known words, or nothing where none is near."""
    near = nearest(word, known)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def _before_the_end_of_options(argv: Sequence[str]) -> Sequence[str]:
    return argv[: argv.index("--")] if "--" in argv else argv

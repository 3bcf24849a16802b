"""The parser of every verb: no abbreviated options, mistakes in one line with what may have been meant."""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from triton_exporter.common.options import OptionsModel
from triton_exporter.common.printable import printable, without_secrets
from triton_exporter.common.problem import nearest

_EXAMPLE = "example: "
_DURATIONS = "DURATION: a number with a unit, such as 30s, 5m, 12h or 7d"


class _Subcommands(argparse._SubParsersAction):  # type: ignore[type-arg]
    """Subcommands whose own help begins with the summary that the list of subcommands shows."""

    def add_parser(self, name: str, **kwargs: Any) -> Any:
        summary = kwargs.get("help")
        if not summary:
            raise TypeError(f"add_parser({name!r}) lacks help, the summary of the subcommand")
        return super().add_parser(name, **{"description": f"{summary[0].upper()}{summary[1:]}."} | kwargs)


class _HelpOfAll(argparse.Action):
    """Shows also the options that are rarely set."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        assert isinstance(parser, Parser)
        parser.rare.clear()
        parser.print_help()
        parser.exit()


class _HelpFormatter(argparse.HelpFormatter):
    """Wraps each line of the epilog on its own, but not an example, which is copied."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(
            line
            if line.startswith(_EXAMPLE)
            else textwrap.fill(line, width, subsequent_indent=" " * 7 if line.startswith(" ") else "")
            for line in text.splitlines()
        )


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose mistakes take one line; `add_subparsers` makes more of its kind."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # An abbreviation would make a wrong `--slack-token xoxb-...` a secret on the command line.
        own: dict[str, Any] = {"allow_abbrev": False, "formatter_class": _HelpFormatter}
        super().__init__(*args, **own | kwargs)
        self.register("action", "parsers", _Subcommands)
        self.rare: set[argparse.Action] = set()
        """Options that --help leaves out."""

    def format_help(self) -> str:
        """Return the help, without the options that are rarely set."""
        texts = {action: action.help for action in self.rare}
        try:
            for action in texts:
                action.help = argparse.SUPPRESS
            return super().format_help()
        finally:
            for action, text in texts.items():
                action.help = text

    def end_help(self, exit_codes: Mapping[int, str]) -> None:
        """End the help of this parser and of those below it: example, form of durations, exit codes."""
        codes = sorted({**exit_codes, 2: "wrong usage, nothing was done"}.items())
        for parser in self._with_subparsers():
            if parser.rare:
                parser.add_argument(
                    "--help-all", nargs=0, action=_HelpOfAll, help="show also rarely set options"
                )
            lines = [parser.epilog] if parser.epilog else []
            if any(action.metavar == "DURATION" for action in parser._actions):
                lines.append(_DURATIONS)
            parser.epilog = "\n".join(
                (*lines, "exit codes:", *(f"{code:>5}  {text}" for code, text in codes))
            )

    def error(self, message: str) -> NoReturn:
        """Exit with 2, after the mistake and where help is found; what is missing is shown in the example."""
        if message.startswith("the following arguments are required") and self.epilog:
            message += f", such as: {self.epilog.splitlines()[0].removeprefix(_EXAMPLE)}"
        self.exit(2, printable(without_secrets(f"{self.prog}: {message} (see {self.prog} --help)")) + "\n")

    def refuse_unknown(self, argv: Sequence[str]) -> None:
        """Exit with 2 if a word is not an option of this parser or of those below it; name the nearest one."""
        words = argv[: argv.index("--")] if "--" in argv else argv
        options = [word.partition("=")[0] for word in words]
        if {"-h", "--help", "--help-all"} & set(options):
            return
        actions = [action for parser in self._with_subparsers() for action in parser._actions]
        known = {option for action in actions for option in action.option_strings}
        for option in options:
            if option.startswith("--") and option not in known:
                self.error(f"unknown option {option}{did_you_mean(option, known)}")
            # What follows the letter may be a secret, and argparse would print it with the next word.
            if re.match("-[a-zA-Z]", option) and option[:2] not in known:
                self.error(f"unknown option {option[:2]}")

    def _with_subparsers(self) -> Iterator[Parser]:
        yield self
        for action in self._actions:
            if isinstance(action, _Subcommands):
                for parser in action.choices.values():
                    yield from parser._with_subparsers()


def declare(parser: argparse.ArgumentParser, model: type[OptionsModel], names: Iterable[str] = ()) -> None:
    """Add the options of a class, or some of them.

    None has a default there: it would hide the other sources, and an option that was given before a subcommand.
    """
    groups: dict[str, argparse._ArgumentGroup] = {}
    for option in model.options().values():
        if names and option.name not in names:
            continue
        if option.group not in groups:
            groups[option.group] = parser.add_argument_group(option.group or None)
        how: dict[str, Any] = {"action": "store_const", "const": "true"}
        if not option.form.switch:
            action = "append" if option.form.repeated else "store"
            how = {"action": action, "metavar": option.form.metavar}
        add = (groups[option.group] if option.group else parser).add_argument
        added = add(option.flag, help=option.help, default=argparse.SUPPRESS, **how)
        if option.rare and isinstance(parser, Parser):
            parser.rare.add(added)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a question with the nearest known words, or nothing where none is near."""
    near = nearest(word, known)
    return f"; did you mean {' or '.join(near)}?" if near else ""

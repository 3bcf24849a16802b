"""Ask a verb as its command line would, and give its JSON with its age and everything that limits it.

Whatever cannot be answered is an AskError: an assistant never gets an empty answer that reads as if all were well.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Protocol, TypeVar

from triton_alerts.bridge.incidents.history import last_written
from triton_exporter.duration import in_words
from triton_exporter.printable import printable
from triton_slo.verdict import gate_queries
from tritonwatch import access
from tritonwatch.assistants import limitations
from tritonwatch.command_error import CommandError
from tritonwatch.parser import Parser
from tritonwatch.tables.answer import JsonAnswer

T = TypeVar("T")

STALE_SECONDS = 300.0
"""Older data say little about now: `gate` holds from the same age on."""


class AskError(Exception):
    """A question that has no answer; the message is for the assistant."""


class AnsweringVerb(Protocol):
    """A module of `tritonwatch.commands` that can give its JSON as a value."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declare the verb's arguments."""

    def answer(self, args: argparse.Namespace) -> JsonAnswer:
        """Return what `--json` writes. Raises CommandError."""


class _QuestionParser(Parser):
    def error(self, message: str) -> NoReturn:
        raise AskError(message)


@dataclass(frozen=True)
class Asking:
    """Verbs, and the options with which the server of assistants was started."""

    verbs: Mapping[str, AnsweringVerb]
    given: argparse.Namespace

    def status(self, words: Sequence[str]) -> dict[str, Any]:
        """Ask for the status of the objectives."""
        args, answer = self._ask("status", [*words, *self._objectives()])
        return _limited(
            "status", answer, self._polled(args), limitations.of_status(answer.document), now=True
        )

    def gate(self, words: Sequence[str]) -> dict[str, Any]:
        """Ask whether a release may be promoted."""
        args, answer = self._ask("gate", [*words, *self._objectives()])
        return _limited("gate", answer, self._polled(args), limitations.of_gate(answer.document), now=True)

    def backtest(self, words: Sequence[str]) -> dict[str, Any]:
        """Ask which alerts a history would have raised."""
        interval = f"--scrape-interval={self.given.scrape_interval}"
        _, answer = self._ask("backtest", [*words, interval, *self._objectives()])
        age = time.time() - answer.document["end"]
        return _limited("backtest", answer, age, limitations.of_backtest(answer.document))

    def incidents(self, words: Sequence[str]) -> dict[str, Any]:
        """Ask for the incidents that the bridge recorded."""
        data: Path | None = self.given.bridge_data
        if data is None:
            raise AskError("this server was started without --bridge-data, so incidents are not known")
        _, answer = self._ask("incidents", [*words, f"--data={data}"], prometheus=False)
        written = last_written(data)
        age = None if written is None else time.time() - written
        return _limited("incidents", answer, age, [], now=True)

    def report(self, words: Sequence[str]) -> dict[str, Any]:
        """Ask which objectives were met in a month or quarter."""
        data = [f"--bridge-data={self.given.bridge_data}"] if self.given.bridge_data else []
        _, answer = self._ask("report", [*words, *data, *self._objectives()])
        age = answer.document["at"] - limitations.newest_record(answer.document)
        return _limited("report", answer, age, limitations.of_report(answer.document))

    def _objectives(self) -> list[str]:
        return [f"--objectives={self.given.objectives}"] if self.given.objectives else []

    def _ask(
        self, name: str, words: Sequence[str], *, prometheus: bool = True
    ) -> tuple[argparse.Namespace, JsonAnswer]:
        verb = self.verbs[name]
        parser = _QuestionParser(prog=name)
        verb.configure(parser)
        args = parser.parse_args([*words, f"--prometheus={self.given.prometheus}"] if prometheus else words)
        if prometheus:
            for option in _access_options():
                setattr(args, option, getattr(self.given, option))
        answer = _answered(lambda: verb.answer(args))
        if answer.document is None:
            raise AskError("; ".join(answer.messages) or "nothing is known")
        return args, answer

    def _polled(self, args: argparse.Namespace) -> float | None:
        """Return how long ago the exporter that was polled longest ago was polled."""

        def asked() -> float | None:
            with access.connect(args) as prometheus:
                return gate_queries.ages(prometheus, args.at).overall

        return _answered(asked)


def _answered(question: Callable[[], T]) -> T:
    try:
        return question()
    except CommandError as error:
        raise AskError("; ".join(map(printable, error.messages))) from error


def _access_options() -> list[str]:
    parser = argparse.ArgumentParser(add_help=False)
    access.add_arguments(parser, required=False)
    return list(vars(parser.parse_args([])))


def _limited(
    verb: str, answer: JsonAnswer, age: float | None, more: Sequence[str], *, now: bool = False
) -> dict[str, Any]:
    """Return an answer with its age and its limitations; `now`: it is about now, so old data are a limitation."""
    all_limitations = [*answer.messages, *more]
    if age is None:
        all_limitations.append("the age of the data is not known")
    elif now and age > STALE_SECONDS:
        all_limitations.append(f"the data are {in_words(age)} old")
    return {
        "verb": verb,
        "asked_at": time.time(),
        "data_age_seconds": age,
        "sure": not all_limitations,
        "doubts": all_limitations,
        "answer": answer.document,
    }

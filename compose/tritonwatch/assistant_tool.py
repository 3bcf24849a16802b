"""Ask a verb as its command line would, and give its JSON with its age and everything that limits it.

Whatever cannot be answered is an AskError: an assistant never gets an empty answer that reads as if all were well.
"""

from __future__ import annotations

import argparse
import importlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from triton_exporter.common.duration import in_words
from triton_exporter.common.printable import printable
from triton_exporter.common.problem import ProblemsError
from triton_slo import gate
from tritonwatch import access
from tritonwatch.parser import Parser
from tritonwatch.project import PrometheusAccess, fill
from tritonwatch.usage import VERBS

STALE_SECONDS = 300.0
"""Older data do not show the present: `gate` returns `hold` from the same age on."""


class AskError(Exception):
    """A question that has no answer; the message is for the assistant."""


@dataclass(frozen=True)
class AssistantTool:
    """A verb that assistants can ask, and what limits its answer.

    The parameters of `options` are the arguments of the tool; it returns the options of the verb. `fixed` are those
    that an assistant cannot choose, each with the argument of the server that has its value; without the one in
    `needs` nothing is known. `age` is that of the data in seconds, of the verb's arguments and its JSON; None: not
    known. `about_now`: old data are a limitation.
    """

    name: str
    description: str
    options: Callable[..., dict[str, Any]]
    fixed: Mapping[str, str]
    age: Callable[[argparse.Namespace, Any], float | None]
    limitations: Callable[[Any], list[str]]
    about_now: bool = False
    needs: str = ""


class _QuestionParser(Parser):
    def error(self, message: str) -> NoReturn:
        raise AskError(message)


def ask(tool: AssistantTool, given: argparse.Namespace, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer of a verb; `given` are the options with which the server was started. Raises AskError."""
    args = _parsed(tool, given, options)
    try:
        # What its --json writes, and messages beside it.
        document, messages = importlib.import_module(f"tritonwatch.commands.{tool.name}").answer(args)
        if document is None:
            raise AskError("; ".join(messages) or "nothing is known")
        age = tool.age(args, document)
    except ProblemsError as error:
        raise AskError("; ".join(map(printable, map(str, error.problems)))) from error
    limitations = [*messages, *tool.limitations(document)]
    if age is None:
        limitations.append("the age of the data is not known")
    elif tool.about_now and age > STALE_SECONDS:
        limitations.append(f"the data are {in_words(age)} old")
    return {
        "verb": tool.name,
        "asked_at": time.time(),
        "data_age_seconds": age,
        "sure": not limitations,
        "doubts": limitations,
        "answer": document,
    }


def polled_ago(args: argparse.Namespace, _document: Any) -> float | None:
    """Return how long ago the exporter that was polled longest ago was polled. Raises ProblemsError."""
    with access.connect(args) as prometheus:
        return gate.read_ages(prometheus, args.at).overall


def _parsed(tool: AssistantTool, given: argparse.Namespace, options: Mapping[str, Any]) -> argparse.Namespace:
    if tool.needs and getattr(given, tool.needs, None) is None:
        flag = f"--{tool.needs.replace('_', '-')}"
        raise AskError(f"this server was started without {flag}, so {tool.name} are not known")
    values = {
        **options,
        **{option: getattr(given, argument, None) for option, argument in tool.fixed.items()},
    }
    parser = _QuestionParser(prog=tool.name)
    usage = VERBS[tool.name]
    usage.configure(parser)
    args = parser.parse_args(
        [
            f"--{option}={value}"
            for option, chosen in values.items()
            for value in (chosen if isinstance(chosen, list) else [chosen])
            if value is not None
        ]
    )
    if "prometheus" in tool.fixed:
        for option in PrometheusAccess.options():
            if option in given:
                setattr(args, option, getattr(given, option))
    assert usage.options is not None
    fill(args, usage.options)
    return args

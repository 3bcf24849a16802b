"""YAML whose values know their lines, so that every mistake in a file is reported with its place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import yaml

from triton_exporter.common.problem import Problem
from triton_exporter.common.yaml_files import FAST_LOADER, YAML_FAULTS, written_twice
from triton_slo import problem_words

_MAX_CHARACTERS = 4_000_000
"""Largest file that is read, in characters."""
TEXT_FIX = "put it in quotes if it is meant as text"


def documents(file: str, text: str) -> Iterator[yaml.Node | Problem]:
    """Yield every document of a file, or why it has none that can be read; nothing for a file without content."""
    if len(text) > _MAX_CHARACTERS:
        yield Problem(file, f"larger than {_MAX_CHARACTERS} characters", "split it into several files")
        return
    try:
        yield from list(yaml.compose_all(text, Loader=FAST_LOADER))
    except YAML_FAULTS as error:
        yield _yaml_problem(file, error)


def content(file: str, node: yaml.Node) -> tuple[Any, list[Problem]]:
    """Return the value of a node, None if it cannot be read, and what is wrong with it as YAML."""
    problems = list(duplicate_keys(file, node))
    loader = _Constructor("")
    try:
        return loader.construct_document(node), problems
    except yaml.MarkedYAMLError as error:
        problems.append(_yaml_problem(file, error))
    except YAML_FAULTS:
        wrong, reason = problem_words.unreadable(node)
        problems.append(Problem(f"{file}:{wrong.start_mark.line + 1}", reason, TEXT_FIX))
    finally:
        loader.dispose()
    return None, problems


def line_of(node: yaml.Node, steps: Sequence[Any]) -> int:
    """Return the line of the value at the end of these keys and indexes; of their parent, if absent."""
    line = node.start_mark.line + 1
    for step in steps:
        if isinstance(node, yaml.MappingNode):
            pair = next(((k, v) for k, v in node.value if k.value == step), None)
            if pair is None:
                return line
            line, node = pair[0].start_mark.line + 1, pair[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            node = node.value[step]
            line = node.start_mark.line + 1
        else:
            return line
    return line


def duplicate_keys(file: str, node: yaml.Node) -> Iterator[Problem]:
    """Yield problems for keys that YAML would let win over earlier ones in silence."""
    pending, seen_nodes = [node], set()
    while pending:
        current = pending.pop()
        if id(current) in seen_nodes:
            continue
        seen_nodes.add(id(current))
        if isinstance(current, yaml.SequenceNode):
            pending += current.value
        elif isinstance(current, yaml.MappingNode):
            for line, words in written_twice(current):
                yield Problem(f"{file}:{line}", words, "remove one")
            pending += [value for _, value in current.value]


def _yaml_problem(file: str, error: Exception) -> Problem:
    mark = getattr(error, "problem_mark", None)
    place = file if mark is None else f"{file}:{mark.line + 1}"
    reason = f"not YAML: {problem_words.yaml_reason(error)}"
    return Problem(place, reason, "check indentation, quotes and colons near this line")


class _Constructor(yaml.SafeLoader):
    """Keeps 22:00 as text: YAML 1.1 takes it for the number 1320 in base sixty."""

    def construct_yaml_int(self, node: yaml.ScalarNode) -> Any:
        """Read a whole number, or a time of the day as text."""
        return node.value if ":" in node.value else super().construct_yaml_int(node)


_Constructor.add_constructor("tag:yaml.org,2002:int", _Constructor.construct_yaml_int)

"""YAML text in, objectives and mistakes out, each mistake with its file and line.

A file holds one objective, several documents, or one mapping with the list `objectives`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml
from pydantic import ValidationError

from triton_exporter.yaml_faults import YAML_FAULTS
from triton_slo import mistake
from triton_slo.indicators import KINDS
from triton_slo.objective.model import Objective
from triton_slo.problem import Problem

Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml where it is there."""
MAX_CHARACTERS = 4_000_000
"""Of one file."""


@dataclass(frozen=True, slots=True)
class ParsedObjectives:
    """Objectives found, where each stands (`file:line`), and what is wrong."""

    objectives: tuple[Objective, ...]
    places: Mapping[str, str]
    problems: tuple[Problem, ...]
    nodes: Mapping[str, yaml.Node] = field(default_factory=dict)

    def place(self, name: str, path: str) -> str:
        """`file:line` of a field (`indicator.total`) of an objective; of what it would stand in, if absent."""
        node = self.nodes[name]
        steps = [int(step) if step.isdigit() else step for step in path.split(".")]
        return f"{self.places[name].rpartition(':')[0]}:{_line(node, steps)}"


def read(texts: Iterable[tuple[str, str]]) -> ParsedObjectives:
    """Parse (file name, text) pairs; finds all mistakes of all files, duplicate names among them."""
    objectives: list[Objective] = []
    places: dict[str, str] = {}
    problems: list[Problem] = []
    nodes: dict[str, yaml.Node] = {}
    for file, text in texts:
        for place, node, outcome in _read_file(file, text):
            if isinstance(outcome, Problem):
                problems.append(outcome)
            elif outcome.name in places:
                reason = f"the name {outcome.name!r} is taken by {places[outcome.name]}"
                problems.append(Problem(place, reason, "give each objective its own name"))
            else:
                places[outcome.name] = place
                if node is not None:
                    nodes[outcome.name] = node
                objectives.append(outcome)
    return ParsedObjectives(tuple(objectives), places, tuple(problems), nodes)


def _read_file(file: str, text: str) -> Iterator[tuple[str, yaml.Node | None, Objective | Problem]]:
    if len(text) > MAX_CHARACTERS:
        yield (
            file,
            None,
            Problem(file, f"larger than {MAX_CHARACTERS} characters", "split it into several files"),
        )
        return
    try:
        nodes = list(yaml.compose_all(text, Loader=Loader))
    except YAML_FAULTS as error:
        yield file, None, yaml_problem(file, error)
        return
    if not nodes:
        yield file, None, Problem(file, "holds no objective", "write one, or see slo/objectives for examples")
    for node in nodes:
        for one in _objective_nodes(node):
            place = f"{file}:{one.start_mark.line + 1}"
            for outcome in _parse(file, one):
                yield place, one, outcome


def yaml_problem(file: str, error: Exception) -> Problem:
    """What a YAML parser said, with its line."""
    mark = getattr(error, "problem_mark", None)
    place = file if mark is None else f"{file}:{mark.line + 1}"
    reason = f"not YAML: {mistake.yaml_reason(error)}"
    return Problem(place, reason, "check indentation, quotes and colons near this line")


def _objective_nodes(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode) and len(node.value) == 1:
        key, value = node.value[0]
        if key.value == "objectives" and isinstance(value, yaml.SequenceNode):
            return list(value.value)
    return [node]


def _parse(file: str, node: yaml.Node) -> Iterator[Objective | Problem]:
    problems = list(duplicate_keys(file, node))
    try:
        data = _construct(node)
    except yaml.MarkedYAMLError as error:
        yield from problems
        yield yaml_problem(file, error)
        return
    except YAML_FAULTS:
        wrong, reason = mistake.unreadable(node)
        yield from problems
        yield Problem(f"{file}:{wrong.start_mark.line + 1}", reason, _TEXT_FIX)
        return
    if not isinstance(data, dict):
        reason = f"an objective is a mapping of fields, this is {mistake.shown(data)}"
        yield Problem(f"{file}:{node.start_mark.line + 1}", reason, "start with `name: ...`")
        return
    try:
        objective = Objective.model_validate(data)
    except ValidationError as error:
        problems += [_problem(file, node, detail) for detail in mistake.without_consequences(error.errors())]
    except RecursionError:
        problems.append(Problem(f"{file}:{node.start_mark.line + 1}", "nested too deeply"))
    else:
        if not problems:
            yield objective
    yield from problems


class _Constructor(yaml.SafeLoader):
    """Keeps 22:00 as text: YAML 1.1 takes it for the number 1320 in base sixty."""

    def construct_yaml_int(self, node: yaml.ScalarNode) -> Any:
        """Read a whole number, or a time of the day as text."""
        return node.value if ":" in node.value else super().construct_yaml_int(node)


_Constructor.add_constructor("tag:yaml.org,2002:int", _Constructor.construct_yaml_int)


def _construct(node: yaml.Node) -> Any:
    loader = _Constructor("")
    try:
        return loader.construct_document(node)
    finally:
        loader.dispose()


def duplicate_keys(file: str, node: yaml.Node) -> Iterator[Problem]:
    """Keys that YAML would let win over earlier ones in silence."""
    pending, seen_nodes = [node], set()
    while pending:
        current = pending.pop()
        if id(current) in seen_nodes:
            continue
        seen_nodes.add(id(current))
        if isinstance(current, yaml.SequenceNode):
            pending += current.value
        elif isinstance(current, yaml.MappingNode):
            seen: set[str] = set()
            for key, value in current.value:
                if isinstance(key, yaml.ScalarNode) and key.value in seen:
                    yield Problem(
                        f"{file}:{key.start_mark.line + 1}",
                        f"the key {key.value!r} is written twice; YAML would keep only the last",
                        "remove one",
                    )
                seen.add(str(key.value))
                pending.append(value)


_FIXES = {
    "extra_forbidden": "see docs/objectives.md for the fields",
    "missing": "add it",
    "union_tag_invalid": "use readiness, latency, queue, first_response, errors, probe or custom",
}
_WINDOW_FIX = "write a rolling window such as 30d, or week, month or quarter"
_FIELD_FIXES = {
    "name": "use small letters, digits and dashes, at most 63",
    "window": _WINDOW_FIX,
    "window.rolling": _WINDOW_FIX,
    "window.calendar": _WINDOW_FIX,
    "window.timezone": "write a name such as Europe/Berlin, or leave it out for UTC",
    "indicator": "write `errors`, or a mapping such as {kind: latency, threshold: 1s}",
    "alerting": "write a mapping such as {min_failures: 10}, or leave it out",
    "alerting.tiers.name": "use small letters, digits and _, at most 41, a letter first",
    "unknown": "write a mapping such as {policy: ignore}, or leave it out",
    "exclusions": "write a list of {reason: ..., start: ..., end: ...}",
    "overrides": "write a list of {models: [...], target: ...}",
    "labels": "write a mapping such as {team: search}",
    "annotations": "write a mapping such as {wiki: https://...}",
    "exclusions.days": "list days such as [saturday, sunday], or write `days: all`",
    "exclusions.start": "write 22:00, or a moment such as 2026-12-24T20:00Z",
    "exclusions.end": "write 02:00, or a moment such as 2026-12-25T02:00Z",
}
"""By the field's path without numbers."""
_TEXT_FIX = "put it in quotes if it is meant as text"
_UNION_STEPS = frozenset({"rolling", "calendar", *KINDS})


def _problem(file: str, node: yaml.Node, detail: Any) -> Problem:
    steps = [
        step
        for index, step in enumerate(detail["loc"])
        if not _is_union_step(detail["loc"], index) and step != "[key]"
    ]
    field = ".".join(str(step) for step in steps)
    named = ".".join(step for step in steps if isinstance(step, str))
    reason = mistake.reason(detail)
    fix = _fix(detail["type"], named)
    return Problem(f"{file}:{_line(node, steps)}", f"{field}: {reason}" if field else reason, fix)


def _fix(kind: str, field: str) -> str:
    if kind in _FIXES:
        return _FIXES[kind]
    if kind == "value_error" and field != "window.rolling":
        return ""  # our own validators name the fix in their reason
    if kind == "string_type" and field in ("name", "alerting.tiers.name"):
        return _TEXT_FIX
    return _FIELD_FIXES.get(field, _TEXT_FIX if kind == "string_type" else "")


def _is_union_step(loc: tuple[Any, ...], index: int) -> bool:
    """Pydantic puts the name of the union's branch into the path; users wrote no such key."""
    step = loc[index]
    if not isinstance(step, str):
        return False
    return index > 0 and step in _UNION_STEPS and loc[index - 1] in ("window", "indicator")


def _line(node: yaml.Node, steps: list[Any]) -> int:
    line = node.start_mark.line + 1
    for step in steps:
        if isinstance(node, yaml.MappingNode):
            found = next(((k, v) for k, v in node.value if k.value == step), None)
            if found is None:
                return line
            line, node = found[0].start_mark.line + 1, found[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            node = node.value[step]
            line = node.start_mark.line + 1
        else:
            return line
    return line

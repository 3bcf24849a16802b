"""YAML text in, objectives and mistakes out, each mistake with its file and line; and the JSON schema of the files.

A file has one objective, several documents, or one mapping with the list `objectives`. `python -m` prints the schema.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from triton_exporter.common.problem import Problem, by_line
from triton_slo import problem_words
from triton_slo.fields import Choice
from triton_slo.indicators import KINDS
from triton_slo.objective.exclusion import Exclusion
from triton_slo.objective.model import Alerting, CalendarWindow, Objective, Override, Rolling, Tier
from triton_slo.yaml_text import TEXT_FIX, content, documents, line_of


@dataclass(frozen=True, slots=True)
class ParsedObjectives:
    """Objectives found, the place of each (`file:line`), and what is wrong."""

    objectives: tuple[Objective, ...]
    places: Mapping[str, str]
    problems: tuple[Problem, ...]
    nodes: Mapping[str, yaml.Node] = field(default_factory=dict)

    def place(self, name: str, path: str) -> str:
        """Return `file:line` of a field (`indicator.total`) of an objective; of its parent, if absent."""
        node = self.nodes[name]
        steps = [int(step) if step.isdigit() else step for step in path.split(".")]
        return f"{self.places[name].rpartition(':')[0]}:{line_of(node, steps)}"


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
    return ParsedObjectives(tuple(objectives), places, tuple(by_line(problems)), nodes)


def _read_file(file: str, text: str) -> Iterator[tuple[str, yaml.Node | None, Objective | Problem]]:
    nodes = list(documents(file, text))
    if not nodes:
        yield (
            file,
            None,
            Problem(file, "contains no objective", "write one, or see slo/objectives for examples"),
        )
    for node in nodes:
        if isinstance(node, Problem):
            yield file, None, node
            continue
        for part in _objective_nodes(node):
            place = f"{file}:{part.start_mark.line + 1}"
            for outcome in _parse(file, part):
                yield place, part, outcome


def _objective_nodes(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode) and len(node.value) == 1:
        key, value = node.value[0]
        if key.value == "objectives" and isinstance(value, yaml.SequenceNode):
            return list(value.value)
    return [node]


def _parse(file: str, node: yaml.Node) -> Iterator[Objective | Problem]:
    data, problems = content(file, node)
    if data is None and problems:
        yield from problems
        return
    if not isinstance(data, dict):
        reason = f"an objective is a mapping of fields, this is {problem_words.as_written(data)}"
        yield Problem(f"{file}:{node.start_mark.line + 1}", reason, "start with `name: ...`")
        return
    try:
        objective, details = _validated(data)
    except RecursionError:
        problems.append(Problem(f"{file}:{node.start_mark.line + 1}", "nested too deeply"))
    else:
        problems += [_problem(file, node, detail) for detail in problem_words.without_consequences(details)]
        if objective is not None and not problems:
            yield objective
    yield from problems


def _validated(data: Mapping[str, Any]) -> tuple[Objective | None, Sequence[Mapping[str, Any]]]:
    """Return the objective, or None and what pydantic finds wrong: of fields, and between the valid fields."""
    try:
        return Objective.model_validate(data), ()
    except ValidationError as error:
        details = error.errors()
    wrong = {detail["loc"][0] for detail in details if detail["loc"]}
    if not wrong or wrong & _DECISIVE:
        return None, details
    # pydantic compares fields only if each of them is valid, so the wrong ones are left out or replaced.
    valid = {key: value for key, value in data.items() if key not in wrong}
    try:
        Objective.model_validate({**_STAND_INS, **valid})
    except ValidationError as error:
        details += [detail for detail in error.errors() if not detail["loc"]]
    return None, details


_DECISIVE = frozenset({"indicator", "group_by", "versions"})
"""Fields without which it is not known whether the others contradict each other."""
_STAND_INS = {"name": "unnamed", "target": "99%"}
"""Values of required fields that no other field is compared with."""
_FIXES = {
    "extra_forbidden": "see docs/objectives.md for the fields",
    "missing": "add it",
    "literal_error": "write one of these, in quotes where YAML would read it as true or false",
    "union_tag_invalid": f"use one of {', '.join(KINDS)}",
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
    "exclusions": "write a list of {reason: ..., start: ..., end: ...}",
    "overrides": "write a list of {models: [...], target: ...}",
    "labels": "write a mapping such as {team: search}",
    "annotations": "write a mapping such as {wiki: https://...}",
    "exclusions.days": "list days such as [saturday, sunday], or write `days: all`",
    "exclusions.start": "write 22:00, or a moment such as 2026-12-24T20:00Z",
    "exclusions.end": "write 02:00, or a moment such as 2026-12-25T02:00Z",
}
"""Fixes by the path of the field, without numbers."""
_UNION_STEPS = frozenset({"rolling", "calendar", *KINDS})


def _problem(file: str, node: yaml.Node, detail: Any) -> Problem:
    steps = [
        step
        for index, step in enumerate(detail["loc"])
        if not _is_union_step(detail["loc"], index) and step != "[key]"
    ]
    field_path = ".".join(str(step) for step in steps)
    named = ".".join(step for step in steps if isinstance(step, str))
    meant = _meant(detail, tuple(step for step in steps if isinstance(step, str)))
    reason, fix = problem_words.with_fix(problem_words.reason(detail), meant or _fix(detail["type"], named))
    return Problem(f"{file}:{line_of(node, steps)}", f"{field_path}: {reason}" if field_path else reason, fix)


_FORMS: Mapping[tuple[str, ...], tuple[type[BaseModel], ...]] = {
    (): (Objective,),
    ("window",): (Rolling, CalendarWindow),
    ("models",): (Choice,),
    ("versions",): (Choice,),
    ("overrides",): (Override,),
    ("overrides", "models"): (Choice,),
    ("overrides", "versions"): (Choice,),
    ("alerting",): (Alerting,),
    ("alerting", "tiers"): (Tier,),
    ("exclusions",): (Exclusion,),
}
"""Path in an objective -> the classes that have its fields; those of the indicator depend on its kind."""


def _meant(detail: Any, steps: tuple[str, ...]) -> str:
    """Return a question with the field, kind or word that may be meant; nothing where none is near."""
    if detail["type"] == "literal_error" and isinstance(detail["input"], str):
        return problem_words.nearest_as_fix(detail["input"], problem_words.expected_words(detail["ctx"]))
    if detail["type"] == "union_tag_invalid":
        return problem_words.nearest_as_fix(str(detail["input"].get("kind")), KINDS)
    if detail["type"] != "extra_forbidden":
        return ""
    forms = _FORMS.get(steps[:-1], ())
    if steps[:-1] == ("indicator",):
        forms = (KINDS[detail["loc"][1]],)
    return problem_words.nearest_as_fix(steps[-1], [name for form in forms for name in form.model_fields])


def _fix(kind: str, named: str) -> str:
    if kind in _FIXES:
        return _FIXES[kind]
    if kind == "value_error" and named != "window.rolling":
        return ""  # our own validators name the fix in their reason
    if kind == "string_type" and named in ("name", "alerting.tiers.name"):
        return TEXT_FIX
    return _FIELD_FIXES.get(named, TEXT_FIX if kind == "string_type" else "")


def _is_union_step(loc: tuple[Any, ...], index: int) -> bool:
    """Return whether a step is a union's branch, which pydantic puts into the path: users wrote no such key."""
    step = loc[index]
    if not isinstance(step, str):
        return False
    return index > 0 and step in _UNION_STEPS and loc[index - 1] in ("window", "indicator")


FILE = "objective.schema.json"


def schema() -> str:
    """Return the schema of a file that has one objective, or several under `objectives`."""
    objective = Objective.model_json_schema()
    definitions = objective.pop("$defs")
    several = {
        "type": "object",
        "required": ["objectives"],
        "additionalProperties": False,
        "properties": {"objectives": {"type": "array", "items": {"$ref": "#/$defs/Objective"}}},
    }
    document = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "tritonwatch objectives",
        "anyOf": [{"$ref": "#/$defs/Objective"}, several],
        "$defs": {**definitions, "Objective": objective},
    }
    return json.dumps(document, indent=2, sort_keys=True) + "\n"


if __name__ == "__main__":
    sys.stdout.write(schema())

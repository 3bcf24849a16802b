"""What both formats share: YAML as written, findings, and the parts of objectives.

Every value of a file is an `Entry` with its file, line and path, and whether it was read. What was not read when a
conversion ends was not understood, and is reported: nothing is dropped in silence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml
from pydantic import ValidationError

from triton_exporter.common.problem import Problem
from triton_slo import problem_words, yaml_text
from triton_slo.objective.model import RESERVED_LABELS, Objective
from triton_slo.yaml_text import duplicate_keys

_MERGE = "tag:yaml.org,2002:merge"
_FLAGS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


class EntryError(ValueError):
    """A value is not what its field takes; carries the entry."""

    def __init__(self, entry: Entry, reason: str) -> None:
        super().__init__(reason)
        self.entry = entry


class Entry:
    """One value of a YAML file. Children are made when asked for, so an alias costs nothing until it is read."""

    def __init__(self, file: str, node: yaml.Node, path: str = "", line: int | None = None) -> None:
        self.file, self.node, self.path = file, node, path
        self.line = line or node.start_mark.line + 1
        self._read = False
        self._children: dict[str, Entry] | None = None

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}"

    def get(self, key: str) -> Entry | None:
        """Return a field, or None where it is absent or empty. Raises EntryError on what is not a mapping."""
        member = self.fields().get(key)
        if member is None or member.is_empty:
            if member is not None:
                member.skip()
            return None
        return member

    def need(self, key: str) -> Entry:
        """Return a field that must be there. Raises EntryError."""
        member = self.get(key)
        if member is None:
            raise EntryError(self, f"the required field {key} is missing")
        return member

    def fields(self) -> dict[str, Entry]:
        """Return all fields of a mapping. Raises EntryError on anything else."""
        if not isinstance(self.node, yaml.MappingNode):
            raise EntryError(self, f"this should be a mapping, and is {self._kind()}")
        self._read = True
        if self._children is None:
            self._children = {
                key: Entry(self.file, value, f"{self.path}.{key}" if self.path else key, line)
                for key, (line, value) in _pairs(self.node, {}).items()
            }
        return self._children

    def mapping(self, key: str) -> dict[str, Entry]:
        """Return all fields of a mapping in a field; none where it is absent or empty. Raises EntryError."""
        member = self.get(key)
        return {} if member is None else member.fields()

    def items(self) -> list[Entry]:
        """Return all items of a list. Raises EntryError on anything else."""
        if not isinstance(self.node, yaml.SequenceNode):
            raise EntryError(self, f"this should be a list, and is {self._kind()}")
        self._read = True
        if self._children is None:
            self._children = {
                str(index): Entry(self.file, value, f"{self.path}[{index}]")
                for index, value in enumerate(self.node.value)
            }
        return list(self._children.values())

    def text(self) -> str:
        """Return a scalar as written. Raises EntryError on anything else."""
        if not isinstance(self.node, yaml.ScalarNode):
            raise EntryError(self, f"this should be a text, and is {self._kind()}")
        self._read = True
        return str(self.node.value)

    def number(self) -> float:
        """Return a finite number. Raises EntryError on anything else."""
        text = self.text()
        try:
            value = float(text.replace("_", ""))
        except ValueError:
            value = float("nan")
        if not abs(value) < float("inf"):
            raise EntryError(self, f"this should be a number, and is {text[:80]!r}")
        return value

    def flag(self) -> bool:
        """Return true or false. Raises EntryError on anything else."""
        text = self.text()
        if text.lower() not in _FLAGS:
            raise EntryError(self, f"this should be true or false, and is {text[:80]!r}")
        return _FLAGS[text.lower()]

    @property
    def is_empty(self) -> bool:
        """True if the entry is empty or `null`."""
        return isinstance(self.node, yaml.ScalarNode) and self.node.tag == "tag:yaml.org,2002:null"

    @property
    def is_list(self) -> bool:
        return isinstance(self.node, yaml.SequenceNode)

    def skip(self) -> None:
        """Count this value as read, with everything in it."""
        self._read, self._children = True, {}

    def unread(self) -> Iterator[Entry]:
        """Yield the outermost values that were not read."""
        if not self._read:
            yield self
            return
        for child in (self._children or {}).values():
            yield from child.unread()

    def _kind(self) -> str:
        if isinstance(self.node, yaml.MappingNode):
            return "a mapping"
        return "a list" if self.is_list else "a single value"


Pairs = dict[str, tuple[int, yaml.Node]]


def _pairs(node: yaml.MappingNode, done: dict[int, Pairs]) -> Pairs:
    """Return keys with line and value, merges (`<<: *base`) resolved; merges of merges are worked out once."""
    if id(node) in done:
        return done[id(node)]
    own: Pairs = {}
    merged: Pairs = {}
    done[id(node)] = own
    for key, value in node.value:
        if key.tag == _MERGE:
            bases = value.value if isinstance(value, yaml.SequenceNode) else [value]
            for base in bases:
                if isinstance(base, yaml.MappingNode):
                    merged = {**_pairs(base, done), **merged}
        else:
            text = key.value if isinstance(key, yaml.ScalarNode) else "(a key that is not text)"
            own[str(text)] = (key.start_mark.line + 1, value)
    for text, pair in merged.items():
        own.setdefault(text, pair)
    return own


def documents(file: str, text: str) -> Iterator[Entry | Problem]:
    """Yield every document of a file, those in a list one by one, and what is wrong with the file."""
    nodes = list(yaml_text.documents(file, text))
    if not nodes:
        yield Problem(file, "is empty", "give a file with something to convert")
    for node in nodes:
        if isinstance(node, Problem):
            yield node
            continue
        yield from duplicate_keys(file, node)
        for document in (isinstance(node, yaml.SequenceNode) and node.value) or [node]:
            yield Entry(file, document)


@dataclass(frozen=True, slots=True)
class Ledger:
    """Findings of one conversion, in the order in which they are added.

    `mistakes` are faults of the input: nothing is written. `losses` could not be expressed; each states what was
    done instead. `notes` are choices that lose nothing.
    """

    mistakes: list[Problem] = field(default_factory=list)
    losses: list[Problem] = field(default_factory=list)
    notes: list[Problem] = field(default_factory=list)

    def wrong(self, error: EntryError) -> None:
        self.mistakes.append(_finding(error.entry, str(error)))

    def lost(self, entry: Entry, reason: str, instead: str) -> None:
        """Add what cannot be expressed, and what was done instead."""
        self.losses.append(_finding(entry, f"{reason}; instead: {instead}"))

    def dropped(self, parent: Entry, field: str, reason: str, instead: str = "left out") -> None:
        """Add the loss of a text field, if it is there. Raises EntryError on anything but a text."""
        member = parent.get(field)
        if member is not None:
            member.text()
            self.lost(member, reason, instead)

    def noted(self, entry: Entry, reason: str) -> None:
        """Add a choice that loses nothing."""
        self.notes.append(_finding(entry, reason))

    def unread(self, entry: Entry) -> None:
        """Add the loss of everything in a document that the conversion did not read."""
        for unread in entry.unread():
            self.lost(unread, "not known, or of no use here", "left out")


def _finding(entry: Entry, reason: str) -> Problem:
    return Problem(entry.place, f"{entry.path}: {reason}" if entry.path else reason)


ORIGINAL = "original_"
"""Before the name of a label or an annotation that the rules set themselves."""
_MAX_NAME = 63
_MAX_TEXT = 2000
_SET_ANNOTATIONS = frozenset({"summary", "description", "cause", "runbook_url", "dashboard_url"})


def slug(text: str) -> str:
    """Return the text in small letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:_MAX_NAME].rstrip("-")


def name(ledger: Ledger, entry: Entry, wanted: str, taken: set[str]) -> str:
    """Return a free objective's name as near as can be to the wanted one; empty where nothing is left of it."""
    plain = slug(wanted)
    if not plain:
        ledger.lost(entry, f"nothing of {wanted!r} can be in an objective's name", "the SLO is left out")
        return ""
    free, count = plain, 1
    while free in taken:
        count += 1
        free = f"{plain[: _MAX_NAME - len(str(count)) - 1]}-{count}"
    taken.add(free)
    if free != wanted:
        ledger.noted(entry, f"{wanted!r} cannot be, or already is, an objective's name: it is named {free}")
    return free


def alert_labels(ledger: Ledger, entries: Mapping[str, Entry]) -> tuple[dict[str, str], str]:
    """Return labels for alerts, and the owner if a label names one; those that the rules set get another name."""
    labels: dict[str, str] = {}
    owner = ""
    for key, entry in entries.items():
        value = _label_text(ledger, entry)
        if key == "owner":
            owner = value[:200]
        elif key in RESERVED_LABELS:
            labels[f"{ORIGINAL}{key}"] = value
            ledger.noted(
                entry,
                f"the rules set the label {key} themselves: kept as {ORIGINAL}{key}, for routes to match",
            )
        else:
            labels[label_name(ledger, entry, key)] = value
    return labels, owner


def alert_annotations(ledger: Ledger, entries: Mapping[str, Entry]) -> dict[str, str]:
    """Return annotations for alerts; those that ours have already get another name."""
    texts: dict[str, str] = {}
    for key, entry in entries.items():
        value = _label_text(ledger, entry)
        if "{{" in value:
            ledger.lost(entry, "annotations are never run as templates", "alerts show it as it is written")
        wanted = f"{ORIGINAL}{key}" if key in _SET_ANNOTATIONS else key
        if wanted != key:
            ledger.noted(entry, f"alerts write the annotation {key} themselves: kept as {wanted}")
        texts[label_name(ledger, entry, wanted)] = value
    return texts


def label_name(ledger: Ledger, entry: Entry, key: str) -> str:
    """Return the nearest name that a label, an annotation or an alert can have."""
    plain = re.sub(r"[^a-zA-Z0-9_]", "_", key).lstrip("_")
    if not plain or plain[0].isdigit():
        plain = f"label_{plain}"
    if plain != key:
        ledger.noted(entry, f"{key!r} is not a name in Prometheus: kept as {plain}")
    return plain


def _label_text(ledger: Ledger, entry: Entry) -> str:
    if entry.is_list:
        value = ",".join(item.text() for item in entry.items())
        ledger.lost(entry, "a label has one value", f"joined to {value!r}")
    else:
        value = entry.text()
    if len(value) > _MAX_TEXT:
        ledger.lost(entry, f"longer than {_MAX_TEXT} characters", "cut there")
    return value[:_MAX_TEXT]


def objective(
    ledger: Ledger, whole: Entry, data: Mapping[str, Any], where: Mapping[str, Entry]
) -> Objective | None:
    """Return the objective, or None with the reason at the entry that its field came from (`where`)."""
    try:
        return Objective.model_validate(dict(data))
    except ValidationError as error:
        for detail in problem_words.without_consequences(error.errors()):
            path = ".".join(str(step) for step in detail["loc"])
            entry = next((place for field, place in where.items() if path.startswith(field)), whole)
            ledger.lost(entry, problem_words.reason(detail), "the SLO is left out")
    return None


def description(entry: Entry | None) -> str:
    """Return a text as a description, no longer than one may be; an empty one where there is none."""
    return entry.text().strip()[:_MAX_TEXT] if entry else ""

"""YAML as written: every value with its file, line and path, and whether it was read.

What was not read when a conversion ends was not understood, and is reported: nothing is dropped in silence.
"""

from __future__ import annotations

from collections.abc import Iterator

import yaml

from triton_exporter.common.problem import Problem
from triton_slo import yaml_text
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
        """`file:line`."""
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
    def is_text(self) -> bool:
        """True if the entry is a scalar."""
        return isinstance(self.node, yaml.ScalarNode)

    @property
    def is_list(self) -> bool:
        """True if the entry is a list."""
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

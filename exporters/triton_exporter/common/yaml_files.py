"""Read YAML files, in which no key may be written twice; the exceptions that this raises, and their message."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import Any

import yaml

FAST_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The loader of libyaml where it is there, for files that are large or read often."""

YAML_FAULTS = (
    yaml.YAMLError,
    RecursionError,
    # A value that does not fit its tag, such as `!!bool maybe`, a date of the 13th month, `!!timestamp x`.
    LookupError,
    ValueError,
    AttributeError,
    TypeError,
)


def fault(error: Exception) -> str:
    """Return the reason why a file could not be read, in one line."""
    if isinstance(error, (LookupError, AttributeError, TypeError)):
        return "it contains a value that does not fit its tag, such as !!bool"
    return " ".join(str(getattr(error, "strerror", None) or error).split())


def read_all(path: Path) -> list[Any]:
    """Return the documents of a file. Raises OSError or one of YAML_FAULTS, also for a key written twice."""
    return list(yaml.load_all(path.read_text(encoding="utf-8"), Loader=_Loader))


def read_yaml(path: Path) -> Any:
    """Return the only document of a file; raises as `read_all` does."""
    return yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)  # noqa: S506


def written_twice(node: yaml.MappingNode) -> Iterator[tuple[int, str]]:
    """Yield the line of each key that the mapping has already, and what is wrong with it."""
    seen: dict[str, yaml.Node] = {}
    for key, _ in node.value:
        if isinstance(key, yaml.ScalarNode) and key.value in seen:
            first = seen[key.value].start_mark.line + 1
            words = f"the key {key.value!r} is written twice, first in line {first}; YAML would keep only the last"
            yield key.start_mark.line + 1, words
        seen[str(key.value)] = key


class _Loader(yaml.SafeLoader):
    """Refuses a key that is written twice: YAML would let the last win in silence."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        for line, words in written_twice(node):
            raise ValueError(f"line {line}: {words}")
        return super().construct_mapping(node, deep)

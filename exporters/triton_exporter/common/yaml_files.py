"""Read YAML files, in which no key may be written twice; the exceptions that this raises, and their message."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

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


def written_twice(key: yaml.Node, first: yaml.Node) -> str:
    """Return what is wrong with the second of two equal keys."""
    line = first.start_mark.line + 1
    return f"the key {key.value!r} is written twice, first in line {line}; YAML would keep only the last"


class _Loader(yaml.SafeLoader):
    """Refuses a key that is written twice: YAML would let the last win in silence."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: dict[str, yaml.Node] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise ValueError(f"line {key.start_mark.line + 1}: {written_twice(key, seen[key.value])}")
            seen[str(key.value)] = key
        return super().construct_mapping(node, deep)

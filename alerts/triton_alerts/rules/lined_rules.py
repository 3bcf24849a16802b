"""Read rule files with the line on which each group and rule begins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from triton_exporter.common.yaml_files import FAST_LOADER, YAML_FAULTS


class _Lined(dict[Any, Any]):
    """A mapping of a YAML file, with the line on which it begins."""

    line = 0


class _LinedLoader(FAST_LOADER):  # type: ignore[misc]
    """Reads mappings with their lines."""


def _lined(loader: yaml.SafeLoader, node: yaml.MappingNode) -> Iterator[_Lined]:
    mapping = _Lined()
    mapping.line = node.start_mark.line + 1
    yield mapping
    mapping.update(loader.construct_mapping(node))


_LinedLoader.add_constructor("tag:yaml.org,2002:map", _lined)


def beginning(group: Mapping[str, Any], rule: object) -> str:
    """Return `file:line: group` as far as they are known."""
    line = f":{rule.line}" if isinstance(rule, _Lined) else ""
    return f"{group['file']}{line}: {group['name']}" if "file" in group else str(group["name"])


def rule_groups(text: str) -> list[Mapping[str, Any]] | None:
    """Return the groups of a rule file or a PrometheusRule resource; None if the text is neither."""
    try:
        read = yaml.load(text, Loader=_LinedLoader)  # noqa: S506 - a SafeLoader that remembers lines
    except YAML_FAULTS:
        return None
    if isinstance(read, dict) and read.get("kind") == "PrometheusRule":
        read = read.get("spec")
    groups = read.get("groups") if isinstance(read, dict) else None
    return [group for group in groups if isinstance(group, dict)] if isinstance(groups, list) else None

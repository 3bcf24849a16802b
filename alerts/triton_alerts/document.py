"""Generated YAML: same value, same bytes; long texts stay readable."""

from __future__ import annotations

from typing import Any

import yaml

HEADER = "# Made by `tritonwatch generate`: edit the sources, not this file.\n"


class _Dumper(yaml.SafeDumper):
    """Writes text of several lines as a block, and never an alias."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def render(value: Any) -> str:
    """A YAML document under a line that says where it came from."""
    return HEADER + yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=100_000, allow_unicode=True)

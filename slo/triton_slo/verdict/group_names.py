"""Names of groups for people, from the labels of a group."""

from __future__ import annotations

from collections.abc import Mapping

from triton_slo.names import GROUPING


def group_name(group: Mapping[str, str]) -> str:
    """Return the model, the other labels (a cluster, a tenant) and the version; empty where there are no labels."""
    return version_name(group_place(group), group.get("version", ""))


def group_place(group: Mapping[str, str]) -> str:
    """Return the same without the version."""
    others = [f"{label}={value}" for label, value in group.items() if label not in GROUPING]
    return " ".join(part for part in (group.get("model", ""), *others) if part)


def version_name(model: str, version: str) -> str:
    """Return a model and its version; either may be empty."""
    return " ".join(part for part in (model, version and f"version {version}") if part)

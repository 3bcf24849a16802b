"""Validate the Kubernetes objects that we apply: core kinds, and those of the operators."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import kubernetes_validate  # type: ignore[import-untyped]
import yaml

from support.tools import ROOT

_SCHEMAS = ROOT / "tests" / "compose" / "schema"
_CORE = ("v1", "apps/v1", "networking.k8s.io/v1", "autoscaling/v2", "rbac.authorization.k8s.io/v1")


@functools.cache
def operators() -> Mapping[str, jsonschema.Draft7Validator]:
    """Return a validator for each kind of the operators; schema/README.md describes how the schemas were made."""
    made = json.loads((_SCHEMAS / "operators.json").read_text())
    definitions = made["definitions"]
    schemas = {
        kind: schema | {"definitions": definitions}
        for kind, schema in definitions["Root"]["properties"].items()
    }
    schemas["VMPodScrape"] = yaml.safe_load((_SCHEMAS / "vmpodscrape.yaml").read_text())
    return {kind: jsonschema.Draft7Validator(schema) for kind, schema in schemas.items()}


def is_core(document: Mapping[str, Any]) -> bool:
    """Return whether Kubernetes itself defines the kind of an object."""
    return document["apiVersion"] in _CORE


def validate(document: Mapping[str, Any]) -> None:
    """Raise an error for an object with a field that its kind does not have, or of another type."""
    if is_core(document):
        kubernetes_validate.validate(document, "1.31", strict=True)
    else:
        operators()[document["kind"]].validate(document)

"""Test that the schema for editors accepts and refuses the same files as the reader."""

from __future__ import annotations

import json

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml

from support.tools import ROOT
from triton_slo.objective.reading import FILE, schema


def test_the_published_schema_is_the_readers() -> None:
    """The file beside the objectives equals the schema of the model."""
    assert schema() == (ROOT / "slo" / "objectives" / FILE).read_text()


@pytest.mark.parametrize("name", ["readiness", "latency", "queue", "errors"])
def test_shipped_objectives_fit_it(name: str) -> None:
    """An editor shows no red line in what the stack ships."""
    data = yaml.safe_load((ROOT / "slo" / "objectives" / f"{name}.yaml").read_text())

    jsonschema.validate(data, json.loads(schema()))


def test_an_unknown_field_does_not_fit() -> None:
    """A typing error is seen while typing."""
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(
            {"name": "a", "target": "99%", "indicator": "errors", "colour": 1}, json.loads(schema())
        )

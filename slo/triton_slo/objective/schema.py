"""The JSON schema of objectives, for editors: from the same model that reads them."""

from __future__ import annotations

import json
import sys

from triton_slo.objective.model import Objective

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

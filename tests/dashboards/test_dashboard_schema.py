"""Test the dashboards against the types of Grafana 12.4 and 13.2, key by key."""

from __future__ import annotations

import json
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator

from support.panels import MODELS, Json, panels
from triton_dashboards import per_model
from triton_dashboards.grafana import dashboard_model
from triton_slo.artifact import Options

SCHEMAS = Path(__file__).parent / "schema"
RELEASES = ("12.4", "13.2")
FULL = tuple(
    per_model.dashboard(per_model.ModelFacts(f"a-{backend}", ("1", "2"), backend, True), (), Options())
    for backend in (*per_model.BACKEND_ROWS, "python")
)
"""Dashboards of one model each, that together have every row there is."""
EVERY = {**MODELS, **{board.uid: dashboard_model(board) for board in FULL}}


@cache
def _schema(release: str) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads((SCHEMAS / f"grafana-{release}.json").read_text(encoding="utf-8"))
    return schema


def _validator(release: str, *path: str) -> Draft7Validator:
    """Return a validator of one part of the schema's root: the dashboard, or options and custom of a panel kind."""
    schema = _schema(release)["dashboard" if path[0] == "dashboard" else "panels"]
    part = schema["definitions"]["Root"]
    for key in path:
        part = part["properties"][key]
    return Draft7Validator({"definitions": schema["definitions"], **part})


def _errors(validator: Draft7Validator, thing: object) -> list[str]:
    return [
        f"{'/'.join(map(str, iter_error.absolute_path))}: {iter_error.message[:300]}"
        for iter_error in validator.iter_errors(thing)
    ]


def _without_known(model: Json) -> Json:
    """Return the model without the keys that the types leave out."""
    copy: Json = json.loads(json.dumps(model))
    for variable in copy["templating"]["list"]:
        variable.pop("definition", None)
    for annotation in copy["annotations"]["list"]:
        for key in ("titleFormat", "textFormat", "tagKeys", "useValueForTime", "target"):
            annotation.pop(key, None)
    return copy


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("uid", EVERY)
def test_dashboard_is_what_the_types_allow(uid: str, release: str) -> None:
    """No key unknown, no value of a wrong type or outside its closed set."""
    assert [] == _errors(_validator(release, "dashboard"), _without_known(EVERY[uid]))


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("uid", EVERY)
def test_panels_carry_the_options_of_their_kind(uid: str, release: str) -> None:
    """A panel's options and field settings are those of its kind, which the dashboard's type leaves open."""
    assert [] == _panel_errors(EVERY[uid], release)


def _panel_errors(model: Json, release: str) -> list[str]:
    problems = []
    for panel in panels(model):
        parts = (("options", panel["options"]), ("custom", panel["fieldConfig"]["defaults"].get("custom")))
        for key, part in parts:
            if part:
                errors = _errors(_validator(release, panel["type"], key), part)
                problems += [f"{panel['title']}: {error}" for error in errors]
    return problems


def test_foundation_sdk_reads_every_key_and_gives_it_back() -> None:
    """Grafana's own Python model of a dashboard drops no key in a round trip."""
    assert {} == {uid: lost for uid, model in EVERY.items() if (lost := _lost(model))}


def _lost(model: Json) -> list[str]:
    """Keys that the foundation SDK does not give back."""
    from grafana_foundation_sdk.cog.encoder import JSONEncoder

    with warnings.catch_warnings():
        # The SDK prefers the v2 model, which no file provisioning takes.
        warnings.simplefilter("ignore", DeprecationWarning)
        from grafana_foundation_sdk.models.dashboard import Dashboard

    known = _without_known(model)
    back = json.loads(json.dumps(Dashboard.from_json(json.loads(json.dumps(known))), cls=JSONEncoder))
    return list(_dropped(known, back))


def _dropped(given: object, back: object, path: str = "") -> list[str]:
    """Paths that were given and did not come back."""
    if isinstance(given, dict) and isinstance(back, dict):
        lost = [f"{path}/{key}" for key in given if key not in back and given[key] is not None]
        return lost + [
            item for key in given if key in back for item in _dropped(given[key], back[key], f"{path}/{key}")
        ]
    if isinstance(given, list) and isinstance(back, list):
        if len(given) != len(back):
            return [f"{path} has {len(back)} of {len(given)}"]
        pairs = enumerate(zip(given, back, strict=True))
        return [item for i, (a, b) in pairs for item in _dropped(a, b, f"{path}/{i}")]
    return []

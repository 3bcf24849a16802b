"""Dashboards as files and Kubernetes objects, and what a push would change. No IO."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

import yaml

Form = Literal["json", "configmap", "share"]

FOLDER_UID, FOLDER_TITLE = "triton", "Triton"
MIN_GRAFANA = "12.4.0"
"""The oldest Grafana that the dashboards were drawn with."""


def delivered(text: str, form: Form, folder: str, namespace: str) -> tuple[str, str]:
    """Return the file name and text of a dashboard: as it is, as a ConfigMap, or to share on grafana.com, whose import
    asks for the data source.

    `folder` is the folder's title; the ConfigMap carries it where the Grafana chart's sidecar reads it.
    """
    uid = str(json.loads(text)["uid"])
    if form == "configmap":
        return f"{uid}.configmap.yaml", _config_map(uid, text, folder, namespace)
    if form == "share":
        return f"{uid}.json", _shared(json.loads(text))
    return f"{uid}.json", text


def _shared(board: dict[str, Any]) -> str:
    """Return a dashboard with what Grafana's "Export for sharing externally" adds."""
    panels = [inner for panel in board["panels"] for inner in (panel, *panel.get("panels", ()))]
    (source,) = (variable for variable in board["templating"]["list"] if variable["type"] == "datasource")
    source["current"] = {"text": "${DS_PROMETHEUS}", "value": "${DS_PROMETHEUS}"}
    plugins = [("panel", kind) for kind in sorted({panel["type"] for panel in panels} - {"row"})]
    whole = {
        "__inputs": [
            {
                "name": "DS_PROMETHEUS",
                "label": "Prometheus",
                "description": source["description"],
                "type": "datasource",
                "pluginId": "prometheus",
                "pluginName": "Prometheus",
            }
        ],
        "__requires": [
            {"type": kind, "id": name, "name": name, "version": version}
            for kind, name, version in (
                ("grafana", "grafana", MIN_GRAFANA),
                ("datasource", "prometheus", "1.0.0"),
                *((kind, name, "") for kind, name in plugins),
            )
        ],
        **board,
    }
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


def _config_map(uid: str, text: str, folder: str, namespace: str) -> str:
    whole: str = yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": f"dashboard-{uid}",
                **({"namespace": namespace} if namespace else {}),
                "labels": {"app.kubernetes.io/part-of": "tritonwatch", "grafana_dashboard": "1"},
                "annotations": {"grafana_folder": folder},
            },
            # On one line: kubectl apply without --server-side refuses objects of over 256 KiB.
            "data": {f"{uid}.json": json.dumps(json.loads(text), ensure_ascii=False, separators=(",", ":"))},
        },
        sort_keys=False,
        allow_unicode=True,
        width=10_000,
    )
    return whole


def changes(ours: Any, theirs: Any, path: str = "") -> list[str]:
    """Return the paths at which Grafana's copy lacks or contradicts ours.

    What Grafana added (id, version, defaults of its own) is not a change, or a push would never be idempotent.
    """
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        lacking = [f"{path}/{key}: new" for key in ours if key not in theirs]
        return lacking + [
            line for key in ours if key in theirs for line in changes(ours[key], theirs[key], f"{path}/{key}")
        ]
    if isinstance(ours, list) and isinstance(theirs, list):
        if len(ours) != len(theirs):
            return [f"{path}: {len(theirs)} -> {len(ours)} entries"]
        pairs = zip(ours, theirs, strict=True)
        return [line for i, (a, b) in enumerate(pairs) for line in changes(a, b, f"{path}/{i}")]
    return [] if ours == theirs else [f"{path}: {_short(theirs)} -> {_short(ours)}"]


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."

"""The options of `tritonwatch dashboards`."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from triton_dashboards.delivery import FOLDER_TITLE
from triton_exporter.common.options import adder
from tritonwatch.parser import declare
from tritonwatch.project import Dashboards

EXAMPLE = (
    "tritonwatch dashboards push --grafana https://grafana.example.org --grafana-token-file token --dry-run"
)
OPTIONS = Dashboards
EXIT_CODES = {0: "done", 1: "failed, or --dry-run found a change"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    declare(parser, OPTIONS)
    add = adder(parser.add_argument)
    add(
        "action",
        "list the dashboards, write them to --out, or push them to --grafana",
        choices=("list", "write", "push"),
    )
    add(
        "--per-model",
        "also generate one dashboard for each model that has series in the Prometheus of --prometheus",
    )
    add("--folder FOLDER", f"title of the Grafana folder (default for a new folder: {FOLDER_TITLE})", _title)
    add = adder(parser.add_argument_group("write").add_argument)
    add("--out DIR", "folder to write to", Path)
    add(
        "--format",
        "JSON files, ConfigMaps for the Grafana sidecar, or JSON files to share, whose import asks for the data "
        "source (default: json)",
        choices=("json", "configmap", "share"),
        default="json",
    )
    add("--namespace NAMESPACE", "namespace of the ConfigMaps", _namespace, default="")
    add = adder(parser.add_argument_group("push").add_argument)
    add("--dry-run", "show what would change, and change nothing; exit with 1 if anything would change")
    add(
        "--prune",
        "delete the dashboards of models that no longer have series in the Prometheus of --prometheus",
    )


def _title(text: str) -> str:
    if not text.strip():
        raise argparse.ArgumentTypeError("the title is empty; give a title")
    return text


def _namespace(text: str) -> str:
    if text and not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a Kubernetes namespace: at most 63 of a-z, 0-9 and - inside"
        )
    return text

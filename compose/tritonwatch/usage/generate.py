"""The options of `tritonwatch generate`."""

from __future__ import annotations

import argparse

from triton_exporter.common.options import adder
from tritonwatch.parser import declare
from tritonwatch.project import Generation

PARTS = ("rules", "alertmanager", "dashboards", "targets", "autoscaling")
"""Subfolders of the generated files."""
EXAMPLE = "tritonwatch generate --objectives slo/objectives --out generated"
OPTIONS = Generation
EXIT_CODES = {0: "written", 1: "mistakes in the files, or --check found a difference"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    declare(parser, OPTIONS)
    add = adder(parser.add_argument)
    add("--only", "write only this kind of file, directly into --out", choices=PARTS)
    add("--check", "write nothing; exit with 1 if the files in --out differ from what would be generated")
    add(
        "--format",
        "format of the rules: files for Prometheus or vmalert, resources for prometheus-operator, or a "
        "values file for the Helm chart that also contains the objectives and the Tritons to watch from outside; keda "
        "writes those for Prometheus and, into autoscaling, objects that scale Triton on traffic over break rate; "
        "compose writes nothing, and prints an override for docker compose with an exporter for each of the tritons "
        "(default: prometheus)",
        choices=("prometheus", "operator", "vmalert", "helm", "keda", "compose"),
        default="prometheus",
    )

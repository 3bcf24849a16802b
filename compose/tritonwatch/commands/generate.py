"""`tritonwatch generate`: rules, alerts, Alertmanager's configuration and dashboards from objectives."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import yaml

from triton_exporter.common.options import adder
from triton_slo.artifact import Artifact
from triton_slo.problem_words import count
from tritonwatch import output
from tritonwatch.arguments import objective_texts
from tritonwatch.generation import PARTS, by_path, generated
from tritonwatch.parser import declare
from tritonwatch.project import Generation

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
        "values file for the Helm chart that also contains the objectives (default: prometheus)",
        choices=("prometheus", "operator", "vmalert", "helm"),
        default="prometheus",
    )


def run(args: argparse.Namespace) -> int:
    """Write all files, or none."""
    made = generated(args, "prometheus" if args.format == "helm" else args.format)
    if args.format == "helm":
        values = _helm_values(objective_texts(args.objectives), made)
        made = (values, *(artifact for artifact in made if artifact.part != "rules"))
    if args.only:
        return _write_or_check(
            args, {artifact.name: artifact.text for artifact in made if artifact.part == args.only}
        )
    return _write_or_check(args, by_path(made))


def _helm_values(objectives: Sequence[tuple[str, str]], made: Sequence[Artifact]) -> Artifact:
    """Return the rules and the objectives that they were made of as one values file of the chart."""
    rules = {
        artifact.name.partition(".")[0]: yaml.safe_load(artifact.text)
        for artifact in made
        if artifact.part == "rules"
    }
    values = {"objectives": {Path(name).name: text for name, text in objectives}, "rules": {"files": rules}}
    return Artifact("rules", "values.yaml", yaml.safe_dump(values, sort_keys=False, width=110))


def _write_or_check(args: argparse.Namespace, wanted: dict[str, str]) -> int:
    if args.check:
        lines = output.drift(args.out, wanted)
        for line in lines:
            print(line, file=sys.stderr)
        return 1 if lines else 0
    output.write(args.out, wanted)
    print(f"wrote {count(len(wanted), 'file')} to {args.out}")
    return 0

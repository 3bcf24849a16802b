"""`tritonwatch generate`: rules, alerts, Alertmanager's configuration and dashboards from objectives."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from triton_alerts import alertmanager
from triton_exporter.app.settings import TritonAccess
from triton_exporter.common.options import host_and_port, is_loopback
from triton_exporter.common.problem import Problem, ProblemsError
from triton_slo import autoscaling, yaml_text
from triton_slo.alert_settings import Tuning
from triton_slo.artifact import Artifact, Options
from triton_slo.lint import Surroundings, findings
from triton_slo.objective.reading import read
from triton_slo.problem_words import count
from tritonwatch import access, output
from tritonwatch.arguments import alert_settings, check_out, objective_texts, rule_options
from tritonwatch.project import EXPORTER_PORT, Target, target
from tritonwatch.usage import PARTS


def generated(args: argparse.Namespace, texts: Sequence[tuple[str, str]]) -> tuple[Artifact, ...]:
    """Return every file that is generated from these objectives. Raises ProblemsError with all mistakes."""
    # Imported here, because the arguments do not need grafanalib, which takes long to load.
    import triton_alerts.generate
    import triton_dashboards.generate
    import triton_slo.generate

    if args.only == autoscaling.PART and args.format != "keda":
        raise ProblemsError(Problem("--only autoscaling", "needs --format keda", "add it"))
    check_out(args.out, () if args.only else PARTS, args.objectives)
    reading = read(texts)
    settings = alert_settings(args.alerts)
    problems = (*reading.problems, *settings.problems)
    if problems:
        raise ProblemsError(*problems, Problem("", f"{count(len(problems), 'mistake')}, nothing written"))
    models = _known_models(args) if args.prometheus else None
    around = Surroundings(args.scrape_interval, models=models, now=time.time())
    for warning in (*findings(reading, around), *settings.findings(models), *settings.notes()):
        print(f"warning: {warning}", file=sys.stderr)
    options = _options(args, settings.tuning)
    targets = [
        {"targets": [each.exporter], "labels": {"instance": each.instance}}
        for each in map(target, args.target)
    ]
    of_alerts = triton_alerts.generate.artifacts(reading.objectives, options)
    _check_receivers(args, of_alerts)
    return (
        *triton_slo.generate.artifacts(reading.objectives, options),
        *of_alerts,
        *triton_dashboards.generate.artifacts(reading.objectives, options),
        *([Artifact("targets", "triton.yml", yaml_text.render(targets))] if targets else []),
        *(autoscaling.artifacts(args.prometheus, args.selector) if args.format == "keda" else ()),
    )


def _check_receivers(args: argparse.Namespace, made: Sequence[Artifact]) -> None:
    """Raise ProblemsError if --out has receivers that would change because an option is not given this time."""
    [new] = [artifact for artifact in made if artifact.name == alertmanager.FILE]
    path = args.out / new.name if args.only else args.out / new.part / new.name
    if args.only not in (None, new.part) or not path.is_file():
        return
    wanted = alertmanager.receiver_options(new.text)
    lost = [
        f"{option} {value}" if isinstance(value, str) else option
        for option, value in alertmanager.receiver_options(path.read_text(errors="replace")).items()
        if value != wanted.get(option) and not getattr(args, option.strip("-").replace("-", "_"))
    ]
    if lost:
        reason = "was generated with options that are missing here, and its receivers would change; nothing was written"
        fix = f"add {', '.join(lost)}; or delete the file to change them"
        raise ProblemsError(Problem(str(path), reason, fix))


def _known_models(args: argparse.Namespace) -> frozenset[str] | None:
    """Return the models that Prometheus knows, to warn of names that match nothing; None if it knows none."""
    try:
        with access.connect(args) as prometheus:
            return access.models(prometheus) or None
    except ProblemsError as error:
        if "prometheus" in args.flags:
            raise
        # Only the project file names it: files are generated where no Prometheus is reachable, too.
        print(f"warning: names of models are not checked: {error}", file=sys.stderr)
        return None


def by_path(made: Sequence[Artifact]) -> dict[str, str]:
    """Return texts by path under --out."""
    return {f"{artifact.part}/{artifact.name}": artifact.text for artifact in made}


def _options(args: argparse.Namespace, tuning: Tuning) -> Options:
    return replace(
        rule_options(args),
        format="prometheus" if args.format in ("helm", "keda") else args.format,
        links=tuple(args.link),
        runbook_url=args.runbook_url,
        dashboard_url=args.dashboard_url,
        webhook_url=args.webhook_url or Options().webhook_url,
        webhook_token_file=args.webhook_token_file,
        fallback=args.fallback,
        page_to=tuple(args.page_to),
        ticket_to=tuple(args.ticket_to),
        watchdog_url=args.watchdog_url,
        tuning=tuning,
    )


def run(args: argparse.Namespace) -> int:
    """Write all files, or none."""
    if args.format == "compose":
        print(_compose_override(_started(args.target)), end="")
        return 0
    texts = objective_texts(args.objectives)
    made = generated(args, texts)
    if args.format == "helm":
        values = _helm_values(texts, made, _started(args.target))
        made = (values, *(artifact for artifact in made if artifact.part != "rules"))
    wanted = by_path(made)
    if args.only:
        wanted = {artifact.name: artifact.text for artifact in made if artifact.part == args.only}
    if args.check:
        lines = output.drift(args.out, wanted)
        for line in lines:
            print(line, file=sys.stderr)
        return 1 if lines else 0
    output.write(args.out, wanted)
    print(f"wrote {count(len(wanted), 'file')} to {args.out}")
    return 0


def _started(targets: Sequence[str]) -> dict[str, Target]:
    """Return by name the exporters of the list that a stack starts: at an address with a dot they run elsewhere."""
    found: dict[str, Target] = {}
    owners: dict[str, str] = {}
    for each in map(target, targets):
        name, port = host_and_port(each.exporter)
        if not re.fullmatch("[a-z0-9]([a-z0-9-]*[a-z0-9])?", name) or is_loopback(name):
            continue
        access_of = {"triton": each.triton} | ({"triton_metrics": each.metrics} if each.metrics else {})
        page = TritonAccess.read(access_of, {}).metrics_url
        place = f"tritons: {each.exporter}={each.triton}"
        if port != EXPORTER_PORT:
            reason = f"the exporter that is started there listens on port {EXPORTER_PORT}"
            raise ProblemsError(Problem(place, reason, f"write {name}:{EXPORTER_PORT}"))
        if page in owners:
            reason = f"its metrics cannot be at {page}, where those of {owners[page]} are"
            raise ProblemsError(
                Problem(place, reason, f"add their URL: {each.triton},http://HOST:PORT/metrics")
            )
        found[name], owners[page] = each, each.triton
    return found


_STACK = (
    *("alertmanager", "bridge", "dcgm-exporter", "generated", "generator", "grafana"),
    *("prometheus", "reload", "triton-demo", "triton-gpu", "web"),
)
"""Names of services and volumes of compose/docker-compose.yml that no further exporter can have."""


def _compose_override(exporters: Mapping[str, Target]) -> str:
    """Return the file that makes compose/docker-compose.yml start an exporter for each Triton of the list."""
    if "exporter" not in exporters:
        fix = "name the first so: exporter:9401=http://triton:8000"
        raise ProblemsError(Problem("tritons", "has no exporter of the name `exporter`", fix))
    of_project = {"environment": {"TRITONWATCH_TRITONS": ""}}  # the list of the project file, not TRITON_URL
    services: dict[str, Any] = dict.fromkeys(("generator", "reload", "bridge"), of_project)
    volumes: dict[str, Any] = {}
    for name, each in exporters.items():
        variables = {
            "TRITONWATCH_EXPORTER_TRITON": each.triton.replace("$", "$$"),
            "TRITONWATCH_EXPORTER_TRITON_METRICS": each.metrics.replace("$", "$$"),
        }
        if name == "exporter":
            services["exporter"] = services["web"] = {"environment": variables}
        elif name in _STACK:
            place = f"tritons: {each.exporter}={each.triton}"
            raise ProblemsError(Problem(place, f"the name {name} is taken by the stack", "choose another"))
        else:
            services[name] = {
                "extends": {"file": "docker-compose.yml", "service": "exporter"},
                # Services that build one tag at the same time fail now and then.
                "build": "RESET",
                "pull_policy": "never",
                # Only one shows the GPUs.
                "environment": variables | {"TRITONWATCH_EXPORTER_GPU": "none"},
                "volumes": [f"{name}:/data"],
            }
            volumes[name] = {}
    text = yaml_text.render({"services": services, "volumes": volumes})
    return text.replace("build: RESET\n", "build: !reset null\n")


def _helm_values(
    objectives: Sequence[tuple[str, str]], made: Sequence[Artifact], exporters: Mapping[str, Target]
) -> Artifact:
    """Return the rules, the objectives that they were made of, and exporters to start as one values file of the chart."""
    rules = {
        artifact.name.partition(".")[0]: yaml.safe_load(artifact.text)
        for artifact in made
        if artifact.part == "rules"
    }
    values: dict[str, Any] = {
        "objectives": {Path(name).name: text for name, text in objectives},
        "rules": {"files": rules},
    }
    if exporters:
        values["externalTritons"] = [
            {"name": name, "triton": each.triton, "tritonMetrics": each.metrics}
            for name, each in exporters.items()
        ]
    return Artifact("rules", "values.yaml", yaml.safe_dump(values, sort_keys=False, width=110))

"""`tritonwatch generate`: rules, alerts, Alertmanager's configuration and dashboards from objectives."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import yaml

from triton_alerts import alertmanager
from triton_exporter.common.problem import Problem, ProblemsError
from triton_slo import autoscaling, yaml_text
from triton_slo.alert_settings import Tuning
from triton_slo.artifact import Artifact, Format, Options
from triton_slo.lint import Surroundings, findings
from triton_slo.objective.reading import read
from triton_slo.problem_words import count
from tritonwatch import access, output
from tritonwatch.arguments import alert_settings, check_out, objective_texts, rule_options
from tritonwatch.project import exporter_and_triton
from tritonwatch.usage.generate import PARTS

_DEFAULTS = Options()


def generated(
    args: argparse.Namespace, form: Format, texts: Sequence[tuple[str, str]]
) -> tuple[Artifact, ...]:
    """Return every file that is generated from these objectives. Raises ProblemsError with all mistakes."""
    # Imported here, because the arguments do not need grafanalib, which takes long to load.
    import triton_alerts.generate
    import triton_dashboards.generate
    import triton_slo.generate

    keda = getattr(args, "format", "") == "keda"
    if getattr(args, "only", None) == autoscaling.PART and not keda:
        raise ProblemsError(Problem("--only autoscaling", "needs --format keda", "add it"))
    check_out(args.out, () if getattr(args, "only", None) else PARTS, args.objectives)
    reading = read(texts)
    settings = alert_settings(args.alerts)
    problems = (*reading.problems, *settings.problems)
    if problems:
        raise ProblemsError(*problems, Problem("", f"{count(len(problems), 'mistake')}, nothing written"))
    models = _known_models(args) if getattr(args, "prometheus", None) else None
    around = Surroundings(args.scrape_interval, models=models, now=time.time())
    for warning in (*findings(reading, around), *settings.findings(models), *settings.notes()):
        print(f"warning: {warning}", file=sys.stderr)
    options = _options(args, form, settings.tuning)
    targets = [
        {"targets": [exporter], "labels": {"instance": triton}}
        for exporter, triton in map(exporter_and_triton, args.target)
    ]
    of_alerts = triton_alerts.generate.artifacts(reading.objectives, options)
    _check_receivers(args, of_alerts)
    return (
        *triton_slo.generate.artifacts(reading.objectives, options),
        *of_alerts,
        *triton_dashboards.generate.artifacts(reading.objectives, options),
        *([Artifact("targets", "triton.yml", yaml_text.render(targets))] if targets else []),
        *(autoscaling.artifacts(args.prometheus, args.selector) if keda else ()),
    )


def _check_receivers(args: argparse.Namespace, made: Sequence[Artifact]) -> None:
    """Raise ProblemsError if --out has receivers that would change because an option is not given this time."""
    only = getattr(args, "only", None)
    [new] = [artifact for artifact in made if artifact.name == alertmanager.FILE]
    path = args.out / new.name if only else args.out / new.part / new.name
    if only not in (None, new.part) or not path.is_file():
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


def _options(args: argparse.Namespace, form: Format, tuning: Tuning) -> Options:
    return replace(
        rule_options(args),
        format=form,
        links=tuple(args.link),
        runbook_url=args.runbook_url,
        dashboard_url=args.dashboard_url,
        webhook_url=args.webhook_url or _DEFAULTS.webhook_url,
        webhook_token_file=args.webhook_token_file,
        fallback=args.fallback,
        page_to=tuple(args.page_to),
        ticket_to=tuple(args.ticket_to),
        watchdog_url=args.watchdog_url,
        ticket_hours=args.ticket_hours,
        tuning=tuning,
    )


def run(args: argparse.Namespace) -> int:
    """Write all files, or none."""
    texts = objective_texts(args.objectives)
    made = generated(args, "prometheus" if args.format in ("helm", "keda") else args.format, texts)
    if args.format == "helm":
        values = _helm_values(texts, made)
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

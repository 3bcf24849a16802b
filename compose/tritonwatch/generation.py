"""Generate all files from objectives, for `tritonwatch generate` and `tritonwatch reload`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from urllib.parse import urlsplit

from triton_alerts import alertmanager
from triton_alerts.alertmanager import ADDRESSES, integration, ticket_hours
from triton_exporter.common.options import adder, host_and_port, parsed, with_scheme
from triton_slo import yaml_text
from triton_slo.alert_settings import Tuning
from triton_slo.artifact import Artifact, Format, Options
from triton_slo.lint import Surroundings, findings
from triton_slo.objective.reading import read
from triton_slo.problem_words import count
from tritonwatch import access
from tritonwatch.arguments import (
    add_alerts,
    add_links,
    add_rule_options,
    add_runbook_url,
    alert_settings,
    check_out,
    checked,
    objective_texts,
    path,
    rule_options,
    web_address,
)
from tritonwatch.command_error import CommandError
from tritonwatch.objective_files import add_objectives

_DEFAULTS = Options()
PARTS = ("rules", "alertmanager", "dashboards", "targets")
"""Subfolders of the generated files."""


def add_generation(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of every verb that generates files: the folders and the options of the text."""
    add = adder(parser.add_argument)
    add_objectives(add, required=True)
    add_alerts(parser)
    add_links(parser)
    add(
        "--out DIR",
        "folder for the generated files, in subfolders such as rules, alertmanager and dashboards",
        path,
        required=True,
    )
    add(
        "--target EXPORTER=TRITON...",
        "add this exporter to targets/triton.yml (for file_sd_configs of Prometheus), with the address "
        "of its Triton as the label `instance`, such as exporter:9401=http://triton:8000 (repeatable)",
        parsed(_exporter_and_triton),
    )
    add_rule_options(add)
    _add_receivers(add)
    add_runbook_url(add)
    add(
        "--dashboard-url URL",
        "URL of Grafana, for links in alerts",
        checked(_check_dashboard_url),
        default="",
    )


def _add_receivers(add: Callable[..., None]) -> None:
    """Declare where Alertmanager sends notifications, and when; `add` is from `adder`."""
    add(
        "--webhook-url URL",
        f"URL of the bridge's webhook, to which Alertmanager sends (default: {_DEFAULTS.webhook_url})",
        parsed(web_address),
    )
    add(
        "--webhook-token-file FILE",
        "file with the bearer token for --webhook-url; the path is on the machine of Alertmanager",
        default="",
    )
    add(
        "--fallback URL",
        "second receiver of alerts about the bridge and Alertmanager, in the same format as --page-to",
        checked(integration),
        default="",
    )
    add(
        "--page-to URL...",
        f"receiver of pages in addition to the bridge: {ADDRESSES} (repeatable)",
        checked(integration),
    )
    add(
        "--ticket-to URL...",
        "receiver of tickets in addition to the bridge, in the same format as --page-to (repeatable)",
        checked(integration),
    )
    add(
        "--watchdog-url URL",
        "webhook that receives the Watchdog alert: a dead man's switch outside this stack",
        checked(web_address),
        default="",
    )
    add(
        "--ticket-hours WHEN",
        "hours in which tickets are sent, such as 'monday:friday 08:00-18:00 Europe/Berlin' (default: always)",
        checked(ticket_hours),
        default="",
    )


def _exporter_and_triton(text: str) -> tuple[str, str]:
    """Return where an exporter is scraped, and its Triton as HOST:PORT. Raises ValueError."""
    exporter, _, triton = text.partition("=")
    if not triton:
        raise ValueError(f"{text!r} is not EXPORTER=TRITON, such as exporter:9401=http://triton:8000")
    host_and_port(exporter)
    return exporter, urlsplit(web_address(with_scheme(triton))).netloc.rpartition("@")[2]


def _check_dashboard_url(text: str) -> None:
    if not text.startswith("/"):  # the bridge completes a path with its own --grafana
        web_address(text)


def generated(args: argparse.Namespace, form: Format) -> tuple[Artifact, ...]:
    """Return every generated file. Raises CommandError, after printing the mistakes in the objectives."""
    # Imported here, because the arguments do not need grafanalib, which takes long to load.
    import triton_alerts.generate
    import triton_dashboards.generate
    import triton_slo.generate

    texts = objective_texts(args.objectives)
    check_out(args.out, () if getattr(args, "only", None) else PARTS, args.objectives)
    reading = read(texts)
    settings = alert_settings(args.alerts)
    problems = (*reading.problems, *settings.problems)
    if problems:
        for problem in problems:
            print(problem, file=sys.stderr)
        raise CommandError(f"{count(len(problems), 'mistake')}, nothing written")
    models = _known_models(args) if getattr(args, "prometheus", None) else None
    around = Surroundings(args.scrape_interval, models=models, now=time.time())
    for warning in (*findings(reading, around), *settings.findings(models), *settings.notes()):
        print(f"warning: {warning}", file=sys.stderr)
    options = _options(args, form, settings.tuning)
    targets = [{"targets": [exporter], "labels": {"instance": triton}} for exporter, triton in args.target]
    of_alerts = triton_alerts.generate.artifacts(reading.objectives, options)
    _check_receivers(args, of_alerts)
    return (
        *triton_slo.generate.artifacts(reading.objectives, options),
        *of_alerts,
        *triton_dashboards.generate.artifacts(reading.objectives, options),
        *([Artifact("targets", "triton.yml", yaml_text.render(targets))] if targets else []),
    )


def _check_receivers(args: argparse.Namespace, made: Sequence[Artifact]) -> None:
    """Raise CommandError if --out has receivers that would change because an option is not given this time."""
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
        raise CommandError(
            f"{path} was generated with options that are missing here, and its receivers would change; nothing was "
            f"written (fix: add {', '.join(lost)}; or delete the file to change them)"
        )


def _known_models(args: argparse.Namespace) -> frozenset[str] | None:
    """Return the models that Prometheus knows, to warn of names that match nothing; None if it knows none."""
    with access.connect(args) as prometheus:
        return access.models(prometheus) or None


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

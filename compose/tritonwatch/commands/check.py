"""`tritonwatch check`: mistakes that stay silent until a page is missing.

In objectives and alert settings that Prometheus accepts; and on the path of a page from Prometheus through
Alertmanager to the bridge.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from triton_alerts import alertmanager, alerts_file
from triton_alerts.alertmanager_client import Alertmanager, ReloadableServer, ServerError
from triton_alerts.bridge.receiver import PATH
from triton_exporter.catalogue import llm, models
from triton_exporter.common.moments import utc_text
from triton_exporter.common.printable import printable
from triton_exporter.common.problem import Problem, ProblemsError, by_line, explained_once
from triton_exporter.exposition.parse import parse
from triton_slo import bridge_series, signals
from triton_slo.artifact import Options
from triton_slo.estimate import bucket_bounds, fed_groups, is_precise_enough, uncertainties, unmeasured
from triton_slo.group_status import group_name
from triton_slo.indicators.errors import hiding_models
from triton_slo.indicators.histograms import STORE_CLASSIC
from triton_slo.lint import Surroundings, findings, hidden_failures, needed_series, notes
from triton_slo.objective.reading import ParsedObjectives, read
from triton_slo.plan import Plan
from triton_slo.problem_words import count
from triton_slo.prometheus import Prometheus
from triton_slo.server_access import Access
from tritonwatch import access, project
from tritonwatch.arguments import text_or_problem, yaml_files

_HEARTBEAT_SECONDS = 600
"""Age at which the bridge's last Watchdog alert, which Alertmanager sends each minute, is too old."""


def run(args: argparse.Namespace) -> int:
    """Print every mistake as `file:line: reason (fix: ...)`."""
    named = args.files or [file for file in (args.objectives, args.alerts) if file]
    if not named:
        fix = "name a file or a folder of objectives, or write `objectives: DIR` into tritonwatch.yaml"
        raise ProblemsError(Problem("", "there is nothing to check", fix), code=2)
    files = _sorted_files(named)
    live = _LiveFindings()
    undelivered: list[Problem] = []
    if not args.offline:
        if args.prometheus:
            try:
                with access.connect(args) as prometheus:
                    live = _live_findings(prometheus, files.objectives, args.scrape_interval)
            except ProblemsError as error:
                if error.code == 2:  # wrong usage, whatever Prometheus answers
                    raise
                live = _LiveFindings(problems=[_unanswered(args, "prometheus", error)])
        # Of a project; whoever names a file asks about it alone.
        undelivered = [] if args.files else list(_delivery(args))
    mistakes, hints = _findings(files, live, args)
    mistakes += [*undelivered, *(() if args.files else project.mistakes(args.project_file))]
    if args.json:
        document = {
            "files": files.file_count,
            "objectives": len(files.objectives.objectives),
            "mistakes": list(map(asdict, mistakes)),
            "notes": list(map(asdict, hints)),
        }
        print(json.dumps(document, indent=2))
    else:
        asked = bool(args.alertmanager and args.webhook_url and not args.files and not args.offline)
        _print_text(files, mistakes, hints, delivered=asked and not undelivered)
    return 1 if mistakes else 0


def _delivery(args: argparse.Namespace) -> Iterator[Problem]:
    """Yield what is wrong on the path of a page: Alertmanager's receiver, the bridge, and its last heartbeat."""
    reached = access.from_arguments(args, os.environ) if args.prometheus else Access("")
    url = args.webhook_url or Options().webhook_url
    for address in args.alertmanager:
        server = Alertmanager(replace(reached, url=address))
        try:
            loaded = server.configuration()
        except ServerError as error:
            yield _unanswered(args, "alertmanager", error)
            continue
        if not alertmanager.sends_to(loaded, url):
            reason = f"its configuration has no receiver {alertmanager.BRIDGE} with the URL {url}"
            yield Problem(str(server), reason, "load the generated one: tritonwatch reload")
    if not (args.alertmanager and args.webhook_url):
        return
    bridge = ReloadableServer(
        "the bridge", Access(url.removesuffix(PATH), ca_file=str(args.bridge_ca_file or ""))
    )
    try:
        page = parse(bridge.request("GET", "/metrics").content).families
    except ServerError as error:
        yield _unanswered(args, "webhook_url", error)
        return
    heartbeat = page.get(str(bridge_series.HEARTBEAT))
    if str(bridge_series.BUILD_INFO) not in page:
        yield _unanswered(args, "webhook_url", ServerError(f"{bridge.url} is not a bridge"))
    elif heartbeat is None or time.time() - heartbeat.values[0] > _HEARTBEAT_SECONDS:
        reason = "has received no Watchdog alert " + (
            "yet" if heartbeat is None else f"since {utc_text(heartbeat.values[0])}"
        )
        fix = (
            "it arrives within two minutes after the start, if Prometheus names Alertmanager under `alerting` and the "
            "generated rules under `rule_files`, and Alertmanager has loaded the generated configuration"
        )
        yield Problem(str(bridge), reason, fix)


def _unanswered(args: argparse.Namespace, name: str, error: Exception) -> Problem:
    option, keys = project.Checked.options()[name], args.project_file.given
    place = option.flag
    if name not in args.flags:
        given = keys.get(option.key) or keys.get(option.other)
        variable = option.variable.name
        place = given.place if given and not os.environ.get(variable) else f"${variable}"
    return Problem(place, str(error), "start it, or correct the address; --offline checks the files alone")


class _SortedFiles(NamedTuple):
    """Content of the files by kind."""

    file_count: int
    objectives: ParsedObjectives
    alerts: Sequence[alerts_file.AlertsFile]
    unreadable: Sequence[Problem]


def _sorted_files(paths: Sequence[Path]) -> _SortedFiles:
    files = yaml_files(paths)
    texts: list[tuple[str, str]] = []
    unreadable: list[Problem] = []
    for file in files:
        text = text_or_problem(file)
        if isinstance(text, Problem):
            unreadable.append(text)
        else:
            texts.append((str(file), text))
    alerts = [alerts_file.read(name, text) for name, text in texts if alerts_file.is_alerts_file(text)]
    others = {settings.file for settings in alerts}
    objectives = read([named_text for named_text in texts if named_text[0] not in others])
    return _SortedFiles(len(files), objectives, alerts, unreadable)


class _LiveFindings(NamedTuple):
    """Findings from a Prometheus: its models, mistakes in objectives, and notes on uncertain numbers."""

    models: frozenset[str] | None = None
    hiding: Mapping[str, frozenset[str]] | None = None
    problems: Sequence[Problem] = ()
    uncertain: Sequence[Problem] = ()
    bounds: Mapping[str, Collection[float]] | None = None
    """Objective -> the bucket bounds (seconds) that its histogram has."""


def _live_findings(
    prometheus: Prometheus, reading: ParsedObjectives, scrape_interval: float
) -> _LiveFindings:
    models = access.models(prometheus) | _models_elsewhere(prometheus, reading)
    if not models:
        fix = "wait for the first scrape; if that does not help, its page /targets shows whether it scrapes an exporter"
        return _LiveFindings(problems=[Problem("Prometheus", "has no series of any model", fix)])
    return _LiveFindings(
        models,
        {source: access.models(prometheus, query) for source, query in hiding_models().items()},
        [*_missing(prometheus, reading), *unmeasured_objectives(prometheus, reading, scrape_interval)],
        [
            *_uncertain(prometheus, reading, scrape_interval),
            *_counted_again(prometheus, reading),
            *_lost_histograms(prometheus),
        ],
        {
            objective.name: {bound for bound, _ in bucket_bounds(prometheus, Plan(objective, Options()))}
            for objective in reading.objectives
        },
    )


def _findings(
    files: _SortedFiles, live: _LiveFindings, args: argparse.Namespace
) -> tuple[list[Problem], list[Problem]]:
    """Return the mistakes, by line, and notes that are not mistakes."""
    reading, now = files.objectives, time.time()
    around = Surroundings(args.scrape_interval, args.retention, live.models, now, live.hiding)
    mistakes = [*files.unreadable, *reading.problems, *findings(reading, around), *live.problems]
    bounds = live.bounds or {}
    hints = [
        hint
        for each in reading.objectives
        for hint in notes(each, partial(reading.place, each.name), now, bounds.get(each.name, ()))
    ]
    hints += [*hidden_failures(reading, around), *live.uncertain]
    if not args.prometheus or args.offline:
        hints += needed_series(reading)
    elif args.webhook_url and not args.alertmanager and not args.files:
        hints.append(
            Problem(
                "--alertmanager",
                "is missing: whether a page reaches the bridge is not checked",
                "name its URL",
            )
        )
    if args.files and not args.offline and (args.alertmanager or args.webhook_url):
        reason = "Alertmanager and the bridge are not checked where files are named"
        hints.append(Problem("", reason, "tritonwatch check, without a file"))
    for settings in files.alerts:
        mistakes += [*settings.problems, *settings.findings(live.models)]
        hints += settings.notes()
    return by_line(mistakes), hints


def _print_text(
    files: _SortedFiles, mistakes: Sequence[Problem], hints: Sequence[Problem], *, delivered: bool
) -> None:
    for line in explained_once(hints):
        print(printable(f"note: {line}"), file=sys.stderr)
    # Last and apart: one among many notes is overlooked.
    if hints and mistakes:
        print(file=sys.stderr)
    for mistake in mistakes:
        print(mistake, file=sys.stderr)
    if delivered:
        print("pages arrive: Alertmanager sends to the bridge, and the bridge receives the Watchdog alert")
    contents = [count(len(files.objectives.objectives), "objective")]
    if files.alerts:
        changed = sum(len(settings.tuning.alerts) for settings in files.alerts)
        contents.append(f"the settings of {count(changed, 'alert')}")
    print(f"{' and '.join(contents)} in {count(files.file_count, 'file')}, {count(len(mistakes), 'mistake')}")


def _models_elsewhere(prometheus: Prometheus, reading: ParsedObjectives) -> frozenset[str]:
    """Return the models of objectives whose series come from neither Triton nor the exporter."""
    models: set[str] = set()
    for objective in reading.objectives:
        plan = Plan(objective, Options())
        if any(objective.indicator.needs(plan.scope)):
            models |= access.models(prometheus, plan.measure.total)
    return frozenset(models)


def _counted_again(prometheus: Prometheus, reading: ParsedObjectives) -> Iterator[Problem]:
    """Yield the objectives that sum up the requests of an ensemble and of its steps."""
    sums = [objective for objective in reading.objectives if "model" not in objective.group_by]
    steps = prometheus.instant(f"group by (model, step_model) ({models.ENSEMBLE_STEP})") if sums else ()
    for objective in sums:
        pairs = sorted((sample.labels["model"], sample.labels["step_model"]) for sample in steps)
        again = [pair for pair in pairs if all(map(objective.models.includes, pair))]
        if again:
            ensemble, step = again[0]
            reason = (
                f"{objective.name}: adds up all models: a request to the ensemble {ensemble} counts again at its step "
                f"{step}"
            )
            fix = "choose by `models` those that clients call"
            yield Problem(reading.place(objective.name, "group_by"), reason, fix)


def _lost_histograms(prometheus: Prometheus) -> Iterator[Problem]:
    """Yield the alerts that cannot fire: Prometheus stores neither the classic nor the native histogram."""
    for signal in (signals.FIRST_TOKEN, signals.OUTPUT_TOKEN):
        stored = " or ".join(f"count({name})" for name in (signal.metric.bucket, signal.metric))
        if prometheus.instant(f"count({llm.GENERATION_TOKENS}) unless ({stored})"):
            reason = f"Prometheus stores other series of language models, but not {signal.metric}"
            yield Problem(signal.alert, reason, STORE_CLASSIC)


def _missing(prometheus: Prometheus, reading: ParsedObjectives) -> Iterator[Problem]:
    """Yield a problem for each objective that cannot be measured: its first missing series, and how to get it."""
    for objective in reading.objectives:
        for query, what, fix in objective.indicator.needs(Plan(objective, Options()).scope):
            if not prometheus.instant(query):
                reason = f"{objective.name}: indicator: Prometheus has no {what}"
                yield Problem(reading.place(objective.name, "indicator"), reason, fix)
                break


def unmeasured_objectives(
    prometheus: Prometheus, reading: ParsedObjectives, scrape_seconds: float
) -> Iterator[Problem]:
    """Yield settings that leave an objective without data for models that have traffic."""
    for objective in reading.objectives:
        plan = Plan(objective, Options(scrape_interval_seconds=scrape_seconds))
        for gap in unmeasured(prometheus, plan):
            reason = f"{objective.name}: indicator: {', '.join(gap.groups)}: {gap.reason}"
            yield Problem(reading.place(objective.name, "indicator"), reason, gap.fix)


def _uncertain(prometheus: Prometheus, reading: ParsedObjectives, scrape_seconds: float) -> Iterator[Problem]:
    """Yield notes on objectives with groups whose estimates are too uncertain for the target."""
    for objective in reading.objectives:
        plan = Plan(objective, Options(scrape_interval_seconds=scrape_seconds))
        imprecise = [
            row
            for row in fed_groups(prometheus, plan)
            if not all(is_precise_enough(row, source) for source in row.caveats)
        ]
        if idle := [group_name(row.group) for row in imprecise if row.idle]:
            reason = f"{objective.name}: no traffic in the last hour: {', '.join(sorted(idle))}"
            yield Problem(
                reading.place(objective.name, "indicator"),
                reason,
                "run this check again after some traffic, to see the error of the estimate",
            )
        for whose, caveat in uncertainties(imprecise, lambda row: group_name(row.group)):
            place = reading.place(objective.name, "indicator")
            yield Problem(place, f"{objective.name}: {whose}", caveat.settled_by, meaning=caveat.meaning)

"""`tritonwatch check`: mistakes in objectives, alert settings and rules that Prometheus accepts in silence."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import NamedTuple

from triton_alerts import alerts_file
from triton_alerts.rules.lined_rules import rule_groups
from triton_alerts.rules.lint import check_file
from triton_exporter.catalogue import llm
from triton_exporter.common.options import adder
from triton_exporter.common.printable import printable
from triton_slo.alert_settings import signals
from triton_slo.artifact import Options
from triton_slo.indicators.durations import STORE_CLASSIC
from triton_slo.indicators.errors import hiding_models
from triton_slo.lint import Surroundings, findings, hidden_failures, needed_series, notes
from triton_slo.objective.reading import ParsedObjectives, read
from triton_slo.problem import Problem, by_line, explained_once
from triton_slo.problem_words import count
from triton_slo.prometheus.client import Prometheus
from triton_slo.rules.plan import Plan, chosen
from triton_slo.verdict.estimate import carries, uncertainties
from triton_slo.verdict.group_names import group_name
from triton_slo.verdict.group_sources import fed_groups, unmeasured
from tritonwatch import access
from tritonwatch.arguments import add_scrape_interval, path, seconds, text_of, yaml_files

EXAMPLE = "tritonwatch check slo/objectives/*.yaml --retention 35d"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add = adder(parser.add_argument)
    add("files FILE", "objectives file, alerts.yaml or rule file, or a folder of them", path, nargs="+")
    add_scrape_interval(add)
    add("--retention DURATION", "retention of Prometheus, such as 15d", seconds)
    add("--json", "write JSON instead of text")
    access.add_arguments(parser, required=False)


def run(args: argparse.Namespace) -> int:
    """Print every mistake as `file:line: reason (fix: ...)`: 0 none, 1 some or no answer, 2 wrong usage."""
    texts = [(str(path), text_of(path)) for path in yaml_files(args.files)]
    rules = [(name, groups) for name, text in texts if (groups := rule_groups(text)) is not None]
    tuned = [alerts_file.read(name, text) for name, text in texts if alerts_file.is_alerts_file(text)]
    others = {name for name, _ in rules} | {settings.file for settings in tuned}
    reading = read([named_text for named_text in texts if named_text[0] not in others])
    live = _Checked()
    if args.prometheus:
        with access.connect(args) as prometheus:
            live = _checked(prometheus, reading, args.scrape_interval)
    models = live.models
    around = Surroundings(args.scrape_interval, args.retention, models, time.time(), live.hiding)
    hints = _hints(reading, around, live)
    if not args.prometheus:
        hints += needed_series(reading)
    problems: list[Problem] = [*reading.problems, *findings(reading, around), *live.problems]
    for settings in tuned:
        problems += [*settings.problems, *settings.findings(models)]
        hints += settings.notes()
    for name, groups in rules:
        problems += check_file(name, groups, args.scrape_interval)
    problems = by_line(problems)
    alerts = sum(len(group.get("rules") or ()) for _, groups in rules for group in groups)
    if args.json:
        counted = {"files": len(texts), "objectives": len(reading.objectives), "rules": alerts}
        listed = {"mistakes": list(map(asdict, problems)), "notes": list(map(asdict, hints))}
        print(json.dumps(counted | listed, indent=2))
        return 1 if problems else 0
    for problem in problems:
        print(problem, file=sys.stderr)
    for line in explained_once(hints):
        print(printable(f"note: {line}"), file=sys.stderr)
    checked = [count(len(reading.objectives), "objective"), *([count(alerts, "rule")] if rules else [])]
    if tuned:
        changed = sum(len(settings.tuning.alerts) for settings in tuned)
        checked.append(f"the settings of {count(changed, 'alert')}")
    print(f"{' and '.join(checked)} in {count(len(texts), 'file')}, {count(len(problems), 'mistake')}")
    return 1 if problems else 0


def _hints(reading: ParsedObjectives, around: Surroundings, live: _Checked) -> list[Problem]:
    """Return notes on the objectives that are not mistakes."""
    now = time.time()
    hints = [
        hint
        for objective in reading.objectives
        for hint in notes(objective, partial(reading.place, objective.name), now)
    ]
    return [*hints, *hidden_failures(reading, around), *live.uncertain]


class _Checked(NamedTuple):
    """What a Prometheus shows of the objectives: the models that there are, mistakes, and numbers in doubt."""

    models: frozenset[str] | None = None
    hiding: Mapping[str, frozenset[str]] | None = None
    problems: Sequence[Problem] = ()
    uncertain: Sequence[Problem] = ()


def _checked(prometheus: Prometheus, reading: ParsedObjectives, scrape_interval: float) -> _Checked:
    return _Checked(
        access.models(prometheus) | _models_elsewhere(prometheus, reading),
        {source: access.models(prometheus, query) for source, query in hiding_models().items()},
        [*_missing(prometheus, reading), *_unmeasured(prometheus, reading, scrape_interval)],
        [*_uncertain(prometheus, reading, scrape_interval), *_lost_histograms(prometheus)],
    )


def _models_elsewhere(prometheus: Prometheus, reading: ParsedObjectives) -> frozenset[str]:
    """Models of objectives that are measured on what Triton does not expose."""
    models = set()
    for objective in reading.objectives:
        plan = Plan(objective, Options())
        if any(objective.indicator.needs(plan.scope(chosen(objective)))):
            models |= {access.models(prometheus, plan.measure(variant).presence) for variant in plan.variants}
    return frozenset().union(*models)


def _lost_histograms(prometheus: Prometheus) -> Iterator[Problem]:
    """Yield the alerts that cannot fire because Prometheus stores their histogram in neither form."""
    for signal in (signals.FIRST_TOKEN, signals.OUTPUT_TOKEN):
        stored = " or ".join(f"count({name})" for name in (signal.metric.bucket, signal.metric))
        if prometheus.instant(f"count({llm.VLLM_GENERATION_TOKENS}) unless ({stored})"):
            reason = f"vLLM has other series here, but Prometheus does not store its {signal.metric}"
            yield Problem(signal.alert, reason, STORE_CLASSIC)


def _missing(prometheus: Prometheus, reading: ParsedObjectives) -> Iterator[Problem]:
    """Objectives without any series to measure: the first step that has none, and what makes it appear."""
    for objective in reading.objectives:
        for query, what, fix in objective.indicator.needs(
            Plan(objective, Options()).scope(chosen(objective))
        ):
            if not prometheus.instant(query):
                reason = f"{objective.name}: indicator: Prometheus has no {what}"
                yield Problem(reading.place(objective.name, "indicator"), reason, fix)
                break


def _unmeasured(
    prometheus: Prometheus, reading: ParsedObjectives, scrape_seconds: float
) -> Iterator[Problem]:
    """Settings that leave an objective without data of models that have some."""
    for objective in reading.objectives:
        plan = Plan(objective, Options(scrape_interval_seconds=scrape_seconds))
        for gap in unmeasured(prometheus, plan):
            reason = f"{objective.name}: indicator: {', '.join(gap.groups)}: {gap.reason}"
            yield Problem(reading.place(objective.name, "indicator"), reason, gap.fix)


def _uncertain(prometheus: Prometheus, reading: ParsedObjectives, scrape_seconds: float) -> Iterator[Problem]:
    """Notes on objectives with groups whose estimates are too uncertain for the target."""
    for objective in reading.objectives:
        plan = Plan(objective, Options(scrape_interval_seconds=scrape_seconds))
        blurred = [
            row
            for row in fed_groups(prometheus, plan)
            if not all(carries(row, source) for source in row.caveats)
        ]
        if idle := [group_name(row.group) for row in blurred if row.idle]:
            reason = f"{objective.name}: no traffic in the last hour: {', '.join(sorted(idle))}"
            yield Problem(
                reading.place(objective.name, "indicator"),
                reason,
                "check again when there were some, for the error",
            )
        for whose, meaning, settled in uncertainties(blurred, lambda row: group_name(row.group)):
            place = reading.place(objective.name, "indicator")
            yield Problem(place, f"{objective.name}: {whose}", settled, meaning=meaning)
